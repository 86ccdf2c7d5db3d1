#include "src/train/parallel/pipe_forecast.h"

#include "src/train/plan/plan.h"
#include "src/train/plan/weight_layouts.h"

#include <stdlib.h>

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

/* Nodes first .. *end - 1 are a stage's. */
static int first_node(const struct gn_model *m, const struct gn_pipe_schedule *s, const int *nodes, int stage, int *end)
{
	*end = stage + 1 < s->stages ? nodes[stage] : gn_model_node_count(m);
	return stage ? nodes[stage - 1] : 1;
}

/* stages [s->stages]; nodes [s->stages - 1]: as gn_cuts_choose has them; all are places of c. */
static enum gn_status forecast_stages(const struct gn_model *m, const struct gn_cut_costs *c, const struct gn_pipe_schedule *s, const int *nodes,
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

double gn_pipe_forecast_bytes(const struct gn_model *m, const struct gn_plan *plan, int in_flight, int batches)
{
	return ((double)gn_model_param_elements(m) * (batches > 1 ? 4 : 3) + (double)gn_model_buffer_elements(m)) * sizeof(float) +
	       (double)gn_plan_bytes(plan) * in_flight;
}

/* *layout: of the stage's input, becomes that of its output. */
static enum gn_status stage_memory(const struct gn_model *part, const struct gn_plan_options *options, int in_flight, int batches,
				   struct gn_layout *layout, double *bytes, struct gn_err *err)
{
	struct gn_plan_options o = *options;
	struct gn_plan *plan;
	enum gn_status status;

	o.input = gn_model_origin(part).node ? layout : NULL;
	status = gn_plan_create_unallocated(part, &o, &plan, err);
	if (status)
		return status;
	*bytes = gn_pipe_forecast_bytes(part, plan, in_flight, batches);
	if (!gn_model_is_end(part))
		*layout = *gn_plan_output_layout(plan);
	gn_plan_destroy(plan);
	return GN_OK;
}

/* memory_bytes [s->stages]. */
static enum gn_status forecast_memory(const struct gn_model *m, const struct gn_plan_options *options, const struct gn_pipe_schedule *s,
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

enum gn_status gn_pipe_forecast_step(const struct gn_sim_topology *machine, const struct gn_mesh *mesh, const struct gn_pipe_schedule *s,
				     const struct gn_sim_pipe_stage *stages, double bucket_bytes, const struct gn_algorithm *sum,
				     struct gn_sim_pipe_result *out, struct gn_err *err)
{
	struct gn_sim_pipe_action *actions = calloc((size_t)s->stages * 2 * (size_t)s->batches, sizeof *actions);
	const struct gn_sim_pipe p = {s->stages, mesh->shape.data, s->batches, stages, actions, mesh->ranks, bucket_bytes};
	enum gn_status status;

	if (!actions)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the order of %d stages", s->stages);
	order(s, actions);
	status = gn_sim_pipe_run(machine, &p, sum, out, err);
	free(actions);
	return status;
}

/* --- a mesh --- */

static enum gn_status find_cuts(const struct gn_pipe_question *q, struct gn_pipe_forecast *f, struct gn_err *err)
{
	int stages = f->schedule.stages;
	double *bytes_per_s = calloc((size_t)stages, sizeof *bytes_per_s);
	enum gn_status status;

	if (!bytes_per_s)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d stages", stages);
	for (int s = 0; s + 1 < stages; s++)
		bytes_per_s[s] = gn_mesh_crosses(&f->mesh, s) ? q->machine.link_bytes_per_s : q->machine.node_bytes_per_s;
	status = q->cut ? gn_cuts_parse(q->model, q->cut, stages, f->nodes, err)
			: gn_cuts_choose(&q->costs, stages, f->schedule.batches, bytes_per_s, f->nodes, NULL, err);
	free(bytes_per_s);
	return status;
}

enum gn_status gn_pipe_forecast_make(const struct gn_pipe_question *q, const struct gn_mesh_shape *shape, int times, struct gn_pipe_forecast *out,
				     struct gn_err *err)
{
	size_t stages = (size_t)shape->pipeline;
	struct gn_pipe_forecast *f = out;
	enum gn_status status;

	*f = (struct gn_pipe_forecast){.schedule = {.kind = stages > 1 ? q->kind : GN_PIPE_1F1B, .stages = shape->pipeline, .micro = q->micro * times,
						    .batches = q->batches * times}};
	f->stages = calloc(stages, sizeof *f->stages);
	f->nodes = calloc(stages, sizeof *f->nodes);
	f->memory_bytes = calloc(stages, sizeof *f->memory_bytes);
	status = f->stages && f->nodes && f->memory_bytes ? gn_pipe_forecast_mesh(shape, &q->machine, &f->mesh, err)
							  : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu stages", stages);
	if (!status)
		status = find_cuts(q, f, err);
	if (!status)
		status = forecast_stages(q->model, &q->costs, &f->schedule, f->nodes, f->stages, err);
	if (!status)
		status = forecast_memory(q->model, &q->plan, &f->schedule, f->nodes, f->memory_bytes, err);
	return status ? status : gn_pipe_forecast_step(&q->machine, &f->mesh, &f->schedule, f->stages, q->bucket_bytes, NULL, &f->step, err);
}

void gn_pipe_forecast_release(struct gn_pipe_forecast *f)
{
	gn_mesh_release(&f->mesh);
	free(f->stages);
	free(f->nodes);
	free(f->memory_bytes);
	*f = (struct gn_pipe_forecast){.stages = NULL};
}
