/* How several ranks that stay on their GPUs train: gradients and, behind them, batch norm statistics are summed where the plan has
 * them, bucket by bucket, while backward runs or behind it, and then the update follows.
 *
 * Thread safety: one thread. Collective: all ranks make the same calls in the same order. Of one rank there is nothing to sum; all
 * functions may be called and do nothing.
 */
#ifndef GN_TRAIN_PARALLEL_DEVICE_REDUCER_H
#define GN_TRAIN_PARALLEL_DEVICE_REDUCER_H

#include "src/train/parallel/reducer.h"
#include "src/train/plan/plan.h"

/* A zeroed one but for comm, borrowed, is ready for use. */
struct gn_device_reducer {
	struct gn_comm *comm;
	struct gn_coll_backend *backend;   /* is kept when the plan changes */
	struct gn_reducer *reducer; /* NULL: closed, or one rank */
	struct gn_plan *plan;	      /* borrowed while open */
	uint64_t through_ns;	      /* when backward of the last step was, as gn_device_reducer_finish saw it */
};

/* For gn_plan_reside: what the plan is to tell s of. */
void gn_device_reducer_join(struct gn_device_reducer *s, struct gn_plan_update *update);
/* After it. how: as transport/nccl/coll_backend_cuda.h has it. A failure is the same on all ranks. */
enum gn_status gn_device_reducer_open(struct gn_device_reducer *s, const char *how, struct gn_plan *plan,
				      const struct gn_model *model, const struct gn_reducer_config *form, struct gn_log *log,
				      struct gn_err *err);
/* Before the plan is destroyed or resides anew. */
void gn_device_reducer_close(struct gn_device_reducer *s);
void gn_device_reducer_release(struct gn_device_reducer *s);

/* Before gn_plan_launch. */
void gn_device_reducer_begin(struct gn_device_reducer *s);
/* After it, and not before all ranks' other sums of this step were started: what has not left while backward ran leaves behind it. */
void gn_device_reducer_leave(struct gn_device_reducer *s);
/* After it: blocks until everything is summed, and queues the update. *exposed_ns: how long it was waited for when backward was
 * through. */
enum gn_status gn_device_reducer_finish(struct gn_device_reducer *s, uint64_t *exposed_ns, struct gn_err *err);

#endif
