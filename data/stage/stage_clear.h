/* What an earlier stage left in the folder of a dataset, and its removal. Private to data/stage/.
 *
 * The lock of the folder is held, so that no other process writes there. Blocks on the file system. Errors: GN_ERR_EXISTS for what no
 * stage has put there, GN_ERR_IO.
 */
#ifndef GN_DATA_STAGE_STAGE_CLEAR_H
#define GN_DATA_STAGE_STAGE_CLEAR_H

#include "data/shard/manifest.h"
#include "src/base/log.h"

/* Sets GN_ERR_EXISTS for the file at path, which is somebody else's, and returns it. */
enum gn_status gn_stage_refuse(const char *path, struct gn_err *err);
/* Removes partial files of a killed stage. */
enum gn_status gn_stage_clear_parts(const char *folder, struct gn_err *err);
/* Before anything of m, the dataset in from, is done in the folder `to`: removes the manifest of another dataset there, and shards that belong
 * only to that. It is refused, and untouched, unless begun: a stage has put it there (gn_staged_check_target()); and while a program holds
 * it (data/shard/hold.h). Else a line in log (may be NULL) says that it is replaced. */
enum gn_status gn_stage_clear_other(const char *from, const char *to, const struct gn_manifest *m, int begun, struct gn_log *log,
				    struct gn_err *err);
/* Before shards are copied: the folder has no manifest until all are there. */
enum gn_status gn_stage_clear_manifest(const char *to, struct gn_err *err);

#endif
