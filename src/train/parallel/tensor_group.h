/* The ranks of a tensor group: each has a slice of a network (gn_model_slice), and they take each batch together.
 *
 * Plans exchange activations, gradients and what the loss needs through it; updates the norms of the whole gradient, of which what all ranks
 * have a copy of counts once; and steps the loss and the flags that each rank raises for itself.
 *
 * Collective over the group: all its ranks create and use one alike. Failures are this rank's. Thread safety: one thread.
 */
#ifndef GN_TRAIN_PARALLEL_TENSOR_GROUP_H
#define GN_TRAIN_PARALLEL_TENSOR_GROUP_H

#include "src/train/model/model.h"
#include "src/train/optim/parts.h"
#include "src/train/plan/group_sums.h"

struct gn_tensor_group;

/* comm: the ranks by slice; borrowed, as slice, this rank's. */
enum gn_status gn_tensor_group_create(struct gn_comm *comm, const struct gn_model *slice, struct gn_tensor_group **out, struct gn_err *err);
/* Before the communicator is destroyed. NULL is fine. */
void gn_tensor_group_destroy(struct gn_tensor_group *t);

/* For gn_plan_options.tensor. Borrowed, as the next two. */
struct gn_plan_group *gn_tensor_group_plans(struct gn_tensor_group *t);
/* For gn_optimizer_arrays: one part for each parameter, at its place. */
struct gn_update_group *gn_tensor_group_updates(struct gn_tensor_group *t);
const struct gn_parts *gn_tensor_group_parts(const struct gn_tensor_group *t);
/* Blocks. Values become their sums over the ranks, the same bits on all. */
enum gn_status gn_tensor_group_sum(struct gn_tensor_group *t, float *values, size_t count, struct gn_err *err);
int gn_tensor_group_size(const struct gn_tensor_group *t);
/* Seconds that this rank has spent in exchanges of its plans so far, and bytes of values that were exchanged there. */
double gn_tensor_group_waited_s(const struct gn_tensor_group *t);
uint64_t gn_tensor_group_bytes(const struct gn_tensor_group *t);

#endif
