/* Inner loops on bfloat16, compiled per instruction set and selected when an operator is created.
 *
 * Values stored as bfloat16 are widened, computed as float and rounded once, to nearest even; NaN stays NaN. Private to
 * kernels/host.
 */
#ifndef GN_KERNELS_HOST_BF16_H
#define GN_KERNELS_HOST_BF16_H

#include "kernels/host/norm_loops.h"

#include <stdint.h>

struct gn_bf16_loops {
	/* On bfloat16, with the sums of a piece in float: their error is far below the rounding to bfloat16. */
	struct gn_norm_loops norm;
	/* y = max(0, x) */
	void (*relu)(size_t count, const uint16_t *x, uint16_t *y);
	/* dx = 0 where y <= 0, else dy; twin receives the same (may be NULL) */
	void (*relu_gradient)(size_t count, const uint16_t *y, const uint16_t *dy, uint16_t *dx, uint16_t *twin);
	/* y = a + b, with relu max(0, a + b); y may alias a or b */
	void (*add)(size_t count, const uint16_t *a, const uint16_t *b, int relu, uint16_t *y);
	/* rounds rows of 16 floats and interleaves them in pairs for dot products; an odd last row is paired with zeros */
	void (*pair_rows)(size_t rows, const float *from, uint16_t *to);
	/* the same for the columns of a 16 x 16 block */
	void (*pair_columns)(const float *from, uint16_t *to);
};

extern const struct gn_bf16_loops gn_bf16_loops_plain;
#if defined __x86_64__
/* avx512 uses the processor's conversion, which flushes numbers below 2^-126 to 0. */
extern const struct gn_bf16_loops gn_bf16_loops_avx2, gn_bf16_loops_avx512;
#endif

/* The table for this processor. */
const struct gn_bf16_loops *gn_bf16_loops(void);

#endif
