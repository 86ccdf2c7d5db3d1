/* A log read back: the training curve of each of its runs as points.
 *
 * A start that is no resume begins a new run: a log is appended to, and the same one may be given to several runs.
 * A line that is not JSON (the last one of a run that was killed) is skipped and counted. Where a run was resumed, points
 * beyond the step it went back to are dropped, so that the curve is the one the surviving parameters went through.
 */
#ifndef GN_TRAIN_METRICS_METRICS_READER_H
#define GN_TRAIN_METRICS_METRICS_READER_H

#include "src/base/status.h"

#include <stddef.h>

enum gn_curve_part { GN_PART_DATA, GN_PART_FORWARD, GN_PART_BACKWARD, GN_PART_EXPOSED, GN_PART_OPTIMIZER, GN_PARTS };

/* What a log did not say is NaN: times and efficiencies of ranks in runs of one, and in older logs. */
struct gn_curve_step {
	double step, epoch, loss, lr, images_per_s, ms[GN_PARTS];
	double grad_norm, skipped; /* skipped: of the interval; where it had no other steps, loss and grad_norm are NaN */
	double within_ms;	   /* of exposed communication, what was taken from backward */
	double compute_low_ms, compute_mean_ms, compute_high_ms; /* over ranks */
	double efficiency, predicted;
	int slowest;		   /* rank; -1: not known */
	size_t each;		   /* where curve.each has its ranks' compute times, in ms */
	size_t each_count;	   /* 0: nowhere */
};

struct gn_curve_eval {
	double step, epoch, top1, top5, loss;
	double average_top1; /* of the moving average; NaN: there is none */
};

/* A way of exchanging gradients that was tried. */
struct gn_curve_way {
	double buckets, step_ms;
	int overlap;
};
enum { GN_CURVE_WAYS = 16 };

struct gn_curve {
	char *path;	  /* of the log */
	size_t run, runs; /* which of the log's runs that have steps, from 1, and how many those are */
	char label[96];
	struct gn_curve_step *steps;
	size_t step_count, step_room;
	struct gn_curve_eval *evals;
	size_t eval_count, eval_room;
	size_t resumes, bad_lines, checkpoints;
	double checkpoint_s; /* of all of them */
	double skipped;	     /* steps without an update */
	char costs[16];	     /* where the last prediction's costs come from: "guessed", "measured", "tried", or "" */
	/* of the last start or resume */
	char model[64], ended[16]; /* ended: "end", "stop", "failed" or "" */
	double ranks, nodes, global_batch, images, parameters;
	char *options, *recipe; /* NULL: not told */
	char *reason;		/* of a failure; NULL: not told */
	/* of the last choice by measuring */
	struct gn_curve_way ways[GN_CURVE_WAYS];
	int way_count, chosen;
	float *each;
	size_t each_count, each_room;
	char **hosts; /* by rank, as far as known; NULL for others */
	size_t host_count;
};

/* The log's runs, in order; those without a step are left out. GN_ERR_DATA when there is no step in the file at all. *out goes to
 * gn_curves_free. */
enum gn_status gn_curves_read(const char *path, struct gn_curve **out, size_t *count, struct gn_err *err);
/* NULL is fine. */
void gn_curves_free(struct gn_curve *curves, size_t count);

#endif
