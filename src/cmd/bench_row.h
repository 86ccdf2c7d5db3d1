/* One row of gannet bench: the measuring loop, and its result as a line of a table in the columns of nccl-tests or as a JSON object.
 *
 * The loop knows the operation only as a function, so that the programs under bench/peers measure and print other libraries with the
 * same code: warm-up, then timed operations back to back. The mean is that of the rank whose operations took longest in all, as in
 * nccl-tests. Percentiles are of the slowest rank's time of each operation. (A mean of those would count a rank's delay twice: in its
 * own time, and in that of the others, which start the next operation later.) Thread safety: no state.
 */
#ifndef GN_CMD_BENCH_ROW_H
#define GN_CMD_BENCH_ROW_H

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

struct gn_bench_row {
	const char *op, *type, *redop; /* redop: "none" where nothing is reduced */
	const char *transport;
	const char *device;    /* "cuda": whose memory; NULL: the host's */
	const char *direction; /* point to point: "one-way", "both-ways"; else NULL */
	uint64_t bytes, count; /* bytes: the longer of what a rank gives and gets; count: elements as the operation counts them */
	int root;	       /* -1: none */
	int ranks, nodes, rails;
	double bus_factor; /* bus bandwidth by algorithm bandwidth */
	/* What one operation has to move at least, in bytes, through what can move so much; "" and 0: not known. */
	const char *limit_of;
	double limit_bytes, limit_gb_per_s;
	struct gn_timing out_of_place, in_place;
};

/* Collective. times has room for plan->iters, and holds those of the out->iters operations, ascending, afterwards. */
enum gn_status gn_bench_loop(const struct gn_bench_plan *plan, const struct gn_bench_op *op, double *times,
			     struct gn_timing *out, struct gn_err *err);

/* The three lines above a table's rows. */
void gn_bench_print_heading(void);
void gn_bench_print_row(const struct gn_bench_row *row);
void gn_bench_print_json(const struct gn_bench_row *row);

#endif
