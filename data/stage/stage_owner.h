/* Files and folders that only this user can change. Private to data/stage/.
 *
 * Users who share a node-local disk do not trust each other: another user could create a folder, a link or a file where this user
 * looks for one. Only files that belong to the caller's effective user and that nobody else can write are used as found. For paths
 * see src/base/trust.h.
 *
 * Thread safety: no state.
 */
#ifndef GN_DATA_STAGE_STAGE_OWNER_H
#define GN_DATA_STAGE_STAGE_OWNER_H

#include "src/base/log.h"
#include "src/base/status.h"

#include <sys/stat.h>

/* 1 for a regular file that belongs to this user and that nobody else can write. info: from lstat or fstat. */
int gn_stage_is_own_file(const struct stat *info);
/* The same for the file at path, not following symbolic links; 0 if it does not exist. */
int gn_stage_is_own_path(const char *path);
/* 1 for a folder, no symbolic link to one, that belongs to this user and that nobody else can open. */
int gn_stage_is_private(const char *path);
/* Makes the last folder of path such a one; one that is there is fine, anything else there is GN_ERR_IO. */
enum gn_status gn_stage_make_private(const char *path, struct gn_err *err);
/* GN_ERR_IO when the folder at path is shared, as /tmp is: sticky or world-writable. A folder that does not exist is fine. */
enum gn_status gn_stage_check_private(const char *path, struct gn_err *err);
/* Removes the write permission of group and others from a folder of this user. */
enum gn_status gn_stage_close_folder(const char *path, struct gn_err *err);
/* Keeps those away who would hold the copy at root, a file or a folder (data/shard/folders.h), by the descriptor *out; -1: nobody can
 * hold it, as it is something else, or its file system has no such locks. GN_ERR_EXISTS: somebody holds it; the text is root's name and
 * why. */
enum gn_status gn_stage_claim(const char *root, const char *why, int *out, struct gn_err *err);
/* Takes the lock path for a copy to `to`: created if missing, this user's alone, and held by the descriptor *out. With wait it blocks while
 * another process has it, and logs that; else that is GN_ERR_EXISTS, after half a second. *replaced (may be NULL): whether who had it before
 * removed or renamed the file, so that this is a new one. GN_ERR_NOT_FOUND: its folder is not there. */
enum gn_status gn_stage_lock(const char *path, const char *to, int wait, struct gn_log *log, int *out, int *replaced, struct gn_err *err);

#endif
