/* The gradient exchange of data-parallel training: one flat array summed over all ranks, in buckets that leave as soon as
 * their last gradient is ready.
 *
 * The array holds all gradients in parameter order and then a tail (BN buffers, loss, flags). Buckets are cut at tensor
 * borders from the end of the array to its beginning, because backward finishes the last layers first; the tail travels with
 * the first bucket. Buckets start in the same order on every rank, whatever becomes ready when. Without overlap all of them
 * start when backward is through; the sums are the same bits. Another bucket size gives the same bits only where an algorithm
 * adds up the ranks of every element in one order: shared, recursive-doubling and halving-doubling do; ring, the trees and the
 * hierarchical ones do so for two ranks, and else begin with another rank where an element comes to lie in another chunk.
 *
 * Thread safety: one thread. Collective: every rank calls begin, ready for every parameter, wait.
 */
#ifndef GN_TRAIN_PARALLEL_REDUCER_H
#define GN_TRAIN_PARALLEL_REDUCER_H

#include "src/train/model/model.h"
#include "transport/coll/coll_backend.h"
#include "transport/coll/comm.h"

struct gn_reducer;

/* How the array is cut and when it leaves. Alike on all ranks. */
struct gn_reducer_config {
	size_t bucket_bytes; /* a bucket has at least so many, except the one that is left over */
	int overlap;	     /* leave while backward runs */
};

/* flat: gn_model_param_elements floats and then tail_elements more; borrowed. */
enum gn_status gn_reducer_create(struct gn_comm *comm, const struct gn_model *model, float *flat,
				  size_t tail_elements, const struct gn_reducer_config *form, const char *algo,
				  struct gn_reducer **out, struct gn_err *err);
/* The same for an array in a device's memory, which is summed by the carrier, borrowed. */
enum gn_status gn_reducer_create_on(struct gn_coll_backend *carrier, const struct gn_model *model, float *flat,
				     size_t tail_elements, const struct gn_reducer_config *form, struct gn_reducer **out,
				     struct gn_err *err);
void gn_reducer_destroy(struct gn_reducer *x);
size_t gn_reducer_buckets(const struct gn_reducer *x);
/* How many buckets there would be. */
size_t gn_reducer_count(const struct gn_model *model, size_t bucket_bytes);
const struct gn_reducer_config *gn_reducer_config(const struct gn_reducer *x);

/* What became of a bucket in the present step, or the last one. Times of gn_clock_ns; done is when this rank saw the end. */
struct gn_reducer_bucket {
	size_t bytes;
	uint64_t ready_ns, start_ns, done_ns;
	uint64_t taken_ns; /* gn_reducer_taken_ns when it was ready */
};
void gn_reducer_bucket(const struct gn_reducer *x, size_t index, struct gn_reducer_bucket *out);
/* What was chosen for the bucket's sum; NULL on a device. */
const struct gn_coll *gn_reducer_coll(const struct gn_reducer *x, size_t index);
/* Of the present step, or the last one: what gn_reducer_ready has taken from backward, in ns. */
uint64_t gn_reducer_taken_ns(const struct gn_reducer *x);

/* A new step: nothing is ready. */
void gn_reducer_begin(struct gn_reducer *x);
/* The gradient of this parameter is final: may start buckets, and moves those under way forward. Errors are kept until wait.
 * Has the signature of gn_plan_backward's callback; context is the exchange. */
void gn_reducer_ready(void *context, int param);
/* Whether its bucket may be complete with this parameter: with its first one, when backward goes from the last to the first. */
int gn_reducer_ends_bucket(const struct gn_reducer *x, int param);
/* On a device, before gn_reducer_ready: what will have happened there when the gradients are final (CUDA: a cudaEvent_t, recorded
 * behind the kernels that write them), from now on. It may be recorded anew for later gradients of the same stream, and is kept
 * by the caller until gn_reducer_wait. NULL: they are final already. */
void gn_reducer_after(struct gn_reducer *x, void *event);
/* Starts what has not started yet and moves those under way forward, without blocking. Errors are kept until wait. */
void gn_reducer_poll(struct gn_reducer *x);
/* Blocks until the whole array is summed. Starts what has not started yet (parameters without a gradient). */
enum gn_status gn_reducer_wait(struct gn_reducer *x, struct gn_err *err);

#endif
