/* Numeric operators of a network, one interface for every backend: describe, create, bind to memory, run.
 *
 * An operator works on one fixed shape and, once bound, on fixed memory, so that nothing is decided or allocated while
 * it runs. Tensors may lie in blocked layouts; an operator says in which layouts it wants its inputs and gives its
 * output, and whoever strings operators together puts a reorder in between where they differ. GN_BACKEND_REF computes
 * in double precision on plain layouts with the plainest loops (the oracle); GN_BACKEND_HOST computes in float with
 * oneDNN. GN_BACKEND_CUDA computes on a GPU: buffers lie in its memory, forward and backward queue work on a stream and
 * return, and errors of that work come out when somebody waits for it.
 *
 * Parameters, their gradients and running statistics are float for every backend. Weights of convolutions and their gradients
 * may lie in an order that the operator likes (kernels/weight.h), everything else is in torch's.
 * Thread safety: an operator belongs to one thread at a time; OpenMP threads work inside.
 */
#ifndef GN_KERNELS_OP_H
#define GN_KERNELS_OP_H

#include "kernels/weight.h"
#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum gn_backend { GN_BACKEND_REF, GN_BACKEND_HOST, GN_BACKEND_CUDA };

/* What makes the operators of a backend with a state of its own: of GN_BACKEND_CUDA, see kernels/cuda/ops.h. */
struct gn_op_device;

enum gn_op_kind {
	GN_OP_CONV,
	GN_OP_BATCH_NORM,
	GN_OP_RELU,
	GN_OP_MAX_POOL,
	GN_OP_ADAPTIVE_AVG_POOL,
	GN_OP_ADD,
	GN_OP_LINEAR,
	GN_OP_DROPOUT,
	GN_OP_REORDER
};

/* How a tensor of n images, c channels, h rows, w columns lies in memory. block 1: plain NCHW. block b > 1: channels in
 * groups of b that are innermost, the last group filled up with zeros (always: operators keep them zero). block 0:
 * NHWC. */
struct gn_layout {
	int n, c, h, w;
	int block;
	int element_bytes; /* 2: bfloat16, on a GPU the type of its operators; 4: float, 8: double */
};

/* Batch statistics over several processes that run the same operator at the same time, each on a batch of the same shape. */
struct gn_op_group {
	int members;
	/* Every member calls it with as many values at the same point of its run; values become the sums over all members. */
	enum gn_status (*sum)(void *context, double *values, size_t count, struct gn_err *err);
	void *context;
};

struct gn_op;

/* Between a batch norm with relu and the convolution that alone reads what it gives, on a GPU, in training. Zeroed by the caller,
 * outlives both; they fill it in when they are bound, the batch norm first. The convolution decides. */
struct gn_op_conv_bn {
	struct gn_op *norm;
	int defers; /* the batch norm's output is not written: the convolution makes it on its way from the batch norm's input */
	int sums;   /* the gradient that the convolution gives has passed the relu already, and its sums come with it */
};

struct gn_op_desc {
	enum gn_op_kind kind;
	struct gn_layout in[2];  /* as they come; in[1] for GN_OP_ADD, and with add; a convolution finds it in its out */
	struct gn_layout out;    /* wanted; GN_OP_REORDER alone */
	int channels_out;        /* conv, linear */
	int kernel, stride, pad; /* conv, max pool; square */
	int out_side;            /* adaptive average pool; square */
	int bias;                /* conv, linear */
	int relu;                /* followed by max(0, x) in the same pass: batch norm, add, conv in inference */
	int add;                 /* in[1] is added to the result before that: batch norm with relu, conv in inference */
	/* conv, host: takes and gives bfloat16, adds floats; weights and their gradients stay float. The other operators compute in
	 * the type that their first input comes in, but linear layers and dropout want floats, and average pooling gives them. */
	int bf16;
	/* with bf16, host: also on a processor without instructions for it, if it has AVX-512: widened, multiplied in fp32 and rounded. */
	int emulate;
	/* conv, GPU, training, without bias: the sums of its output's channels and of their squares are wanted, for the batch norm
	 * behind it; whether they come is in its info. */
	int statistics;
	int training;
	/* conv, host, inference: weights change only when gn_op_freeze is told; what is made of them is in the workspace, which has to
	 * be left alone from then on. */
	int frozen;
	int needs_din;        /* 0 for the first layer: nobody wants the gradient of an image */
	double eps, momentum; /* batch norm */
	const struct gn_op_group *group; /* batch norm in training: borrowed; NULL: this process alone */
	struct gn_op_conv_bn *conv_bn; /* batch norm, conv, GPU: borrowed; NULL: none */
	/* conv: how weight and dweight come. GN_WEIGHT_ANY: as the operator says in its info; another layout than it would have said
	 * costs it a change of layout at every use. */
	struct gn_weight_layout weight;
	double rate;          /* dropout */
	uint64_t seed;        /* dropout */
	uint32_t stream;      /* dropout: different for every dropout of a network */
	struct gn_op_device *device; /* GN_BACKEND_CUDA; borrowed, outlives the operator */
};

/* What the one who calls must provide, and for how long. */
struct gn_op_info {
	struct gn_layout in[2]; /* wanted */
	struct gn_layout out;
	struct gn_weight_layout weight; /* as it has to come */
	size_t workspace_bytes; /* kept untouched from forward to backward */
	size_t scratch_bytes;   /* free for others between calls */
	size_t statistics_bytes; /* conv: of the sums that it gives; 0: none */
	int backward_reads_in;  /* in[0]; else it may be gone by then, as in[1] always may */
	int backward_reads_out;
	int recomputes; /* gn_op_recompute can make out once more, from in[0] and the workspace */
	int in_place; /* out may be in[0]'s memory, and din[0] dout's */
	int out_is_second;	      /* out has to be in[1]'s memory */
	int second_gradient_in_place; /* din[1] may be dout's memory */
	int sums_gradients;	      /* the gradient of the output may come as two that are to be added */
};

/* All memory is borrowed, aligned to 64 bytes except the parameters, and zeroed once before its first use. */
struct gn_op_buffers {
	const void *in[2];
	void *out;
	const void *dout, *more_dout; /* the second is added to the first, where sums_gradients allows; else NULL */
	void *din[2];               /* overwritten; NULL where not needed */
	const float *weight, *bias; /* conv as in info, linear OI, batch norm scale and shift */
	float *dweight, *dbias;     /* overwritten */
	float *running_mean, *running_var;
	/* float [2][channels]: sums of a tensor's channels and of their squares, which a conv gives with its output where its info has
	 * statistics_bytes, and a batch norm in training takes with its input; NULL: it makes its own. */
	float *statistics;
	void *workspace, *scratch;
};

/* Whether this machine multiplies bfloat16 itself; where not, operators that are to do so and not to emulate it are
 * GN_ERR_UNSUPPORTED, as are all where that is not possible either. */
int gn_backend_has_bf16(enum gn_backend backend);
/* Shapes that make no output, or statistics over a single value in training, are GN_ERR_USAGE. */
enum gn_status gn_op_create(enum gn_backend backend, const struct gn_op_desc *desc, struct gn_op **out,
			    struct gn_err *err);
void gn_op_destroy(struct gn_op *op);
/* Between the two gn_op_create leaves out the search for engines, seconds for one convolution, which gn_op_device_end does for all
 * operators at the same time, on all processors. Only after it are the bytes in their infos known, and may they be bound. An error
 * names the shape; operators are destroyed by their owner. */
void gn_op_device_begin(struct gn_op_device *d);
enum gn_status gn_op_device_end(struct gn_op_device *d, struct gn_err *err);
const struct gn_op_info *gn_op_info(const struct gn_op *op);
/* May be called again with other memory. */
enum gn_status gn_op_bind(struct gn_op *op, const struct gn_op_buffers *buffers, struct gn_err *err);
/* Where desc.frozen: takes the weights as they are now, before the first forward. Else it does nothing. */
enum gn_status gn_op_freeze(struct gn_op *op, struct gn_err *err);
/* step numbers dropout masks. Batch norm in training updates the running statistics (unbiased variance). */
enum gn_status gn_op_forward(struct gn_op *op, uint64_t step, struct gn_err *err);
/* After a forward, where info.recomputes: out once more, bit for bit, whatever has become of it since. Nothing else changes. */
enum gn_status gn_op_recompute(struct gn_op *op, struct gn_err *err);
/* After a forward with the same buffers. */
enum gn_status gn_op_backward(struct gn_op *op, struct gn_err *err);

size_t gn_layout_elements(const struct gn_layout *l);
size_t gn_layout_bytes(const struct gn_layout *l);
int gn_layout_equal(const struct gn_layout *a, const struct gn_layout *b);
/* Plain float values into and out of a tensor in plain layout, converting where it holds another type. */
void gn_tensor_load(const struct gn_layout *l, const float *from, void *to);
void gn_tensor_store(const struct gn_layout *l, const void *from, float *to);
/* to += from, both in layout l. */
void gn_tensor_accumulate(const struct gn_layout *l, const void *from, void *to);

/* Mean over the labels >= 0 of the cross entropy between softmax(logits) and a target of 1 - smoothing on the label
 * plus smoothing / classes everywhere, and its gradient. logits and dlogits are [batch][classes] of the backend's type.
 * Without any label the loss is 0. A label >= classes is GN_ERR_DATA. */
enum gn_status gn_softmax_cross_entropy(enum gn_backend backend, int batch, int classes, const void *logits,
					const int32_t *labels, double smoothing, double *loss, void *dlogits,
					struct gn_err *err);

/* What the images of a batch are. Borrowed. */
struct gn_targets {
	const int32_t *labels; /* [batch]; below 0: the image does not count */
	const int32_t *pair_labels;  /* [batch] mixup: the label of the other image of the pair; NULL: no mixup */
	const float *lambdas;   /* [batch] mixup: the weight of the image itself, 0..1 */
};

/* The same with mixup: the target is lambda * target(label) + (1 - lambda) * target(pair label). */
enum gn_status gn_softmax_cross_entropy_mixed(enum gn_backend backend, int batch, int classes, const void *logits,
					      const struct gn_targets *targets, double smoothing, double *loss,
					      void *dlogits, struct gn_err *err);

#endif
