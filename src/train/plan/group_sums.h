/* Exchanges of a group of ranks between the parts of a plan: sums of batch statistics, and what tensor groups sum, gather and scatter.
 *
 * A plan that is given a group ends a compute part where it needs such an exchange, which is a collective part of its own. Values are on
 * the plan's device; the collective works on host memory of the group. One is prepared for each kind of exchange when it first runs, and
 * again when the memory has grown since.
 *
 * Collective: all ranks of the group run the same exchanges in the same order. Thread safety: one thread.
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
/* For plans; borrowed. Its exchange blocks until the ranks have made it; GN_ERR_PEER_LOST as for other collectives. */
struct gn_plan_group *gn_group_sums_group(struct gn_group_sums *g);

#endif
