/* Sums over a group of ranks between the parts of a plan: of batch statistics, in double precision.
 *
 * A plan that is given a group ends a compute part where it needs such a sum, and the sum is a collective part of its own. Values are on
 * the plan's device; the allreduce works on host memory of the group. An allreduce is prepared for each number of values when the first
 * sum of it runs, and is kept.
 *
 * Collective: all ranks of the group run the same sums in the same order. Thread safety: one thread.
 */
#ifndef GN_TRAIN_PLAN_GROUP_SUMS_H
#define GN_TRAIN_PLAN_GROUP_SUMS_H

#include "src/train/plan/options.h"
#include "transport/coll/comm.h"

struct gn_group_sums;

/* comm: the group; borrowed, has to outlive it. */
enum gn_status gn_group_sums_create(struct gn_comm *comm, struct gn_group_sums **out, struct gn_err *err);
/* NULL is fine. */
void gn_group_sums_destroy(struct gn_group_sums *g);
/* For plans; borrowed. Its sum blocks until the ranks have summed; GN_ERR_PEER_LOST as for other collectives. */
struct gn_plan_group *gn_group_sums_group(struct gn_group_sums *g);

#endif
