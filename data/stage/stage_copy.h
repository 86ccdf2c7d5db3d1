/* Copies one shard of a dataset, checked against its digest on the way. Private to data/stage*.c.
 *
 * Blocks on the file system. Copies of different shards may run at the same time.
 */
#ifndef GN_DATA_STAGE_STAGE_COPY_H
#define GN_DATA_STAGE_STAGE_COPY_H

#include "data/shard/manifest.h"
#include "src/base/progress_bar.h"

#define GN_STAGE_PART_ENDING ".gannet-part"

struct gn_stage_copy {
	const char *from, *to;	      /* folders */
	struct gn_progress_bar *progress; /* counts bytes */
	int (*stopped)(void *context); /* asked between blocks: 1 when the copy is no longer wanted */
	void *context;
};

/* Writes m's file to the folder to, under a temporary name with GN_STAGE_PART_ENDING until it is right and synced. On failure
 * nothing is left of it. GN_ERR_DATA when the source is damaged, GN_ERR_STOPPED, GN_ERR_NO_SPACE, GN_ERR_IO. */
enum gn_status gn_stage_copy_shard(const struct gn_stage_copy *c, const struct gn_manifest_shard *m, struct gn_err *err);

#endif
