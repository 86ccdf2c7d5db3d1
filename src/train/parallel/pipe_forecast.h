/* What a step of a mesh should take, and what each rank should hold, before anything runs: from the costs of a network's pieces
 * (cuts.h) and a description of the machine, by the schedule that the run would have and the simulation of transport/sim/sim_pipe.h.
 *
 * Of a stage, with M micro-batches a step:
 *     backward = sum over its pieces of (backward + add * (M - 1) / M), since gradients of all micro-batches but the last are added up
 *     update   = sum over its pieces of 2 add
 *     memory   = (parameters, their gradients, momentum, and with M > 1 the sums) * 4 bytes + batch norm's buffers + activations of one
 *                micro-batch (the plan's arena) * the micro-batches that are in flight at once
 *     bytes    = M * output, each way, between it and the next stage; 2 (D - 1) / D * gradients for each rank's sum over D data ranks
 * With recomputation a stage but the last runs its forward again before its backward, and holds activations of one micro-batch and inputs of those
 * in flight.
 *
 * Tensor groups of T ranks: pieces are slices, and a stage's exchanges are added to its forward and backward: of n bytes 2 (T - 1) / T n for
 * a sum and half of that to gather or scatter, at the rate between the ranks of a group, with the latency of a ring's steps. The simulation is of the first
 * slice of each group, on a machine whose links the other slices use as much.
 *
 * Asynchronous schedules update after each micro-batch: backward has the update and the sum over data ranks, and nothing of accumulation. pipedream: a
 * step is what M micro-batches more take when the pipeline is full; parameters have a version for each micro-batch in flight. decoupled: the
 * slowest stage or link; what its predictors take is not counted.
 *
 * Thread safety: none of its own. Local.
 */
#ifndef GN_TRAIN_PARALLEL_PIPE_FORECAST_H
#define GN_TRAIN_PARALLEL_PIPE_FORECAST_H

#include "src/train/parallel/cuts.h"
#include "src/train/parallel/mesh.h"
#include "src/train/parallel/pipe_schedule.h"
#include "transport/sim/sim_pipe.h"

/* Of all ranks of a machine, in blocks by node; to be released. */
enum gn_status gn_pipe_forecast_mesh(const struct gn_mesh_shape *shape, const struct gn_sim_topology *machine, struct gn_mesh *out,
				     struct gn_err *err);
/* machine has the mesh's ranks. bucket_bytes, sum, and which it was: as gn_sim_pipe_run has them. */
enum gn_status gn_pipe_forecast_step(const struct gn_sim_topology *machine, const struct gn_mesh *mesh, const struct gn_pipe_schedule *s,
				     const struct gn_sim_pipe_stage *stages, double bucket_bytes, const struct gn_algorithm *sum,
				     struct gn_sim_pipe_result *out, struct gn_err *err);

/* What all meshes share. */
struct gn_pipe_question {
	struct gn_sim_topology machine;
	const struct gn_model *model;  /* borrowed */
	int slices;		       /* of tensor groups; 1: there are none */
	int recomputes;
	struct gn_cut_costs costs;     /* of a micro-batch, of one slice */
	struct gn_plan_options plan;   /* of a micro-batch */
	enum gn_pipe_kind kind;
	int micro, batches;	       /* as struct gn_pipe_schedule has them */
	double bucket_bytes;	       /* as struct gn_sim_pipe has it */
	const char *cut;	       /* as gn_cuts_parse takes it; NULL: where it is fastest */
};

/* Of a rank of a stage. */
struct gn_pipe_rank {
	double memory_bytes, param_bytes;
	double exchange_bytes, exchange_s; /* sent in its tensor group for a micro-batch */
};

/* A mesh and what is predicted of it. */
struct gn_pipe_forecast {
	struct gn_mesh mesh;
	struct gn_pipe_schedule schedule;
	struct gn_sim_pipe_stage *stages;
	int *nodes;	      /* where it is cut */
	struct gn_pipe_rank *ranks; /* by stage */
	struct gn_sim_pipe_result step;
};

/* Whether the ranks of the machine can be tensor groups of so many ranks, which divide some layer, and a step is predicted; 1: yes. */
int gn_pipe_forecast_has_slices(const struct gn_model *m, const struct gn_sim_topology *machine, int slices);
/* shape has the slices of q. A step with times as many micro-batches as q says: with as many as there are stages, a step has the same samples and micro-batches in all meshes
 * of the same ranks. On failure, too, *out is to be released. */
enum gn_status gn_pipe_forecast_make(const struct gn_pipe_question *q, const struct gn_mesh_shape *shape, int times, struct gn_pipe_forecast *out,
				     struct gn_err *err);
/* A zeroed one is fine. */
void gn_pipe_forecast_release(struct gn_pipe_forecast *f);

#endif
