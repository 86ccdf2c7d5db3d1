/* Holds a copy that gannet stage has made while it is read, so that gannet stage --remove and --quota leave it.
 *
 * A copy is held by a shared flock() on its root, the folder or file itself: nothing is added inside, and the lock of a dead process
 * is gone. Other programs do the same by flock(1): flock --shared COPY PROGRAM. When a copy was last used is the time of its marker,
 * which lies in a packed dataset (.gannet-stage) or beside any other copy (COPY.gannet-stage).
 *
 * Thread safety: no state.
 */
#ifndef GN_DATA_SHARD_HOLD_H
#define GN_DATA_SHARD_HOLD_H

#include "src/base/status.h"

#define GN_HOLD_MARKER ".gannet-stage"

/* Holds the copy at path by the descriptor *out, which the caller closes, and sets when it was last used, if it is this user's. -1: path is
 * no staged copy, is not there, or its file system has no such locks. Waits at most 5 s for a removal; GN_ERR_IO when it is locked for
 * longer. */
enum gn_status gn_hold(const char *path, int *out, struct gn_err *err);

#endif
