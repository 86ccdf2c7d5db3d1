/* Which folders and files another user could change. Private to data/stage*.c.
 *
 * A node-local disk is shared by users who do not trust each other: whoever is first can put a folder, a link or a file where
 * another will look for his own. So only what belongs to the caller's effective user, and what nobody else may write, is used
 * as found. Paths to them: src/base/trust.h.
 *
 * Thread safety: no state.
 */
#ifndef GN_DATA_STAGE_STAGE_OWNER_H
#define GN_DATA_STAGE_STAGE_OWNER_H

#include "src/base/status.h"

#include <sys/stat.h>

/* 1 for a regular file of this user's that only he may write. From lstat or fstat. */
int gn_stage_is_own_file(const struct stat *info);
/* The same of the file at path, links not followed; 0, too, when it is not there. */
int gn_stage_is_own_path(const char *path);
/* GN_ERR_IO when the folder at path is one for all users, as /tmp is: sticky, or all may write there. What does not exist yet is
 * fine. */
enum gn_status gn_stage_check_private(const char *path, struct gn_err *err);
/* Takes the right to write in a folder of this user's from group and others. */
enum gn_status gn_stage_close_folder(const char *path, struct gn_err *err);

#endif
