#include "src/train/parallel/pipe_forecast.h"

#include "src/train/plan/plan.h"
#include "src/train/plan/weight_layouts.h"

#include <stdlib.h>
#include <string.h>

enum { TRY_ALL_RANKS = 256 };

enum gn_status gn_pipe_forecast_mesh(const struct gn_mesh_shape *shape, const struct gn_sim_topology *machine, struct gn_mesh *out,
				     struct gn_err *err)
{
	int ranks = gn_sim_ranks(machine), *node_of = calloc((size_t)ranks, sizeof *node_of);
	enum gn_status status;

	if (!node_of)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", ranks);
	for (int r = 0; r < ranks; r++)
		node_of[r] = gn_sim_node_of(machine, r);
	status = gn_mesh_init(out, shape, node_of, ranks, err);
	free(node_of);
	return status;
}

void gn_pipe_forecast_rates(const struct gn_mesh *mesh, const struct gn_sim_topology *machine, double *bytes_per_s)
{
	for (int s = 0; s + 1 < mesh->shape.pipeline; s++)
		bytes_per_s[s] = gn_mesh_crosses(mesh, s) ? machine->link_bytes_per_s : machine->node_bytes_per_s;
}

/* Nodes first .. *end - 1 are a stage's. */
static int first_node(const struct gn_model *m, const struct gn_pipe_schedule *s, const int *nodes, int stage, int *end)
{
	*end = stage + 1 < s->stages ? nodes[stage] : gn_model_node_count(m);
	return stage ? nodes[stage - 1] : 1;
}

enum gn_status gn_pipe_forecast_stages(const struct gn_model *m, const struct gn_cut_costs *c, const struct gn_pipe_schedule *s, const int *nodes,
				       struct gn_sim_pipe_stage *stages, struct gn_err *err)
{
	for (int k = 0, i = 0; k < s->stages; k++) {
		int end, first = first_node(m, s, nodes, k, &end);
		struct gn_sim_pipe_stage *stage = &stages[k];
		struct gn_model *part;
		enum gn_status status = gn_model_part(m, first, end, &part, err);

		if (status)
			return status;
		*stage = (struct gn_sim_pipe_stage){.gradient_bytes = (double)(gn_model_param_elements(part) * sizeof(float))};
		gn_model_destroy(part);
		for (; i < c->count && c->pieces[i].node < end; i++) {
			stage->forward_s += c->pieces[i].forward_s;
			stage->backward_s += c->pieces[i].backward_s + c->pieces[i].add_s * (s->batches - 1) / s->batches;
			stage->update_s += 2 * c->pieces[i].add_s;
			stage->out_bytes = c->pieces[i].out_bytes;
		}
	}
	return GN_OK;
}

/* --- memory --- */

/* *layout: of the stage's input, becomes that of its output. */
static enum gn_status stage_memory(const struct gn_model *part, const struct gn_plan_options *options, int in_flight, int batches,
				   struct gn_layout *layout, double *bytes, struct gn_err *err)
{
	struct gn_plan_options o = *options;
	struct gn_weight_layouts *layouts;
	struct gn_plan *plan;
	enum gn_status status = gn_weight_layouts_create(part, &layouts, err);

	if (status)
		return status;
	o.no_memory = 1;
	o.weights = gn_weight_layouts_layouts(layouts);
	o.input = gn_model_origin(part).node ? layout : NULL;
	status = gn_plan_create(part, &o, NULL, NULL, NULL, &plan, err);
	if (!status) {
		*bytes = ((double)gn_model_param_elements(part) * (batches > 1 ? 4 : 3) + (double)gn_model_buffer_elements(part)) * sizeof(float) +
			 (double)gn_plan_bytes(plan) * in_flight;
		if (!gn_model_is_end(part))
			*layout = *gn_plan_output_layout(plan);
		gn_plan_destroy(plan);
	}
	gn_weight_layouts_destroy(layouts);
	return status;
}

enum gn_status gn_pipe_forecast_memory(const struct gn_model *m, const struct gn_plan_options *options, const struct gn_pipe_schedule *s,
				       const int *nodes, double *memory_bytes, struct gn_err *err)
{
	struct gn_pipe_schedule at = *s;
	struct gn_layout layout;
	enum gn_status status = GN_OK;

	for (at.stage = 0; at.stage < s->stages && !status; at.stage++) {
		int end, first = first_node(m, s, nodes, at.stage, &end);
		struct gn_model *part;

		status = gn_model_part(m, first, end, &part, err);
		if (status)
			break;
		status = stage_memory(part, options, gn_pipe_schedule_in_flight(&at), s->batches, &layout, &memory_bytes[at.stage], err);
		gn_model_destroy(part);
	}
	return status;
}

/* --- a step --- */

static void order(const struct gn_pipe_schedule *s, struct gn_sim_pipe_action *out)
{
	struct gn_pipe_schedule at = *s;

	for (at.stage = 0; at.stage < s->stages; at.stage++)
		for (int i = 0; i < 2 * s->batches; i++) {
			struct gn_pipe_action a = gn_pipe_schedule_action(&at, i);

			*out++ = (struct gn_sim_pipe_action){a.is_backward, a.batch};
		}
}

/* Those that the machine cannot have, or that take too much memory to simulate, do not count, as long as there is one. */
static enum gn_status run_fastest(const struct gn_sim_topology *machine, const struct gn_sim_pipe *p, struct gn_sim_pipe_result *out,
				  const struct gn_algorithm **chosen, struct gn_err *err)
{
	int all = p->data > 1 && p->data * p->stages <= TRY_ALL_RANKS;
	size_t count;
	const struct gn_algorithm *list = gn_algorithms(&count), *best = NULL;
	struct gn_sim_pipe_result r;
	enum gn_status status = GN_OK;

	for (size_t i = 0; i < count && (!status || status == GN_ERR_UNSUPPORTED); i++) {
		if (list[i].what != GN_COLLECTIVE_ALLREDUCE || (!all && strcmp(list[i].name, "ring")))
			continue;
		status = gn_sim_pipe_run(machine, p, &list[i], &r, err);
		if (!status && (!best || r.step_s < out->step_s)) {
			*out = r;
			best = &list[i];
		}
	}
	if (best && chosen)
		*chosen = best;
	return best && (!status || status == GN_ERR_UNSUPPORTED) ? GN_OK : status;
}

enum gn_status gn_pipe_forecast_step(const struct gn_sim_topology *machine, const struct gn_mesh *mesh, const struct gn_pipe_schedule *s,
				     const struct gn_sim_pipe_stage *stages, const struct gn_algorithm *sum, struct gn_sim_pipe_result *out,
				     const struct gn_algorithm **chosen, struct gn_err *err)
{
	struct gn_sim_pipe_action *actions = calloc((size_t)s->stages * 2 * (size_t)s->batches, sizeof *actions);
	const struct gn_sim_pipe p = {s->stages, mesh->shape.data, s->batches, stages, actions, mesh->ranks};
	enum gn_status status;

	if (!actions)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the order of %d stages", s->stages);
	order(s, actions);
	status = sum ? gn_sim_pipe_run(machine, &p, sum, out, err) : run_fastest(machine, &p, out, chosen, err);
	free(actions);
	return status;
}
