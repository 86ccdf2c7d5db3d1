/* Reference files: what another implementation computed for one network, and how far this one is from it.
 *
 * The format is tests/golden/README.md's. Everything a file asks for is checked before memory is spent on it; whatever
 * is wrong with a file is GN_ERR_DATA.
 */
#ifndef GN_TRAIN_PLAN_GOLDEN_H
#define GN_TRAIN_PLAN_GOLDEN_H

#include "src/train/plan/plan.h"

struct gn_golden;

/* What a deviation beyond the bound means is found by measuring: where the network makes more than the bound out of the
 * rounding of single-precision arithmetic itself, nothing can be said about the quantity within that bound. */
enum gn_golden_verdict { GN_GOLDEN_OK, GN_GOLDEN_ROUNDING, GN_GOLDEN_FAIL };

/* One compared quantity. Deviations are relative, never absolute. */
struct gn_golden_row {
	const char *quantity; /* "gradient norm" */
	const char *name;     /* parameter, buffer, step, or "" */
	double deviation;     /* NaN when this side computed something that is not finite */
	double bound;
	double rounding; /* what rounding alone does to this kind of quantity; 0 when it was not measured */
	enum gn_golden_verdict verdict;
};

/* text is JSON of len_bytes; source names it in messages. */
enum gn_status gn_golden_parse(const char *text, size_t len_bytes, const char *source, struct gn_golden **out,
			       struct gn_err *err);
void gn_golden_destroy(struct gn_golden *g);
/* "resnet18, batch 4, side 64, 10 classes"; borrowed. */
const char *gn_golden_title(const struct gn_golden *g);
/* Computes it all on the device and in the precision that `on` names (backend, gpu, bf16, fp16, tf32), and calls row() for each quantity in the file; names live as long as g. Bounds: loss at
 * step one 1e-5, later 1e-3; logits 1e-4 of their norm; norm of each gradient 1e-3, its first values 1e-3 of that norm,
 * its sum 1e-3 of norm times root of its size; running statistics after step one and parameters after the last step
 * 1e-4 of their norm; norm of the evaluation logits 1e-3.
 *
 * When something is beyond its bound, everything is computed three times more with every parameter changed by a random
 * factor of at most 1 +- 2^-19: on average 1e-6, about four times what tests/kernels finds as the error of one
 * convolution in float (the oracle: 2^-24, the rounding of the parameters; tf32 and fp16 2^-10 and bf16 2^-7, theirs). Row by row the largest change is kept;
 * tensors share the largest among all of one quantity, as a unit of a relu that flips changes some and spares others,
 * and a loss shares those of the steps before. Up to twice that is GN_GOLDEN_ROUNDING. While anything is beyond that, up to nine
 * more times; what still is, is GN_GOLDEN_FAIL.
 *
 * With bf16 the bounds are: loss at step one 3e-2, later 2e-1; logits 5e-2; gradients 2e-1; statistics 1e-2, parameters 1e-1;
 * evaluation logits 1e-1. With fp16 and tf32 a quarter of these. */
enum gn_status gn_golden_run(const struct gn_golden *g, const struct gn_plan_options *on,
			     void (*row)(void *context, const struct gn_golden_row *row), void *context,
			     struct gn_err *err);

#endif
