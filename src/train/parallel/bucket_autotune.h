/* Which way of exchanging gradients is the fastest here: bucket size, and whether they leave while backward runs, tried in the
 * first steps of a run.
 *
 * The steps are real ones: the run trains while it measures. After two steps of warm-up each way gets three, in turns; a step
 * counts with the time of its slowest rank, less what it waited for data, and a way with the median of its steps. The usual
 * way (16 MiB, overlapped) stays unless another is faster by 3 %. All ranks decide alike, from the same numbers. What was
 * decided is kept in DIR/exchange.json of --checkpoint DIR, so that a run that goes on there does not measure again as long as
 * network, ranks, nodes, batch, transport and options are the same. Runs too short for it to pay, runs of one rank, and runs
 * with --bucket and --overlap or --no-overlap given measure nothing, nor do those that stay on their GPUs.
 *
 * Overlap never changes a result. The bucket size may, in the last bits, where exchange.h says: such sizes are tried only with
 * --any-order, so that what was measured never shows in the parameters of a run. Internal to src/train.
 */
#ifndef GN_TRAIN_PARALLEL_BUCKET_AUTOTUNE_H
#define GN_TRAIN_PARALLEL_BUCKET_AUTOTUNE_H

#include "src/train/loop/session.h"

/* What is done when nothing is measured. */
void gn_bucket_autotune_usual(const struct gn_train_options *options, const struct gn_model *model, struct gn_reducer_config *out);
/* Collective, after gn_session_restore. Takes what was decided before, or begins to measure: sets s->trial. */
enum gn_status gn_bucket_autotune_begin(struct gn_session *s, uint64_t steps_left, struct gn_err *err);
/* Collective, after each step while s->trial is set: notes s->step_s, and moves s->exchange on. Clears s->trial in the end. */
enum gn_status gn_bucket_autotune_note(struct gn_session *s, struct gn_err *err);
/* NULL is fine. keep: an exchange that is not to be destroyed. */
void gn_bucket_autotune_destroy(struct gn_bucket_autotune *t, const struct gn_reducer *keep);

#endif
