/* The gradient reducer of data-parallel training: one flat array summed over all ranks, in buckets that start as soon as their last
 * gradient is complete.
 *
 * The array holds all gradients in parameter order and then a tail (BN buffers, loss, flags), in the host's memory or a GPU's. Buckets are
 * cut at tensor borders from the end of the array to its beginning, because backward finishes the last layers first; the tail is part of
 * the first bucket. Buckets start in the same order on every rank, whichever gradients are complete first. Without overlap all of them
 * start after backward; the sums are the same bits. Another bucket size gives the same bits only where an algorithm adds up the ranks of
 * every element in one order: shared, recursive-doubling and halving-doubling do; ring, the trees and the hierarchical ones do so for two
 * ranks, and else begin with another rank where an element is in another chunk.
 *
 * Thread safety: one thread. Collective: every rank calls begin, ready for every parameter, wait. Of one rank there is nothing to sum.
 */
#ifndef GN_TRAIN_PARALLEL_REDUCER_H
#define GN_TRAIN_PARALLEL_REDUCER_H

#include "src/train/parallel/sharing.h"

struct gn_reducer;

/* How the array is cut and when sums start. Alike on all ranks. */
struct gn_reducer_config {
	size_t bucket_bytes; /* a bucket has at least so many, except the last */
	int overlap;	     /* they start while backward runs */
};

/* Collective, but failures are of this rank alone. */
enum gn_status gn_reducer_create(const struct gn_sharing_options *options, const struct gn_reducer_config *config,
				 struct gn_reducer **out, struct gn_err *err);
void gn_reducer_destroy(struct gn_reducer *x);
size_t gn_reducer_buckets(const struct gn_reducer *x);
/* How many buckets there would be. */
size_t gn_reducer_count(const struct gn_model *model, size_t bucket_bytes);
/* Where each begins, in elements, in the order in which they start: from the end of the array to its beginning. */
void gn_reducer_begins(const struct gn_model *model, size_t bucket_bytes, size_t *begins);
const struct gn_reducer_config *gn_reducer_config(const struct gn_reducer *x);

/* A bucket in the present step, or the last one. Times of gn_clock_ns; done is when this rank saw the end. */
struct gn_reducer_bucket {
	size_t bytes;
	uint64_t ready_ns, start_ns, done_ns;
	uint64_t taken_ns; /* gn_reducer_taken_ns when it was ready */
};
void gn_reducer_bucket(const struct gn_reducer *x, size_t index, struct gn_reducer_bucket *out);
/* The collective of the bucket; NULL on GPUs, and of one rank. */
const struct gn_coll *gn_reducer_coll(const struct gn_reducer *x, size_t index);
/* Of the present step, or the last one: the time that gn_reducer_ready took from backward, in ns. */
uint64_t gn_reducer_taken_ns(const struct gn_reducer *x);
/* When gn_reducer_wait found that all gradients are complete; of one rank when it was called. */
uint64_t gn_reducer_computed_ns(const struct gn_reducer *x);

/* A new step: no gradient is complete. */
void gn_reducer_begin(struct gn_reducer *x);
/* The gradient of this parameter is complete when the event is done, which is of one stream; NULL: it is. May start buckets, and makes
 * progress on those that have started. The event may be recorded again for later gradients, and is borrowed until gn_reducer_wait. Errors
 * are kept until then. */
void gn_reducer_ready(struct gn_reducer *x, int param, struct gn_event *event);
/* Whether its bucket may be complete with this parameter: with its first one, when backward goes from the last to the first. */
int gn_reducer_ends_bucket(const struct gn_reducer *x, int param);
/* Starts what has not started yet and makes progress, without blocking. Errors are kept until wait. */
void gn_reducer_poll(struct gn_reducer *x);
/* Blocks until the whole array is summed. Starts what has not started yet (parameters without a gradient). Of one rank it does not
 * block. */
enum gn_status gn_reducer_wait(struct gn_reducer *x, struct gn_err *err);
/* Collective. Each rank has updated its part of the parameters: begins to bring all of them to all ranks, those of the first layers first.
 * Does not block, unless the last ones are still under way. Without sharding all ranks have them, as by the next two, and nothing is
 * done. */
enum gn_status gn_reducer_gather(struct gn_reducer *x, struct gn_err *err);
/* Blocks until this parameter, and all before it, have come; makes progress on the others. Its memory may be read then. */
enum gn_status gn_reducer_need(struct gn_reducer *x, int param, struct gn_err *err);
/* The same for all parameters. */
enum gn_status gn_reducer_need_all(struct gn_reducer *x, struct gn_err *err);

#endif
