/* The parts of staging: copying one shard, and the stamp of what was found right. Private to data/stage*.c.
 *
 * The stamp, .gannet-stage, has for each shard its digest and how the file looked when that was right. Any change to a file
 * moves its ctime, so a stamp that still fits spares reading the file again.
 */
#ifndef GN_DATA_STAGE_PARTS_H
#define GN_DATA_STAGE_PARTS_H

#include "data/manifest.h"
#include "data/stage.h"

#include <stdatomic.h>

#define GN_STAGE_STAMP_NAME ".gannet-stage"
#define GN_STAGE_PART_ENDING ".gannet-part"

/* Copies shard m from options->from to options->to under a temporary name, checks size and SHA-256 on the way, syncs and
 * renames. Gives up with GN_ERR_STOPPED when *stop becomes non-zero. On failure nothing is left. Any thread. */
enum gn_status gn_stage_copy_shard(const struct gn_stage_options *options, const struct gn_manifest_shard *m,
				   const atomic_int *stop, struct gn_err *err);

/* trusted[i] becomes 1 for each shard of m in directory whose file is as it was when its digest was right. A stamp that is
 * missing or cannot be read vouches for nothing. */
void gn_stage_stamp_load(const struct gn_manifest *m, const char *directory, unsigned char *trusted);
/* Writes the stamp of all shards of m as they are now. */
enum gn_status gn_stage_stamp_save(const struct gn_manifest *m, const char *directory, struct gn_err *err);

#endif
