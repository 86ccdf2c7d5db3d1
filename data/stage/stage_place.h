/* File systems that a copy should not be read from or made on. Private to data/stage/ but for the warnings.
 *
 * A FUSE mount sends every read through a process of its own; a network file system as a target is no node's own disk; files in memory
 * take what a job has of it. Told by the kernel's magic number of the file system (statfs(2)). Thread safety: no state.
 */
#ifndef GN_DATA_STAGE_STAGE_PLACE_H
#define GN_DATA_STAGE_STAGE_PLACE_H

#include "src/base/log.h"

#include <limits.h>

enum gn_stage_place { GN_STAGE_PLACE_DISK, GN_STAGE_PLACE_FUSE, GN_STAGE_PLACE_NETWORK, GN_STAGE_PLACE_MEMORY };

/* name: of the kind of file system, "" for one that is not known, which counts as a disk; a constant. */
enum gn_stage_place gn_stage_place_of(unsigned long magic, const char **name);
/* Writes path, or of what is not there the nearest folder above it, to out, and returns that. */
const char *gn_stage_place_above(const char *path, char out[PATH_MAX]);
/* A line in the log for a source on FUSE, one for a target on the network or in memory. A place that cannot be looked at has none; for
 * a target that is not there its nearest folder counts. Blocks on the file system. from NULL: it is no file. */
void gn_stage_warn_places(const char *from, const char *to, struct gn_log *log);

#endif
