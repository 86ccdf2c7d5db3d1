/* Weights in blocks of channels turned for the gradient of a convolution's input, which multiplies by their transpose.
 * Only kernels/host. */
#ifndef GN_KERNELS_HOST_TURN_H
#define GN_KERNELS_HOST_TURN_H

#include "kernels/weight.h"

struct gn_turn {
	struct gn_weight_shape shape;
	int block;    /* of GN_WEIGHT_OI_BLOCKS, 8 or 16 */
	int in_major; /* blocks of channels in come first in the result: I/b O/b HW instead of O/b I/b HW */
};

/* Within each block channels in become innermost. from and to do not overlap. */
void gn_turn_weight(const struct gn_turn *t, const float *from, float *to);

#endif
