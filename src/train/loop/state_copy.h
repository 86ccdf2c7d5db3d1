/* A copy of what one rank has of a run's state: all of it, a part of a sharded optimizer with the parameters that it updates, or a stage of a
 * pipeline. A rank whose state another one must be able to follow back keeps such a copy of the state before its last update: when a rank is
 * lost in the middle of an update, some of the others have made it and some have not.
 *
 * Thread safety: one thread. Internal to src/train.
 */
#ifndef GN_TRAIN_LOOP_STATE_COPY_H
#define GN_TRAIN_LOOP_STATE_COPY_H

#include "src/train/checkpoint/checkpoint.h"
#include "src/train/plan/weight_layouts.h"
#include "transport/coll/comm.h"

/* Zeroed: there is none. */
struct gn_state_copy {
	int is_there;
	struct gn_run_state state;
	float *memory; /* of all that follow; owned */
	size_t len_bytes;
	size_t elements, buffer_count; /* of those of parameters, packed as the rank's parts are, and of buffers */
	float *params, *slots[GN_OPTIM_SLOTS_MAX], *average; /* NULL: the run has none */
	float *buffers, *average_buffers;
};

/* Memory for so many elements of parameters and of slots and, with averages, for averages of both. Is allocated once; on failure there is none. */
enum gn_status gn_state_copy_reserve(struct gn_state_copy *c, size_t elements, size_t buffers, int slots, int averages, struct gn_err *err);
/* Array number k of those of parameters, or NULL; from 0 on: parameters, slots, average. */
enum { GN_STATE_ARRAYS = GN_OPTIM_SLOTS_MAX + 2 };
float *gn_state_copy_array(const struct gn_state_copy *c, int k);
/* Each array gets that of another one behind its own, which has the same arrays; of buffers as well. */
enum gn_status gn_state_copy_append(struct gn_state_copy *c, const struct gn_state_copy *more, struct gn_err *err);
void gn_state_copy_release(struct gn_state_copy *c);

/* --redundancy of pipelines: each stage's rank keeps a copy of the state of the stage before it (the first one of the last), so that a stage that
 * only one rank has is not lost with it.
 *
 * Before an update each rank sends its state to the next one, and all ranks of the pipeline meet when they have it. So whenever ranks are lost,
 * all that are left have the state before the update that they are in, or all that before the one before it: their own, now or kept when the last
 * exchange ended, and the copy of the same step. */

struct gn_stage_ring;

/* Collective over pipe, which is borrowed; failures are agreed on. own, layouts: this rank's part of the network and the layouts of its weights. ward:
 * the part that the stage before has; it becomes the ring's. slots, averages: as gn_state_copy_reserve has them. */
enum gn_status gn_stage_ring_create(struct gn_comm *pipe, const struct gn_model *own, const struct gn_weight_layouts *layouts, struct gn_model *ward,
				    int slots, int averages, struct gn_stage_ring **out, struct gn_err *err);
/* NULL is fine. */
void gn_stage_ring_destroy(struct gn_stage_ring *g);
/* To copy this rank's state to, before the exchange. */
struct gn_state_copy *gn_stage_ring_mine(struct gn_stage_ring *g);
/* Collective over the pipeline; blocks. Afterwards *kept is that copy, and its memory the ring's. */
enum gn_status gn_stage_ring_exchange(struct gn_stage_ring *g, struct gn_state_copy *kept, struct gn_err *err);
/* The copy of that step, in the order of gn_stage_ring_layouts; NULL: there is none. Borrowed. */
const struct gn_state_copy *gn_stage_ring_copy(const struct gn_stage_ring *g, uint64_t step);
int gn_stage_ring_ward(const struct gn_stage_ring *g);
struct gn_weight_layouts *gn_stage_ring_layouts(const struct gn_stage_ring *g);
/* That a rank sends before each update. */
size_t gn_stage_ring_bytes(const struct gn_stage_ring *g);

#endif
