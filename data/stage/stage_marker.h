/* The marker of a staged dataset, file .gannet-stage: for each shard the verified digest and the file's properties at that time.
 * Private to data/stage/. And of the marker of other copies, the line that says which copy it is of.
 *
 * Any change to a file changes its ctime: while the properties match, the shard need not be read again. Only files, and only a
 * marker, that belong to this user and that nobody else can write are trusted.
 */
#ifndef GN_DATA_STAGE_STAGE_MARKER_H
#define GN_DATA_STAGE_STAGE_MARKER_H

#include "data/shard/folders.h"
#include "data/shard/manifest.h"
#include "src/base/log.h"
#include "src/base/status.h"
#include "src/base/strbuf.h"

#include <sys/stat.h>
#include <time.h>

#define GN_STAGE_MARKER_NAME GN_HOLD_MARKER
#define GN_STAGE_LOCK_NAME ".gannet-stage.lock"
/* What is in the making: a shard, a tree; and a download. */
#define GN_STAGE_PART_ENDING ".gannet-part"
#define GN_STAGE_FETCH_ENDING ".gannet-fetch"

/* Sets trusted[i] = 1 for each shard of m in directory whose file is unchanged since it was verified. A missing or unreadable
 * marker leaves all 0. */
void gn_stage_marker_load(const struct gn_manifest *m, const char *directory, unsigned char *trusted);
/* The same, from all 0 and if another process has written the marker since *seen, its time, which is {0} at first and then set. Returns
 * whether it has. */
int gn_stage_marker_follow(const struct gn_manifest *m, const char *directory, unsigned char *trusted, struct timespec *seen);
/* Writes the marker for the shards of m with right[i] in their present state. */
enum gn_status gn_stage_marker_save(const struct gn_manifest *m, const char *directory, const unsigned char *right, struct gn_err *err);
/* Appends the two lines that end the marker of any other copy, which lies beside it: the identity of its listing (tree.h), and what tells its
 * root from one that somebody else has put there, inode and time of birth. */
void gn_stage_marker_root(const char *root, const char *identity, struct gn_strbuf *out);
/* Whether root is what its marker, which must be this user's alone, was written for. */
int gn_stage_marker_is_of(const char *marker, const char *root);
/* Whether files of it were added, changed or removed since, as names, sizes, times and permissions tell; 0 for an earlier marker, which has no
 * identity. Reads all its folders. */
int gn_stage_marker_is_changed(const char *marker, const char *root);

/* Files and folders that only this user can change.
 *
 * Users who share a node-local disk do not trust each other: another user could create a folder, a link or a file where this user
 * looks for one. Only files that belong to the caller's effective user and that nobody else can write are used as found. For paths
 * see src/base/trust.h. */

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
