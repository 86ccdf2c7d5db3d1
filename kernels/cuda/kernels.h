/* Our own kernels for GPUs: everything of a training step that is bound by memory, on tensors with channels innermost
 * (NHWC).
 *
 * Every call queues work on a stream and returns; results are there once the stream is. Pointers are to device memory
 * unless a comment says host. Tensors are read and written 16 bytes at a time where the channels of a pixel fill whole
 * 16 bytes and addresses are multiples of 16, else element by element: slower, the same result. Arithmetic is in float,
 * sums over a tensor end in double; results do not change from run to run on one kind of device (no atomic sums).
 * GN_ERR_USAGE: a shape that the kernel cannot do. Nothing here allocates; objects of optimizers do so when created.
 *
 * Thread safety: as the stream's.
 */
#ifndef GN_KERNELS_CUDA_KERNELS_H
#define GN_KERNELS_CUDA_KERNELS_H

#include "kernels/cuda/device.h"
#include "kernels/cuda/shape.h"
#include "src/base/crop.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/optim.h"

/* --- Batch normalisation with what follows it: y = relu(norm(x) + added) --- */

struct gn_cuda_batch_norm {
	enum gn_cuda_type type;
	size_t rows; /* n * h * w; at least 2 in training */
	int channels;
	int relu;
	double eps, momentum;
	const float *weight, *bias;	   /* [channels], as all below */
	float *running_mean, *running_var; /* NULL: not kept */
	float *mean, *inverse;		   /* the batch's mean and 1 / sqrt(var + eps), from forward to backward */
	double *sums;  /* [2][channels] of the last reduction, to be summed over a group of processes */
	void *scratch; /* gn_cuda_batch_norm_scratch_bytes(), free between calls */
};

size_t gn_cuda_batch_norm_scratch_bytes(const struct gn_cuda_stream *s, size_t rows, int channels);
/* sums = per channel the sum of x and of its squares. total_rows > 0: mean, inverse and the running statistics
 * (unbiased variance) follow at once from as many rows; 0: later by gn_cuda_batch_norm_finish, when a group has added
 * its sums. */
enum gn_status gn_cuda_batch_norm_statistics(struct gn_cuda_stream *s, const struct gn_cuda_batch_norm *b,
					     const void *x, size_t total_rows, struct gn_err *err);
enum gn_status gn_cuda_batch_norm_finish(struct gn_cuda_stream *s, const struct gn_cuda_batch_norm *b,
					 size_t total_rows, struct gn_err *err);
/* For evaluation: mean and inverse from the running statistics. */
enum gn_status gn_cuda_batch_norm_running(struct gn_cuda_stream *s, const struct gn_cuda_batch_norm *b,
					  struct gn_err *err);
/* added NULL: nothing is. y may be x or added. */
enum gn_status gn_cuda_batch_norm_apply(struct gn_cuda_stream *s, const struct gn_cuda_batch_norm *b, const void *x,
					const void *added, void *y, struct gn_err *err);

/* Of b's type, [channels]: norm(x) is x * scale + shift. */
enum gn_status gn_cuda_batch_norm_affine(struct gn_cuda_stream *s, const struct gn_cuda_batch_norm *b, void *scale, void *shift,
					 struct gn_err *err);

struct gn_cuda_batch_norm_grad {
	const void *x,
		*y; /* y: where relu is set and something was added; else it may be NULL, and x says what passed */
	const void *dout, *more_dout; /* the second is added to the first; NULL: not there */
	void *dx;		      /* may be dout */
	void *dadded;		      /* the gradient of what was added; NULL: nothing was; may be dout, not dx */
	float *dweight, *dbias;	      /* overwritten */
};

/* The first half, up to sums = {sum of dz, sum of dz times the normalised x}, dweight and dbias, and dadded. */
enum gn_status gn_cuda_batch_norm_grad_sums(struct gn_cuda_stream *s, const struct gn_cuda_batch_norm *b,
					    const struct gn_cuda_batch_norm_grad *g, struct gn_err *err);
/* The second, from sums over total_rows rows: dx. dout, more_dout and y as they were, if dadded is NULL. */
enum gn_status gn_cuda_batch_norm_grad_apply(struct gn_cuda_stream *s, const struct gn_cuda_batch_norm *b,
					     const struct gn_cuda_batch_norm_grad *g, size_t total_rows,
					     struct gn_err *err);

/* --- Pooling; tensors are [n][h][w][c] --- */

/* kernel at most 15, pad at most half of it. argmax: one byte for every output, its place in the window. NaN wins and
 * stays; of equal values the first in row order. */
enum gn_status gn_cuda_max_pool(struct gn_cuda_stream *s, enum gn_cuda_type type, const struct gn_cuda_window *w,
				const void *x, void *y, uint8_t *argmax, struct gn_err *err);
enum gn_status gn_cuda_max_pool_grad(struct gn_cuda_stream *s, enum gn_cuda_type type, const struct gn_cuda_window *w,
				     const void *dy, const uint8_t *argmax, void *dx, struct gn_err *err);
/* To out_h x out_w, torch's windows; 1 x 1 is global average pooling. */
enum gn_status gn_cuda_average_pool(struct gn_cuda_stream *s, enum gn_cuda_type type, const struct gn_cuda_window *w,
				    const void *x, void *y, struct gn_err *err);
enum gn_status gn_cuda_average_pool_grad(struct gn_cuda_stream *s, enum gn_cuda_type type,
					 const struct gn_cuda_window *w, const void *dy, void *dx, struct gn_err *err);

/* --- The loss, as gn_softmax_cross_entropy_mixed of kernels/op.h --- */

struct gn_cuda_loss {
	double loss;	 /* mean over the labels >= 0; 0 without any */
	int32_t counted; /* labels >= 0 */
	int32_t bad; /* images whose label or pair label is no class: their gradient is zero and they add no loss; an error */
};

struct gn_cuda_loss_args {
	enum gn_cuda_type type;
	int batch, classes;
	const void *logits;    /* [batch][classes] */
	const int32_t *labels; /* [batch] */
	const int32_t *pair_labels;  /* [batch] or NULL */
	const float *lambdas;   /* [batch] with pair_labels */
	double smoothing;
	double grad_scale; /* times dlogits: the loss scale of f16, else 1 */
	void *dlogits;
	float *rows;		  /* [batch] scratch */
	struct gn_cuda_loss *out; /* one */
};

enum gn_status gn_cuda_softmax_cross_entropy(struct gn_cuda_stream *s, const struct gn_cuda_loss_args *a,
					     struct gn_err *err);

/* --- Optimizers: all tensors of a model in one to three launches, float masters, gradients of any type --- */

struct gn_cuda_optim_tensor {
	float *params;
	const void *grads;
	float *slots[GN_OPTIM_SLOTS_MAX];
	void *copy; /* of params in the type of the gradients, for the forward pass; NULL: none */
	size_t count;
	double weight_decay;
	int adapt;
};

struct gn_cuda_optim;

/* Tensors (host, count of them, not kept) lie still as long as the optimizer lives. type: of gradients and copies. */
enum gn_status gn_cuda_optim_create(struct gn_cuda_stream *s, const struct gn_optim *rule, enum gn_cuda_type type,
				    const struct gn_cuda_optim_tensor *tensors, size_t count,
				    struct gn_cuda_optim **out, struct gn_err *err);
void gn_cuda_optim_destroy(struct gn_cuda_optim *o);
/* Queues the numbers of the next step; by itself, so that a captured graph may hold the step and not the numbers. */
enum gn_status gn_cuda_optim_set(struct gn_cuda_optim *o, struct gn_cuda_stream *s, const struct gn_optim_update *u,
				 struct gn_err *err);
/* Between these numbers and their step: gradients that are longer than limit become as long, as torch.nn.utils.clip_grad_norm_ makes
 * them. squares, and more of them: numbers whose sum is that of the gradients' squares, without the step's grad_scale. */
enum gn_status gn_cuda_optim_clip(struct gn_cuda_optim *o, struct gn_cuda_stream *s, const double *squares, int count,
				  const double *more, int more_count, double limit, struct gn_err *err);
/* skip: where not 0, nothing is changed (see gn_cuda_find_nonfinite); NULL: never. */
enum gn_status gn_cuda_optim_step(struct gn_cuda_optim *o, struct gn_cuda_stream *s, const int32_t *skip,
				  struct gn_err *err);

/* average = *decay * average + (1 - *decay) * x; decay on the device, skip as for a step. */
enum gn_status gn_cuda_average(struct gn_cuda_stream *s, float *average, const float *x, size_t count, const float *decay,
			       const int32_t *skip, struct gn_err *err);

/* --- Element by element; count elements --- */

/* to = from in another type (or the same). */
enum gn_status gn_cuda_cast(struct gn_cuda_stream *s, enum gn_cuda_type from_type, const void *from,
			    enum gn_cuda_type to_type, void *to, size_t count, struct gn_err *err);
/* to = a + b, then max(0, .) with relu; b NULL: a alone. to may be a or b: to += b is a sum of gradients. */
enum gn_status gn_cuda_add(struct gn_cuda_stream *s, enum gn_cuda_type type, const void *a, const void *b, int relu,
			   void *to, size_t count, struct gn_err *err);
/* din = (dout + more) where y > 0; more NULL: dout alone; din may be dout. */
enum gn_status gn_cuda_relu_grad(struct gn_cuda_stream *s, enum gn_cuda_type type, const void *y, const void *dout,
				 const void *more, void *din, size_t count, struct gn_err *err);
/* x *= factor. */
enum gn_status gn_cuda_scale(struct gn_cuda_stream *s, enum gn_cuda_type type, void *x, double factor, size_t count,
			     struct gn_err *err);
/* *found |= 1 when one of them is infinite or NaN. */
enum gn_status gn_cuda_find_nonfinite(struct gn_cuda_stream *s, enum gn_cuda_type type, const void *x, size_t count,
				      int32_t *found, struct gn_err *err);

/* --- Around convolutions --- */

/* Tensors of n images whose channels are innermost on one side and outermost on the other: [n][pixels][channels] and
 * [n][channels][pixels]. */
struct gn_cuda_order {
	enum gn_cuda_type from_type, to_type;
	int n, channels, pixels;
	int to_inner; /* 1: channels become innermost; 0: they were */
};

enum gn_status gn_cuda_reorder(struct gn_cuda_stream *s, const struct gn_cuda_order *o, const void *from, void *to,
			       struct gn_err *err);
/* y[row][c] += bias[c] + added[row][c], then max(0, .) with relu; bias and added may be NULL. */
enum gn_status gn_cuda_bias(struct gn_cuda_stream *s, enum gn_cuda_type type, const float *bias, const void *added,
			    int relu, void *y, size_t rows, int channels, struct gn_err *err);
/* Sums of channels as batch norm has them, from and to float. */
enum gn_status gn_cuda_sums_to_float(struct gn_cuda_stream *s, const double *from, float *to, int count,
				     struct gn_err *err);
enum gn_status gn_cuda_sums_to_double(struct gn_cuda_stream *s, const float *from, double *to, int count,
				      struct gn_err *err);

/* The masks of gn_ref_dropout. */
/* Queues: numbers from -1 to 1, the same for a seed, for what is timed: nothing but zeros takes less power and may run faster. */
enum gn_status gn_cuda_randomise(struct gn_cuda_stream *s, enum gn_cuda_type type, void *x, size_t count, uint64_t seed,
				 struct gn_err *err);

struct gn_cuda_dropout {
	double rate;
	uint64_t seed;
	uint32_t stream, purpose; /* purpose: GN_RNG_DROPOUT */
	const uint64_t *step;
};

/* y = x * mask; y may be x. */
enum gn_status gn_cuda_drop(struct gn_cuda_stream *s, enum gn_cuda_type type, const struct gn_cuda_dropout *d,
			    const void *x, void *y, size_t count, struct gn_err *err);

/* --- Gradients made smaller, as kernels/ref/compress.h defines it; all float --- */

/* The k largest of count (at most 2^31 - 1), to indices and values [k]. rest: x with zeros where something was taken, may be x;
 * NULL: not wanted. scratch: gn_cuda_top_k_scratch_bytes(), free between calls. */
size_t gn_cuda_top_k_scratch_bytes(void);
enum gn_status gn_cuda_top_k(struct gn_cuda_stream *s, const float *x, size_t count, size_t k, uint32_t *indices,
			     float *values, float *rest, void *scratch, struct gn_err *err);
/* to[indices[i]] += values[i]; every index once. */
enum gn_status gn_cuda_scatter_add(struct gn_cuda_stream *s, const uint32_t *indices, const float *values, size_t k, float *to,
				   struct gn_err *err);
/* rest: x less what arrives, may be x; NULL: not wanted. */
enum gn_status gn_cuda_quantise(struct gn_cuda_stream *s, const float *x, size_t count, int8_t *to, float *scales, float *rest,
				struct gn_err *err);
/* to (+)= what was quantised. */
enum gn_status gn_cuda_dequantise(struct gn_cuda_stream *s, const int8_t *from, const float *scales, size_t count, int adds,
				  float *to, struct gn_err *err);

/* --- Images --- */

struct gn_cuda_image_args {
	enum gn_cuda_type type; /* of the samples */
	int n, h, w;		/* of the samples */
	int channels;		     /* 3 or more: the others become 0 */
	float mean[3], deviation[3]; /* of pixel values in 0..1: sample = (pixel / 255 - mean) / deviation */
	const struct gn_crop *crops; /* [n]; what they point to is device memory, too */
	void *out;			/* [n][h][w][channels] */
};

/* Each crop to its sample: cropped, resized with the filter of data/sample/resize.h, mirrored, normalised. */
enum gn_status gn_cuda_crop_resize_normalise(struct gn_cuda_stream *s, const struct gn_cuda_image_args *a, struct gn_err *err);

#ifdef __cplusplus
}
#endif
#endif
