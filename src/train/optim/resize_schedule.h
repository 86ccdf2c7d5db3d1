/* Progressive resizing: the side of training images as a function of the epoch, so that early epochs, which need no detail,
 * cost less (Howard et al. 2018, DAWNBench; Touvron et al. 2019, "Fixing the train-test resolution discrepancy").
 *
 * Evaluation and checkpoints keep the network's full side. Thread safety: pure functions.
 */
#ifndef GN_TRAIN_GROWTH_H
#define GN_TRAIN_GROWTH_H

#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

#define GN_GROWTH_MAX 32

struct gn_growth {
	struct {
		int64_t epoch; /* from this one on */
		int side;
	} stages[GN_GROWTH_MAX];
	size_t count; /* 0: always the full side */
};

/* "EPOCH:SIDE,EPOCH:SIDE,...": whole epochs, rising, the first one 0. */
enum gn_status gn_growth_parse(const char *text, struct gn_growth *out, struct gn_err *err);
/* The side in an epoch, full where nothing is said. */
int gn_growth_side(const struct gn_growth *g, uint64_t epoch, int full);

#endif
