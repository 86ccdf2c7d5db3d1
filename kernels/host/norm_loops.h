/* Inner loops of batch normalisation, compiled per instruction set and selected when an operator is created. */
#ifndef GN_KERNELS_HOST_NORM_LOOPS_H
#define GN_KERNELS_HOST_NORM_LOOPS_H

#include <stddef.h>

/* The unit of work: pixels of adjacent channels; consecutive pixels are stride elements apart. */
struct gn_norm_piece {
	size_t offset, pixels, stride;
	size_t first; /* first channel */
	int lanes;    /* number of channels */
};

/* Per channel, from the piece's first. */
struct gn_norm_line {
	const double *mean, *scale, *shift, *from_sum, *from_dot;
	int relu;
};

/* Tensor arguments point at the piece's offset; all hold floats, or all the type of the table. */
struct gn_norm_loops {
	/* sums of x and x^2 */
	void (*sums)(const struct gn_norm_piece *p, const void *x, double *sum, double *square);
	/* y = x * scale + shift, with relu max(0, y); where add is not NULL max(0, x * scale + shift + add) */
	void (*normalise)(const struct gn_norm_piece *p, const struct gn_norm_line *l, const void *x, const void *add, void *y);
	/* sums of dy and of dy * (x - mean), with dy masked by the relu */
	void (*gradient_sums)(const struct gn_norm_piece *p, const struct gn_norm_line *l, const void *x,
			      const void *dy, double *sum, double *dot);
	/* the same after normalise with add, whose result is y, for dy + more (may be NULL); d receives the masked gradient and may
	 * alias dy */
	void (*masked_sums)(const struct gn_norm_piece *p, const struct gn_norm_line *l, const void *x, const void *y,
			    const void *dy, const void *more, void *d, double *sum, double *dot);
	/* dx = scale * dy - from_sum - from_dot * (x - mean); dx may alias dy */
	void (*gradient)(const struct gn_norm_piece *p, const struct gn_norm_line *l, const void *x, const void *dy,
			 void *dx);
};

extern const struct gn_norm_loops gn_norm_loops_plain;
#if defined __x86_64__
extern const struct gn_norm_loops gn_norm_loops_avx2, gn_norm_loops_avx512;
#endif

#endif
