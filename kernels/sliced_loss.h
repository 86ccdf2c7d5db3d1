/* Softmax cross entropy of logits whose classes are divided among ranks: each has the logits of its own classes alone, and their gradient.
 *
 * A rank tells of each image five numbers (its largest logit, the sum of exponentials relative to that, and what its classes have of the
 * target); from those of all ranks each computes the loss and the gradient of its own logits. The results are those of
 * gn_softmax_cross_entropy_mixed up to rounding, and the loss the same bits on all ranks.
 *
 * Thread safety: pure functions. Nothing blocks or is collective: the numbers are exchanged by the caller. Host backends only.
 */
#ifndef GN_KERNELS_SLICED_LOSS_H
#define GN_KERNELS_SLICED_LOSS_H

#include "kernels/compute.h"

struct gn_class_slice {
	int first, count; /* the classes that a rank has */
	int classes, ranks;
};

enum { GN_SLICED_LOSS_NUMBERS = 5 }; /* of an image */

/* a: as for gn_compute_loss, but for logits and dlogits [batch][slice->count]; numbers: [batch][GN_SLICED_LOSS_NUMBERS]. A label that is
 * no class is GN_ERR_DATA, on all ranks alike. */
enum gn_status gn_sliced_loss_begin(enum gn_backend backend, const struct gn_loss_args *a, const struct gn_class_slice *slice, double *numbers,
				    struct gn_err *err);
/* all: the numbers of all ranks, [ranks][batch][GN_SLICED_LOSS_NUMBERS]. Writes dlogits, and *a->out and the others as gn_compute_loss. */
void gn_sliced_loss_end(enum gn_backend backend, const struct gn_loss_args *a, const struct gn_class_slice *slice, const double *all);

#endif
