/* The parts of `gannet info`: datasets and shards (info.c), checkpoints (info_checkpoint.c), a step of a model (info_plan.c), a
 * mesh of them (info_parallel.c), a node's topology (info_topology.c). Each prints and returns an enum gn_exit. */
#ifndef GN_CMD_INFO_H
#define GN_CMD_INFO_H

#include "src/cmd/sim.h"

#include <stdint.h>

/* Whether path is a checkpoint or a folder of them. */
int gn_info_is_checkpoint(const char *path);
/* Verifies and prints the newest valid checkpoint; key_file: of an encrypted one, to check its signature; NULL: sizes and digests only. */
int gn_info_checkpoint(const char *path, const char *key_file, int json);

struct gn_info_plan_options {
	const char *model, *precision;
	int64_t batch, side, classes; /* side in pixels; 0: the model's default */
	int inference, json;
	double gb_per_s, gflop_per_s; /* 0: measured */
	const char *parallel, *cut, *schedule; /* parallel NULL: one rank */
	int64_t micro_batches;
	int recompute;
	struct gn_sim_options sim; /* the machine of --parallel */
};

/* Prints the operators of a training or inference step of a model on this machine, their cost, and their roofline time. */
int gn_info_plan(const struct gn_info_plan_options *options);

/* Prints what a step of a mesh of ranks should take, or of all meshes. */
int gn_info_parallel(const struct gn_info_plan_options *options);

/* Prints the distances of GPUs, network devices and processors, and the placement of ranks. xml: a file written by lstopo; NULL:
 * this machine. ranks 0: one per GPU, or one. */
int gn_info_topology(const char *xml, int64_t ranks, int json);

#endif
