/* The marker of a staged dataset, file .gannet-stage: for each shard the verified digest and the file's properties at that time.
 * Private to data/stage/.
 *
 * Any change to a file changes its ctime: while the properties match, the shard need not be read again. Only files, and only a
 * marker, that belong to this user and that nobody else can write are trusted.
 */
#ifndef GN_DATA_STAGE_STAGE_MARKER_H
#define GN_DATA_STAGE_STAGE_MARKER_H

#include "data/shard/manifest.h"

#define GN_STAGE_MARKER_NAME ".gannet-stage"

/* Sets trusted[i] = 1 for each shard of m in directory whose file is unchanged since it was verified. A missing or unreadable
 * marker leaves all 0. */
void gn_stage_marker_load(const struct gn_manifest *m, const char *directory, unsigned char *trusted);
/* Writes the marker for all shards of m in their present state. */
enum gn_status gn_stage_marker_save(const struct gn_manifest *m, const char *directory, struct gn_err *err);

#endif
