/* The modes of gannet bench and what they share: ranks, buffers, timing, limits, traffic checks, output. Collective modes are in
 * bench_coll.c together with point to point. Every measuring function is collective. */
#ifndef GN_CMD_BENCH_H
#define GN_CMD_BENCH_H

#include "src/cmd/bench_row.h"
#include "src/cmd/cmd.h"
#include "transport/coll/p2p.h"

struct gn_bench_options {
	int64_t min_bytes, max_bytes, factor, iters, warmup, row_ms, root, peer, rails, group;
	const char *algo, *transport, *tuning, *progress, *place, *type, *redop, *device, *comm;
	int json, foreign, transport_strict;
	const char *data, *key_file; /* decode, io */
	int64_t side, loader_threads, images;
	int bytes;
	int64_t seconds, file_bytes, block_bytes; /* io */
	int warm;
	const char *model, *precision, *convolution, *init; /* train */
	int64_t batch, classes, threads;
	int inference, profile;
	struct gn_world_options world;
};

struct gn_bench_gpu;

struct gn_bench {
	const struct gn_bench_options *o;
	struct gn_log *log;
	struct gn_world *world;
	struct gn_comm *comm;
	struct gn_comm *group; /* the ranks of one operation: with --group a part of comm, else comm */
	int groups;	       /* how many such parts */
	struct gn_bench_gpu *gpu; /* with --device cuda */
	struct gn_pattern pattern;
	void *in, *out;	/* of buffer_bytes each */
	size_t buffer_bytes;
	double *times;	      /* room for o->iters */
	double link_gb_per_s; /* 0 with a single node */
	int64_t wrong;	      /* wrong elements in all rows so far */
};

/* Messages of this rank, one after the other or together. NULL: none. */
struct gn_bench_messages {
	struct gn_p2p *first, *second;
	int together;
};
/* As run of gn_bench_time(): context is a struct gn_bench_messages, a struct gn_coll. */
enum gn_status gn_bench_run_messages(void *context, struct gn_err *err);
enum gn_status gn_bench_run_coll(void *context, struct gn_err *err);
/* Times any operation that is collective over all ranks. */
enum gn_status gn_bench_time(struct gn_bench *b, enum gn_status (*run)(void *context, struct gn_err *err), void *context,
			     struct gn_timing *out, struct gn_err *err);
/* Sums over all ranks the elements that each found wrong. */
enum gn_status gn_bench_add_wrong(struct gn_bench *b, int64_t here, struct gn_timing *t, struct gn_err *err);

/* Measures and prints one row. measure() fills in the timings; the counters of the network devices are read around it. Rank 0
 * prints. The transport is what row already names, else what rank 0's connections use, and shm where measure() reports that ranks
 * access each other's memory. */
enum gn_status gn_bench_row(struct gn_bench *b, struct gn_bench_row *row,
			    enum gn_status (*measure)(struct gn_bench *b, struct gn_bench_row *row, int *direct,
						      struct gn_err *err),
			    struct gn_err *err);

/* Memory roofline: GB/s, read plus written, that `copiers` ranks of this node copy at once in messages of bytes. */
enum gn_status gn_bench_memory_roofline(struct gn_bench *b, size_t bytes, int copiers, double *gb_per_s, struct gn_err *err);
/* Network roofline: GB/s that a node sends to the next while it receives from the previous one; the slowest node's. */
enum gn_status gn_bench_link_roofline(struct gn_bench *b, double *gb_per_s, struct gn_err *err);

/* The modes. */
enum gn_status gn_bench_collective(struct gn_bench *b, enum gn_collective what, struct gn_err *err);
enum gn_status gn_bench_p2p(struct gn_bench *b, struct gn_err *err);
/* Prints; returns the exit code. Not collective. */
int gn_bench_decode(const struct gn_bench_options *o);
/* Reads samples of a dataset, or blocks of a temporary file, in random order. Prints; returns the exit code. Not collective. */
int gn_bench_io(const struct gn_bench_options *o);
/* Training steps or inference on generated images in memory, without a loader. Prints on rank 0; returns the exit code. */
int gn_bench_train(const struct gn_bench_options *o);

/* Allreduce of GPU memory by the backend of --comm. Only in builds with CUDA. */

/* Local: opens this rank's GPU, chosen by its local rank among the visible ones. */
enum gn_status gn_bench_gpu_open(int local_rank, struct gn_bench_gpu **out, struct gn_err *err);
void gn_bench_gpu_close(struct gn_bench_gpu *g);
/* PCI address; borrowed. */
const char *gn_bench_gpu_pci(const struct gn_bench_gpu *g);
/* Collective: measures and prints all rows. */
enum gn_status gn_bench_gpu_allreduce(struct gn_bench *b, struct gn_err *err);

#endif
