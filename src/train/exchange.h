/* The gradient exchange of data-parallel training: one flat array summed over all ranks, in buckets that leave as soon as
 * their last gradient is ready.
 *
 * The array holds all gradients in parameter order and then a tail (BN buffers, loss, flags). Buckets are cut at tensor
 * borders from the end of the array to its beginning, because backward finishes the last layers first; the tail travels with
 * the first bucket. Buckets start in the same order on every rank, whatever becomes ready when.
 *
 * Thread safety: one thread. Collective: every rank calls begin, ready for every parameter, wait.
 */
#ifndef GN_TRAIN_EXCHANGE_H
#define GN_TRAIN_EXCHANGE_H

#include "src/train/model.h"
#include "transport/comm.h"

struct gn_exchange;

/* flat: gn_model_param_elements floats and then tail_elements more; borrowed. A bucket has at least bucket_bytes, except the
 * one that is left over. */
enum gn_status gn_exchange_create(struct gn_comm *comm, const struct gn_model *model, float *flat,
				  size_t tail_elements, size_t bucket_bytes, const char *algo,
				  struct gn_exchange **out, struct gn_err *err);
void gn_exchange_destroy(struct gn_exchange *x);
size_t gn_exchange_buckets(const struct gn_exchange *x);

/* A new step: nothing is ready. */
void gn_exchange_begin(struct gn_exchange *x);
/* The gradient of this parameter is final: may start buckets, and moves those under way forward. Errors are kept until wait.
 * Has the signature of gn_plan_backward's callback; context is the exchange. */
void gn_exchange_ready(void *context, int param);
/* Blocks until the whole array is summed. Starts what has not started yet (parameters without a gradient). */
enum gn_status gn_exchange_wait(struct gn_exchange *x, struct gn_err *err);

#endif
