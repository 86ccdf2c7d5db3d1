/* The operators of kernels/op.h on a GPU: convolutions by cuDNN, linear layers by cuBLASLt (where it is not there or
 * does not take them, by cuDNN, too), everything else by our own kernels.
 *
 * Tensors lie NHWC (block 0) in one type for all operators of a set; a reorder brings images from and logits to plain
 * float. Parameters, their gradients and statistics are float, weights of convolutions in GN_WEIGHT_OHWI or torch's order:
 * what multiplies is a copy in the set's type, made anew in every forward pass. All work is queued on one stream. What
 * cuDNN has no fused engine for runs as a plain convolution and a kernel of ours.
 *
 * Thread safety: as the stream's.
 */
#ifndef GN_KERNELS_CUDA_OPS_H
#define GN_KERNELS_CUDA_OPS_H

#include "kernels/cuda/dnn.h"
#include "kernels/op.h"

struct gn_cuda_ops;

struct gn_cuda_ops_options {
	enum gn_cuda_type type; /* of tensors between operators */
	struct gn_dnn_options dnn; /* its tune is the one below */
	/* Operators find their fastest engines when they are bound, on the memory they are bound to: all but parameters is overwritten,
	 * inputs and gradients of outputs with random numbers. */
	int tune;
};

/* On the stream, which outlives it. bf16 on a GPU that has none (before compute capability 8.0) is GN_ERR_UNSUPPORTED. */
enum gn_status gn_cuda_ops_create(struct gn_cuda_stream *s, const struct gn_cuda_ops_options *options,
				  struct gn_cuda_ops **out, struct gn_err *err);
/* After its operators. */
void gn_cuda_ops_destroy(struct gn_cuda_ops *o);
/* For gn_op_desc.device. */
struct gn_op_device *gn_cuda_ops_device(struct gn_cuda_ops *o);
enum gn_cuda_type gn_cuda_ops_type(const struct gn_cuda_ops *o);
/* Queues: the number of the step, that masks of dropout follow, for the forward and backward passes that come. The step in
 * gn_op_forward is not looked at, so that a captured graph of passes may be run for another step. */
enum gn_status gn_cuda_ops_set_step(struct gn_cuda_ops *o, uint64_t step, struct gn_err *err);

#endif
