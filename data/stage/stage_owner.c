#include "data/stage/stage_owner.h"

#include <errno.h>
#include <unistd.h>

#define OTHERS_WRITE (S_IWGRP | S_IWOTH)

int gn_stage_is_own_file(const struct stat *info)
{
	return S_ISREG(info->st_mode) && info->st_uid == geteuid() && !(info->st_mode & OTHERS_WRITE);
}

int gn_stage_is_own_path(const char *path)
{
	struct stat info;

	return !lstat(path, &info) && gn_stage_is_own_file(&info);
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
