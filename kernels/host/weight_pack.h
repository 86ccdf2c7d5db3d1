/* Packs blocked weights for the primitives of a convolution: transposed blocks for the input gradient, which multiplies by the
 * transpose; bfloat16 in pairs for bfloat16 dot products. Private to kernels/host. */
#ifndef GN_KERNELS_HOST_WEIGHT_PACK_H
#define GN_KERNELS_HOST_WEIGHT_PACK_H

#include "kernels/weight.h"

enum gn_weight_pack_kind {
	GN_WEIGHT_PACK_COLUMNS,	  /* float; input channels become innermost within each block */
	/* bfloat16; pairs of input channels become innermost (an odd last one is paired with zeros), in any block order */
	GN_WEIGHT_PACK_PAIR_ROWS,
	GN_WEIGHT_PACK_PAIR_COLUMNS /* bfloat16; pairs of output channels become innermost, then input channels */
};

struct gn_weight_pack {
	enum gn_weight_pack_kind kind;
	struct gn_weight_shape shape;
	struct gn_weight_layout layout; /* of the source: GN_WEIGHT_OI_BLOCKS except for PAIR_ROWS; blocks of 16 for pairs */
	int in_major; /* order of blocks in the result: I/b O/b HW instead of O/b I/b HW */
};

/* to: floats or bfloat16, by kind; must not overlap from. */
void gn_weight_pack_run(const struct gn_weight_pack *t, const float *from, void *to);

#endif
