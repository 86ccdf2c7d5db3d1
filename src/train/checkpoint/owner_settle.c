/* Which part of a run succeeds its owner. */
#include "src/train/checkpoint/owner_internal.h"

#include "src/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int gn_owner_next_path(char next[PATH_MAX], const char *path, const char *nonce)
{
	int len = snprintf(next, PATH_MAX, "%s.%s.next", path, nonce);

	/* it may be of a file that another user wrote, with a path in it */
	return strlen(nonce) == GN_OWNER_NONCE - 1 && strspn(nonce, "0123456789abcdef") == GN_OWNER_NONCE - 1 && len > 0 && len < PATH_MAX;
}

/* A complete file under its final name, unless there is one already. */
static enum gn_status keep(const char *next, const void *mine, size_t len, struct gn_err *err)
{
	struct gn_owner_identity self;
	char temporary[PATH_MAX + 32];
	enum gn_status status = gn_owner_identify(&self, err);
	int fd;

	if (status)
		return status;
	snprintf(temporary, sizeof temporary, "%s.%s", next, self.nonce);
	fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
	if (fd < 0)
		return gn_err_set(err, GN_ERR_IO, "cannot create %s: %s", temporary, gn_errno_text(errno));
	status = gn_write_full(fd, mine, len, temporary, err);
	if (!status && fsync(fd))
		status = gn_err_set(err, GN_ERR_IO, "cannot sync %s: %s", temporary, gn_errno_text(errno));
	close(fd);
	/* what a file system says that has done it and lost its answer (NFS) is EEXIST, too: what the file holds counts */
	if (!status && link(temporary, next) && errno != EEXIST)
		status = gn_err_set(err, GN_ERR_IO, "cannot link %s to %s: %s", temporary, next, gn_errno_text(errno));
	unlink(temporary);
	return status;
}

static enum gn_status read_kept(const char *next, void *kept, size_t room, size_t *kept_len, struct gn_err *err)
{
	int fd = open(next, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t len = fd < 0 ? -1 : gn_read_some(fd, kept, room);
	int failure = errno;

	if (fd >= 0)
		close(fd);
	if (len < 0)
		return gn_err_set(err, GN_ERR_IO, "cannot read %s: %s", next, gn_errno_text(failure));
	*kept_len = (size_t)len;
	return GN_OK;
}

/* After the file is read: a successor replaces the owner's file before it removes the other, so whoever could write that anew does not find
 * the owner's. */
static enum gn_status check_owner(const char *path, const char *nonce, const char *next, struct gn_err *err)
{
	struct gn_owner_file now;
	char other[256];
	enum gn_status status = gn_owner_file_look(path, &now, err);

	if ((!status && !strcmp(now.who.nonce, nonce)) || (status && status != GN_ERR_NOT_FOUND))
		return status;
	unlink(next);
	return gn_err_set(err, GN_ERR_EXISTS, "%s does not belong to this run any more%s%s", path, status ? "" : ": it is of ",
			  status ? "" : gn_owner_describe(&now.who, other));
}

enum gn_status gn_owner_settle(const char *directory, const char *nonce, const void *mine, size_t len, void *kept, size_t room,
			       size_t *kept_len, struct gn_err *err)
{
	char path[PATH_MAX], next[PATH_MAX];
	void *found = malloc(room);
	size_t found_len = 0;
	enum gn_status status = found ? gn_path_join(path, sizeof path, directory, "owner", err)
				      : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to read %s", directory);

	if (!status && !gn_owner_next_path(next, path, nonce))
		status = gn_err_set(err, GN_ERR_USAGE, "%s: no owner to succeed, or its path is too long", directory);
	if (!status)
		status = keep(next, mine, len, err);
	if (!status)
		status = read_kept(next, found, room, &found_len, err);
	if (!status)
		status = check_owner(path, nonce, next, err);
	if (!status) {
		memcpy(kept, found, found_len);
		*kept_len = found_len;
	}
	free(found);
	return status;
}
