/* A copy of what one rank has of a run's state: all of it, a part of a sharded optimizer with the parameters that it updates, or a stage of a
 * pipeline. A rank whose state another one must be able to follow back keeps such a copy of the state before its last update: when a rank is
 * lost in the middle of an update, some of the others have made it and some have not.
 *
 * Thread safety: one thread. Internal to src/train.
 */
#ifndef GN_TRAIN_LOOP_STATE_COPY_H
#define GN_TRAIN_LOOP_STATE_COPY_H

#include "src/train/checkpoint/checkpoint.h"

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

#endif
