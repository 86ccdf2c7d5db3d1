#include "data/shard/folders.h"

#include "src/base/clock.h"
#include "src/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* The colon before the next folder; NULL: this is the last. */
static const char *find_colon(const char *list)
{
	while ((list = strchr(list, ':')) && list[1] != '/' && list[1] != '.')
		list++;
	return list;
}

int gn_folders_count(const char *list)
{
	int count = 1;

	for (const char *at = list; (at = find_colon(at)); at++)
		count++;
	return count > 1 && !access(list, F_OK) ? 1 : count;
}

enum gn_status gn_folders_get(const char *list, int i, char out[PATH_MAX], struct gn_err *err)
{
	int count = gn_folders_count(list);
	const char *end = count > 1 ? find_colon(list) : NULL;

	if (count > GN_FOLDERS_MAX)
		return gn_err_set(err, GN_ERR_USAGE, "%s: more than %d folders", list, GN_FOLDERS_MAX);
	for (; i > 0 && end; i--) {
		list = end + 1;
		end = find_colon(list);
	}
	if (snprintf(out, PATH_MAX, "%.*s", (int)(end ? (size_t)(end - list) : strlen(list)), list) >= PATH_MAX)
		return gn_err_set(err, GN_ERR_USAGE, "path too long: %s", list);
	return GN_OK;
}

enum gn_status gn_folders_find(const char *list, const char *name, char out[PATH_MAX], struct gn_err *err)
{
	char folder[PATH_MAX];
	int count = gn_folders_count(list);
	enum gn_status status = GN_OK;

	/* after the last the first again; a single one is not looked at */
	for (int i = 0; i <= count; i++) {
		status = gn_folders_get(list, i % count, folder, err);
		if (!status)
			status = gn_path_join(out, PATH_MAX, folder, name, err);
		if (status || count == 1 || !access(out, F_OK))
			break;
	}
	return status;
}

enum gn_status gn_folders_hold(const char *list, int holds[GN_FOLDERS_MAX], struct gn_err *err)
{
	char folder[PATH_MAX];
	enum gn_status status = GN_OK;

	memset(holds, -1, GN_FOLDERS_MAX * sizeof *holds);
	for (int i = 0, count = gn_folders_count(list); i < count && !status; i++) {
		status = gn_folders_get(list, i, folder, err);
		if (!status)
			status = gn_hold(folder, &holds[i], err);
	}
	return status;
}

void gn_folders_release(const int holds[GN_FOLDERS_MAX])
{
	for (int i = 0; i < GN_FOLDERS_MAX; i++)
		if (holds[i] >= 0)
			close(holds[i]);
}

/* Whether each colon is in the name of a folder that is there, or the path says by a dot that it has one, or it is in the last name of an
 * absolute path, as of a copy that has the name of its source. */
static int means_colons(const char *path)
{
	char begin[PATH_MAX];

	for (const char *colon = path; (colon = strchr(colon, ':')); colon++) {
		snprintf(begin, sizeof begin, "%.*s", (int)((size_t)(colon - path) + strcspn(colon, "/")), path);
		if (access(begin, F_OK) && (!colon[1] || (*path != '.' && (*path != '/' || strchr(colon, '/')))))
			return 0;
	}
	return 1;
}

/* The path without links, as far as it is there, and without slashes at its end: of the root nothing is left. */
static enum gn_status resolve(const char *path, char out[PATH_MAX], struct gn_err *err)
{
	const char *rest = path + strlen(path);
	char above[PATH_MAX];
	size_t at;

	snprintf(above, sizeof above, "%s", path);
	while (!realpath(above, out)) {
		/* what another user keeps to himself or is no folder shows when the copy is made */
		if (!strcmp(above, "/") || !strcmp(above, "."))
			return gn_err_errno(err, errno, "cannot resolve %s", path);
		while (rest > path && rest[-1] == '/')
			rest--;
		while (rest > path && rest[-1] != '/')
			rest--;
		snprintf(above, sizeof above, "%.*s", rest > path ? (int)(rest - path) : 1, rest > path ? path : ".");
	}
	at = strcmp(out, "/") ? strlen(out) : 0;
	out[at] = '\0';
	for (size_t len; *(rest += strspn(rest, "/")); rest += len, at += len + 1) {
		len = strcspn(rest, "/");
		if (at + len + 1 >= PATH_MAX)
			return gn_err_set(err, GN_ERR_USAGE, "path too long: %s", path);
		snprintf(out + at, PATH_MAX - at, "/%.*s", (int)len, rest);
	}
	return GN_OK;
}

static int is_below(const char *path, const char *folder)
{
	size_t len = strlen(folder);

	return !strncmp(path, folder, len) && (!path[len] || path[len] == '/');
}

static enum gn_status check_apart(const char *option, const char *a, const char *b, struct gn_err *err)
{
	char x[PATH_MAX], y[PATH_MAX];
	enum gn_status status = resolve(a, x, err);

	if (!status)
		status = resolve(b, y, err);
	if (!status && (is_below(x, y) || is_below(y, x)))
		status = gn_err_set(err, GN_ERR_USAGE, "%s: %s and %s %s: give each disk a folder of its own", option, a, b,
				    strcmp(x, y) ? "lie one in the other" : "are the same folder");
	return status;
}

static enum gn_status check_folder(const char *option, const char *list, const char *folder, struct gn_err *err)
{
	size_t len = strlen(folder);

	if (means_colons(folder) && len)
		return GN_OK;
	if (!len || folder[len - 1] == ':')
		return gn_err_set(err, GN_ERR_USAGE, "%s %s has a folder without a name: is a variable unset?", option, list);
	return gn_err_set(err, GN_ERR_USAGE, "%s %s: in a list of folders those after a colon begin with / or ./; for a single folder with a "
			  "colon in its name begin with ./, or make it first", option, list);
}

enum gn_status gn_folders_check(const char *option, const char *list, struct gn_err *err)
{
	char folder[PATH_MAX], other[PATH_MAX];
	enum gn_status status = *list ? GN_OK : gn_err_set(err, GN_ERR_USAGE, "%s is empty: is a variable unset?", option);

	for (int i = 0, count = gn_folders_count(list); i < count && !status; i++) {
		status = gn_folders_get(list, i, folder, err);
		if (!status)
			status = check_folder(option, list, folder, err);
		for (int k = 0; k < i && !status; k++) {
			status = gn_folders_get(list, k, other, err);
			if (!status)
				status = check_apart(option, other, folder, err);
		}
	}
	return status;
}
