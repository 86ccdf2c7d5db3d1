/* Synchronised batch norm: statistics over groups of ranks instead of each rank's own batch.
 *
 * Sums are allreduces of two doubles a channel, one forward and one backward for each batch norm, over the ranks of a group
 * (gn_comm_split), or over all ranks.
 *
 * Collective: all ranks create and use one alike. Thread safety: one thread.
 */
#ifndef GN_TRAIN_PLAN_SYNC_BN_H
#define GN_TRAIN_PLAN_SYNC_BN_H

#include "src/train/plan/group_sums.h"

struct gn_sync_bn;

/* text: "all", "node" (the ranks of a host), or N (so many ranks that follow each other, a divisor of all). GN_ERR_USAGE for
 * anything else. *out is NULL when every group is one rank. */
enum gn_status gn_sync_bn_create(const char *text, struct gn_comm *comm, struct gn_sync_bn **out, struct gn_err *err);
/* Before the communicator is destroyed. NULL is fine. */
void gn_sync_bn_destroy(struct gn_sync_bn *s);
/* For plans; borrowed, lives as long as s; NULL for NULL. */
struct gn_plan_group *gn_sync_bn_group(const struct gn_sync_bn *s);

#endif
