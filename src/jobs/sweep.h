/* The trials of a sweep: every combination of a grid's values, and draws from distributions.
 *
 *   grid      NAME=VALUE,VALUE,...
 *   random    NAME=log(LOW,HIGH):COUNT, NAME=uniform(LOW,HIGH):COUNT, NAME=int(LOW,HIGH):COUNT
 *
 * NAME is an option of the command without its dashes. All random parameters of a sweep are drawn together, COUNT times for each
 * point of the grid. Draws are a function of seed, point and draw alone (Philox). Thread safety: any thread.
 */
#ifndef GN_JOBS_SWEEP_H
#define GN_JOBS_SWEEP_H

#include "src/base/status.h"
#include "src/base/strbuf.h"

#include <stddef.h>
#include <stdint.h>

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

#endif
