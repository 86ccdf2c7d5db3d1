/* Runs that stay on their GPUs: nothing that the host has to do to parameters between steps. The next batch goes up while one
 * runs, and the host sees parameters only when it evaluates, saves or ends. Several ranks sum gradients and BN buffers where these
 * lie (transport/coll/coll_backend.h), bucket by bucket while backward runs; loss and the wish to stop follow on the host's way. With
 * --sync-bn each batch norm's sums take the host's way, too, while its GPU waits, and gradients leave when backward is through.
 *
 * Where a rank has no GPU the others compute on theirs, and all update on the host.
 * Internal to src/train.
 */
#ifndef GN_TRAIN_LOOP_DEVICE_STEP_H
#define GN_TRAIN_LOOP_DEVICE_STEP_H

#include "src/train/loop/session.h"
#include "src/train/metrics/scaling_report.h"

/* Collective, failures are agreed on. Moves the run to its GPUs when it can stay there: sets s->resident. The host's arrays hold the
 * state of the run. */
enum gn_status gn_device_step_begin(struct gn_session *s, struct gn_err *err);
/* Brings parameters, state and buffers to the host's arrays; nothing to do for other runs. */
enum gn_status gn_device_step_fetch(struct gn_session *s, struct gn_err *err);
/* The same, and the run is the host's again. */
enum gn_status gn_device_step_end(struct gn_session *s, struct gn_err *err);
/* A step with its update. mark: gn_clock_ns() of what the caller has accounted for; it moves to the end. *norm: of the gradient, before
 * clipping; *skipped: something was not finite, and parameters, state and buffers are as before. */
enum gn_status gn_device_step_run(struct gn_session *s, const struct gn_optim_update *u, int stop, struct gn_interval *sums,
				  uint64_t *mark, double *norm, int *skipped, struct gn_err *err);

#endif
