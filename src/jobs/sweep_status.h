/* How the trials of a sweep are doing: from its ledger and from their logs, without asking Slurm. Thread safety: any thread. */
#ifndef GN_JOBS_SWEEP_STATUS_H
#define GN_JOBS_SWEEP_STATUS_H

#include "src/base/status.h"
#include "src/base/strbuf.h"

#include <stddef.h>
#include <stdint.h>

struct gn_sweep_state {
	int trial;
	char parameters[256]; /* "lr=0.01 weight-decay=0.0001" */
	char log[1024], checkpoint[1024];
	char state[16];	      /* pending (no log yet), running, end, pruned, stop, failed */
	uint64_t step, total_steps;
	double loss, top1;    /* NaN: not told */
	double silent_s;      /* since the last line */
};

/* directory: of the sweep. GN_ERR_DATA: its ledger is none. *out is the caller's to free. now: seconds since 1970. */
enum gn_status gn_sweep_read(const char *directory, double now, struct gn_sweep_state **out, size_t *count, struct gn_err *err);
/* Negative if a is better than b: by the highest top-1, of equals by the lowest loss, then by number. What is NaN is the worst. */
int gn_sweep_compare(const struct gn_sweep_state *a, const struct gn_sweep_state *b);
/* Index of the best that has ended with a top-1 or a loss; count when none has. */
size_t gn_sweep_best(const struct gn_sweep_state *s, size_t count);

/* Successive halving without a scheduler: at certain shares of its steps, rungs, each trial of a sweep compares itself with the trials
 * that have come as far, by their logs, and stops unless it is among the best FACTOR-th of them.
 *
 * This is the asynchronous form (Li et al., "A System for Massively Parallel Hyperparameter Tuning", 2020) in which trials that are
 * behind are stopped instead of paused: no trial waits for another. Compared is top-1 of the last evaluation by then, if all have one,
 * else the loss of the interval. Rung k of a trial is at step total / FACTOR^k. Thread safety: any thread. Blocks on the file system.
 */

/* Rungs that a sweep of so many trials has: as often as the trials can be divided, from 1 to 5. */
int gn_halving_rungs(size_t trials, int factor);
/* Place of the trial with this log, which lies beside the sweep's ledger.jsonl, among the *of trials that have reached rung (1: the last
 * one): 1 is the best. GN_ERR_DATA: it is no trial of a sweep, or has not reached the rung. */
enum gn_status gn_halving_place(const char *log, int factor, int rung, size_t *place, size_t *of, struct gn_err *err);
/* Whether a trial of that place goes on. */
int gn_halving_goes_on(size_t place, size_t of, int factor);

/* The trials of a sweep: every combination of a grid's values, and draws from distributions.
 *
 *   grid      NAME=VALUE,VALUE,...
 *   random    NAME=log(LOW,HIGH):COUNT, NAME=uniform(LOW,HIGH):COUNT, NAME=int(LOW,HIGH):COUNT
 *
 * NAME is an option of the command without its dashes. All random parameters of a sweep are drawn together, COUNT times for each
 * point of the grid. Draws are a function of seed, point and draw alone (Philox). Thread safety: any thread. */

#define GN_SWEEP_PARAMETERS 16
#define GN_SWEEP_TRIALS 10000

struct gn_sweep_trial {
	char *values[GN_SWEEP_PARAMETERS];
};

struct gn_sweep {
	char *names[GN_SWEEP_PARAMETERS];
	int parameters;
	struct gn_sweep_trial *trials;
	size_t count;
};

/* GN_ERR_USAGE names the text that is wrong. *out is released by gn_sweep_release(). */
enum gn_status gn_sweep_plan(const char *const *grid, size_t grid_count, const char *const *random, size_t random_count, uint64_t seed,
			     struct gn_sweep *out, struct gn_err *err);
void gn_sweep_release(struct gn_sweep *s);
/* A shell script that adds the options of trial $SLURM_ARRAY_TASK_ID, from 1, to gannet_step. */
void gn_sweep_script(const struct gn_sweep *s, struct gn_strbuf *out);
/* A line of JSON for each trial: number, parameters, log and checkpoint in directory. */
void gn_sweep_ledger(const struct gn_sweep *s, const char *directory, struct gn_strbuf *out);

/* A sweep as one static HTML page: its trials from the best to the worst in a table, their curves, and the result by each parameter.
 *
 * No scripts, no external resources, all text escaped. Thread safety: no state. Blocks on the file system to read the trials' logs. */

/* Appends the whole document. name: of the sweep. Trials without a step are in the table only. */
enum gn_status gn_sweep_page(const char *name, const struct gn_sweep_state *states, size_t count, struct gn_strbuf *out, struct gn_err *err);

#endif
