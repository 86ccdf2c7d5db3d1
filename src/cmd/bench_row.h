/* One row of gannet bench: the measuring loop, and its result as a table line in the columns of nccl-tests or as a JSON object.
 *
 * The loop knows the operation only as a function, so that the programs under bench/peers measure other libraries with the same
 * code: warm-up, then timed operations back to back. The mean is that of the rank with the largest total time, as in nccl-tests.
 * Percentiles are over operations, of the slowest rank's time of each. (The mean of those would count a rank's delay twice: in its
 * own time, and in that of the ranks that wait for it in the next operation.) Thread safety: no state.
 */
#ifndef GN_CMD_BENCH_ROW_H
#define GN_CMD_BENCH_ROW_H

#include "src/base/status.h"
#include "transport/schedule/types.h"

#include <stddef.h>
#include <stdint.h>

/* The operation under test. A callback that fails ends the measurement on all ranks. */
struct gn_bench_op {
	enum gn_status (*run)(void *context, struct gn_err *err);
	/* Collective and a barrier: each value becomes the maximum over all ranks. */
	enum gn_status (*max)(void *context, double *values, size_t count, struct gn_err *err);
	void *context;
};

struct gn_bench_plan {
	int64_t warmup, iters;
	int64_t row_ms; /* approximate time of the row: limits the number of slow operations, not below 5; 0: no limit */
};

struct gn_timing {
	double mean_us, p50_us, p99_us;
	int64_t iters; /* 0: not measured */
	/* filled in by the caller */
	int64_t wrong;
	const char *algo;
	int pieces, chunks;
};

/* times: n >= 1 in microseconds, sorted by this. */
void gn_timing_summarise(double *times, int64_t n, double mean_us, struct gn_timing *t);

struct gn_bench_row {
	const char *op, *type, *redop; /* redop: "none" for operations without a reduction */
	const char *transport;
	const char *device;    /* "cuda": GPU memory; NULL: host memory */
	const char *direction; /* point to point: "one-way", "both-ways"; else NULL */
	/* bytes: the longer of a rank's input and output; count: elements as the operation's argument counts them */
	uint64_t bytes, count;
	int root;	       /* -1: none */
	int ranks, nodes, rails; /* of one operation */
	int groups;	       /* that many operations at once, of different ranks */
	double bus_factor; /* ratio of bus bandwidth to algorithm bandwidth */
	/* What limits the operation ("link", "memory"), the least bytes that it moves through that, and the measured bandwidth of
	 * that; "" and 0 when unknown. */
	const char *limit_of;
	double limit_bytes, limit_gb_per_s;
	struct gn_timing out_of_place, in_place;
};

/* Collective. times holds plan->iters values; afterwards the times of the out->iters operations in ascending order. */
enum gn_status gn_bench_loop(const struct gn_bench_plan *plan, const struct gn_bench_op *op, double *times,
			     struct gn_timing *out, struct gn_err *err);

/* Prints the three heading lines of the table. */
void gn_bench_print_heading(void);
void gn_bench_print_row(const struct gn_bench_row *row);
void gn_bench_print_json(const struct gn_bench_row *row);

/* Test pattern for the buffers of a measurement: small integers with a period of 61 elements. Sums are exact in any order, and a
 * buffer is filled and checked at the speed of memory.
 *
 * An element's value is a function of the rank that contributes it and of its index in the whole message. Thread safety: no
 * state. */

struct gn_pattern {
	enum gn_dtype type;
	enum gn_reduction reduction;
	int size; /* number of ranks */
};

/* size of an element in bytes */
size_t gn_pattern_bytes(enum gn_dtype type);
/* Writes rank's input for elements [first, first + count). */
void gn_pattern_fill(const struct gn_pattern *p, void *data, size_t first, size_t count, int rank);
/* Number of elements in [first, first + count) that differ from rank's input, or with rank -1 from the reduction over all ranks.
 * Averages of floating-point numbers may differ by the rounding of one division or multiplication. */
int64_t gn_pattern_wrong(const struct gn_pattern *p, const void *data, size_t first, size_t count, int rank);

#endif
