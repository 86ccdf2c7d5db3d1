/* Progressive resizing: the side of training images as a function of the epoch, so that early epochs, which need no detail,
 * cost less (Howard et al. 2018, DAWNBench; Touvron et al. 2019, "Fixing the train-test resolution discrepancy").
 *
 * Evaluation and checkpoints keep the network's full side. Thread safety: pure functions.
 */
#ifndef GN_TRAIN_OPTIM_RESIZE_SCHEDULE_H
#define GN_TRAIN_OPTIM_RESIZE_SCHEDULE_H

#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

#define GN_RESIZE_SCHEDULE_MAX 32

struct gn_resize_schedule {
	struct {
		int64_t epoch; /* from this one on */
		int side;
	} stages[GN_RESIZE_SCHEDULE_MAX];
	size_t count; /* 0: always the full side */
};

/* "EPOCH:SIDE,EPOCH:SIDE,...": whole epochs, rising, the first one 0. */
enum gn_status gn_resize_schedule_parse(const char *text, struct gn_resize_schedule *out, struct gn_err *err);
/* The side in an epoch, full where nothing is said. */
int gn_resize_schedule_side(const struct gn_resize_schedule *g, uint64_t epoch, int full);

#endif
