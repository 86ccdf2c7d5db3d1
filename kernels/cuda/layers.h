/* CUDA kernels of networks of tokens and of mobile networks, with the conventions of kernels/cuda/kernels.h: NHWC tensors of one type,
 * arithmetic in float, reproducible sums, work that is enqueued. rows: pixels of all images. Formulas: kernels/ref.
 *
 * Thread safety: as the stream's.
 */
#ifndef GN_KERNELS_CUDA_LAYERS_H
#define GN_KERNELS_CUDA_LAYERS_H

#include "kernels/cuda/kernels.h"
#include "kernels/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y may alias x. */
enum gn_status gn_cuda_activate(struct gn_cuda_stream *s, enum gn_cuda_type type, enum gn_activation kind, const void *x, void *y,
				size_t count, struct gn_err *err);
/* dx = (dy + more) * slope at x; more may be NULL; dx may alias dy. */
enum gn_status gn_cuda_activate_grad(struct gn_cuda_stream *s, enum gn_cuda_type type, enum gn_activation kind, const void *x,
				     const void *dy, const void *more, void *dx, size_t count, struct gn_err *err);

/* Factors of the maps of a tensor [n][pixels][channels], of one kind. */
struct gn_cuda_factors {
	enum gn_cuda_type type;
	int n, pixels, channels;
	const void *by_map;	 /* [n][channels] in the tensor's type */
	const float *by_channel; /* [channels] */
	const struct gn_cuda_dropout *by_image; /* host; draws of gn_drop_path_factors() */
};

/* y = x * factor; y may alias x. */
enum gn_status gn_cuda_scale_maps(struct gn_cuda_stream *s, const struct gn_cuda_factors *f, const void *x, void *y, struct gn_err *err);
/* The gradient of the factors, the sums of x * dy over the pixels, by map in the tensor's type or by channel; sums: float [n][channels],
 * scratch. */
enum gn_status gn_cuda_scale_maps_sums(struct gn_cuda_stream *s, const struct gn_cuda_factors *f, const void *x, const void *dy, float *sums,
				       void *dby_map, float *dby_channel, struct gn_err *err);

struct gn_cuda_layer_norm {
	enum gn_cuda_type type;
	size_t rows;
	int channels;
	double eps;
	const float *weight, *bias; /* [channels] */
	float *mean, *inverse;	    /* [rows], preserved from forward to backward */
	float *scratch;		    /* gn_cuda_batch_norm_scratch_bytes() bytes */
};

/* y may alias x. */
enum gn_status gn_cuda_layer_norm(struct gn_cuda_stream *s, const struct gn_cuda_layer_norm *l, const void *x, void *y, struct gn_err *err);
/* dx may alias dy; NULL: not wanted. */
enum gn_status gn_cuda_layer_norm_grad(struct gn_cuda_stream *s, const struct gn_cuda_layer_norm *l, const void *x, const void *dy, void *dx,
				       float *dweight, float *dbias, struct gn_err *err);

/* y [n][1 + pixels][channels]: token [channels], then x [n][pixels][channels], plus position [1 + pixels][channels]. */
enum gn_status gn_cuda_tokens(struct gn_cuda_stream *s, enum gn_cuda_type type, int n, int pixels, int channels, const void *x,
			      const float *token, const float *position, void *y, struct gn_err *err);
/* dx may be NULL. */
enum gn_status gn_cuda_tokens_grad(struct gn_cuda_stream *s, enum gn_cuda_type type, int n, int pixels, int channels, const void *dy,
				   void *dx, float *dtoken, float *dposition, struct gn_err *err);
/* y [n][channels]: pixel 0 of x [n][pixels][channels]; or, back, y from x with zeros in the other pixels. */
enum gn_status gn_cuda_first_pixel(struct gn_cuda_stream *s, enum gn_cuda_type type, int n, int pixels, int channels, int back,
				   const void *from, void *to, struct gn_err *err);

/* Attention of n images, in products of one head each. */
struct gn_cuda_heads {
	enum gn_cuda_type type;
	int n, pixels, parts, heads, size; /* parts: 3 of q, k and v, or 1; size: channels of a head */
	size_t step; /* elements from part to part where they are by heads: whole vectors */
};

/* [n][pixels][parts][heads][size] to [parts][n][heads][pixels][size], each part step behind the one before; back: from it. */
enum gn_status gn_cuda_split_heads(struct gn_cuda_stream *s, const struct gn_cuda_heads *h, int back, const void *from, void *to,
				   struct gn_err *err);
/* Rows of count numbers, each begins stride after the one before. p = softmax(factor * scores). */
enum gn_status gn_cuda_softmax(struct gn_cuda_stream *s, enum gn_cuda_type type, size_t rows, int count, int stride, double factor,
			       const float *scores, void *p, struct gn_err *err);
/* p becomes the gradient of the scores; dp: that of p. */
enum gn_status gn_cuda_softmax_grad(struct gn_cuda_stream *s, enum gn_cuda_type type, size_t rows, int count, int stride, double factor,
				    const float *dp, void *p, struct gn_err *err);

#ifdef __cplusplus
}
#endif
#endif
