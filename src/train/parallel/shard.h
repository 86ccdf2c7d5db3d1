/* The sharded optimizer (Rajbhandari et al. 2020, "ZeRO: Memory optimizations toward training trillion parameter models"): which rank
 * updates which part of the parameters, and has its optimizer state and averages.
 *
 * Each bucket of gradients is divided among all ranks: rank r of p gets block number r of p, of 16 elements or a multiple, so that a
 * reduce-scatter of the bucket gives each rank the sums that it needs, and an allgather what the others have made of theirs. Borders of
 * buckets are moved up to multiples of 16 p for that; fewer than 16 p elements at the end of the array are left over, which every rank
 * updates, with the same numbers. A function of model, bucket size and number of ranks alone.
 *
 * With copies a rank also updates the part of one other rank, its ward, whose sums that one sends it (mesh.h).
 *
 * Thread safety: one thread. Host memory.
 */
#ifndef GN_TRAIN_PARALLEL_SHARD_H
#define GN_TRAIN_PARALLEL_SHARD_H

#include "kernels/compute.h"
#include "src/train/model/model.h"
#include "src/train/optim/parts.h"
#include "transport/coll/comm.h"

/* What of a step is divided: nothing; optimizer state (ZeRO-1); that and the gradients of a step's batches (ZeRO-2). */
enum gn_shard_mode { GN_SHARD_NONE, GN_SHARD_OPTIMIZER, GN_SHARD_GRADIENTS };
#define GN_SHARD_CHOICES "none|optimizer|gradients"
/* Of GN_SHARD_CHOICES; NULL: none. */
enum gn_shard_mode gn_shard_mode_of(const char *name);

/* Rank r has `each` elements from begin + r * each on. */
struct gn_shard_range {
	size_t begin, each;
};

/* Of a bucket of elements begin to end of `params`; one that goes to the end, or beyond, may leave some over. */
struct gn_shard_range gn_shard_range(size_t params, int ranks, size_t begin, size_t end);
/* The first element of those that are left over. */
size_t gn_shard_rest(size_t params, int ranks);

struct gn_shard;

/* Local. bucket_bytes: as gn_reducer_config has it. ward: another rank, whose part this one has a copy of; -1: nobody's. All borrowed. */
enum gn_status gn_shard_create(struct gn_comm *comm, const struct gn_model *model, size_t bucket_bytes, int ward, struct gn_stream *stream,
			       struct gn_shard **out, struct gn_err *err);
/* After the optimizer that has its parts. NULL is fine. */
void gn_shard_destroy(struct gn_shard *s);
/* This rank's with its ward's behind them; its own, which are the first of them: its blocks and then what is left over. Borrowed. */
const struct gn_parts *gn_shard_parts(const struct gn_shard *s);
const struct gn_parts *gn_shard_own_parts(const struct gn_shard *s);
int gn_shard_ward(const struct gn_shard *s);
/* Elements of each rank's blocks. */
size_t gn_shard_block_elements(const struct gn_shard *s);
/* Where the parameters are a stage's or a slice's: of the ranks with the others; and of those with pieces of the same tensors, NULL: there are
 * none. Borrowed. */
void gn_shard_set_beyond(struct gn_shard *s, struct gn_update_group *all, struct gn_update_group *pieces);
/* Of all ranks, and of those with pieces of the same tensors. Sums may first allocate memory of the communicator. */
struct gn_update_group *gn_shard_group(struct gn_shard *s);
struct gn_update_group *gn_shard_pieces_group(struct gn_shard *s);
/* Collective; blocks. flat [gn_model_param_elements]: what all ranks have, packed, at its place; zeros elsewhere are kept. */
enum gn_status gn_shard_gather(struct gn_shard *s, const float *packed, float *flat, struct gn_err *err);

#endif
