/* The parts of `gannet info`: datasets and shards (info.c), checkpoints (info_checkpoint.c), a step of a model (info_plan.c), a
 * mesh of them (info_parallel.c), a node's topology (info_topology.c). Each prints and returns an enum gn_exit. */
#ifndef GN_CMD_INFO_H
#define GN_CMD_INFO_H

#include "src/cmd/sim.h"
#include "src/train/parallel/mesh.h"
#include "src/train/plan/plan_cost.h"

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
	struct gn_sim_options sim; /* the machine of --parallel */
};

/* What the roofline is of: as given, or measured here, which takes a second. */
struct gn_info_machine {
	const char *precision; /* the precision in use */
	double bytes_per_s, flops_per_s;
};
enum gn_status gn_info_machine(const struct gn_info_plan_options *o, struct gn_info_machine *m, struct gn_err *err);
/* Forward and backward of an operator. */
double gn_info_roofline_s(const struct gn_info_machine *m, const struct gn_plan_cost *c);

/* Prints the operators of a training or inference step of a model on this machine, their cost, and their roofline time. */
int gn_info_plan(const struct gn_info_plan_options *options);

/* Prints what a step of a mesh of ranks should take, or of all meshes. */
int gn_info_parallel(const struct gn_info_plan_options *options);
/* The same of a mesh with tensor groups. plan: of a micro-batch; ranks: the machine. */
enum gn_status gn_info_tensor(const struct gn_info_plan_options *o, const struct gn_model *model, const struct gn_plan_options *plan,
			      const struct gn_sim_topology *ranks, const struct gn_mesh_shape *shape, struct gn_err *err);
/* Draws it with the machine's nodes. */
void gn_info_print_mesh(const struct gn_mesh *mesh, const struct gn_sim_topology *machine);

/* Prints the distances of GPUs, network devices and processors, and the placement of ranks. xml: a file written by lstopo; NULL:
 * this machine. ranks 0: one per GPU, or one. */
int gn_info_topology(const char *xml, int64_t ranks, int json);

#endif
