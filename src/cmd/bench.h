/* The modes of gannet bench: one file each, all reading one option table. */
#ifndef GN_CMD_BENCH_H
#define GN_CMD_BENCH_H

#include "src/cmd/cmd.h"

#include <stdint.h>

struct gn_bench_options {
	int64_t min_bytes, max_bytes, factor, iters, warmup, row_ms;
	const char *algo, *transport, *place;
	int json, foreign;
};

/* Each returns an enum gn_exit. */
int gn_bench_allreduce(const struct gn_bench_options *o);

#endif
