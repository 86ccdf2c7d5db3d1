#include "data/stage/stage_owner.h"

#include "src/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#define OTHERS_WRITE (S_IWGRP | S_IWOTH)
#define LOOK_TRIES 50
#define LOOK_PAUSE_NS 10000000

int gn_stage_is_own_file(const struct stat *info)
{
	return S_ISREG(info->st_mode) && info->st_uid == geteuid() && !(info->st_mode & OTHERS_WRITE);
}

int gn_stage_is_own_path(const char *path)
{
	struct stat info;

	return !lstat(path, &info) && gn_stage_is_own_file(&info);
}

int gn_stage_is_private(const char *path)
{
	struct stat info;

	return !lstat(path, &info) && S_ISDIR(info.st_mode) && info.st_uid == geteuid() && !(info.st_mode & 077);
}

enum gn_status gn_stage_make_private(const char *path, struct gn_err *err)
{
	if (mkdir(path, 0700) && errno != EEXIST)
		return gn_err_errno(err, errno, "cannot create the folder %s", path);
	if (!gn_stage_is_private(path))
		return gn_err_set(err, GN_ERR_IO, "%s is not a folder that only this user can open: remove it", path);
	return GN_OK;
}

enum gn_status gn_stage_check_private(const char *path, struct gn_err *err)
{
	struct stat info;

	if (!stat(path, &info) && S_ISDIR(info.st_mode) && (info.st_mode & (S_ISVTX | S_IWOTH)))
		return gn_err_set(err, GN_ERR_IO, "%s is a shared folder (mode %o): give a folder below it", path,
				  (unsigned)(info.st_mode & 07777));
	return GN_OK;
}

enum gn_status gn_stage_close_folder(const char *path, struct gn_err *err)
{
	struct stat info;

	if (stat(path, &info))
		return gn_err_errno(err, errno, "cannot stat %s", path);
	if ((info.st_mode & OTHERS_WRITE) && chmod(path, info.st_mode & 07777 & ~(mode_t)OTHERS_WRITE))
		return gn_err_errno(err, errno, "cannot remove the write permission of others for %s", path);
	return GN_OK;
}

/* Whether who had the lock has removed or renamed its file. */
static int is_replaced(const char *path, int fd)
{
	struct stat a, b;

	return fstat(fd, &a) || lstat(path, &b) || a.st_ino != b.st_ino || a.st_dev != b.st_dev;
}

static enum gn_status open_lock(const char *path, int *out, struct gn_err *err)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	struct stat info;

	if (fd < 0 && errno == ELOOP)
		return gn_err_set(err, GN_ERR_IO, "the lock %s is a symbolic link: remove it", path);
	if (fd < 0)
		return gn_err_errno(err, errno, "cannot open the lock %s", path);
	/* another user who can open the lock file could hold the lock */
	if (fstat(fd, &info) || !S_ISREG(info.st_mode) || info.st_uid != geteuid() || fchmod(fd, 0600)) {
		close(fd);
		return gn_err_set(err, GN_ERR_IO, "the lock %s does not belong to this user: remove it", path);
	}
	*out = fd;
	return GN_OK;
}

/* An exclusive lock on an open file or folder, tried for half a second, as gannet stage --list looks at locks for a moment. 0 or an error
 * number, EWOULDBLOCK: somebody has it. */
static int try_lock(int fd)
{
	int failed;

	for (int i = 0; (failed = flock(fd, LOCK_EX | LOCK_NB) ? errno : 0) == EWOULDBLOCK && i < LOOK_TRIES; i++)
		gn_clock_sleep_ns(LOOK_PAUSE_NS);
	return failed;
}

enum gn_status gn_stage_claim(const char *root, const char *why, int *out, struct gn_err *err)
{
	struct stat info;
	int fd;

	*out = -1;
	/* opening a device is not looking at it */
	if (stat(root, &info) || (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode)))
		return GN_OK;
	fd = open(root, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return gn_err_errno(err, errno, "cannot open %s to see whether it is in use", root);
	if (try_lock(fd) != EWOULDBLOCK) {
		*out = fd;
		return GN_OK;
	}
	close(fd);
	return gn_err_set(err, GN_ERR_EXISTS, "%s %s", root, why);
}

static enum gn_status take_lock(int fd, const char *path, const char *to, int wait, struct gn_log *log, struct gn_err *err)
{
	int failed = wait ? (flock(fd, LOCK_EX | LOCK_NB) ? errno : 0) : try_lock(fd);

	if (failed == EWOULDBLOCK && !wait)
		return gn_err_set(err, GN_ERR_EXISTS, "another gannet stage copies to %s: on a file system that nodes share stage once, "
				  "without a launcher, else wait for the other", to);
	if (failed == EWOULDBLOCK) {
		gn_log_info(log, "waiting for another gannet stage that copies to %s", to);
		do
			failed = flock(fd, LOCK_EX) ? errno : 0;
		while (failed == EINTR);
	}
	return failed ? gn_err_errno(err, failed, "cannot lock %s", path) : GN_OK;
}

enum gn_status gn_stage_lock(const char *path, const char *to, int wait, struct gn_log *log, int *out, int *replaced, struct gn_err *err)
{
	enum gn_status status;
	int fd = -1, again = 0;

	for (;;) {
		status = open_lock(path, &fd, err);
		if (status)
			return status;
		status = take_lock(fd, path, to, wait, log, err);
		if (status || !is_replaced(path, fd))
			break;
		close(fd);
		again = 1;
	}
	if (status) {
		close(fd);
		return status;
	}
	if (replaced)
		*replaced = again;
	*out = fd;
	return GN_OK;
}
