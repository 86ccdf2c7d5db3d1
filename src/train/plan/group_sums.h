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

/* Synchronised batch norm: statistics over groups of ranks instead of each rank's own batch.
 *
 * Sums are allreduces of two doubles a channel, one forward and one backward for each batch norm, over the ranks of a group
 * (gn_comm_split), or over all ranks.
 *
 * Collective: all ranks create and use one alike. Thread safety: one thread.
 */

struct gn_sync_bn;

/* text: "all", "node" (the ranks of a host), or N (so many ranks that follow each other, a divisor of all). GN_ERR_USAGE for
 * anything else. *out is NULL when every group is one rank. */
enum gn_status gn_sync_bn_create(const char *text, struct gn_comm *comm, struct gn_sync_bn **out, struct gn_err *err);
/* Before the communicator is destroyed. NULL is fine. */
void gn_sync_bn_destroy(struct gn_sync_bn *s);
/* For plans; borrowed, lives as long as s; NULL for NULL. */
struct gn_plan_group *gn_sync_bn_group(const struct gn_sync_bn *s);

#endif
