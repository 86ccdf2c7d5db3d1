#include "src/train/loop/session.h"

#include "src/base/alloc.h"
#include "src/train/parallel/cuts.h"
#include "src/train/parallel/pipe_link.h"
#include "transport/bootstrap/regroup.h"
#include "transport/coll/agree.h"
#include "transport/coll/p2p.h"

#include <stdlib.h>
#include <string.h>

/* Of messages in a pipeline's communicator, beside those of its stages. */
enum { TAG_PART = 16 };

/* --- creation --- */

static enum gn_status place(struct gn_session_pipeline *p, const struct gn_mesh_shape *shape, const struct gn_world *world, struct gn_err *err)
{
	int size = gn_world_size(world), *node_of = calloc((size_t)size, sizeof *node_of);
	enum gn_status status;

	for (int r = 0; node_of && r < size; r++)
		node_of[r] = gn_world_node_of(world, r);
	status = node_of ? gn_mesh_init(&p->mesh, shape, node_of, size, err) : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a mesh");
	free(node_of);
	return status;
}

enum gn_status gn_session_open_mesh(struct gn_session *s, struct gn_err *err)
{
	struct gn_session_pipeline *p;
	struct gn_mesh_shape shape;
	int rank = gn_comm_rank(s->comm), data, stage;
	const char *asked = s->options->parallel;
	enum gn_status status = !asked ? GN_OK
				: gn_mesh_is_auto(asked) ? gn_session_choose_mesh(s, &shape, err)
							 : gn_mesh_parse(asked, gn_comm_size(s->comm), &shape, err);

	if (!status && asked && shape.pipeline == 1 && gn_pipe_kind_is_async(gn_pipe_kind_of(s->options->pipe_schedule)))
		status = gn_err_set(err, GN_ERR_USAGE, "--pipe-schedule %s is of pipelines, and --parallel %s has none on %d rank%s: give pipeline=P, or leave "
				    "the schedule out", s->options->pipe_schedule, asked, gn_comm_size(s->comm),
				    gn_comm_size(s->comm) == 1 ? "" : "s");
	if (!status && asked && shape.pipeline == 1 && s->options->recompute && !s->options->carried)
		status = gn_err_set(err, GN_ERR_USAGE, "--recompute is of pipelines, and --parallel %s has none on %d rank%s: give pipeline=P, or leave "
				    "it out", asked, gn_comm_size(s->comm), gn_comm_size(s->comm) == 1 ? "" : "s");
	if (status || !asked || (shape.pipeline == 1 && shape.tensor == 1))
		return status; /* alike on all ranks */
	s->pipeline = p = calloc(1, sizeof *p);
	status = p ? place(p, &shape, gn_comm_world(s->comm), err) : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a mesh");
	status = gn_agree_status(s->comm, status, err);
	if (status)
		return status;
	data = gn_mesh_data_index(&p->mesh, rank);
	stage = shape.tensor > 1 ? gn_mesh_slice(&p->mesh, rank) : gn_mesh_stage(&p->mesh, rank);
	status = gn_comm_split(s->comm, data, stage, shape.tensor > 1 ? "tensor" : "pipeline", &p->pipe, err);
	if (!status)
		status = gn_comm_split(s->comm, stage, data, shape.tensor > 1 ? "slice" : "stage", &p->data, err);
	s->worker = data;
	s->workers = shape.data;
	if (!status && s->options->regroup) {
		gn_comm_end_with_world(p->pipe);
		gn_comm_end_with_world(p->data);
		gn_regroup_set_places(s->options->regroup, p->mesh.positions, p->mesh.size);
	}
	return status;
}

/* On rank 0: measured, because what is the longest of so different layers nobody can tell. */
static enum gn_status choose_cuts(const struct gn_session *s, int *nodes, struct gn_err *err)
{
	const struct gn_train_options *o = s->options;
	const struct gn_mesh *mesh = &s->pipeline->mesh;
	int links = mesh->shape.pipeline - 1;
	double *rates = calloc((size_t)links, sizeof *rates);
	struct gn_plan_options po = s->device;
	struct gn_cut_costs costs = {.pieces = NULL};
	enum gn_status status;

	po.batch = (int)o->batch;
	po.training = 1;
	po.dropout = o->dropout;
	for (int i = 0; rates && i < links; i++)
		rates[i] = gn_pipe_link_rate(s->comm, gn_mesh_crosses(mesh, i));
	status = rates ? gn_cut_costs_measure(s->model, &po, &costs, err) : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for cuts");
	if (!status)
		status = gn_cuts_choose(&costs, mesh->shape.pipeline, s->schedule.own_batches, rates, nodes, NULL, err);
	gn_cut_costs_release(&costs);
	free(rates);
	return status;
}

static enum gn_status make_part(struct gn_session *s, struct gn_err *err)
{
	struct gn_session_pipeline *p = s->pipeline;
	int stage = gn_comm_rank(p->pipe), stages = gn_comm_size(p->pipe);
	const struct gn_train_options *o = s->options;
	const struct gn_pipe_schedule schedule = {.kind = gn_pipe_kind_of(o->pipe_schedule), .micro = (int)o->micro_batches,
						  .batches = s->schedule.own_batches};
	enum gn_status status = gn_model_part(s->model, stage ? p->nodes[stage - 1] : 1,
					      stage < stages - 1 ? p->nodes[stage] : gn_model_node_count(s->model), &p->part, err);

	return status ? status : gn_pipe_stage_create(p->pipe, &schedule, &p->stage, err);
}

static enum gn_status make_slice(struct gn_session *s, struct gn_err *err)
{
	struct gn_session_pipeline *p = s->pipeline;
	enum gn_status status = gn_model_slice(s->model, gn_comm_rank(p->pipe), gn_comm_size(p->pipe), &p->part, err);

	return status ? status : gn_tensor_group_create(p->pipe, p->part, &p->tensor, err);
}

enum gn_status gn_session_cut(struct gn_session *s, struct gn_err *err)
{
	struct gn_session_pipeline *p = s->pipeline;
	enum gn_status status = GN_OK;
	int stages;

	if (!p)
		return GN_OK;
	if (p->mesh.shape.tensor > 1)
		return gn_agree_status(s->comm, make_slice(s, err), err);
	stages = p->mesh.shape.pipeline;
	p->nodes = calloc((size_t)stages, sizeof *p->nodes);
	if (!p->nodes)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for cuts");
	else if (s->options->cut)
		status = gn_cuts_parse(s->model, s->options->cut, stages, p->nodes, err);
	else if (gn_comm_rank(s->comm) == 0)
		status = choose_cuts(s, p->nodes, err);
	status = gn_agree_status(s->comm, status, err);
	if (!status)
		status = gn_comm_broadcast(s->comm, p->nodes, (size_t)stages * sizeof *p->nodes, 0, err);
	return status ? status : gn_agree_status(s->comm, make_part(s, err), err);
}

enum gn_status gn_session_alloc_whole(struct gn_session *s, struct gn_err *err)
{
	struct gn_session_pipeline *p = s->pipeline;
	size_t params = gn_model_param_elements(s->model) * sizeof(float), buffers = gn_model_buffer_elements(s->model) * sizeof(float);
	int averages = s->options->ema > 0;
	enum gn_status status;

	if (!p)
		return GN_OK;
	status = gn_weight_layouts_create(s->model, &p->plain, err);
	if (!status)
		gn_weight_layouts_plain(p->plain);
	if (status || (gn_comm_rank(s->comm) && (p->tensor || !s->options->val)))
		return status;
	p->params = gn_alloc_aligned(params);
	p->buffers = gn_alloc_aligned(buffers + 1);
	p->average_params = averages ? gn_alloc_aligned(params) : NULL;
	p->average_buffers = averages ? gn_alloc_aligned(buffers + 1) : NULL;
	if (!p->params || !p->buffers || (averages && (!p->average_params || !p->average_buffers)))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for all parameters of %s", gn_model_name(s->model));
	return GN_OK;
}

void gn_session_pipeline_destroy(struct gn_session_pipeline *p)
{
	if (!p)
		return;
	gn_pipe_stage_destroy(p->stage);
	gn_tensor_group_destroy(p->tensor);
	gn_weight_layouts_destroy(p->plain);
	gn_model_destroy(p->part);
	gn_comm_destroy(p->data);
	gn_comm_destroy(p->pipe);
	gn_mesh_release(&p->mesh);
	free(p->nodes);
	free(p->params);
	free(p->buffers);
	free(p->average_params);
	free(p->average_buffers);
	free(p);
}

const struct gn_model *gn_session_own_model(const struct gn_session *s)
{
	return s->pipeline ? s->pipeline->part : s->model;
}

struct gn_comm *gn_session_data_comm(const struct gn_session *s)
{
	return s->pipeline ? s->pipeline->data : s->comm;
}

int gn_session_reads_images(const struct gn_session *s)
{
	return !s->pipeline || !s->pipeline->stage || gn_pipe_stage_is_first(s->pipeline->stage);
}

/* --- parts and the whole --- */

struct range {
	size_t begin, end;
};

/* Of a stage in the whole arrays: [0] parameters, [1] buffers. */
static void ranges_of(const struct gn_session *s, int stage, struct range out[2])
{
	const struct gn_session_pipeline *p = s->pipeline;
	const struct gn_model *m = s->model;

	for (int edge = 0; edge < 2; edge++) {
		int at = stage + edge, i = 0, k = 0, node = at == 0 ? 0 : at == gn_comm_size(p->pipe) ? gn_model_node_count(m) : p->nodes[at - 1];

		while (i < gn_model_param_count(m) && gn_model_param(m, i)->node < node)
			i++;
		while (k < gn_model_buffer_count(m) && gn_model_buffer(m, k)->node < node)
			k++;
		*(edge ? &out[0].end : &out[0].begin) = i < gn_model_param_count(m) ? gn_model_param(m, i)->offset : gn_model_param_elements(m);
		*(edge ? &out[1].end : &out[1].begin) = k < gn_model_buffer_count(m) ? gn_model_buffer(m, k)->offset : gn_model_buffer_elements(m);
	}
}

int gn_session_stage_begin(const struct gn_session *s, size_t begins[2])
{
	struct range r[2];
	int stage = gn_comm_rank(s->pipeline->pipe);

	ranges_of(s, stage, r);
	begins[0] = r[0].begin;
	begins[1] = r[1].begin;
	return stage;
}

/* Of the first pipeline, whose stage 0 is rank 0: parts in torch's order go to rank 0. whole: there alone. */
static enum gn_status collect(const struct gn_session *s, const struct gn_array *part, int kind, float *whole, struct gn_err *err)
{
	const struct gn_session_pipeline *p = s->pipeline;
	int root = gn_comm_rank(p->pipe) == 0;
	float *own = root ? whole : gn_alloc_aligned(part->count * sizeof(float) + 1);
	struct range r[2];
	enum gn_status status = own ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a copy of a stage's parameters");

	if (!status && part->count)
		memcpy(own, part->host, part->count * sizeof(float));
	if (!status && kind == 0)
		gn_weight_layouts_out(s->replica.layouts, own);
	if (!root) {
		if (!status && part->count)
			status = gn_p2p_send(p->pipe, 0, TAG_PART, own, part->count * sizeof(float), err);
		free(own);
		return status;
	}
	for (int stage = 1; stage < gn_comm_size(p->pipe) && !status; stage++) {
		ranges_of(s, stage, r);
		if (r[kind].end > r[kind].begin)
			status = gn_p2p_receive(p->pipe, stage, TAG_PART, whole + r[kind].begin, (r[kind].end - r[kind].begin) * sizeof(float), err);
	}
	return status;
}

static enum gn_status gather(struct gn_session *s, const struct gn_array *part, int kind, float *whole, int everywhere, struct gn_err *err)
{
	size_t elements = kind ? gn_model_buffer_elements(s->model) : gn_model_param_elements(s->model);
	enum gn_status status = s->worker ? GN_OK : gn_session_alone(s, (s->pipeline->tensor ? gn_session_collect_slices : collect)(s, part, kind, whole, err));

	if (status || !everywhere || !elements)
		return status;
	return gn_comm_broadcast(s->comm, whole, elements * sizeof(float), 0, err);
}

enum gn_status gn_session_gather(struct gn_session *s, int everywhere, struct gn_err *err)
{
	const struct gn_session_pipeline *p = s->pipeline;
	const struct gn_replica *r = &s->replica;
	enum gn_status status = p ? gather(s, &r->params, 0, p->params, everywhere, err) : GN_OK;

	if (!status && p)
		status = gather(s, &r->buffers, 1, p->buffers, everywhere, err);
	if (status || !p || !gn_replica_has_average(r))
		return status;
	status = gather(s, &r->ema.params, 0, p->average_params, everywhere, err);
	return status ? status : gather(s, &r->ema.buffers, 1, p->average_buffers, everywhere, err);
}

void gn_session_whole_average(const struct gn_session *s, struct gn_ema *out)
{
	const struct gn_session_pipeline *p = s->pipeline;

	*out = (struct gn_ema){
		.decay = s->options->ema,
		.params = {.device = p->average_params, .host = p->average_params, .count = gn_model_param_elements(s->model)},
		.buffers = {.device = p->average_buffers, .host = p->average_buffers, .count = gn_model_buffer_elements(s->model)},
	};
}

/* --- checkpoints --- */

void gn_session_set_stage_range(const struct gn_session *s, struct gn_checkpoint_arrays *a)
{
	struct range r[2] = {{0, 0}, {0, 0}};

	if (s->pipeline->stage)
		ranges_of(s, gn_comm_rank(s->pipeline->pipe), r);
	else if (gn_comm_rank(s->comm) == 0)
		r[0].end = gn_model_param_elements(s->model); /* gathered there */
	a->is_split = 1;
	a->begin = r[0].begin;
	a->end = s->worker ? a->begin : r[0].end; /* pipelines have the same state: the first one writes it */
}

static enum gn_status copy_slot(const struct gn_session *s, const struct gn_array *slot, size_t count, float *to, struct gn_err *err)
{
	if (s->pipeline->tensor)
		return s->worker ? GN_OK : gn_session_collect_slices(s, slot, 0, to, err);
	if (count) {
		memcpy(to, slot->host, count * sizeof(float));
		gn_weight_layouts_out(s->replica.layouts, to);
	}
	return GN_OK;
}

enum gn_status gn_session_split_stage(struct gn_session *s, struct gn_checkpoint_arrays *a, struct gn_err *err)
{
	int slots = gn_optim_slots(s->checkpoint.info.optimizer);
	enum gn_status status = GN_OK;

	gn_session_set_stage_range(s, a);
	for (int k = 0; k < slots && !status; k++) {
		a->slots[k] = calloc(a->end - a->begin + 1, sizeof(float));
		if (!a->slots[k])
			status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a part of the optimizer's state");
	}
	status = gn_agree_status(s->comm, status, err);
	for (int k = 0; k < slots && !status; k++)
		status = gn_session_alone(s, copy_slot(s, gn_optimizer_slot(s->replica.optimizer, k), a->end - a->begin, a->slots[k], err));
	return status;
}

/* What rank 0 has of all becomes this rank's part, by slices, or from stage to stage of the first pipeline, then from there to the others. */
static enum gn_status take(const struct gn_session *s, const float *whole, int kind, const struct gn_array *part, struct gn_err *err)
{
	const struct gn_session_pipeline *p = s->pipeline;
	int root = gn_comm_rank(s->comm) == 0;
	struct range r[2];
	enum gn_status status = GN_OK;

	if (p->tensor)
		return gn_session_take_slices(s, whole, kind, part, err);
	for (int stage = 1; root && stage < gn_comm_size(p->pipe) && !status; stage++) {
		ranges_of(s, stage, r);
		if (r[kind].end > r[kind].begin)
			status = gn_p2p_send(p->pipe, stage, TAG_PART, whole + r[kind].begin, (r[kind].end - r[kind].begin) * sizeof(float), err);
	}
	if (!part->count || status)
		return status;
	if (root)
		memcpy(part->host, whole, part->count * sizeof(float));
	else if (!s->worker)
		status = gn_p2p_receive(p->pipe, 0, TAG_PART, part->host, part->count * sizeof(float), err);
	return status ? status : gn_comm_broadcast(p->data, part->host, part->count * sizeof(float), 0, err);
}

static enum gn_status restore_slots(struct gn_session *s, const char *folder, const struct gn_checkpoint_info *info, struct gn_err *err)
{
	int root = gn_comm_rank(s->comm) == 0;
	float *whole = root ? gn_alloc_aligned(gn_model_param_elements(s->model) * sizeof(float)) : NULL;
	enum gn_status status = whole || !root ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the optimizer's state of all stages");

	status = gn_agree_status(s->comm, status, err);
	for (int k = 0; k < gn_optim_slots(s->checkpoint.info.optimizer) && !status; k++) {
		struct gn_checkpoint_arrays a = {.slots[0] = NULL};

		a.slots[k] = whole;
		if (root)
			status = gn_checkpoint_load(folder, info, gn_session_key(s), s->model, &a, err);
		status = gn_agree_status(s->comm, status, err);
		if (!status)
			status = take(s, whole, 0, gn_optimizer_slot(s->replica.optimizer, k), err);
	}
	free(whole);
	return status;
}

enum gn_status gn_session_restore_stage(struct gn_session *s, const char *folder, const struct gn_checkpoint_info *info, struct gn_err *err)
{
	const struct gn_session_pipeline *p = s->pipeline;
	struct gn_replica *r = &s->replica;
	enum gn_status status = take(s, p->params, 0, &r->params, err);

	if (!status)
		status = take(s, p->buffers, 1, &r->buffers, err);
	if (!status && gn_replica_has_average(r))
		gn_ema_set(&r->ema, r->params.host, r->buffers.host);
	if (!status && folder && gn_replica_has_average(r) && info->has_average) {
		status = take(s, p->average_params, 0, &r->ema.params, err);
		if (!status)
			status = take(s, p->average_buffers, 1, &r->ema.buffers, err);
	}
	return status || !folder ? status : restore_slots(s, folder, info, err);
}
