/* A convolution from the inside. Only kernels/cuda/op_conv.c and op_conv_bn.c. */
#ifndef GN_KERNELS_CUDA_OP_CONV_H
#define GN_KERNELS_CUDA_OP_CONV_H

#include "kernels/cuda/ops_internal.h"

struct gn_cuda_conv {
	struct gn_op base;
	struct gn_cuda_conv *next; /* of those that wait */
	struct gn_dnn_conv conv;
	/* of the set's cuDNN; NULL: nobody asked, no engine does, or not planned yet */
	struct gn_dnn_plan *forward, *data, *weight;
	struct gn_dnn_plan *counting; /* forward, with the sums of its output */
	/* with the batch norm before it; when all is planned the first two are there together */
	struct gn_dnn_plan *norm_forward, *norm_weight, *norm_data;
	int is_tuned;
	int counts_after;	      /* the sums are made by a kernel of ours behind the other plan all the same: that is faster */
	int fused;	   /* bias, sum and relu happen in the forward plan */
	int copies;	   /* weights and their gradient are not used where they lie */
	size_t weights;	   /* elements */
	/* scratch: room of cuDNN, the gradient of the weights in the operator's type, sums of a bias' gradient */
	size_t room_bytes, dweight_bytes;
	struct gn_cuda_batch_norm sums;
};

/* What multiplies, and where its gradient goes. */
void *gn_cuda_conv_weight(const struct gn_cuda_conv *c);
void *gn_cuda_conv_weight_gradient(const struct gn_cuda_conv *c);
/* Queues the passes without the batch norm: forward with what is counted, the gradients of weight and input in the operator's type. */
enum gn_status gn_cuda_conv_forward(struct gn_cuda_conv *c, struct gn_err *err);
enum gn_status gn_cuda_conv_weight_back(struct gn_cuda_conv *c, struct gn_err *err);
enum gn_status gn_cuda_conv_data_back(struct gn_cuda_conv *c, struct gn_err *err);

/* op_conv_bn.c. Plans with the batch norm before, where there are engines. */
void gn_cuda_conv_bn_plan(struct gn_cuda_conv *c, struct gn_dnn *dnn);
size_t gn_cuda_conv_bn_room_bytes(const struct gn_cuda_conv *c);
/* When all is bound: what of it is taken. */
enum gn_status gn_cuda_conv_bn_choose(struct gn_cuda_conv *c, struct gn_err *err);
/* Queue the passes with the batch norm: the first two where the link defers, the third where it has sums. */
enum gn_status gn_cuda_conv_bn_forward(struct gn_cuda_conv *c, struct gn_err *err);
enum gn_status gn_cuda_conv_bn_weight_back(struct gn_cuda_conv *c, struct gn_err *err);
enum gn_status gn_cuda_conv_bn_data_back(struct gn_cuda_conv *c, struct gn_err *err);

#endif
