/* Copies of the parts of a sharded optimizer (shard.h) on other ranks. A rank that has a copy updates it itself, by the sums of gradients that
 * the owner sends it before each update: 4 bytes for each parameter of the part, whatever the optimizer keeps, where the state itself would be
 * 8 for sgd, and 12 for adamw.
 *
 * Thread safety: one thread. Host memory.
 */
#ifndef GN_TRAIN_PARALLEL_REDUNDANCY_H
#define GN_TRAIN_PARALLEL_REDUNDANCY_H

#include "src/train/parallel/shard.h"

/* holders [ranks]: which rank gets the copy of each one's part: another one, on another node where there is one; each rank gets one copy. node_of
 * [ranks]: nodes from 0 on. Pure. GN_ERR_NO_MEMORY. */
enum gn_status gn_redundancy_holders(const int *node_of, int ranks, int *holders, struct gn_err *err);

struct gn_redundancy;

/* Local; more than one rank. The rank that this one has a copy of: the shard's ward. */
enum gn_status gn_redundancy_ward(struct gn_comm *comm, int *ward, struct gn_err *err);
/* Local. flat: the sums, as the reducer has them. All borrowed, and outlive it. */
enum gn_status gn_redundancy_create(struct gn_comm *comm, const struct gn_shard *shard, float *flat, struct gn_redundancy **out, struct gn_err *err);
/* NULL is fine. */
void gn_redundancy_destroy(struct gn_redundancy *r);
/* Blocks. After the sums of a step, on all ranks: the ward's come to their place in flat. */
enum gn_status gn_redundancy_exchange(struct gn_redundancy *r, struct gn_err *err);
/* Who has the copy of this rank's part, and whether it is on another node; bytes of each exchange. */
int gn_redundancy_holder(const struct gn_redundancy *r, int *is_elsewhere);
size_t gn_redundancy_bytes(const struct gn_redundancy *r);

#endif
