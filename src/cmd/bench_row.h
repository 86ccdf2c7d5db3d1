/* One row of gannet bench: what was measured, as a line of a table in the columns of nccl-tests or as a JSON object.
 *
 * The programs under bench/peers print theirs with the same code. */
#ifndef GN_CMD_BENCH_ROW_H
#define GN_CMD_BENCH_ROW_H

#include "src/cmd/bench_loop.h"

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

/* The three lines above a table's rows. */
void gn_bench_print_heading(void);
void gn_bench_print_row(const struct gn_bench_row *row);
void gn_bench_print_json(const struct gn_bench_row *row);

#endif
