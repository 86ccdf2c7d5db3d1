/* Which buckets are the fastest here: bucket size, and whether their sums overlap backward, tried in the first steps of a run.
 *
 * The steps are real ones: the run trains while it measures. After two steps of warm-up each candidate gets three, in turns; a step
 * counts with the time of its slowest rank, less what it waited for data, and a candidate with the median of its steps. The default
 * (16 MiB, overlapped) is kept unless another is faster by 3 %. All ranks decide alike, from the same numbers. The decision is kept
 * in exchange.json of the run's folder, so that a run that is resumed there does not measure again as long as network, ranks, nodes,
 * batch, transport and options are the same. Nothing is measured in runs too short for it to pay, with one rank, and where size and
 * overlap are given.
 *
 * Overlap never changes a result. The bucket size may, in the last bits, where reducer.h says: such sizes are tried only with
 * any_order, so that what was measured never shows in the parameters of a run. Internal to src/train.
 */
#ifndef GN_TRAIN_PARALLEL_BUCKET_AUTOTUNE_H
#define GN_TRAIN_PARALLEL_BUCKET_AUTOTUNE_H

#include "src/train/metrics/metrics_log.h"
#include "src/train/parallel/overlap.h"
#include "src/train/parallel/reducer.h"

struct gn_bucket_autotune;

/* Pointers are borrowed while the autotune lives, but for conditions, which is copied. */
struct gn_bucket_autotune_options {
	struct gn_sharing_options reducer;
	size_t bucket_bytes;	 /* 0: measured */
	enum gn_overlap overlap;
	int any_order;
	const char *folder;	 /* for exchange.json; NULL: the decision is not kept */
	const char *conditions;	 /* for which it holds, as text */
	struct gn_log *log;
	struct gn_metrics_log *metrics_log;
};

/* What is done when nothing is measured. bucket_bytes 0: the default. */
void gn_bucket_autotune_default(size_t bucket_bytes, enum gn_overlap overlap, const struct gn_model *model,
				struct gn_reducer_config *out);
/* Collective. *reducer is a default one; it is replaced where exchange.json has another. Else *out begins to measure, or is NULL
 * where nothing is to be measured. */
enum gn_status gn_bucket_autotune_begin(const struct gn_bucket_autotune_options *options, uint64_t steps_left,
					struct gn_reducer **reducer, struct gn_bucket_autotune **out, struct gn_err *err);
/* Collective, after each step: step_s of it, without the wait for data; step: its number, for the log. *reducer is set to the one for
 * the next step. With the last step *t is destroyed and set to NULL, and *reducer is the caller's. */
enum gn_status gn_bucket_autotune_note(struct gn_bucket_autotune **t, double step_s, uint64_t step, struct gn_reducer **reducer,
				       struct gn_err *err);
/* NULL is fine. keep: the reducer that is not destroyed. */
void gn_bucket_autotune_destroy(struct gn_bucket_autotune *t, const struct gn_reducer *keep);

#endif
