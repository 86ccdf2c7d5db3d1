/* What the files of gannet bench train share: the state of a measurement, its report (bench_train_report.c), and times of operators
 * (bench_train_profile.c).
 *
 * Thread safety: one thread. */
#ifndef GN_CMD_BENCH_TRAIN_INTERNAL_H
#define GN_CMD_BENCH_TRAIN_INTERNAL_H

#include "src/cmd/bench.h"

#include "src/base/json.h"
#include "src/train/loop/step.h"

#include <stdio.h>

/* As gannet train has it when it measures nothing. */
#define GN_BENCH_BUCKET_BYTES ((size_t)16 << 20)
/* Small enough that losses are comparable to another program's for some steps. */
#define GN_BENCH_RATE 0.01
#define GN_BENCH_LOSSES 4
/* Steps of a profile, at most, after those that are not counted. */
enum { GN_BENCH_PROFILE_STEPS = 10, GN_BENCH_PROFILE_WARMUP = 2 };

/* Of a step. */
enum { FORWARD, BACKWARD, EXPOSED, OPTIMIZER, STEP, PARTS };

struct train_bench {
	const struct gn_bench_options *o;
	const char *precision; /* as it is computed here */
	struct gn_log *log;
	struct gn_world *world;
	struct gn_comm *comm;
	struct gn_model *model;
	struct gn_replica replica;	/* training */
	struct gn_weight_layouts *weight_layouts; /* inference, as the next two */
	float *params, *buffers;
	struct gn_plan *plan;		/* training: the replica's */
	float *images;
	int32_t *labels;
	int is_queued;			/* the device computes beside the host, which sees no parts of a step but sums */
	double *times[PARTS]; /* of the timed steps, seconds; sorted in the end */
	double *in_order;     /* times[STEP] unsorted */
	double losses[GN_BENCH_LOSSES];
	double first_begins_s, first_ends_s; /* since the process began */
	uint64_t peak_bytes;
	struct gn_bench_profile *profile; /* with --profile */
};

/* Step number k; parts: [PARTS], seconds. Collective in training. */
enum gn_status gn_bench_train_step(struct train_bench *b, uint64_t k, double *parts, struct gn_err *err);
/* Collective in training: times operators in more steps, and sets b->profile. */
enum gn_status gn_bench_profile(struct train_bench *b, struct gn_err *err);
/* NULL is fine. */
void gn_bench_profile_destroy(struct gn_bench_profile *f);
/* The profile of this rank, as a member of an object, and as tables. */
void gn_bench_profile_json(const struct train_bench *b, struct gn_json *j);
void gn_bench_profile_print(const struct train_bench *b, FILE *to);

/* Collective. The slowest rank's times, each step's by itself; rank 0 prints. */
enum gn_status gn_bench_train_report(struct train_bench *b, struct gn_err *err);

#endif
