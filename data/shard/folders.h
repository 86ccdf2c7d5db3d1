/* Several folders that hold a dataset's shards together, on several disks of a node: FOLDER:FOLDER, where all but the first begin with '/'
 * or '.'. A path that is there is one folder, whatever is in its name. Each has the manifest. Thread safety: no state.
 */
#ifndef GN_DATA_SHARD_FOLDERS_H
#define GN_DATA_SHARD_FOLDERS_H

#include "src/base/status.h"

#include <limits.h>

#define GN_FOLDERS_MAX 16

/* From 1. */
int gn_folders_count(const char *list);
/* Folder i of the list. GN_ERR_USAGE for a name that is too long, and for more than GN_FOLDERS_MAX. */
enum gn_status gn_folders_get(const char *list, int i, char out[PATH_MAX], struct gn_err *err);
/* Whether copies can be made in the folders of a list, the value of an option such as "--to". GN_ERR_USAGE: one has no name, two are the
 * same or lie one in the other, or a colon is followed by neither '/' nor '.', so that no list is meant: that is only in names that are
 * there, or that begin with '.', and in the last name of an absolute path. GN_ERR_IO and others: a path cannot be followed. */
enum gn_status gn_folders_check(const char *option, const char *list, struct gn_err *err);
/* Where a file of that name is: in the first folder that has it, else in the first. */
enum gn_status gn_folders_find(const char *list, const char *name, char out[PATH_MAX], struct gn_err *err);
/* gn_hold() of each folder. After a failure, too, gn_folders_release() closes what is held; -1: none. */
enum gn_status gn_folders_hold(const char *list, int holds[GN_FOLDERS_MAX], struct gn_err *err);
void gn_folders_release(const int holds[GN_FOLDERS_MAX]);

/* Holds a copy that gannet stage has made while it is read, so that gannet stage --remove and --quota leave it.
 *
 * A copy is held by a shared flock() on its root, the folder or file itself: nothing is added inside, and the lock of a dead process
 * is gone. Other programs do the same by flock(1): flock --shared COPY PROGRAM. When a copy was last used is the time of its marker,
 * which lies in a packed dataset (.gannet-stage) or beside any other copy (COPY.gannet-stage).
 *
 * Thread safety: no state.
 */

#define GN_HOLD_MARKER ".gannet-stage"

/* Holds the copy at path by the descriptor *out, which the caller closes, and sets when it was last used, if it is this user's. -1: path is
 * no staged copy, is not there, or its file system has no such locks. Waits at most 5 s for a removal; GN_ERR_IO when it is locked for
 * longer. */
enum gn_status gn_hold(const char *path, int *out, struct gn_err *err);

#endif
