/* --parallel auto: rank 0 measures the layers of the network, predicts a step of each mesh of the ranks (pipe_forecast.h), and all take the
 * fastest of those that fit into its node's memory. */
#include "src/train/loop/session.h"

#include "src/train/metrics/node_load.h"
#include "src/train/parallel/pipe_forecast.h"
#include "transport/coll/agree.h"
#include "transport/select/cost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What rank 0 tells the others. */
struct choice {
	struct gn_mesh_shape shape;
	char cut[GN_SESSION_CUT_MAX];
};

static void describe_machine(const struct gn_comm *comm, struct gn_sim_topology *out)
{
	const struct gn_node_map *map = gn_comm_map(comm);
	int each = map->size / map->nodes;

	gn_cost_topology(gn_comm_cost(comm), map->nodes, each, out);
	for (int r = 0; r < map->size; r++)
		if (map->node[r] != r / each)
			out->map = map;
}

/* Of a data rank in the mesh without pipelines. */
static int batches_of(const struct gn_session *s)
{
	const struct gn_train_options *o = s->options;
	const int64_t ranks = gn_comm_size(s->comm), most = GN_STEP_BATCHES_MAX / ranks, each = o->global_batch / o->batch / ranks;

	if (!o->global_batch)
		return (int)o->accumulate;
	return each > most && most > 0 ? (int)most : each > 0 ? (int)each : 1;
}

/* out->costs: to be released. */
static enum gn_status ask(const struct gn_session *s, struct gn_pipe_question *out, struct gn_err *err)
{
	const struct gn_train_options *o = s->options;
	struct gn_reducer_config config;

	*out = (struct gn_pipe_question){.model = s->model, .plan = s->device, .kind = gn_pipe_kind_of(o->pipe_schedule),
					 .micro = (int)o->micro_batches, .batches = batches_of(s)};
	out->plan.batch = (int)o->batch;
	out->plan.training = 1;
	out->plan.dropout = o->dropout;
	gn_session_reducer_config(s, &config);
	out->bucket_bytes = config.overlap ? (double)config.bucket_bytes : 0;
	describe_machine(s->comm, &out->machine);
	return gn_cut_costs_measure(s->model, &out->plan, &out->costs, err);
}

/* Of the ranks of rank 0's node, beside the whole network that rank 0 has for checkpoints. */
static double node_memory(const struct gn_session *s, const struct gn_pipe_forecast *f)
{
	double bytes = (double)gn_model_param_elements(s->model) * sizeof(float);

	for (int r = 0; r < f->mesh.size; r++)
		if (f->mesh.node_of[r] == f->mesh.node_of[0])
			bytes += f->memory_bytes[gn_mesh_stage(&f->mesh, r)];
	return bytes;
}

/* Whether f is taken rather than the best one so far. */
static int is_better(const struct gn_session *s, const struct gn_pipe_forecast *f, const struct gn_pipe_forecast *best, double available)
{
	double need = node_memory(s, f), needed = best->mesh.size ? node_memory(s, best) : 0;

	if (!best->mesh.size || (need > available) != (needed > available))
		return !best->mesh.size || need <= available;
	return need > available ? need < needed : f->step.step_s < best->step.step_s;
}

static void tell(const struct gn_session *s, const struct gn_pipe_forecast *f, double available, struct gn_strbuf *out)
{
	gn_strbuf_printf(out, "%sdata=%d,pipeline=%d %.4g ms", *gn_strbuf_text(out) ? ", " : "", f->mesh.shape.data, f->mesh.shape.pipeline,
			 1e3 * f->step.step_s);
	if (node_memory(s, f) > available)
		gn_strbuf_printf(out, " (%.3g GB a node, of which %.3g are free)", node_memory(s, f) * 1e-9, available * 1e-9);
}

/* best: to be released. all: of each mesh what is predicted. */
static enum gn_status compare(const struct gn_session *s, const struct gn_pipe_question *q, struct gn_pipe_forecast *best, struct gn_strbuf *all,
			      struct gn_err *err)
{
	int ranks = gn_comm_size(s->comm);
	struct gn_node_counters node = {.available_bytes = 0};
	enum gn_status status = GN_OK;

	gn_node_counters_read(&node);
	for (int stages = 1; stages <= ranks && stages <= q->costs.count && !status; stages++) {
		const struct gn_mesh_shape shape = {ranks / stages, stages, 1};
		struct gn_pipe_forecast f, swap;

		if (ranks % stages || q->batches > GN_STEP_BATCHES_MAX / stages)
			continue;
		status = gn_pipe_forecast_make(q, &shape, stages, &f, err);
		if (!status)
			tell(s, &f, node.available_bytes, all);
		if (!status && is_better(s, &f, best, node.available_bytes)) {
			swap = *best;
			*best = f;
			f = swap;
		}
		gn_pipe_forecast_release(&f);
	}
	if (!status && best->step.step_s > 0 && node_memory(s, best) > node.available_bytes)
		gn_log_warn(s->log, "--parallel auto: no mesh fits into %.3g GB, which are free on this node: the one that needs least is taken",
			    node.available_bytes * 1e-9);
	return status;
}

/* On rank 0. */
static enum gn_status choose(struct gn_session *s, struct choice *out, struct gn_err *err)
{
	struct gn_pipe_question q = {.model = NULL};
	struct gn_pipe_forecast best = {.stages = NULL};
	struct gn_strbuf all, cut;
	enum gn_status status = ask(s, &q, err);

	gn_strbuf_init(&all);
	gn_strbuf_init(&cut);
	if (!status)
		status = compare(s, &q, &best, &all, err);
	if (!status) {
		gn_cuts_text(s->model, best.nodes, best.schedule.stages - 1, &cut);
		out->shape = best.mesh.shape;
		snprintf(out->cut, sizeof out->cut, "%s", gn_strbuf_text(&cut));
		snprintf(s->mesh_choice, sizeof s->mesh_choice, "data=%d,pipeline=%d is the fastest that fits, a step predicted: %s", best.mesh.shape.data,
			 best.mesh.shape.pipeline, gn_strbuf_text(&all));
		gn_log_info(s->log, "--parallel auto: %s", s->mesh_choice);
	}
	if (!status && (gn_strbuf_failed(&all) || gn_strbuf_failed(&cut) || cut.len >= sizeof out->cut))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the choice of a mesh");
	gn_strbuf_release(&all);
	gn_strbuf_release(&cut);
	gn_pipe_forecast_release(&best);
	gn_cut_costs_release(&q.costs);
	return status;
}

enum gn_status gn_session_choose_mesh(struct gn_session *s, struct gn_mesh_shape *out, struct gn_err *err)
{
	struct gn_train_options *o = &s->resolved;
	struct choice c = {.shape = {gn_comm_size(s->comm), 1, 1}};
	int asks = gn_comm_size(s->comm) > 1;
	enum gn_status status = asks && gn_comm_rank(s->comm) == 0 ? choose(s, &c, err) : GN_OK;

	status = gn_agree_status(s->comm, status, err);
	if (!status && asks)
		status = gn_comm_broadcast(s->comm, &c, sizeof c, 0, err);
	if (status)
		return status;
	memcpy(s->mesh_cut, c.cut, sizeof c.cut);
	*o = *s->options;
	o->cut = c.shape.pipeline > 1 ? s->mesh_cut : NULL;
	o->accumulate *= c.shape.pipeline;
	o->micro_batches *= c.shape.pipeline;
	s->options = o;
	*out = c.shape;
	return GN_OK;
}
