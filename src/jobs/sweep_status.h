/* How the trials of a sweep are doing: from its ledger and from their logs, without asking Slurm. Thread safety: any thread. */
#ifndef GN_JOBS_SWEEP_STATUS_H
#define GN_JOBS_SWEEP_STATUS_H

#include "src/base/status.h"

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

#endif
