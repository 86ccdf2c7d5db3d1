/* How the weights of convolutions and linear layers lie in memory, and changes between torch's order and others.
 *
 * A backend computes fastest on weights in an order of its own: blocks of channels on processors, channels innermost on GPUs.
 * Every order here holds exactly torch's values and nothing besides, so that a flat array of parameters has the same offsets
 * whatever the orders of its tensors, and everything that works element by element (optimizer, average, allreduce) need not
 * know. What reads a weight by index brings it back to GN_WEIGHT_PLAIN first. A weight whose channels do not fill the blocks
 * stays plain.
 *
 * Thread safety: pure functions of their arguments; OpenMP threads work inside.
 */
#ifndef GN_KERNELS_WEIGHT_H
#define GN_KERNELS_WEIGHT_H

#include <stddef.h>
#include <stdint.h>

/* O: channels out, I: channels in, H and W: rows and columns of the window. */
enum gn_weight_order {
	GN_WEIGHT_PLAIN,     /* OIHW, OI: torch's */
	GN_WEIGHT_OI_BLOCKS, /* O/b I/b HW, then I within the block, then O within the block innermost */
	GN_WEIGHT_O_BLOCKS,  /* O/b HW I, then O within the block innermost */
	GN_WEIGHT_OHWI,	     /* as NHWC for images */
	GN_WEIGHT_ANY	     /* in a question: the order that the operator likes best */
};

struct gn_weight_layout {
	enum gn_weight_order order;
	int block; /* b; 0 where there is none */
};

struct gn_weight_shape {
	size_t out, in, window; /* window: rows times columns, 1 for linear layers */
};

int gn_weight_layout_equal(struct gn_weight_layout a, struct gn_weight_layout b);
/* Whether a weight of that shape can lie so: whole blocks, and no GN_WEIGHT_ANY. */
int gn_weight_fits(const struct gn_weight_shape *s, struct gn_weight_layout l);
/* A layout that fits, from torch's order (to_plain 0) or back to it. from and to do not overlap. */
void gn_weight_reorder(const struct gn_weight_shape *s, struct gn_weight_layout l, int to_plain, const float *from,
		       float *to);

#endif
