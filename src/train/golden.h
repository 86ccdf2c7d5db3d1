/* Reference files: what another implementation computed for one network, and how far this one is from it.
 *
 * The format is tests/golden/README.md's. Everything a file asks for is checked before memory is spent on it; whatever is
 * wrong with a file is GN_ERR_DATA.
 */
#ifndef GN_TRAIN_GOLDEN_H
#define GN_TRAIN_GOLDEN_H

#include "src/train/plan.h"

struct gn_golden;

/* One compared quantity. Deviations are relative to what `of` says, never absolute. */
struct gn_golden_row {
	const char *quantity;	/* "gradient norm" */
	const char *name;	/* parameter, buffer, or "" */
	double deviation;	/* NaN when this side computed something that is not finite */
	double bound;
	int ok;
};

/* text is JSON of len_bytes; source names it in messages. */
enum gn_status gn_golden_parse(const char *text, size_t len_bytes, const char *source, struct gn_golden **out,
			       struct gn_err *err);
void gn_golden_destroy(struct gn_golden *g);
/* "resnet18, batch 4, side 64, 10 classes"; borrowed. */
const char *gn_golden_title(const struct gn_golden *g);
/* Computes it all on backend and calls row() for each quantity in the file; names live as long as g. *failed counts rows
 * beyond their bound. Bounds, on any backend: loss at step one 1e-5, later 1e-3, relative; logits 1e-4 of their norm; norm of
 * each gradient 1e-3, its first values 1e-3 of that norm, its sum 1e-3 of norm times root of its size; running statistics
 * after step one and parameters after the last step 1e-4 of their norm; norm of the evaluation logits 1e-3. */
enum gn_status gn_golden_run(const struct gn_golden *g, enum gn_backend backend,
			     void (*row)(void *context, const struct gn_golden_row *row), void *context, int *failed,
			     struct gn_err *err);

#endif
