/* Which options of a training run cannot be combined, and why: one table for the check before the world is made, for the pages, and for
 * the tests. Every other pair of its entries can be. Thread safety: pure functions. Internal to src/train and its command.
 */
#ifndef GN_TRAIN_LOOP_COMBINE_H
#define GN_TRAIN_LOOP_COMBINE_H

#include "src/base/status.h"
#include "src/train/loop/options.h"

/* Something that options ask for. */
struct gn_train_feature {
	const char *name;    /* "--compress dgc:F" */
	const char *example; /* options that ask for it, for tests */
	int (*is_asked)(const struct gn_train_options *o);
	const char *(*value)(const struct gn_train_options *o); /* given, for errors; returns NULL where the option's name says it */
};

struct gn_train_conflict {
	const struct gn_train_feature *one, *other;
	const char *reason; /* one sentence without a full stop */
};

/* Borrowed tables. */
const struct gn_train_feature *gn_train_features(size_t *count);
const struct gn_train_conflict *gn_train_conflicts(size_t *count);
/* Local. GN_ERR_USAGE names two options and the reason; also the errors of options that stand alone (gn_compress_parse). */
enum gn_status gn_train_check_options(const struct gn_train_options *o, struct gn_err *err);

#endif
