/* Weights in blocks of channels as the primitives of a convolution want them: turned for the gradient of its input, which
 * multiplies by their transpose; rounded to bfloat16, in pairs, for dot products of that. Only kernels/host. */
#ifndef GN_KERNELS_HOST_WEIGHT_PACK_H
#define GN_KERNELS_HOST_WEIGHT_PACK_H

#include "kernels/weight.h"

enum gn_weight_pack_kind {
	GN_WEIGHT_PACK_COLUMNS,	  /* floats; within each block channels in become innermost */
	GN_WEIGHT_PACK_PAIR_ROWS, /* bfloat16; pairs of channels in become innermost (an odd last one has a zero), in all orders of
				     blocks */
	GN_WEIGHT_PACK_PAIR_COLUMNS /* bfloat16; pairs of channels out become innermost, channels in come next */
};

struct gn_weight_pack {
	enum gn_weight_pack_kind kind;
	struct gn_weight_shape shape;
	struct gn_weight_layout layout; /* as they come; GN_WEIGHT_OI_BLOCKS but for pairs of rows; blocks of 16 for pairs */
	int in_major; /* blocks of channels in come first in the result: I/b O/b HW instead of O/b I/b HW */
};

/* to is of floats or bfloat16, by kind, and does not overlap from. */
void gn_weight_pack_run(const struct gn_weight_pack *t, const float *from, void *to);

#endif
