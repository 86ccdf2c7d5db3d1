/* A mode of gannet bench that needs no other ranks: from files to samples. */
#ifndef GN_CMD_BENCH_DECODE_H
#define GN_CMD_BENCH_DECODE_H

#include "src/cmd/bench.h"

/* Prints; returns the exit code. */
int gn_bench_decode(const struct gn_bench_options *o);

#endif
