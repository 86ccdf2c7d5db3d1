#include "data/shard/hold.h"

#include "src/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRIES 500
#define PAUSE_NS 10000000

/* The marker beside the copy, else the one in it: nothing in a tree is touched, even where it is a copy of a staged dataset. */
static int find_marker(const char *root, char *out, size_t size)
{
	if ((size_t)snprintf(out, size, "%s" GN_HOLD_MARKER, root) < size && !access(out, F_OK))
		return 1;
	return (size_t)snprintf(out, size, "%s/" GN_HOLD_MARKER, root) < size && !access(out, F_OK);
}

/* Whether the path still leads to what was opened: a removal gives it another name first. */
static int is_there(const char *path, int fd)
{
	struct stat a, b;

	return !stat(path, &a) && !fstat(fd, &b) && a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

enum gn_status gn_hold(const char *path, int *out, struct gn_err *err)
{
	char root[PATH_MAX], marker[PATH_MAX + 16];
	int failed = 0;

	*out = -1;
	for (int i = 0; i < TRIES; i++) {
		int fd;

		if (!realpath(path, root) || !find_marker(root, marker, sizeof marker))
			return GN_OK;
		fd = open(root, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		if (fd < 0)
			return GN_OK;
		failed = flock(fd, LOCK_SH | LOCK_NB);
		if (!failed && is_there(root, fd)) {
			/* the marker of another user cannot be changed, and does not say when others used the copy */
			utimensat(AT_FDCWD, marker, NULL, AT_SYMLINK_NOFOLLOW);
			*out = fd;
			return GN_OK;
		}
		failed = failed ? errno : 0;
		close(fd);
		if (failed && failed != EWOULDBLOCK && failed != EINTR)
			return GN_OK;
		gn_clock_sleep_ns(PAUSE_NS);
	}
	return gn_err_set(err, GN_ERR_IO, "%s has been locked by another process for 5 s: is gannet stage removing it? Stage it again", path);
}
