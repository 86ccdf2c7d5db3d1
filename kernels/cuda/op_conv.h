/* A convolution operator. Private to kernels/cuda/op_conv.c and op_conv_bn.c. */
#ifndef GN_KERNELS_CUDA_OP_CONV_H
#define GN_KERNELS_CUDA_OP_CONV_H

#include "kernels/cuda/ops_internal.h"

struct gn_cuda_conv {
	struct gn_op base;
	struct gn_cuda_conv *next; /* list of convolutions that wait for their plans */
	struct gn_dnn_conv conv;
	/* Borrowed from the gn_dnn; NULL: not requested, no engine, or not planned yet. */
	struct gn_dnn_plan *forward, *data, *weight;
	struct gn_dnn_plan *counting; /* forward with the sums of its output's channels */
	/* With the preceding batch norm. After planning the first two exist both or not at all. */
	struct gn_dnn_plan *norm_forward, *norm_weight, *norm_data;
	int is_tuned;
	int counts_after;	      /* the sums are computed by a separate kernel, because that is faster */
	int fused;	   /* bias, addition and relu are part of the forward plan */
	int copies;	   /* weights and their gradient are copied */
	size_t weights;	   /* elements */
	/* Scratch: workspace of cuDNN, the weight gradient in the operator's type, partial sums of the bias gradient. */
	size_t room_bytes, dweight_bytes;
	struct gn_cuda_batch_norm sums;
};

/* The multiplied weights, and their gradient. */
void *gn_cuda_conv_weight(const struct gn_cuda_conv *c);
void *gn_cuda_conv_weight_gradient(const struct gn_cuda_conv *c);
/* Enqueue the passes without the batch norm: forward with statistics, weight gradient, input gradient, in the operator's type. */
enum gn_status gn_cuda_conv_forward(struct gn_cuda_conv *c, struct gn_err *err);
enum gn_status gn_cuda_conv_weight_back(struct gn_cuda_conv *c, struct gn_err *err);
enum gn_status gn_cuda_conv_data_back(struct gn_cuda_conv *c, struct gn_err *err);

/* op_conv_bn.c. Requests the plans with the preceding batch norm. */
void gn_cuda_conv_bn_plan(struct gn_cuda_conv *c, struct gn_dnn *dnn);
size_t gn_cuda_conv_bn_room_bytes(const struct gn_cuda_conv *c);
/* After binding: measures and decides which fusions are used. */
enum gn_status gn_cuda_conv_bn_choose(struct gn_cuda_conv *c, struct gn_err *err);
/* Enqueue the passes with the batch norm: the first two where conv_bn->defers, the third where conv_bn->sums. */
enum gn_status gn_cuda_conv_bn_forward(struct gn_cuda_conv *c, struct gn_err *err);
enum gn_status gn_cuda_conv_bn_weight_back(struct gn_cuda_conv *c, struct gn_err *err);
enum gn_status gn_cuda_conv_bn_data_back(struct gn_cuda_conv *c, struct gn_err *err);

#endif
