/* The parts of `gannet info`: files and folders (info.c, info_checkpoint.c), a step of a model (info_plan.c), a node's topology
 * (info_topology.c). Each prints and returns an enum gn_exit. */
#ifndef GN_CMD_INFO_H
#define GN_CMD_INFO_H

#include <stdint.h>

/* Whether path is a checkpoint or a folder of them. */
int gn_info_is_checkpoint(const char *path);
/* Verifies and prints the newest valid one. */
int gn_info_checkpoint(const char *path, int json);

struct gn_info_plan_options {
	const char *model, *precision;
	int64_t batch, side, classes; /* side 0: the model's default */
	int inference, json;
	double gb_per_s, gflop_per_s; /* 0: measured */
};

/* A training step, or inference, of a model on this machine: its operators, their cost and the least time they take. */
int gn_info_plan(const struct gn_info_plan_options *options);

/* The distance of GPUs, network devices and processors, and how ranks would share them. xml: a file that lstopo wrote; NULL: this
 * machine. ranks 0: one for each GPU, or one. */
int gn_info_topology(const char *xml, int64_t ranks, int json);

#endif
