/* Reads a metrics log: the training curve of each of its runs as points.
 *
 * A start without a resume begins a new run: logs are appended to, and several runs may use the same file. A line that is not JSON
 * (the last one of a killed run) is skipped and counted. At a resume, points after the resumed step are dropped, so that the curve
 * is that of the resulting parameters. Thread safety: no state.
 */
#ifndef GN_TRAIN_METRICS_METRICS_READER_H
#define GN_TRAIN_METRICS_METRICS_READER_H

#include "src/base/status.h"

#include <stddef.h>

enum gn_curve_part { GN_PART_DATA, GN_PART_FORWARD, GN_PART_BACKWARD, GN_PART_EXPOSED, GN_PART_OPTIMIZER, GN_PARTS };

/* Absent values are NaN: for example times and efficiencies of ranks in runs of one rank, and in older logs. */
struct gn_curve_step {
	double time; /* seconds since 1970; 0: the line has none */
	double step, epoch, loss, top1, lr, images_per_s, ms[GN_PARTS];
	double grad_norm, skipped; /* skipped: in the interval; if it had no other steps, loss and grad_norm are NaN */
	double compute_low_ms, compute_mean_ms, compute_high_ms; /* over ranks */
	double efficiency, predicted;
	double sent_mb;		   /* that rank 0 sent in a step, in 10^6 bytes: counted; of one rank 0 */
	double sent_bytes;	   /* the same in bytes */
	double seconds;		   /* of the interval; 0: in older logs */
	double staleness, ahead_most, workers; /* of parameter servers: the mean so far, the most steps ahead so far, and those left */
	int slowest;		   /* rank; -1: unknown */
	size_t each;		   /* index of the ranks' compute times in curve.each, in ms */
	size_t each_count;	   /* 0: none */
};

struct gn_curve_eval {
	double time, step, epoch, top1, top5, loss;
	double average_top1; /* of the moving average; NaN if absent */
};

/* A configuration of the gradient reducer that was measured. */
struct gn_curve_way {
	double buckets, step_ms;
	int overlap;
};
enum { GN_CURVE_WAYS = 16 };

/* How ranks share a step, from a step on: "none", a method of compression, or "local steps". */
struct gn_curve_mode {
	double step;
	char name[32];
};
enum { GN_CURVE_MODES = 12 };

/* Of parameter servers, in async and ssp: pushes by staleness, of the last start; the last is for more. */
enum { GN_CURVE_STALENESS = 32, GN_CURVE_LOST = 16 };
struct gn_curve_staleness {
	int count; /* 0: none */
	double pushes[GN_CURVE_STALENESS];
	double mean, most, ahead_most;
	int lost_count; /* workers; at most the first ones */
	struct {
		double rank, step;
	} lost[GN_CURVE_LOST];
};

/* A world of a run with --elastic that began after a loss, or because others have joined. */
struct gn_curve_world {
	double world, step, ranks, before, seconds, redone; /* seconds: from the last finished step to the next; redone: finished steps */
	char after[192];				    /* why */
};
enum { GN_CURVE_WORLDS = 32 };

/* Of pipelines, when the last start ended. */
enum { GN_CURVE_STAGES = 64 };
struct gn_curve_stage {
	double bubble, sent_bytes, parameter_bytes, version_bytes, activation_bytes; /* bubble: share of the steps; sent: in a step */
};

struct gn_curve {
	char *path;	  /* of the log */
	size_t run, runs; /* number of this run among the runs with steps, from 1, and their count */
	char label[96];
	struct gn_curve_step *steps;
	size_t step_count, step_room;
	struct gn_curve_eval *evals;
	size_t eval_count, eval_room;
	size_t resumes, bad_lines, checkpoints;
	double checkpoint_s; /* total of all checkpoints */
	double skipped;	     /* steps without an update */
	double begin_step;   /* of the last start or resume */
	char costs[16];	     /* source of the last prediction's costs: "guessed", "measured", "tried", or "" */
	/* of the last start or resume */
	char model[64], ended[16]; /* ended: "end", "stop", "failed" or "" */
	double ranks, nodes, global_batch, images, parameters;
	char *options, *recipe; /* NULL: absent */
	char *reason;		/* of a failure; NULL: absent */
	struct gn_curve_mode modes[GN_CURVE_MODES]; /* in the order of steps; at most the first ones */
	int mode_count;
	double start_time;	/* of the run's "start", seconds since 1970; 0: it has none */
	double unlogged_s;	/* time of finished steps that no point counts: before new worlds */
	int losses, world_count; /* worlds: at most the first ones */
	struct gn_curve_world worlds[GN_CURVE_WORLDS];
	struct gn_curve_staleness staleness;
	double bubble_formula;
	int stage_count;	/* at most the first ones */
	struct gn_curve_stage stages[GN_CURVE_STAGES];
	/* of the last autotuning */
	struct gn_curve_way ways[GN_CURVE_WAYS];
	int way_count, chosen;
	float *each;
	size_t each_count, each_room;
	char **hosts; /* by rank; NULL if unknown */
	size_t host_count;
};

/* Reads the log's runs in order; those without a step are omitted. GN_ERR_DATA when the file has no step. Release *out with
 * gn_curves_free(). */
enum gn_status gn_curves_read(const char *path, struct gn_curve **out, size_t *count, struct gn_err *err);
/* NULL is fine. */
void gn_curves_free(struct gn_curve *curves, size_t count);

#endif
