/* Numeric operators of a network, one interface for every backend: describe, create, bind to memory, run.
 *
 * An operator works on one fixed shape and, once bound, on fixed memory: nothing is decided or allocated while it runs. Tensors may
 * have blocked layouts. An operator reports the layouts of its inputs and output, and the caller inserts a reorder where they
 * differ. GN_BACKEND_REF computes in double precision on plain layouts with simple loops (the oracle). GN_BACKEND_HOST computes in
 * float with oneDNN. GN_BACKEND_CUDA computes on a GPU: buffers are in its memory, forward and backward enqueue work on a stream
 * and return, and errors of that work are reported by the next synchronisation.
 *
 * Parameters, their gradients and running statistics are float for every backend. Weights of convolutions and their gradients may
 * have a layout that the operator chooses (kernels/weight.h); everything else has PyTorch's.
 * Thread safety: an operator belongs to one thread at a time; it uses OpenMP threads.
 */
#ifndef GN_KERNELS_OP_H
#define GN_KERNELS_OP_H

#include "kernels/weight.h"
#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum gn_backend { GN_BACKEND_REF, GN_BACKEND_HOST, GN_BACKEND_CUDA };

/* State shared by the operators of a device; for GN_BACKEND_CUDA see kernels/cuda/ops.h. */
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
	GN_OP_REORDER,
	GN_OP_ACTIVATION,
	/* y[n][c] = f x[n][c] of whole maps: f is in[1], of shape [n][c][1][1]; a weight of channel c; or per image 0 with probability rate,
	 * else 1 / (1 - rate) */
	GN_OP_SCALE,
	GN_OP_CHANNEL_SCALE,
	GN_OP_DROP_PATH,
	GN_OP_LAYER_NORM, /* over the channels of each pixel, with weight and bias per channel */
	/* a map of one column: the weight as pixel 0, then the pixels of the input in rows, plus the bias, [1 + pixels][channels] */
	GN_OP_TOKENS,
	/* softmax(q k^T / sqrt(channels of a head)) v over the pixels; channels of the input are q, k and v, each of desc.heads heads */
	GN_OP_ATTENTION,
	GN_OP_FIRST_PIXEL, /* pixel 0 of every map */
	GN_OP_CONJUGATE	   /* where a tensor passes between ranks that divide its channels: desc.conjugate */
};

/* The conjugate collectives of tensor parallelism (Shoeybi et al. 2019, "Megatron-LM", f and g): what is done forward, and with the gradient
 * backward. A whole tensor is the same on all ranks; of a sliced one rank r has channels [r c / ranks, (r + 1) c / ranks). */
enum gn_conjugate {
	GN_CONJUGATE_COPY,	   /* whole to whole: nothing; gradients are summed, for each rank has that of its part of the readers */
	GN_CONJUGATE_REDUCE,	   /* parts of a sum to the whole: summed, plus the weight, a bias by channel; nothing */
	GN_CONJUGATE_GATHER,	   /* sliced to whole: gathered; each rank takes its slice, for all have the whole gradient */
	GN_CONJUGATE_GATHER_REDUCE /* sliced to whole, for readers of which each rank has a part: gathered; summed, and each takes its slice */
};

struct gn_conjugate_desc {
	enum gn_conjugate kind;
	int rank, ranks;
};

/* What the caller does with values of an operator over all its processes: their sum; of a gather the block of this rank, at rank * count,
 * becomes all blocks; of a scatter the sum of all blocks becomes this rank's, at rank * count. */
enum gn_op_exchange_kind { GN_EXCHANGE_NONE, GN_EXCHANGE_SUM, GN_EXCHANGE_GATHER, GN_EXCHANGE_SCATTER };

struct gn_op_exchange {
	enum gn_op_exchange_kind kind;
	size_t count;	   /* of a sum the values, else those of one block */
	int element_bytes; /* 4: float, 8: double */
};

/* PyTorch's ReLU6, SiLU, Hardswish, Hardsigmoid, Sigmoid and GELU (by erf). */
enum gn_activation {
	GN_ACTIVATION_RELU6,
	GN_ACTIVATION_SILU,
	GN_ACTIVATION_HARD_SWISH,
	GN_ACTIVATION_HARD_SIGMOID,
	GN_ACTIVATION_SIGMOID,
	GN_ACTIVATION_GELU
};

/* Memory layout of a tensor of n images, c channels, h rows, w columns. block 1: NCHW. block b > 1: channels in groups of b that
 * are innermost, the last group padded with zeros (an invariant: operators keep the padding zero). block 0: NHWC. */
struct gn_layout {
	int n, c, h, w;
	int block;
	int element_bytes; /* 2: bfloat16, or the type of GPU operators; 4: float; 8: double */
};

/* Of an operator on the host. */
static inline int gn_layout_is_bf16(const struct gn_layout *l)
{
	return l->element_bytes == sizeof(uint16_t);
}

/* How convolutions of 3 x 3 are computed on the host: directly, or by Winograd's minimal filtering (kernels/host/winograd.h) where that is
 * possible, or where it is faster, by a rule of shape alone, so that equal options give equal bits. */
enum gn_convolution { GN_CONVOLUTION_AUTO, GN_CONVOLUTION_DIRECT, GN_CONVOLUTION_WINOGRAD };

struct gn_op;

/* Fusion of a batch norm with relu and the convolution that is its only reader; GPU, training. Zeroed by the caller; must outlive
 * both operators, which fill it in when they are bound, the batch norm first. The convolution decides what is fused. */
struct gn_op_conv_bn {
	struct gn_op *norm;
	/* the batch norm's output is not written: the convolution normalises the batch norm's input while it reads it */
	int defers;
	/* the convolution's input gradient is already masked by the relu and comes with the sums that batch norm's backward
	 * needs */
	int sums;
};

struct gn_op_desc {
	enum gn_op_kind kind;
	struct gn_layout in[2];  /* layouts on input; in[1] for GN_OP_ADD and GN_OP_SCALE, and with add; a convolution finds in[1] in its out */
	struct gn_layout out;    /* requested layout; only GN_OP_REORDER */
	int channels_out;        /* conv, linear */
	int kernel, stride, pad; /* conv, max pool; square */
	/* conv: input and output channels are in so many groups that do not mix; 0 and 1: one. Weights of several are in PyTorch's order,
	 * [out][in / groups][kernel][kernel] */
	int groups;
	enum gn_activation activation;
	int out_side;            /* adaptive average pool; square */
	int heads;               /* attention */
	int bias;                /* conv, linear */
	int relu;                /* apply max(0, x) in the same pass: batch norm, add, conv in inference */
	int add;                 /* add in[1] to the result before the relu: batch norm with relu, conv in inference */
	/* conv, host: bfloat16 input and output, accumulation in float; weights and their gradients stay float. Other operators
	 * compute in the type of their first input, except that linear layers and dropout need floats and average pooling outputs
	 * floats. */
	int bf16;
	enum gn_convolution convolution; /* conv, host */
	/* with bf16, host: also allow processors without bfloat16 instructions but with AVX-512: widen, multiply in fp32, round */
	int emulate;
	/* conv, GPU, training, without bias: compute the sums of the output's channels and of their squares for the following batch
	 * norm; info.statistics_bytes tells whether the operator does */
	int statistics;
	int training;
	/* conv, host, inference: weights change only at gn_op_freeze(), which stores the packed weights in the workspace; the
	 * caller must preserve the workspace */
	int frozen;
	int needs_din;        /* 0: the input gradient is not needed (first layer) */
	double eps, momentum; /* batch norm; eps: layer norm */
	/* batch norm in training, not ref: how many processes run the operator concurrently, each on a batch of this shape, with
	 * statistics over all of them; 0 and 1: of this process alone */
	int members;
	struct gn_op_conv_bn *conv_bn; /* batch norm, conv, GPU: borrowed; NULL: none */
	/* conv: layout of weight and dweight. GN_WEIGHT_ANY: the operator chooses and reports it in info; any other layout costs a
	 * reorder at every use. */
	struct gn_weight_layout weight;
	double rate;          /* dropout, drop path */
	uint64_t seed;        /* the same */
	uint32_t stream;      /* the same: unique per such operator of a network */
	/* dropout of a slice: it draws the mask of the whole tensor. Elements of an image before the slice, and in all; 0: it is whole */
	size_t slice_begin, slice_of;
	struct gn_conjugate_desc conjugate;
	struct gn_op_device *device; /* GN_BACKEND_CUDA; borrowed, must outlive the operator */
};

/* What the caller must provide, and its lifetime. */
struct gn_op_info {
	struct gn_layout in[2]; /* required layouts */
	struct gn_layout out;
	struct gn_weight_layout weight; /* required layout of weight and dweight */
	size_t workspace_bytes; /* preserved from forward to backward */
	size_t scratch_bytes;   /* may be used by others between calls */
	size_t statistics_bytes; /* conv: size of the sums that it outputs; 0: none */
	/* Values of gn_op_sums() that the caller sums over all processes of the operator, between forward and forward_rest and between
	 * backward and backward_rest; 0: there are none, and forward and backward are complete. */
	size_t sum_count;
	/* Conjugate: the same, of gn_op_values(), forward [0] and backward [1]. */
	struct gn_op_exchange exchange[2];
	int backward_reads_in;  /* backward reads in[0]; otherwise it may be overwritten after forward, as in[1] always may */
	int backward_reads_out;
	int recomputes; /* gn_op_recompute() can recompute out from in[0] and the workspace */
	int in_place; /* out may alias in[0], and din[0] dout */
	int out_is_second;	      /* out must alias in[1] */
	int second_gradient_in_place; /* din[1] may alias dout */
	int winograd;		      /* conv, host: computed by Winograd's filtering */
	int sums_gradients;	      /* backward accepts the output gradient as two tensors to be added */
};

/* All memory is borrowed, aligned to 64 bytes except for the parameters, and zeroed once before its first use. */
struct gn_op_buffers {
	const void *in[2];
	void *out;
	const void *dout, *more_dout; /* more_dout is added to dout where info.sums_gradients is set; else NULL */
	void *din[2];               /* overwritten; NULL if not needed */
	const float *weight, *bias; /* conv: layout of info; linear: OI; batch norm: scale and shift */
	float *dweight, *dbias;     /* overwritten */
	float *running_mean, *running_var;
	/* float [2][channels]: sums of a tensor's channels and of their squares. Output of a conv with info.statistics_bytes, input
	 * of a batch norm in training; NULL: the batch norm computes them. */
	float *statistics;
	void *workspace, *scratch;
};

/* Whether this machine multiplies bfloat16 in hardware. If not, operators with bf16 but without emulate are GN_ERR_UNSUPPORTED, and
 * without AVX-512 all with bf16. */
int gn_backend_has_bf16(enum gn_backend backend);
/* Whether this processor has Winograd's filtering; without it convolutions are direct whatever is asked for. */
int gn_backend_has_winograd(enum gn_backend backend);
/* GN_ERR_USAGE for shapes without an output, and for training statistics over a single value. */
enum gn_status gn_op_create(enum gn_backend backend, const struct gn_op_desc *desc, struct gn_op **out,
			    struct gn_err *err);
void gn_op_destroy(struct gn_op *op);
/* Between begin and end, gn_op_create() defers the search for engines (seconds per convolution); gn_op_device_end() runs it for all
 * operators in parallel on all processors. Only afterwards are the bytes in their infos known, and may they be bound. An error
 * names the shape; the caller still destroys the operators. */
void gn_op_device_begin(struct gn_op_device *d);
enum gn_status gn_op_device_end(struct gn_op_device *d, struct gn_err *err);
const struct gn_op_info *gn_op_info(const struct gn_op *op);
/* May be called again with other memory. */
enum gn_status gn_op_bind(struct gn_op *op, const struct gn_op_buffers *buffers, struct gn_err *err);
/* With desc.frozen: packs the current weights; call before the first forward and after changes. Otherwise no effect. */
enum gn_status gn_op_freeze(struct gn_op *op, struct gn_err *err);
/* step selects the dropout masks. Batch norm in training updates the running statistics (unbiased variance). */
enum gn_status gn_op_forward(struct gn_op *op, uint64_t step, struct gn_err *err);
/* With info.sum_count or info.exchange, after gn_op_forward and that: completes it. Nothing else uses the scratch memory in between. */
enum gn_status gn_op_forward_rest(struct gn_op *op, struct gn_err *err);
/* After a forward, with info.recomputes: writes out again, bit for bit, even if it was overwritten meanwhile. Changes nothing
 * else. */
enum gn_status gn_op_recompute(struct gn_op *op, struct gn_err *err);
/* Call after a forward with the same buffers. */
enum gn_status gn_op_backward(struct gn_op *op, struct gn_err *err);
/* As gn_op_forward_rest. Parameter gradients are complete before the sums, and are this process's alone. */
enum gn_status gn_op_backward_rest(struct gn_op *op, struct gn_err *err);
/* [info.sum_count], in the bound scratch memory; NULL: none. */
double *gn_op_sums(const struct gn_op *op);
/* What info.exchange is about, in the bound scratch memory; of a conjugate only. */
void *gn_op_values(const struct gn_op *op);

/* A pass of an operator that a library's engine computes. */
struct gn_op_engine {
	const char *pass; /* "forward", "norm, relu, forward, statistics" */
	int64_t engine;	  /* the library's number */
	double ms;	  /* of a run, as measured when the engine was selected; 0: never */
};
enum { GN_OP_ENGINES_MAX = 4 };
/* Of a bound operator, those in use; returns how many. None on the host. */
int gn_op_engines(const struct gn_op *op, struct gn_op_engine out[GN_OP_ENGINES_MAX]);

size_t gn_layout_elements(const struct gn_layout *l);
size_t gn_layout_bytes(const struct gn_layout *l);
int gn_layout_equal(const struct gn_layout *a, const struct gn_layout *b);
/* Converts plain float values to and from a tensor in plain layout of any element type. */
void gn_tensor_load(const struct gn_layout *l, const float *from, void *to);
void gn_tensor_store(const struct gn_layout *l, const void *from, float *to);
/* to += from, both in layout l. */
void gn_tensor_accumulate(const struct gn_layout *l, const void *from, void *to);

/* Targets of the images of a batch. Borrowed. */
struct gn_targets {
	const int32_t *labels; /* [batch]; negative: the image is ignored */
	const int32_t *pair_labels;  /* [batch] mixup: the label of the other image of the pair; NULL: no mixup */
	const float *lambdas;   /* [batch] mixup: the weight of the image itself, 0..1 */
	const double *class_weights; /* [classes], host backends: factors of the classes' parts of the loss; NULL: 1 each */
};

/* Mean over the labels >= 0 of the cross entropy between softmax(logits) and the smoothed target, and its gradient dlogits. The
 * target of a label is 1 - smoothing on the label plus smoothing / classes everywhere; with mixup it is lambda * target(label) +
 * (1 - lambda) * target(pair label). With class weights, loss and dlogits are still divided by the number of labels: see
 * gn_targets_mean_weight. logits and dlogits: [batch][classes] of the backend's type. The loss is 0 without any label.
 * A label >= classes is GN_ERR_DATA. Host backends only; on a GPU see gn_cuda_softmax_cross_entropy(). */
enum gn_status gn_softmax_cross_entropy_mixed(enum gn_backend backend, int batch, int classes, const void *logits,
					      const struct gn_targets *targets, double smoothing, double *loss,
					      void *dlogits, struct gn_err *err);
/* What loss and dlogits are to be divided by for the mean of torch's CrossEntropyLoss(weight): over the labels >= 0 the mean of their
 * weights; with mixup, whose targets are probabilities for torch, and without class weights 1; without any label 0. Its sum over
 * ranks of equal batches stands for the global batch. */
double gn_targets_mean_weight(const struct gn_targets *targets, int batch);
/* GN_ERR_DATA: a label that is no class. Labels of images without one, which are negative, are fine, and their pair labels not read. */
enum gn_status gn_targets_check(const struct gn_targets *t, int batch, int classes, struct gn_err *err);
/* Of an image: of two labels the one that weighs more. */
int gn_targets_main_label(const struct gn_targets *t, int image);

#endif
