/* The stamp of a staged dataset, .gannet-stage: for each shard the digest that was found right and how the file looked
 * then. Private to data/stage*.c.
 *
 * Any change to a file moves its ctime, so a stamp that still fits spares reading the file again. It vouches only for files
 * that are this user's and that nobody else may write, as it must be itself.
 */
#ifndef GN_DATA_STAGE_STAGE_MARKER_H
#define GN_DATA_STAGE_STAGE_MARKER_H

#include "data/shard/manifest.h"

#define GN_STAGE_MARKER_NAME ".gannet-stage"

/* trusted[i] becomes 1 for each shard of m in directory whose file is as it was when its digest was right. A stamp that is
 * missing or cannot be read vouches for nothing. */
void gn_stage_marker_load(const struct gn_manifest *m, const char *directory, unsigned char *trusted);
/* Writes the stamp of all shards of m as they are now. */
enum gn_status gn_stage_marker_save(const struct gn_manifest *m, const char *directory, struct gn_err *err);

#endif
