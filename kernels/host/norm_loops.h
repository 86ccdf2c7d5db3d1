/* Inner loops of batch normalisation: compiled once for each set of instructions, chosen when an operator is made. */
#ifndef GN_KERNELS_HOST_NORM_LOOPS_H
#define GN_KERNELS_HOST_NORM_LOOPS_H

#include <stddef.h>

/* What one thread does at a time: pixels of some channels that lie side by side, the next pixel stride elements on. */
struct gn_norm_piece {
	size_t offset, pixels, stride;
	size_t first; /* channel */
	int lanes;    /* channels */
};

/* By channel, from the piece's first on. */
struct gn_norm_line {
	const double *mean, *scale, *shift, *from_sum, *from_dot;
	int relu;
};

/* Tensors are given at the piece's offset; all hold floats, or all what the table is for. */
struct gn_norm_loops {
	/* sum and square get the sums of x and x^2 */
	void (*sums)(const struct gn_norm_piece *p, const void *x, double *sum, double *square);
	/* y = x * scale + shift, or 0 where that is below 0 and a relu follows */
	void (*normalise)(const struct gn_norm_piece *p, const struct gn_norm_line *l, const void *x, void *y);
	/* y = x * scale + shift + add, or 0 where that is below 0 */
	void (*normalise_add)(const struct gn_norm_piece *p, const struct gn_norm_line *l, const void *x, const void *add,
			      void *y);
	/* sums of dy and of dy * (x - mean), dy being 0 where the relu gave 0 */
	void (*gradient_sums)(const struct gn_norm_piece *p, const struct gn_norm_line *l, const void *x,
			      const void *dy, double *sum, double *dot);
	/* the same where normalise_add gave y, of dy + more (NULL: none); d gets what was summed, and may be dy */
	void (*masked_sums)(const struct gn_norm_piece *p, const struct gn_norm_line *l, const void *x, const void *y,
			    const void *dy, const void *more, void *d, double *sum, double *dot);
	/* dx = scale * dy - from_sum - from_dot * (x - mean); dx may be dy */
	void (*gradient)(const struct gn_norm_piece *p, const struct gn_norm_line *l, const void *x, const void *dy,
			 void *dx);
};

extern const struct gn_norm_loops gn_norm_loops_plain;
#if defined __x86_64__
extern const struct gn_norm_loops gn_norm_loops_avx2, gn_norm_loops_avx512;
#endif

#endif
