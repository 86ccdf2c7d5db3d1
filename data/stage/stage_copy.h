/* Copies one shard of a dataset and verifies its digest. Private to data/stage/.
 *
 * Blocks on the file system. Copies of different shards may run concurrently.
 */
#ifndef GN_DATA_STAGE_STAGE_COPY_H
#define GN_DATA_STAGE_STAGE_COPY_H

#include "data/shard/manifest.h"
#include "data/stage/stage_marker.h"
#include "src/base/progress_bar.h"

struct gn_stage_copy {
	const char *from, *to;	      /* folders */
	struct gn_progress_bar *progress; /* counts bytes */
	int (*stopped)(void *context); /* called between blocks: 1 when the copy is to be abandoned */
	void *context;
};

/* Writes m's file to the folder to, under a temporary name with GN_STAGE_PART_ENDING until it is verified and synced. On failure
 * the temporary file is removed. GN_ERR_DATA for a damaged source, GN_ERR_STOPPED, GN_ERR_NO_SPACE, GN_ERR_IO. */
enum gn_status gn_stage_copy_shard(const struct gn_stage_copy *c, const struct gn_manifest_shard *m, struct gn_err *err);

#endif
