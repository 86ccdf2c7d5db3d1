/* Reference operators: double precision on plain layouts, written for readability, not speed.
 *
 * Every fast operator is compared with these, and these with finite differences. Shapes are those of PyTorch: x and y are
 * [n][c][h][w], weights OIHW or OI. Gradients are overwritten. Nothing here fails or allocates. Thread safety: pure functions.
 */
#ifndef GN_KERNELS_REF_REF_H
#define GN_KERNELS_REF_REF_H

#include "kernels/op.h"

#include <stddef.h>
#include <stdint.h>

struct gn_ref_window {
	int n, c, h, w;          /* input */
	int out_c, out_h, out_w; /* out_c == c for pooling */
	int kernel, stride, pad;
	int groups; /* conv: of input and output channels; 0: one */
};

void gn_ref_conv_forward(const struct gn_ref_window *s, const double *x, const double *weight, const double *bias,
			 double *y);
void gn_ref_conv_backward_data(const struct gn_ref_window *s, const double *dy, const double *weight, double *dx);
/* dbias may be NULL */
void gn_ref_conv_backward_weight(const struct gn_ref_window *s, const double *x, const double *dy, double *dweight,
				 double *dbias);

/* Mean and biased variance over n, h, w. count = h * w. */
void gn_ref_batch_norm_statistics(int n, int c, size_t count, const double *x, double *mean, double *var);
void gn_ref_batch_norm_forward(int n, int c, size_t count, const double *x, const double *mean, const double *var,
			       double eps, const double *weight, const double *bias, double *y);
/* Ioffe and Szegedy 2015, section 3: includes the dependence of the statistics on x. */
void gn_ref_batch_norm_backward(int n, int c, size_t count, const double *x, const double *dy, const double *mean,
				const double *var, double eps, const double *weight, double *dx, double *dweight,
				double *dbias);

void gn_ref_relu_forward(size_t count, const double *x, double *y);
/* dx = dy where y > 0; dx may be dy. */
void gn_ref_relu_backward(size_t count, const double *y, const double *dy, double *dx);
/* Formulas as PyTorch's documentation gives them; at a corner the slope is PyTorch's. dx may be dy. */
void gn_ref_activation_forward(enum gn_activation kind, size_t count, const double *x, double *y);
void gn_ref_activation_backward(enum gn_activation kind, size_t count, const double *x, const double *dy, double *dx);
/* y = factors[map] * x for maps of count values; backward: dx the same of dy, and dfactors[map] = sum(dy * x), may be NULL. */
void gn_ref_scale_forward(size_t maps, size_t count, const double *x, const double *factors, double *y);
void gn_ref_scale_backward(size_t maps, size_t count, const double *x, const double *factors, const double *dy, double *dx,
			   double *dfactors);
/* Mean and variance over the c channels of each of n * count pixels: Ba, Kiros and Hinton 2016. */
void gn_ref_layer_norm_forward(int n, int c, size_t count, const double *x, double eps, const double *weight, const double *bias,
			       double *y);
void gn_ref_layer_norm_backward(int n, int c, size_t count, const double *x, const double *dy, double eps, const double *weight,
				double *dx, double *dweight, double *dbias);
/* Pixels of x, [n][c][count], after the token [c], plus the position [count + 1][c]. dx may be NULL. */
void gn_ref_tokens_forward(int n, int c, size_t count, const double *x, const double *token, const double *position, double *y);
void gn_ref_tokens_backward(int n, int c, size_t count, const double *dy, double *dx, double *dtoken, double *dposition);
/* x: q, k and v of every image, each [heads][size][count]. room: count values; backward: twice that. */
void gn_ref_attention_forward(int n, int heads, int size, size_t count, const double *x, double *y, double *room);
void gn_ref_attention_backward(int n, int heads, int size, size_t count, const double *x, const double *dy, double *dx, double *room);
void gn_ref_add_forward(size_t count, const double *a, const double *b, double *y);

/* Padding is never the maximum. Of equal values the first in row order is taken, as in PyTorch. argmax: index into x. */
void gn_ref_max_pool_forward(const struct gn_ref_window *s, const double *x, double *y, int64_t *argmax);
void gn_ref_max_pool_backward(const struct gn_ref_window *s, const double *dy, const int64_t *argmax, double *dx);
/* Window i of side out over side in: floor(i in / out) to ceil((i + 1) in / out), as in PyTorch. */
void gn_ref_adaptive_avg_pool_forward(const struct gn_ref_window *s, const double *x, double *y);
void gn_ref_adaptive_avg_pool_backward(const struct gn_ref_window *s, const double *dy, double *dx);

void gn_ref_linear_forward(int n, size_t in, int out, const double *x, const double *weight, const double *bias,
			   double *y);
/* dx and dbias may be NULL */
void gn_ref_linear_backward(int n, size_t in, int out, const double *x, const double *dy, const double *weight,
			    double *dx, double *dweight, double *dbias);

/* y = x * mask, where mask is 0 with probability rate, else 1 / (1 - rate). Backward is the same function on dy. x and y are elements
 * first to first + count - 1 of a tensor, of which element i uses number i % 4 of Philox block (i / 4; stream, step, seed). */
void gn_ref_dropout(size_t first, size_t count, const double *x, double rate, uint64_t seed, uint32_t stream, uint64_t step,
		    double *y);

#endif
