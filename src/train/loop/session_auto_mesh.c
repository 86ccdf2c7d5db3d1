/* --parallel auto: rank 0 measures the layers of the network, predicts a step of each mesh of the ranks (pipe_forecast.h), and all take the
 * fastest of those that fit into its node's memory. */
#include "src/train/loop/session.h"

#include "src/base/oom.h"
#include "src/train/loop/combine.h"
#include "src/train/metrics/usage.h"
#include "src/train/parallel/pipe_forecast.h"
#include "transport/coll/agree.h"
#include "transport/select/cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What rank 0 tells the others. */
struct choice {
	struct gn_mesh_shape shape;
	char cut[GN_CHECKPOINT_CUT_MAX];
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

/* costs: to be measured. */
static void ask(const struct gn_session *s, struct gn_pipe_question *out)
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
}

/* Of the ranks of rank 0's node, beside the whole network that rank 0 has for checkpoints. */
static double node_memory(const struct gn_session *s, const struct gn_pipe_forecast *f)
{
	double bytes = (double)gn_model_param_elements(s->model) * sizeof(float);

	for (int r = 0; r < f->mesh.size; r++)
		if (f->mesh.node_of[r] == f->mesh.node_of[0])
			bytes += f->ranks[gn_mesh_stage(&f->mesh, r)].memory_bytes;
	return bytes;
}

/* Of this node, or less where the job has a limit. */
static double available_bytes(void)
{
	struct gn_node_counters node = {.available_bytes = 0};

	gn_node_counters_read(&node);
	return fmin(node.available_bytes, (double)gn_oom_room_bytes());
}

/* Whether f is taken rather than the best one so far. */
static int is_better(const struct gn_session *s, const struct gn_pipe_forecast *f, const struct gn_pipe_forecast *best, double available)
{
	double need = node_memory(s, f), needed = best->mesh.size ? node_memory(s, best) : 0;

	if (!best->mesh.size || (need > available) != (needed > available))
		return !best->mesh.size || need <= available;
	return need > available ? need < needed : f->step.step_s < best->step.step_s;
}

static void put_shape(const struct gn_mesh_shape *m, struct gn_strbuf *out)
{
	gn_strbuf_printf(out, "data=%d,pipeline=%d", m->data, m->pipeline);
	if (m->tensor > 1)
		gn_strbuf_printf(out, ",tensor=%d", m->tensor);
}

static void tell(const struct gn_session *s, const struct gn_pipe_forecast *f, double available, struct gn_strbuf *out)
{
	gn_strbuf_printf(out, "%s", *gn_strbuf_text(out) ? ", " : "");
	put_shape(&f->mesh.shape, out);
	gn_strbuf_printf(out, " %.4g ms", 1e3 * f->step.step_s);
	if (node_memory(s, f) > available)
		gn_strbuf_printf(out, " (%.3g GB a node, of which %.3g are free)", node_memory(s, f) * 1e-9, available * 1e-9);
}

/* Whether the run's options go with tensor groups of so many ranks. */
static int takes_slices(const struct gn_session *s, const struct gn_sim_topology *machine, int slices)
{
	struct gn_train_options o = *s->options;
	struct gn_err ignored;

	o.parallel = "data=1,tensor=2";
	return slices == 1 || (!gn_train_check_options(&o, &ignored) && gn_pipe_forecast_has_slices(s->model, machine, slices));
}

/* Of meshes with q's slices. best: to be released. all: of each mesh what is predicted. */
static enum gn_status compare_slices(const struct gn_session *s, const struct gn_pipe_question *q, double available, struct gn_pipe_forecast *best,
				     struct gn_strbuf *all, struct gn_err *err)
{
	const int ranks = gn_comm_size(s->comm), groups = ranks / q->slices;
	enum gn_status status = GN_OK;

	for (int stages = 1; stages <= groups && stages <= q->costs.count && !status; stages++) {
		const struct gn_mesh_shape shape = {groups / stages, stages, q->slices};
		const int times = stages * q->slices;
		struct gn_pipe_forecast f, swap;

		if (groups % stages || q->batches > GN_STEP_BATCHES_MAX / times)
			continue;
		status = gn_pipe_forecast_make(q, &shape, times, &f, err);
		if (!status)
			tell(s, &f, available, all);
		if (!status && is_better(s, &f, best, available)) {
			swap = *best;
			*best = f;
			f = swap;
		}
		/* a stage has nothing that so many ranks divide */
		if (status == GN_ERR_USAGE && q->slices > 1)
			status = GN_OK;
		gn_pipe_forecast_release(&f);
	}
	return status;
}

/* Measures the layers for each number of slices and predicts all meshes; best NULL: measures only. */
static enum gn_status compare(const struct gn_session *s, struct gn_pipe_question *q, struct gn_pipe_forecast *best, struct gn_strbuf *all,
			      struct gn_err *err)
{
	const double available = available_bytes();
	enum gn_status status = GN_OK;

	ask(s, q);
	for (q->slices = 1; q->slices <= gn_comm_size(s->comm) && !status; q->slices++) {
		if (!takes_slices(s, &q->machine, q->slices))
			continue;
		gn_cut_costs_release(&q->costs);
		status = gn_cut_costs_measure(s->model, &q->plan, q->slices, &q->costs, err);
		if (!status && best)
			status = compare_slices(s, q, available, best, all, err);
	}
	if (!status && best && best->step.step_s > 0 && node_memory(s, best) > available)
		gn_log_warn(s->log, "--parallel auto: no mesh fits into %.3g GB, which are free on this node: the one that needs least is taken",
			    available * 1e-9);
	return status;
}

/* On rank 0. */
static enum gn_status choose(struct gn_session *s, struct choice *out, struct gn_err *err)
{
	struct gn_pipe_question q = {.model = NULL};
	struct gn_pipe_forecast best = {.stages = NULL};
	struct gn_strbuf all = {0}, cut = {0}, mesh = {0};
	enum gn_status status = compare(s, &q, &best, &all, err);

	if (!status) {
		gn_cuts_text(s->model, best.nodes, best.schedule.stages - 1, &cut);
		out->shape = best.mesh.shape;
		snprintf(out->cut, sizeof out->cut, "%s", gn_strbuf_text(&cut));
		put_shape(&out->shape, &mesh);
		snprintf(s->mesh_choice, sizeof s->mesh_choice, "%s is the fastest that fits, a step predicted: %s", gn_strbuf_text(&mesh),
			 gn_strbuf_text(&all));
		gn_log_info(s->log, "--parallel auto: %s", s->mesh_choice);
	}
	if (!status && (gn_strbuf_failed(&all) || gn_strbuf_failed(&cut) || cut.len >= sizeof out->cut))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the choice of a mesh");
	gn_strbuf_release(&all);
	gn_strbuf_release(&cut);
	gn_strbuf_release(&mesh);
	gn_pipe_forecast_release(&best);
	gn_cut_costs_release(&q.costs);
	return status;
}

/* On other ranks of rank 0's node, which share its memory: as in the steps that are predicted, they compute at the same time. */
static enum gn_status compute_beside(const struct gn_session *s, struct gn_err *err)
{
	struct gn_pipe_question q = {.model = NULL};
	enum gn_status status = compare(s, &q, NULL, NULL, err);

	gn_cut_costs_release(&q.costs);
	return status;
}

enum gn_status gn_session_choose_mesh(struct gn_session *s, struct gn_mesh_shape *out, struct gn_err *err)
{
	struct gn_train_options *o = &s->resolved;
	struct choice c = {.shape = {gn_comm_size(s->comm), 1, 1}};
	int asks = gn_comm_size(s->comm) > 1, rank = gn_comm_rank(s->comm);
	const struct gn_world *world = gn_comm_world(s->comm);
	const int is_near = gn_world_node_of(world, gn_comm_world_rank(s->comm, rank)) == gn_world_node_of(world, gn_comm_world_rank(s->comm, 0));
	enum gn_status status = !asks ? GN_OK : rank == 0 ? choose(s, &c, err) : is_near ? compute_beside(s, err) : GN_OK;

	status = gn_agree_status(s->comm, status, err);
	if (!status && asks)
		status = gn_comm_broadcast(s->comm, &c, sizeof c, 0, err);
	if (status)
		return status;
	memcpy(s->mesh_cut, c.cut, sizeof c.cut);
	*o = *s->options;
	o->cut = c.shape.pipeline > 1 ? s->mesh_cut : NULL;
	o->accumulate *= c.shape.pipeline * c.shape.tensor;
	o->micro_batches *= c.shape.pipeline * c.shape.tensor;
	s->options = o;
	*out = c.shape;
	return GN_OK;
}
