/* The operators of kernels/op.h on a GPU: convolutions by cuDNN, linear layers by cuBLASLt (by cuDNN if it is missing or does not
 * support them), the products of attention by cuBLASLt, everything else by Gannet's kernels.
 *
 * Tensors are NHWC (block 0) in one type for all operators of a set; reorders convert images from and logits to plain float.
 * Parameters, their gradients and statistics are float, weights of convolutions in GN_WEIGHT_OHWI or PyTorch's order: the
 * multiplied weights are a copy in the set's type, made in every forward pass. All work is enqueued on one stream. Fusions without
 * a cuDNN engine run as a plain convolution and a kernel.
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
	struct gn_dnn_options dnn; /* its tune is ignored in favour of the one below */
	/* Operators select their fastest engines when they are bound, on the bound memory: everything except parameters is
	 * overwritten, inputs and output gradients with random numbers. */
	int tune;
};

/* Creates a set on a stream, which must outlive it. GN_ERR_UNSUPPORTED for bf16 on GPUs without it (compute capability below
 * 8.0). */
enum gn_status gn_cuda_ops_create(struct gn_cuda_stream *s, const struct gn_cuda_ops_options *options,
				  struct gn_cuda_ops **out, struct gn_err *err);
/* Destroy its operators first. */
void gn_cuda_ops_destroy(struct gn_cuda_ops *o);
/* For gn_op_desc.device. */
struct gn_op_device *gn_cuda_ops_device(struct gn_cuda_ops *o);
/* Enqueues the step number for dropout masks of the following forward and backward passes. The step argument of gn_op_forward() is
 * ignored, so that a captured graph can run for other steps. */
enum gn_status gn_cuda_ops_set_step(struct gn_cuda_ops *o, uint64_t step, struct gn_err *err);

#endif
