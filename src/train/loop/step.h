/* One training step: batches, forward, loss, backward with the exchange under way, update. Internal to src/train.
 *
 * With --accumulate N a step is N batches whose gradients are averaged before they are exchanged. A step whose gradients (or
 * loss) are not finite updates nothing on any rank: parameters, optimizer, BN statistics and average stay as they were, and
 * the samples count as done. After too many such steps in a row the run ends with GN_ERR_FAILED, on all ranks alike.
 */
#ifndef GN_TRAIN_LOOP_STEP_H
#define GN_TRAIN_LOOP_STEP_H

#include "src/train/loop/session.h"

/* Seconds of the interval, and what was learned in it. */
struct gn_interval {
	double step, data, forward, backward, exposed, optimizer;
	double within; /* of exposed: what starting and moving gradients took while backward ran */
	double predicted, predicted_compute; /* rank 0: of steps for which split.h has a prediction, that and what they computed */
	double loss_sum, norm_sum; /* of the steps that updated something */
	double lr;
	uint64_t steps, skipped;
};

/* The step updates nothing. */
enum gn_status gn_step_skip(struct gn_session *s, double lr, struct gn_interval *sums, struct gn_err *err);
/* Collective. Adds to sums; *stopping: some rank was asked to stop. */
enum gn_status gn_step_run(struct gn_session *s, const volatile sig_atomic_t *stop, struct gn_interval *sums,
			   int *stopping, struct gn_err *err);

#endif
