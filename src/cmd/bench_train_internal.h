/* What the files of gannet bench train share: a run, and its parts on a GPU (bench_train_gpu.c) and in words (bench_train_report.c).
 *
 * Thread safety: one thread. */
#ifndef GN_CMD_BENCH_TRAIN_INTERNAL_H
#define GN_CMD_BENCH_TRAIN_INTERNAL_H

#include "src/cmd/bench_train.h"

#include "src/train/plan/weight_layouts.h"
#include "src/train/parallel/reducer.h"
#include "src/train/parallel/device_reducer.h"
#include "src/train/optim/optimizer.h"

/* As gannet train has it when it measures nothing. */
#define GN_BENCH_BUCKET_BYTES ((size_t)16 << 20)
/* Small enough that losses stay comparable to another program's for some steps. */
#define GN_BENCH_RATE 0.01
#define GN_BENCH_LOSSES 4

/* Of a step. */
enum { FORWARD, BACKWARD, EXPOSED, OPTIMIZER, STEP, PARTS };

struct train_bench {
	const struct gn_bench_options *o;
	const char *precision; /* as it is computed here */
	struct gn_log *log;
	struct gn_world *world;
	struct gn_comm *comm;
	struct gn_model *model;
	struct gn_weight_layouts *arrange;
	struct gn_plan *plan;
	struct gn_reducer *exchange;
	struct gn_optimizer *optimizer;
	float *params, *flat, *buffers, *images; /* buffers: in flat, behind the gradients, as in training */
	int32_t *labels;
	int resident;	       /* steps stay on the GPU */
	struct gn_device_reducer gpu_sums; /* of several ranks there, in place of exchange */
	double *times[PARTS]; /* of the timed steps, seconds; sorted in the end */
	double *in_order;     /* times[STEP] unsorted */
	double losses[GN_BENCH_LOSSES];
	double first_begins_s, first_ends_s; /* since the process began */
	uint64_t peak_bytes;
};

/* Collective. As gannet train on a GPU: the state stays there, gradients of several ranks are summed there, images go up while a
 * step runs. */
enum gn_status gn_bench_train_reside(struct train_bench *b, struct gn_err *err);
/* Step number k of such a run, one piece of which the host sees the whole time, and how long it waited for sums alone. */
enum gn_status gn_bench_train_resident_step(struct train_bench *b, uint64_t k, double *parts, struct gn_err *err);
/* Collective. The slowest rank's times, each step's by itself; rank 0 prints. */
enum gn_status gn_bench_train_report(struct train_bench *b, struct gn_err *err);

#endif
