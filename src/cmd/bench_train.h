/* A mode of gannet bench: training steps, or inference, on made-up images in memory, so that no loader counts. Collective. */
#ifndef GN_CMD_BENCH_TRAIN_H
#define GN_CMD_BENCH_TRAIN_H

#include "src/cmd/bench.h"

/* Prints on rank 0; returns the exit code. */
int gn_bench_train(const struct gn_bench_options *o);

#endif
