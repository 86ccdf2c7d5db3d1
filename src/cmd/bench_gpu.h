/* gannet bench on a GPU's memory: allreduce by what --comm names. Only in builds with CUDA and NCCL. */
#ifndef GN_CMD_BENCH_GPU_H
#define GN_CMD_BENCH_GPU_H

#include "src/cmd/bench.h"

/* Local: this rank's GPU, of those that it sees the one that is its turn on this node. */
enum gn_status gn_bench_gpu_open(int local_rank, struct gn_bench_gpu **out, struct gn_err *err);
void gn_bench_gpu_close(struct gn_bench_gpu *g);
/* By PCI address; borrowed. */
const char *gn_bench_gpu_pci(const struct gn_bench_gpu *g);
/* Collective. All rows. */
enum gn_status gn_bench_gpu_allreduce(struct gn_bench *b, struct gn_err *err);

#endif
