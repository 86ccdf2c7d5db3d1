/* Inner loops of activations, of scaling by channel, of layer norm, of max pooling and of softmax, compiled per instruction set and
 * selected when an operator is created. Tensors hold floats, or with is_bf16 bfloat16, which is widened, computed as float and rounded once. Private to
 * kernels/host.
 */
#ifndef GN_KERNELS_HOST_LAYER_H
#define GN_KERNELS_HOST_LAYER_H

#include "kernels/op.h"
#include "src/base/half.h"

/* Element i of a tensor. In line always: loops over them become vectors. */
static inline __attribute__((always_inline)) float gn_layer_load(int is_bf16, const void *x, size_t i)
{
	return is_bf16 ? gn_f32_of_bf16(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

static inline __attribute__((always_inline)) void gn_layer_store(int is_bf16, void *y, size_t i, float v)
{
	if (is_bf16)
		((uint16_t *)y)[i] = gn_bf16_of_f32(v);
	else
		((float *)y)[i] = v;
}

/* Pixels of `lanes` adjacent channels; consecutive pixels are stride elements apart. */
struct gn_layer_piece {
	size_t pixels, stride;
	int lanes, is_bf16;
};

/* Rows of layer norm: the channels of a pixel, in groups of lanes that are group_stride elements apart. */
struct gn_layer_rows {
	size_t pixels, stride, group_stride;
	int channels, lanes, is_bf16;
	double eps;
	const float *weight, *bias;
};

/* Max pooling of up to 16 adjacent channels. Pixels are `stride` elements apart in both tensors. */
struct gn_layer_pool {
	int h, w, out_h, out_w, kernel, step, pad;
	int lanes, is_bf16;
	size_t stride;
};

enum {
	GN_LAYER_TILE = 8,	      /* pixels of layer norm that are in buffers at once */
	GN_LAYER_CHANNELS_MAX = 4096  /* of layer norm */
};

struct gn_layer_loops {
	void (*forward)(enum gn_activation kind, int is_bf16, size_t count, const void *x, void *y);
	/* at: what backward reads, of gn_layer_reads_out(). more: added to dy; NULL: nothing. dx may be dy. */
	void (*backward)(enum gn_activation kind, int is_bf16, size_t count, const void *at, const void *dy, const void *more, void *dx);
	/* y = x * factors[channel]; y may be x. */
	void (*scale)(const struct gn_layer_piece *p, const void *x, const float *factors, void *y);
	/* dx = dy * factors, may be dy; sums[channel] = sum(dy * x) */
	void (*scale_gradient)(const struct gn_layer_piece *p, const void *x, const float *factors, const void *dy, void *dx, float *sums);
	/* buffer: GN_LAYER_TILE rows of channels, padded to lanes. Padding of y becomes 0. */
	void (*norm)(const struct gn_layer_rows *r, const void *x, void *y, float *buffer);
	/* buffer: twice that. Adds to dweight and dbias. dx may be dy. */
	void (*norm_gradient)(const struct gn_layer_rows *r, const void *x, const void *dy, void *dx, float *dweight, float *dbias,
			      float *buffer);
	/* where: of each output the number of its pixel in the window, for the gradient. NaN is the maximum, as in PyTorch. */
	void (*max_pool)(const struct gn_layer_pool *p, const void *x, void *y, uint8_t *where);
	void (*max_pool_gradient)(const struct gn_layer_pool *p, const uint8_t *where, const void *dy, void *dx);
	/* x becomes softmax(factor * x) */
	void (*softmax)(size_t count, float factor, float *x);
	/* d becomes the gradient of x: factor * y (d - sum(y d)) */
	void (*softmax_gradient)(size_t count, float factor, const float *y, float *d);
};

/* Whether the gradient of an activation is computed from its output, else from its input. */
static inline int gn_layer_reads_out(enum gn_activation kind)
{
	return kind == GN_ACTIVATION_RELU6 || kind == GN_ACTIVATION_SIGMOID || kind == GN_ACTIVATION_HARD_SIGMOID;
}

extern const struct gn_layer_loops gn_layer_loops_plain;
#if defined __x86_64__
extern const struct gn_layer_loops gn_layer_loops_avx2, gn_layer_loops_avx512;
#endif

/* The table for this processor. */
const struct gn_layer_loops *gn_layer_loops(void);

#endif
