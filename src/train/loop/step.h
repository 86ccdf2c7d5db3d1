/* One training step: batches, forward, loss, backward with the exchange under way, update. Internal to src/train.
 *
 * With --accumulate N a step is N batches whose gradients are averaged before they are exchanged. A step whose gradients (or
 * loss) are not finite updates nothing on any rank: parameters, optimizer, BN statistics and average stay as they were, and
 * the samples count as done. After too many such steps in a row the run ends with GN_ERR_FAILED, on all ranks alike.
 */
#ifndef GN_TRAIN_LOOP_STEP_H
#define GN_TRAIN_LOOP_STEP_H

#include "src/train/loop/session.h"
#include "src/train/metrics/scaling_report.h"

/* Collective. Adds to sums; *stopping: some rank was asked to stop. */
enum gn_status gn_step_run(struct gn_session *s, const volatile sig_atomic_t *stop, struct gn_interval *sums,
			   int *stopping, struct gn_err *err);

#endif
