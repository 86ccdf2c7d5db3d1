#include "src/train/parallel/pipe_forecast.h"

#include "src/train/plan/plan_cost.h"
#include "src/train/plan/weight_layouts.h"

#include <math.h>
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

/* --- times of stages --- */

/* Asynchronous: the update of each micro-batch is a part of its backward. */
static void add_piece(struct gn_sim_pipe_stage *stage, const struct gn_cut_piece *c, int is_async, int batches)
{
	stage->forward_s += c->forward_s;
	stage->backward_s += c->backward_s + (is_async ? 2 * c->add_s : c->add_s * (batches - 1) / batches);
	stage->update_s += is_async ? 0 : 2 * c->add_s;
	stage->out_bytes = c->out_bytes;
}

/* f->nodes: places of q's costs. */
static void add_pieces(const struct gn_pipe_question *q, struct gn_pipe_forecast *f)
{
	const struct gn_pipe_schedule *s = &f->schedule;
	const int is_async = gn_pipe_kind_is_async(s->kind);

	for (int k = 0, i = 0; k < s->stages; k++) {
		struct gn_sim_pipe_stage *stage = &f->stages[k];
		int end;

		first_node(q->model, s, f->nodes, k, &end);
		for (; i < q->costs.count && q->costs.pieces[i].node < end; i++)
			add_piece(stage, &q->costs.pieces[i], is_async, s->batches);
		if (q->recomputes && k + 1 < s->stages)
			stage->backward_s += stage->forward_s;
	}
}

/* --- what a rank of a stage holds and exchanges --- */

static double memory_of(const struct gn_pipe_question *q, const struct gn_pipe_schedule *at, const struct gn_model *m, const struct gn_plan *plan)
{
	const int in_flight = gn_pipe_schedule_in_flight(at), is_async = gn_pipe_kind_is_async(at->kind), again = q->recomputes && in_flight > 1;
	const int arrays = !is_async && at->batches > 1 ? 4 : 3; /* the fourth: a step's sum */
	double bytes = ((double)gn_model_param_elements(m) * arrays + (double)gn_model_buffer_elements(m)) * sizeof(float) +
		       (double)gn_plan_bytes(plan) * (again ? 1 : in_flight);

	if (again)
		bytes += (double)gn_plan_input_bytes(plan) * in_flight;
	if (at->kind == GN_PIPE_PIPEDREAM && in_flight > 1)
		bytes += (double)gn_model_param_elements(m) * sizeof(float) * in_flight;
	return bytes;
}

/* Whether the ranks of some tensor group lie on several nodes. */
static int is_spread(const struct gn_mesh *m)
{
	for (int i = 1; i < m->size; i++)
		if (i % m->shape.tensor && m->node_of[m->ranks[i]] != m->node_of[m->ranks[i - 1]])
			return 1;
	return 0;
}

/* Of a message, besides its time on the link. */
static double message_s(const struct gn_sim_topology *machine, int spread, double bytes)
{
	const struct gn_sim_path *path = spread ? &machine->link : &machine->node;
	const struct gn_sim_range *r = path->count ? gn_sim_range_of(path, bytes) : NULL;

	if (!r)
		return spread ? machine->link_latency_s : machine->node_latency_s;
	return r->send_s + r->latency_s + r->s_per_byte * bytes + r->receive_s;
}

/* Returns seconds. */
static double add_exchange(const struct gn_op_exchange *x, const struct gn_sim_topology *machine, const struct gn_mesh *m, struct gn_pipe_rank *r)
{
	const int ranks = m->shape.tensor, is_sum = x->kind == GN_EXCHANGE_SUM, steps = (is_sum ? 2 : 1) * (ranks - 1), spread = is_spread(m);
	const double each = (double)x->count * x->element_bytes / (is_sum ? ranks : 1), bytes = steps * each;
	double seconds;

	if (x->kind == GN_EXCHANGE_NONE)
		return 0;
	seconds = bytes / (spread ? machine->link_bytes_per_s / machine->ranks_per_node : machine->node_bytes_per_s) +
		  steps * message_s(machine, spread, each);
	r->exchange_bytes += bytes;
	r->exchange_s += seconds;
	return seconds;
}

static void add_exchanges(const struct gn_pipe_question *q, const struct gn_plan *plan, struct gn_pipe_forecast *f, int stage)
{
	struct gn_sim_pipe_stage *costs = &f->stages[stage];

	for (int i = 0; i < gn_plan_op_count(plan) && q->slices > 1; i++) {
		struct gn_plan_cost c;
		double forward;

		gn_plan_op_cost(plan, i, &c);
		forward = add_exchange(&c.exchange[0], &q->machine, &f->mesh, &f->ranks[stage]);
		costs->forward_s += forward;
		costs->backward_s += add_exchange(&c.exchange[1], &q->machine, &f->mesh, &f->ranks[stage]);
		if (q->recomputes && stage + 1 < f->schedule.stages)
			costs->backward_s += forward;
	}
}

/* *layout: of the stage's input, becomes that of its output. */
static enum gn_status add_stage(const struct gn_pipe_question *q, struct gn_pipe_forecast *f, const struct gn_model *part,
				const struct gn_pipe_schedule *at, struct gn_layout *layout, struct gn_err *err)
{
	struct gn_plan_options o = q->plan;
	struct gn_model *slice = NULL;
	const struct gn_model *own = part;
	struct gn_plan *plan;
	enum gn_status status = q->slices > 1 ? gn_model_slice(part, 0, q->slices, &slice, err) : GN_OK;

	if (status && at->stages > 1)
		gn_err_prefix(err, "stage %d of %d", at->stage, at->stages);
	if (status)
		return status;
	own = slice ? slice : part;
	o.input = gn_model_origin(part).node ? layout : NULL;
	status = gn_plan_create_unallocated(own, &o, &plan, err);
	if (!status) {
		struct gn_pipe_rank *r = &f->ranks[at->stage];

		r->param_bytes = f->stages[at->stage].gradient_bytes = (double)(gn_model_param_elements(own) * sizeof(float));
		r->memory_bytes = memory_of(q, at, own, plan);
		add_exchanges(q, plan, f, at->stage);
		if (!gn_model_is_end(part))
			*layout = *gn_plan_output_layout(plan);
		gn_plan_destroy(plan);
	}
	gn_model_destroy(slice);
	return status;
}

static enum gn_status add_stages(const struct gn_pipe_question *q, struct gn_pipe_forecast *f, struct gn_err *err)
{
	struct gn_pipe_schedule at = f->schedule;
	struct gn_layout layout;
	enum gn_status status = GN_OK;

	for (at.stage = 0; at.stage < at.stages && !status; at.stage++) {
		int end, first = first_node(q->model, &at, f->nodes, at.stage, &end);
		struct gn_model *part;

		status = gn_model_part(q->model, first, end, &part, err);
		if (status)
			break;
		status = add_stage(q, f, part, &at, &layout, err);
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

/* The machine that the first slices of all tensor groups see. */
static enum gn_status of_slices(const struct gn_sim_topology *all, int slices, struct gn_sim_topology *out, struct gn_err *err)
{
	const int each = all->ranks_per_node, share = slices < each ? slices : each;

	*out = *all;
	if (slices == 1)
		return GN_OK;
	if (all->map || (each % slices && slices % each))
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "tensor groups of %d ranks are predicted where nodes have a multiple or a divisor of as many", slices);
	out->ranks_per_node = each / share;
	out->nodes = all->nodes * share / slices;
	out->rails = all->rails > out->ranks_per_node ? out->ranks_per_node : all->rails;
	out->leaf_nodes = all->leaf_nodes * share / slices;
	out->link_bytes_per_s /= share;
	return GN_OK;
}

int gn_pipe_forecast_has_slices(const struct gn_model *m, const struct gn_sim_topology *machine, int slices)
{
	struct gn_sim_topology ignored;
	struct gn_model *slice;
	struct gn_err err;

	if (slices == 1)
		return 1;
	if (gn_sim_ranks(machine) % slices || of_slices(machine, slices, &ignored, &err) || gn_model_slice(m, 0, slices, &slice, &err))
		return 0;
	gn_model_destroy(slice);
	return 1;
}

/* Of a pipeline that is full: what M more micro-batches take, with the sum over data ranks after each. */
static enum gn_status full_pipeline(const struct gn_sim_topology *machine, const struct gn_mesh *mesh, struct gn_pipe_forecast *f, double bucket_bytes,
				    struct gn_err *err)
{
	const int batches = f->schedule.batches, stages = f->schedule.stages;
	struct gn_sim_pipe_result few, many;
	double computing = 0;
	enum gn_status status = gn_pipe_forecast_step(machine, mesh, &f->schedule, f->stages, bucket_bytes, NULL, &few, err);

	for (int k = 0; k < stages && !status; k++) {
		f->stages[k].backward_s += few.sum_s;
		computing += batches * (f->stages[k].forward_s + f->stages[k].backward_s);
	}
	f->schedule.batches = 2 * stages + batches;
	if (!status)
		status = gn_pipe_forecast_step(machine, mesh, &f->schedule, f->stages, bucket_bytes, NULL, &few, err);
	f->schedule.batches += batches;
	if (!status)
		status = gn_pipe_forecast_step(machine, mesh, &f->schedule, f->stages, bucket_bytes, NULL, &many, err);
	f->schedule.batches = batches;
	if (status)
		return status;
	f->step = many;
	f->step.step_s = f->step.pipe_s = many.pipe_s - few.pipe_s;
	f->step.network_bytes = many.network_bytes - few.network_bytes;
	f->step.bubble = 1 - computing / (stages * f->step.step_s);
	return GN_OK;
}

/* Nobody waits for a gradient: the slowest stage, or link. */
static void slowest(const struct gn_pipe_question *q, const struct gn_sim_topology *machine, struct gn_pipe_forecast *f)
{
	double most = 0, computing = 0;

	for (int k = 0; k < f->schedule.stages; k++) {
		const struct gn_sim_pipe_stage *c = &f->stages[k];
		double rate = k + 1 < f->schedule.stages && gn_mesh_crosses(&f->mesh, k) ? machine->link_bytes_per_s : q->machine.node_bytes_per_s;

		most = fmax(most, fmax(c->forward_s + c->backward_s, c->out_bytes / rate));
		computing += c->forward_s + c->backward_s;
	}
	f->step.step_s = f->step.pipe_s = f->schedule.batches * most;
	f->step.bubble = 1 - computing / (f->schedule.stages * most);
}

/* Between nodes, of all tensor groups in a step: of a ring's messages those from a node's last rank. */
static double exchanged_bytes(const struct gn_pipe_question *q, const struct gn_pipe_forecast *f)
{
	double bytes = 0;

	for (int k = 0; k < f->schedule.stages && q->slices > 1 && is_spread(&f->mesh); k++)
		bytes += f->ranks[k].exchange_bytes * f->schedule.batches * f->mesh.shape.data * q->slices / q->machine.ranks_per_node;
	return bytes;
}

static enum gn_status predict(const struct gn_pipe_question *q, struct gn_pipe_forecast *f, struct gn_err *err)
{
	const struct gn_mesh_shape one = {f->mesh.shape.data, f->mesh.shape.pipeline, 1};
	struct gn_sim_topology machine;
	struct gn_mesh mesh = {.size = 0};
	enum gn_status status = of_slices(&q->machine, q->slices, &machine, err);

	if (!status)
		status = gn_pipe_forecast_mesh(&one, &machine, &mesh, err);
	if (!status)
		status = gn_pipe_kind_is_async(f->schedule.kind)
				 ? full_pipeline(&machine, &mesh, f, q->bucket_bytes, err)
				 : gn_pipe_forecast_step(&machine, &mesh, &f->schedule, f->stages, q->bucket_bytes, NULL, &f->step, err);
	if (!status && f->schedule.kind == GN_PIPE_DECOUPLED)
		slowest(q, &machine, f);
	if (!status)
		f->step.network_bytes = f->step.network_bytes * (uint64_t)q->slices + (uint64_t)exchanged_bytes(q, f);
	gn_mesh_release(&mesh);
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
	f->ranks = calloc(stages, sizeof *f->ranks);
	status = f->stages && f->nodes && f->ranks ? gn_pipe_forecast_mesh(shape, &q->machine, &f->mesh, err)
							  : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu stages", stages);
	if (!status)
		status = find_cuts(q, f, err);
	if (!status)
		add_pieces(q, f);
	if (!status)
		status = add_stages(q, f, err);
	return status ? status : predict(q, f, err);
}

void gn_pipe_forecast_release(struct gn_pipe_forecast *f)
{
	gn_mesh_release(&f->mesh);
	free(f->stages);
	free(f->nodes);
	free(f->ranks);
	*f = (struct gn_pipe_forecast){.stages = NULL};
}
