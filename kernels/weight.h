/* Memory layouts of the weights of convolutions and linear layers, and conversion from and to PyTorch's order.
 *
 * A backend computes fastest on weights in its own order: blocks of channels on processors, channels innermost on GPUs. Every order
 * holds exactly PyTorch's values without padding: offsets in a flat array of parameters do not depend on the order, and elementwise
 * code (optimizer, average, allreduce) need not know it. Code that accesses weights by index converts to GN_WEIGHT_PLAIN first. A
 * weight whose channels do not fill whole blocks stays plain.
 *
 * Thread safety: pure functions; they use OpenMP threads.
 */
#ifndef GN_KERNELS_WEIGHT_H
#define GN_KERNELS_WEIGHT_H

#include <stddef.h>

/* O: output channels, I: input channels, H and W: rows and columns of the window. */
enum gn_weight_order {
	GN_WEIGHT_PLAIN,     /* OIHW, OI: PyTorch's */
	GN_WEIGHT_OI_BLOCKS, /* O/b I/b HW, then I within the block, then O within the block (innermost) */
	GN_WEIGHT_O_BLOCKS,  /* O/b HW I, then O within the block (innermost) */
	GN_WEIGHT_OHWI,	     /* as NHWC for images */
	GN_WEIGHT_ANY	     /* in a request: the order that the operator prefers */
};

struct gn_weight_layout {
	enum gn_weight_order order;
	int block; /* b; 0 without blocks */
};

struct gn_weight_shape {
	size_t out, in, window; /* window: rows times columns; 1 for linear layers */
};

/* Whether a weight of that shape can have this layout: whole blocks, and not GN_WEIGHT_ANY. */
int gn_weight_fits(const struct gn_weight_shape *s, struct gn_weight_layout l);
/* Converts from PyTorch's order to layout l, or back with to_plain. from and to must not overlap. */
void gn_weight_reorder(const struct gn_weight_shape *s, struct gn_weight_layout l, int to_plain, const float *from,
		       float *to);

#endif
