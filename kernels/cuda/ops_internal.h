/* Shared by the GPU operators. Private to kernels/cuda/op*.c. */
#ifndef GN_KERNELS_CUDA_OPS_INTERNAL_H
#define GN_KERNELS_CUDA_OPS_INTERNAL_H

#include "kernels/cuda/blas.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/ops.h"
#include "kernels/backend.h"

struct gn_cuda_conv;

struct gn_cuda_ops {
	struct gn_op_device base;
	struct gn_cuda_stream *stream;
	struct gn_cuda_ops_options options;
	struct gn_dnn *dnn;
	struct gn_blas *blas; /* NULL: not available */
	struct gn_cuda_arena *arena;
	uint64_t *step; /* in device memory */
	int collects;
	struct gn_cuda_conv *waiting; /* convolutions without plans, the newest first */
};

/* Allocates an operator of size bytes with NHWC input and output in the set's type. */
struct gn_op *gn_cuda_op_alloc(struct gn_cuda_ops *o, size_t size, const struct gn_op_class *class, const struct gn_op *base,
			       struct gn_err *err);
struct gn_cuda_ops *gn_cuda_ops_of(const struct gn_op *op);
static inline struct gn_cuda_stream *gn_cuda_op_stream(const struct gn_op *op)
{
	return gn_cuda_ops_of(op)->stream;
}
static inline enum gn_cuda_type gn_cuda_op_type(const struct gn_op *op)
{
	return gn_cuda_ops_of(op)->options.type;
}

static inline size_t gn_cuda_op_rows(const struct gn_layout *l)
{
	return (size_t)l->n * (size_t)l->h * (size_t)l->w;
}

/* op_norm.c, for the convolution behind a bound batch norm: the addresses of its tensors (z, mean, inverse, norm_weight, norm_bias,
 * scale, shift, dnorm_weight, dnorm_bias, factors); computes its output from its input; computes the sums of its gradient. */
void gn_cuda_norm_show(const struct gn_op *norm, struct gn_dnn_data *out);
enum gn_status gn_cuda_norm_apply(struct gn_op *norm, struct gn_err *err);
enum gn_status gn_cuda_norm_grad_sums(struct gn_op *norm, struct gn_err *err);

/* op_conv.c: convolutions, and linear layers that cuBLASLt does not support; op_linear.c: those that it does, else
 * GN_ERR_UNSUPPORTED. op_norm.c: batch norm. op_attention.c; GN_ERR_UNSUPPORTED without cuBLASLt. op_layers.c: activations, scaling, layer
 * norm, tokens. op_simple.c: the others. */
enum gn_status gn_cuda_conv_create(struct gn_cuda_ops *o, const struct gn_op *base, struct gn_op **out, struct gn_err *err);
/* Plans the waiting convolutions and fills in their infos. */
enum gn_status gn_cuda_conv_plan_waiting(struct gn_cuda_ops *o, struct gn_err *err);
enum gn_status gn_cuda_linear_create(struct gn_cuda_ops *o, const struct gn_op *base, struct gn_op **out, struct gn_err *err);
enum gn_status gn_cuda_norm_create(struct gn_cuda_ops *o, const struct gn_op *base, struct gn_op **out, struct gn_err *err);
enum gn_status gn_cuda_attention_create(struct gn_cuda_ops *o, const struct gn_op *base, struct gn_op **out, struct gn_err *err);
enum gn_status gn_cuda_layer_create(struct gn_cuda_ops *o, const struct gn_op *base, struct gn_op **out, struct gn_err *err);
enum gn_status gn_cuda_simple_create(struct gn_cuda_ops *o, const struct gn_op *base, struct gn_op **out, struct gn_err *err);

#endif
