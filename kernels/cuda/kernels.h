/* CUDA kernels for the memory-bound parts of a training step, on NHWC tensors.
 *
 * Every call enqueues work on a stream and returns. Pointers are to device memory unless a comment says host. Tensors are accessed
 * in vectors of 16 bytes where the channels of a pixel fill whole vectors and addresses are multiples of 16, else element by
 * element: slower, with the same result. Arithmetic is in float, sums over a tensor end in double; results are reproducible on one
 * kind of device (no atomic sums). GN_ERR_USAGE: a shape that the kernel does not support. Nothing here allocates, except the
 * creation of optimizers.
 *
 * Thread safety: as the stream's.
 */
#ifndef GN_KERNELS_CUDA_KERNELS_H
#define GN_KERNELS_CUDA_KERNELS_H

#include "src/device/cuda.h"
#include "kernels/cuda/shape.h"
#include "src/base/crop.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/loss.h"
#include "kernels/optim.h"

struct gn_cuda_batch_norm {
	enum gn_cuda_type type;
	size_t rows; /* n * h * w; at least 2 in training */
	int channels;
	int relu;
	double eps, momentum;
	const float *weight, *bias;	   /* [channels], as all arrays below */
	float *running_mean, *running_var; /* NULL: not updated */
	float *mean, *inverse;		   /* mean and 1 / sqrt(var + eps) of the batch; preserved from forward to backward */
	double *sums;  /* [2][channels] of the last reduction, for the sum over a group of processes */
	void *scratch; /* gn_cuda_batch_norm_scratch_bytes() bytes, reusable between calls */
};

size_t gn_cuda_batch_norm_scratch_bytes(const struct gn_cuda_stream *s, size_t rows, int channels);
/* sums = per channel the sum of x and of x^2. total_rows > 0: also computes mean, inverse and the running statistics (unbiased
 * variance) for that number of rows; 0: deferred to gn_cuda_batch_norm_finish(), after the sum over a group. */
enum gn_status gn_cuda_batch_norm_statistics(struct gn_cuda_stream *s, const struct gn_cuda_batch_norm *b,
					     const void *x, size_t total_rows, struct gn_err *err);
enum gn_status gn_cuda_batch_norm_finish(struct gn_cuda_stream *s, const struct gn_cuda_batch_norm *b,
					 size_t total_rows, struct gn_err *err);
/* For evaluation: sets mean and inverse from the running statistics. */
enum gn_status gn_cuda_batch_norm_running(struct gn_cuda_stream *s, const struct gn_cuda_batch_norm *b,
					  struct gn_err *err);
/* y = relu(norm(x) + added); added may be NULL. y may alias x or added. */
enum gn_status gn_cuda_batch_norm_apply(struct gn_cuda_stream *s, const struct gn_cuda_batch_norm *b, const void *x,
					const void *added, void *y, struct gn_err *err);

/* scale and shift, [channels] in b's type, with norm(x) = x * scale + shift. */
enum gn_status gn_cuda_batch_norm_affine(struct gn_cuda_stream *s, const struct gn_cuda_batch_norm *b, void *scale, void *shift,
					 struct gn_err *err);

struct gn_cuda_batch_norm_grad {
	const void *x,
		*y; /* y: required with relu and an addend; else NULL is fine, and the relu's mask is derived from x */
	const void *dout, *more_dout; /* more_dout is added to dout; may be NULL */
	void *dx;		      /* may alias dout */
	void *dadded;		      /* gradient of the addend; NULL: none; may alias dout, not dx */
	float *dweight, *dbias;	      /* overwritten */
};

/* First half: sums = {sum of dz, sum of dz * normalised x}, dweight, dbias, and dadded. */
enum gn_status gn_cuda_batch_norm_grad_sums(struct gn_cuda_stream *s, const struct gn_cuda_batch_norm *b,
					    const struct gn_cuda_batch_norm_grad *g, struct gn_err *err);
/* Second half: dx from sums over total_rows rows. Needs dout, more_dout and y unchanged unless dadded is set. */
enum gn_status gn_cuda_batch_norm_grad_apply(struct gn_cuda_stream *s, const struct gn_cuda_batch_norm *b,
					     const struct gn_cuda_batch_norm_grad *g, size_t total_rows,
					     struct gn_err *err);

/* Tensors are [n][h][w][c]. kernel at most 15, pad at most half of it. argmax: one byte per output, the position in the window. NaN
 * counts as the maximum; of equal values the first in row order is taken. */
enum gn_status gn_cuda_max_pool(struct gn_cuda_stream *s, enum gn_cuda_type type, const struct gn_cuda_window *w,
				const void *x, void *y, uint8_t *argmax, struct gn_err *err);
enum gn_status gn_cuda_max_pool_grad(struct gn_cuda_stream *s, enum gn_cuda_type type, const struct gn_cuda_window *w,
				     const void *dy, const uint8_t *argmax, void *dx, struct gn_err *err);
/* To out_h x out_w with PyTorch's adaptive windows; 1 x 1 is global average pooling. */
enum gn_status gn_cuda_average_pool(struct gn_cuda_stream *s, enum gn_cuda_type type, const struct gn_cuda_window *w,
				    const void *x, void *y, struct gn_err *err);
enum gn_status gn_cuda_average_pool_grad(struct gn_cuda_stream *s, enum gn_cuda_type type,
					 const struct gn_cuda_window *w, const void *dy, void *dx, struct gn_err *err);

struct gn_cuda_loss_args {
	enum gn_cuda_type type;
	int batch, classes;
	const void *logits;    /* [batch][classes] */
	const int32_t *labels; /* [batch] */
	const int32_t *pair_labels;  /* [batch] or NULL */
	const float *lambdas;   /* [batch]; with pair_labels */
	double smoothing;
	double grad_scale; /* factor of dlogits: the loss scale of f16, else 1 */
	void *dlogits;
	float *rows;		  /* [2 * batch] scratch */
	struct gn_loss *out;	  /* one */
	float *mean;		  /* += share * the loss; NULL: not wanted */
	float *correct;		  /* += share * the fraction of correct images, as gn_compute_loss(); NULL: not wanted */
	double share;
};

enum gn_status gn_cuda_softmax_cross_entropy(struct gn_cuda_stream *s, const struct gn_cuda_loss_args *a,
					     struct gn_err *err);

struct gn_cuda_optim_tensor {
	float *params;
	const void *grads;
	float *slots[GN_OPTIM_SLOTS_MAX];
	void *copy; /* copy of params in the gradients' type, for the forward pass; NULL: none */
	size_t count;
	double weight_decay;
	int adapt;
	double lr_scale; /* as in struct gn_optim_tensor */
};

struct gn_cuda_optim;

/* Optimizer over all tensors of a model in one to three launches; float master parameters. tensors: host array of count elements,
 * copied; their addresses must stay valid. type: of gradients and copies. */
enum gn_status gn_cuda_optim_create(struct gn_cuda_stream *s, const struct gn_optim *rule, enum gn_cuda_type type,
				    const struct gn_cuda_optim_tensor *tensors, size_t count,
				    struct gn_cuda_optim **out, struct gn_err *err);
void gn_cuda_optim_destroy(struct gn_cuda_optim *o);
/* Enqueues the numbers of the next step, separately from the step: a captured graph can contain the step but not its numbers. */
enum gn_status gn_cuda_optim_set(struct gn_cuda_optim *o, struct gn_cuda_stream *s, const struct gn_optim_update *u,
				 struct gn_err *err);
/* Between gn_cuda_optim_set() and the step: clips the gradient norm to limit, as torch.nn.utils.clip_grad_norm_. squares and
 * more_squares: arrays whose sum is that of the squared gradients, before the step's grad_scale. */
enum gn_status gn_cuda_optim_clip(struct gn_cuda_optim *o, struct gn_cuda_stream *s, const double *squares, int count,
				  const double *more, int more_count, double limit, struct gn_err *err);
/* skip: no update if *skip is non-zero (see gn_cuda_find_nonfinite); NULL: always update. */
enum gn_status gn_cuda_optim_step(struct gn_cuda_optim *o, struct gn_cuda_stream *s, const int32_t *skip,
				  struct gn_err *err);

/* average = *decay * average + (1 - *decay) * x; decay is on the device, skip as for a step. */
enum gn_status gn_cuda_average(struct gn_cuda_stream *s, float *average, const float *x, size_t count, const float *decay,
			       const int32_t *skip, struct gn_err *err);

/* Small values of the host arrive in device memory as arguments of a kernel: they are read before the call returns, and a graph repeats
 * them. bytes: a multiple of 4, at most GN_CUDA_PUT_BYTES_MAX; `to` is aligned to 4. */
#define GN_CUDA_PUT_BYTES_MAX 128
enum gn_status gn_cuda_put(struct gn_cuda_stream *s, void *to, const void *values, size_t bytes, struct gn_err *err);

/* to = from, converted between types. */
enum gn_status gn_cuda_cast(struct gn_cuda_stream *s, enum gn_cuda_type from_type, const void *from,
			    enum gn_cuda_type to_type, void *to, size_t count, struct gn_err *err);
/* to = a + b, with relu max(0, a + b); b may be NULL. to may alias a or b. */
enum gn_status gn_cuda_add(struct gn_cuda_stream *s, enum gn_cuda_type type, const void *a, const void *b, int relu,
			   void *to, size_t count, struct gn_err *err);
/* din = (dout + more) where y > 0; more may be NULL; din may alias dout. */
enum gn_status gn_cuda_relu_grad(struct gn_cuda_stream *s, enum gn_cuda_type type, const void *y, const void *dout,
				 const void *more, void *din, size_t count, struct gn_err *err);
/* x *= factor. */
enum gn_status gn_cuda_scale(struct gn_cuda_stream *s, enum gn_cuda_type type, void *x, double factor, size_t count,
			     struct gn_err *err);
/* *found |= 1 if an element is infinite or NaN. */
enum gn_status gn_cuda_find_nonfinite(struct gn_cuda_stream *s, enum gn_cuda_type type, const void *x, size_t count,
				      int32_t *found, struct gn_err *err);

/* Tensors of n images in the orders [n][pixels][channels] and [n][channels][pixels]. */
struct gn_cuda_order {
	enum gn_cuda_type from_type, to_type;
	int n, channels, pixels;
	int to_inner; /* 1: to [n][pixels][channels]; 0: from it */
};

enum gn_status gn_cuda_reorder(struct gn_cuda_stream *s, const struct gn_cuda_order *o, const void *from, void *to,
			       struct gn_err *err);
/* y[row][c] += bias[c] + added[row][c], then max(0, .) with relu; bias and added may be NULL. */
enum gn_status gn_cuda_bias(struct gn_cuda_stream *s, enum gn_cuda_type type, const float *bias, const void *added,
			    int relu, void *y, size_t rows, int channels, struct gn_err *err);
/* Converts batch norm's sums of channels to float and back. */
enum gn_status gn_cuda_sums_to_float(struct gn_cuda_stream *s, const double *from, float *to, int count,
				     struct gn_err *err);
enum gn_status gn_cuda_sums_to_double(struct gn_cuda_stream *s, const float *from, double *to, int count,
				      struct gn_err *err);

/* Enqueues: fills x with random numbers in -1 .. 1, a function of seed, for timing: zeros take less power and may run faster. */
enum gn_status gn_cuda_randomise(struct gn_cuda_stream *s, enum gn_cuda_type type, void *x, size_t count, uint64_t seed,
				 struct gn_err *err);

struct gn_cuda_dropout {
	double rate;
	uint64_t seed;
	uint32_t stream, purpose; /* purpose: GN_RNG_DROPOUT */
	const uint64_t *step;
};

/* y = x * mask with the masks of gn_ref_dropout(); y may alias x. */
enum gn_status gn_cuda_drop(struct gn_cuda_stream *s, enum gn_cuda_type type, const struct gn_cuda_dropout *d,
			    const void *x, void *y, size_t count, struct gn_err *err);

struct gn_cuda_image_args {
	enum gn_cuda_type type; /* of the samples */
	int n, h, w;		/* of the samples */
	int channels;		     /* 3 or more; channels above 3 become 0 */
	float mean[3], deviation[3]; /* of pixel values in 0..1: sample = (pixel / 255 - mean) / deviation */
	const struct gn_crop *crops; /* [n]; their pixels are in device memory, too */
	void *out;			/* [n][h][w][channels] */
};

/* Converts each crop to its sample: resized with the filter of data/sample/resize.h, mirrored, normalised. */
enum gn_status gn_cuda_crop_resize_normalise(struct gn_cuda_stream *s, const struct gn_cuda_image_args *a, struct gn_err *err);

#ifdef __cplusplus
}
#endif
#endif
