/* Synchronised batch norm: statistics over groups of ranks instead of each rank's own batch.
 *
 * Sums go through allreduces of two doubles a channel, one forward and one backward for each batch norm. Groups of less than
 * all ranks share one allreduce over all of them, in which every group has a place of its own: with G groups it carries G
 * times as much, which is little next to gradients for the sizes that groups are made for.
 *
 * Collective: all ranks make and use one alike. Thread safety: one thread.
 */
#ifndef GN_TRAIN_PLAN_SYNC_BN_H
#define GN_TRAIN_PLAN_SYNC_BN_H

#include "kernels/op.h"
#include "transport/coll/comm.h"

struct gn_sync_bn;

/* text: "all", "node" (the ranks of a host), or N (so many ranks that follow each other, a divisor of all). GN_ERR_USAGE for
 * anything else. *out is NULL when every group is one rank. */
enum gn_status gn_sync_bn_create(const char *text, struct gn_comm *comm, struct gn_sync_bn **out, struct gn_err *err);
/* Before the communicator. */
void gn_sync_bn_destroy(struct gn_sync_bn *s);
/* For plans; borrowed, lives as long as s. */
const struct gn_op_group *gn_sync_bn_group(const struct gn_sync_bn *s);

#endif
