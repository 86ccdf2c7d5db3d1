#include "src/base/trust.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef enum gn_status check_fn(const char *path, const struct stat *above, const struct stat *info, struct gn_err *err);

static int is_trusted(const struct stat *info)
{
	return info->st_uid == geteuid() || info->st_uid == 0;
}

static enum gn_status foreign_link(const char *path, const struct stat *info, struct gn_err *err)
{
	return gn_err_set(err, GN_ERR_IO, "the symbolic link %s belongs to user %u, who could redirect it: choose another "
			  "folder", path, (unsigned)info->st_uid);
}

/* Checks one component of a path: above is the folder that contains it. */
static enum gn_status check_name(const char *path, const struct stat *above, const struct stat *info, struct gn_err *err)
{
	if (S_ISLNK(info->st_mode) && !is_trusted(info))
		return foreign_link(path, info, err);
	if (!(above->st_mode & S_IWOTH))
		return GN_OK;
	if (!(above->st_mode & S_ISVTX))
		return gn_err_set(err, GN_ERR_IO, "the folder above %s is world-writable without the sticky bit, so that any user "
				  "could replace it: chmod +t that folder, or choose another", path);
	if (!is_trusted(info))
		return gn_err_set(err, GN_ERR_IO, "%s belongs to user %u, who could replace its contents: choose another folder",
				  path, (unsigned)info->st_uid);
	return GN_OK;
}

static enum gn_status check_link(const char *path, const struct stat *above, const struct stat *info, struct gn_err *err)
{
	if (S_ISLNK(info->st_mode) && (above->st_mode & S_IWOTH) && !is_trusted(info))
		return foreign_link(path, info, err);
	return GN_OK;
}

static enum gn_status check_each(const char *path, check_fn *check, struct gn_err *err)
{
	size_t len = strlen(path);
	char part[PATH_MAX];
	struct stat above, info;
	enum gn_status status = GN_OK;

	if (len >= sizeof part)
		return gn_err_set(err, GN_ERR_USAGE, "path too long: %s", path);
	if (stat(path[0] == '/' ? "/" : ".", &above))
		return gn_err_errno(err, errno, "cannot stat the folder above %s", path);
	for (size_t i = 1; i <= len && !status; i++) {
		if ((path[i] != '/' && path[i] != '\0') || path[i - 1] == '/')
			continue;
		memcpy(part, path, i);
		part[i] = '\0';
		if (lstat(part, &info))
			return errno == ENOENT ? GN_OK : gn_err_errno(err, errno, "cannot stat %s", part);
		status = check(part, &above, &info, err);
		/* ENOENT: a dangling link */
		if (!status && stat(part, &above))
			return errno == ENOENT ? GN_OK : gn_err_errno(err, errno, "cannot stat %s", part);
	}
	return status;
}

enum gn_status gn_trust_check_path(const char *path, struct gn_err *err)
{
	return check_each(path, check_name, err);
}

enum gn_status gn_trust_check_links(const char *path, struct gn_err *err)
{
	return check_each(path, check_link, err);
}

enum gn_status gn_trust_check_folder(const char *path, int for_writing, struct gn_log *log, struct gn_err *err)
{
	struct stat info;
	int open_to_all;

	if (stat(path, &info))
		return gn_err_errno(err, errno, "cannot stat %s", path);
	open_to_all = for_writing && (info.st_mode & S_IWOTH) && !(info.st_mode & S_ISVTX);
	if (is_trusted(&info)) {
		if (open_to_all)
			gn_log_warn(log, "%s is world-writable: any user could replace its contents; chmod o-w %s", path, path);
		return GN_OK;
	}
	if (open_to_all)
		return gn_err_set(err, GN_ERR_IO, "%s belongs to user %u and is world-writable: any user could replace its "
				  "contents; "
				  "its owner can chmod o-w it; or choose another folder", path, (unsigned)info.st_uid);
	gn_log_warn(log, "%s belongs to user %u, who can change its contents", path, (unsigned)info.st_uid);
	return GN_OK;
}

enum gn_status gn_trust_check_secret(int fd, const char *path, const char *what, struct gn_err *err)
{
	struct stat s;

	if (fstat(fd, &s))
		return gn_err_errno(err, errno, "%s %s", what, path);
	if (!S_ISREG(s.st_mode))
		return gn_err_set(err, GN_ERR_USAGE, "%s is not a regular file: it cannot be %s", path, what);
	if (s.st_uid != geteuid())
		return gn_err_set(err, GN_ERR_USAGE, "%s %s belongs to user %u, but this process runs as user %u: use a copy of your own with mode "
				  "600", what, path, (unsigned)s.st_uid, (unsigned)geteuid());
	if (s.st_mode & 077)
		return gn_err_set(err, GN_ERR_USAGE, "%s %s has mode %04o, so others may know what it says: set mode 600 (chmod 600), and "
				  "consider a new one", what, path, (unsigned)(s.st_mode & 07777));
	return GN_OK;
}
