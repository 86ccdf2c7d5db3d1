/* The modes of gannet bench: the collectives (bench_coll.c) and point to point (bench_p2p.c), with what they share: ranks,
 * buffers, timing, limits, proof, output. Everything that measures is collective. */
#ifndef GN_CMD_BENCH_H
#define GN_CMD_BENCH_H

#include "src/cmd/bench_pattern.h"
#include "src/cmd/bench_row.h"
#include "src/cmd/cmd.h"
#include "transport/coll/comm.h"

struct gn_bench_options {
	int64_t min_bytes, max_bytes, factor, iters, warmup, row_ms, root, peer, rails;
	const char *algo, *transport, *tuning, *progress, *place, *type, *redop, *device, *comm;
	int json, foreign, transport_strict;
	const char *data; /* decode */
	int64_t side, loader_threads, images;
	int bytes;
	const char *model, *precision, *init; /* train */
	int64_t batch, classes, threads;
	int inference;
	struct gn_world_options world;
};

struct gn_bench_gpu;

struct gn_bench {
	const struct gn_bench_options *o;
	struct gn_log *log;
	struct gn_world *world;
	struct gn_comm *comm;
	struct gn_bench_gpu *gpu; /* with --device cuda */
	struct gn_pattern pattern;
	void *in, *out;	/* buffer_bytes each */
	size_t buffer_bytes;
	double *times;	      /* room for o->iters */
	double link_gb_per_s; /* 0: there is one node */
	int64_t wrong;	      /* in all rows so far */
};

/* Times the operations one after the other as one; count is 1 or 2. */
enum gn_status gn_bench_time(struct gn_bench *b, struct gn_coll *const *colls, int count, struct gn_timing *out,
			     struct gn_err *err);
/* Any operation of all ranks. */
enum gn_status gn_bench_time_any(struct gn_bench *b, enum gn_status (*run)(void *context, struct gn_err *err), void *context,
				 struct gn_timing *out, struct gn_err *err);
enum gn_status gn_bench_once(struct gn_coll *const *colls, int count, struct gn_err *err);
/* Adds up the elements that each rank found wrong. */
enum gn_status gn_bench_add_wrong(struct gn_bench *b, int64_t here, struct gn_timing *t, struct gn_err *err);

/* One row: runs measure(), which fills the timings in, with the counters' proof around it, and prints on
 * rank 0: as transport what row names already, or what rank 0's connections use, and shm where measure() says that ranks reach
 * each other's memory. */
enum gn_status gn_bench_row(struct gn_bench *b, struct gn_bench_row *row,
			    enum gn_status (*measure)(struct gn_bench *b, struct gn_bench_row *row, int *direct,
						      struct gn_err *err),
			    struct gn_err *err);

/* What copiers ranks of this node, all at once, can copy in messages of bytes: read and written bytes in GB/s. */
enum gn_status gn_bench_memory_limit(struct gn_bench *b, size_t bytes, int copiers, double *gb_per_s, struct gn_err *err);
/* What a node can send to the next while it receives from the one before: the slowest node's, in GB/s. */
enum gn_status gn_bench_link_limit(struct gn_bench *b, double *gb_per_s, struct gn_err *err);

/* The modes. */
enum gn_status gn_bench_collective(struct gn_bench *b, enum gn_collective what, struct gn_err *err);
enum gn_status gn_bench_p2p(struct gn_bench *b, struct gn_err *err);
/* Prints; returns the exit code. Needs no other ranks. */
int gn_bench_decode(const struct gn_bench_options *o);
/* Training steps, or inference, on generated images in memory, so that no loader counts. Prints on rank 0; returns the exit code. */
int gn_bench_train(const struct gn_bench_options *o);

/* Allreduce of GPU memory by the backend of --comm. Only in builds with CUDA (bench_gpu.c). */

/* Local: opens the GPU of this rank, by its local rank among those that it sees. */
enum gn_status gn_bench_gpu_open(int local_rank, struct gn_bench_gpu **out, struct gn_err *err);
void gn_bench_gpu_close(struct gn_bench_gpu *g);
/* PCI address; borrowed. */
const char *gn_bench_gpu_pci(const struct gn_bench_gpu *g);
/* Collective. All rows. */
enum gn_status gn_bench_gpu_allreduce(struct gn_bench *b, struct gn_err *err);

#endif
