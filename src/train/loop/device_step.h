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

#include "src/train/loop/step.h"

/* Collective, failures are agreed on. Moves the run to its GPUs when it can stay there: sets s->resident. The host's arrays hold the
 * state of the run. */
enum gn_status gn_device_step_begin(struct gn_session *s, struct gn_err *err);
/* Brings parameters, state and buffers to the host's arrays; nothing to do for other runs. */
enum gn_status gn_device_step_fetch(struct gn_session *s, struct gn_err *err);
/* The same, and the run is the host's again. */
enum gn_status gn_device_step_end(struct gn_session *s, struct gn_err *err);
/* A step up to its update. mark as in step.c. */
enum gn_status gn_device_step_step(struct gn_session *s, double lr, int stop, struct gn_interval *sums, uint64_t *mark,
				struct gn_err *err);

#endif
