/* Inner loops on bfloat16, compiled once for each set of instructions and chosen when an operator is made.
 *
 * What is kept as bfloat16 is widened, computed with as float and rounded once, to nearest, ties to even; a NaN stays one.
 * Only kernels/host includes this.
 */
#ifndef GN_KERNELS_HOST_BF16_H
#define GN_KERNELS_HOST_BF16_H

#include "kernels/host/norm_loops.h"

#include <stdint.h>

struct gn_bf16_loops {
	/* On bfloat16, with sums of a piece in float: what they lose is far below what rounding to bfloat16 has lost. */
	struct gn_norm_loops norm;
	/* y = max(0, x) */
	void (*relu)(size_t count, const uint16_t *x, uint16_t *y);
	/* dx = dy where y > 0, else 0; twin gets the same (NULL: nobody) */
	void (*relu_gradient)(size_t count, const uint16_t *y, const uint16_t *dy, uint16_t *dx, uint16_t *twin);
	/* y = a + b, or 0 where that is below 0 and a relu follows; y may be a or b */
	void (*add)(size_t count, const uint16_t *a, const uint16_t *b, int relu, uint16_t *y);
	/* rows of 16 floats rounded and interleaved in pairs, as dot products want them; an odd last one with zeros */
	void (*pair_rows)(size_t rows, const float *from, uint16_t *to);
	/* the same for the columns of a square of 16 by 16 */
	void (*pair_columns)(const float *from, uint16_t *to);
};

extern const struct gn_bf16_loops gn_bf16_loops_plain;
#if defined __x86_64__
/* The latter with the processor's own rounding, which takes the smallest numbers (below 2^-126) for 0. */
extern const struct gn_bf16_loops gn_bf16_loops_avx2, gn_bf16_loops_avx512;
#endif

/* The best for this processor. */
const struct gn_bf16_loops *gn_bf16_loops(void);

#endif
