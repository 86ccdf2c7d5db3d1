/* The measuring loop of gannet bench, by itself: warm-up, timed operations back to back, and what is told of their times.
 *
 * It knows the operation only by a function, so that the programs under bench/peers measure other libraries with the very
 * same code. The mean is that of the rank that took longest for all operations, as nccl-tests has it; percentiles are of
 * the slowest rank's times, operation by operation. (A mean of those would count a rank's delay twice: once in its own time,
 * and once in that of the others, who begin the next operation later.) Thread safety: none needed, no state.
 */
#ifndef GN_CMD_BENCH_LOOP_H
#define GN_CMD_BENCH_LOOP_H

#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

/* What is measured. Each returns GN_OK or what ends the measurement on all ranks. */
struct gn_bench_op {
	enum gn_status (*run)(void *context, struct gn_err *err);
	/* Collective: each value becomes the largest of all ranks. Nobody leaves before all have come. */
	enum gn_status (*max)(void *context, double *values, size_t count, struct gn_err *err);
	void *context;
};

struct gn_bench_plan {
	int64_t warmup, iters;
	int64_t row_ms; /* roughly the time for all of it: fewer operations when they are slow, but 5; 0: no limit */
};

struct gn_timing {
	double mean_us, p50_us, p99_us;
	int64_t iters; /* 0: not measured */
	/* for the caller to fill in */
	int64_t wrong;
	const char *algo;
	int pieces, chunks;
};

/* Collective. times has room for plan->iters, and holds those of the out->iters operations, ascending, afterwards. */
enum gn_status gn_bench_loop(const struct gn_bench_plan *plan, const struct gn_bench_op *op, double *times,
			     struct gn_timing *out, struct gn_err *err);

#endif
