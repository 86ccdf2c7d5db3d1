/* A run's log read back: the training curve as points.
 *
 * A line that is not JSON (the last one of a run that was killed) is skipped and counted. Where a run was resumed, points
 * beyond the step it went back to are dropped, so that the curve is the one the surviving parameters went through.
 */
#ifndef GN_TRAIN_CURVE_H
#define GN_TRAIN_CURVE_H

#include "src/base/status.h"

#include <stddef.h>

enum gn_curve_part { GN_PART_DATA, GN_PART_FORWARD, GN_PART_BACKWARD, GN_PART_EXPOSED, GN_PART_OPTIMIZER, GN_PARTS };

struct gn_curve_step {
	double step, epoch, loss, lr, images_per_s, ms[GN_PARTS];
};

struct gn_curve_eval {
	double step, epoch, top1, top5, loss;
};

struct gn_curve {
	char label[96];
	struct gn_curve_step *steps;
	size_t step_count, step_room;
	struct gn_curve_eval *evals;
	size_t eval_count, eval_room;
	size_t resumes, bad_lines;
};

/* GN_ERR_DATA when there is no step in the file at all. */
enum gn_status gn_curve_read(const char *path, struct gn_curve *out, struct gn_err *err);
void gn_curve_release(struct gn_curve *c);

#endif
