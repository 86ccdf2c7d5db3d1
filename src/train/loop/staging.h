/* --stage: datasets are copied to this node's disk while the run reads them. Internal to src/train.
 *
 * A thread of each rank stages them (data/stage/stage.h), to DIRECTORY/NAME, NAME being the last part of the dataset's path: the first rank
 * of a node that takes the lock copies, the others follow. As soon as a shard is there and verified, its samples are read from the copy;
 * until then, and for good when staging fails, which is a warning, from the source. The samples, and so the results, are the same.
 *
 * Thread safety: one thread. Nothing here is collective.
 */
#ifndef GN_TRAIN_LOOP_STAGING_H
#define GN_TRAIN_LOOP_STAGING_H

#include "data/shard/dataset.h"
#include "src/base/log.h"

#define GN_STAGING_DATASETS 2

struct gn_staging;

struct gn_staging_options {
	const char *directory;
	struct gn_dataset *datasets[GN_STAGING_DATASETS]; /* borrowed; NULL: none. Staged in this order. */
	int tells;	   /* this rank logs how it goes: one of each node */
	struct gn_log *log;
};

/* GN_ERR_USAGE: a dataset lies where it would be staged, or two have the same name. */
enum gn_status gn_staging_check(const struct gn_staging_options *o, struct gn_err *err);
/* options.directory is borrowed. Does not block. */
enum gn_status gn_staging_begin(const struct gn_staging_options *o, struct gn_staging **out, struct gn_err *err);
/* Stops what is not complete, which the next run goes on with; datasets may be closed afterwards. NULL is fine. */
void gn_staging_end(struct gn_staging *s);

#endif
