/* What a step of a mesh should take, and what each stage should hold, before anything runs: from the costs of a network's pieces
 * (cuts.h) and a description of the machine, by the schedule that the run would have and the simulation of transport/sim/sim_pipe.h.
 *
 * Of a stage, with M micro-batches a step:
 *     backward = sum over its pieces of (backward + add * (M - 1) / M), since gradients of all micro-batches but the last are added up
 *     update   = sum over its pieces of 2 add
 *     memory   = (parameters, their gradients, momentum, and with M > 1 the sums) * 4 bytes + batch norm's buffers + activations of one
 *                micro-batch (the plan's arena) * the micro-batches that are in flight at once
 *     bytes    = M * output, each way, between it and the next stage; 2 (D - 1) / D * gradients for each rank's sum over D data ranks
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
/* For gn_cuts_choose: of the link behind each stage but the last, bytes_per_s [stages - 1]. */
void gn_pipe_forecast_rates(const struct gn_mesh *mesh, const struct gn_sim_topology *machine, double *bytes_per_s);

/* stages [s->stages]; nodes [s->stages - 1]: as gn_cuts_choose has them; all are places of c. */
enum gn_status gn_pipe_forecast_stages(const struct gn_model *m, const struct gn_cut_costs *c, const struct gn_pipe_schedule *s, const int *nodes,
				       struct gn_sim_pipe_stage *stages, struct gn_err *err);
/* memory_bytes [s->stages]. options: as for gn_cut_costs_measure; plans are made without memory. */
enum gn_status gn_pipe_forecast_memory(const struct gn_model *m, const struct gn_plan_options *options, const struct gn_pipe_schedule *s,
				       const int *nodes, double *memory_bytes, struct gn_err *err);
/* machine has the mesh's ranks. sum: of gradients; NULL: the fastest that there is, or on more than 256 ranks the ring, which becomes *chosen
 * (may be NULL). */
enum gn_status gn_pipe_forecast_step(const struct gn_sim_topology *machine, const struct gn_mesh *mesh, const struct gn_pipe_schedule *s,
				     const struct gn_sim_pipe_stage *stages, const struct gn_algorithm *sum, struct gn_sim_pipe_result *out,
				     const struct gn_algorithm **chosen, struct gn_err *err);

#endif
