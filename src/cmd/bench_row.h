/* One row of gannet bench: what was measured, as a line of a table in the columns of nccl-tests or as a JSON object.
 *
 * The programs under bench/peers print theirs with the same code. */
#ifndef GN_CMD_BENCH_ROW_H
#define GN_CMD_BENCH_ROW_H

#include "src/cmd/bench_loop.h"

struct gn_bench_row {
	const char *op, *type, *redop, *algo, *transport;
	uint64_t bytes, count;
	int ranks, nodes;
	double bus_factor; /* bus bandwidth by algorithm bandwidth */
	struct gn_timing out_of_place, in_place;
};

/* GB/s, GB = 10^9; 0 when nothing was measured. By the mean time. */
double gn_bench_algbw(const struct gn_bench_row *row, const struct gn_timing *t);
/* The two lines above a table's rows. */
void gn_bench_print_heading(void);
void gn_bench_print_row(const struct gn_bench_row *row);
void gn_bench_print_json(const struct gn_bench_row *row);

#endif
