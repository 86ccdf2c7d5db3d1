#include "src/train/loop/session.h"

#include "src/base/alloc.h"
#include "src/base/text.h"
#include "src/train/parallel/cuts.h"
#include "src/train/parallel/pipe_link.h"
#include "transport/bootstrap/regroup.h"
#include "transport/coll/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
	int rank = gn_comm_rank(s->comm), data, stage, slice;
	const char *asked = s->options->parallel;
	enum gn_status status = !asked ? GN_OK
				: gn_mesh_is_auto(asked) ? gn_session_choose_mesh(s, &shape, err)
							 : gn_mesh_parse(asked, s->workers, &shape, err);

	if (!status && asked && shape.pipeline == 1 && gn_pipe_kind_is_async(gn_pipe_kind_of(s->options->pipe_schedule)))
		status = gn_err_set(err, GN_ERR_USAGE, "--pipe-schedule %s is of pipelines, and --parallel %s has none on %d rank%s: give pipeline=P, or leave "
				    "the schedule out", s->options->pipe_schedule, asked, gn_comm_size(s->comm),
				    gn_text_plural((uint64_t)gn_comm_size(s->comm)));
	if (status || !asked || (shape.pipeline == 1 && shape.tensor == 1))
		return status; /* alike on all ranks */
	s->pipeline = p = calloc(1, sizeof *p);
	status = p ? place(p, &shape, gn_comm_world(s->comm), err) : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a mesh");
	status = gn_agree_status(s->comm, status, err);
	if (status)
		return status;
	data = gn_mesh_data_index(&p->mesh, rank);
	stage = gn_mesh_stage(&p->mesh, rank);
	slice = gn_mesh_slice(&p->mesh, rank);
	if (shape.pipeline > 1)
		status = gn_comm_split(s->comm, data * shape.tensor + slice, stage, "pipeline", &p->pipe, err);
	if (shape.tensor > 1 && !status)
		status = gn_comm_split(s->comm, data * shape.pipeline + stage, slice, "tensor", &p->group, err);
	if (!status)
		status = gn_comm_split(s->comm, stage * shape.tensor + slice, data, shape.pipeline > 1 ? "stage" : "slice", &p->data, err);
	s->worker = data;
	s->workers = shape.data;
	if (!status && s->options->regroup && p->pipe) {
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
	status = rates ? gn_cut_costs_measure(s->model, &po, mesh->shape.tensor, &costs, err) : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for cuts");
	if (!status)
		status = gn_cuts_choose(&costs, mesh->shape.pipeline, s->schedule.own_batches, rates, nodes, NULL, err);
	gn_cut_costs_release(&costs);
	free(rates);
	return status;
}

/* On rank 0. What pipedream and decoupled train depends on the cuts: a run that goes on has those of its checkpoint, if there are as many.
 * *found: they are in nodes. What else is wrong with the checkpoint is said when it is read. */
static void take_cuts(const struct gn_session *s, int stages, int *nodes, int *found)
{
	const struct gn_train_options *o = s->options;
	const char *from = strcmp(o->resume, "auto") ? o->resume : o->checkpoint;
	struct gn_checkpoint_info info;
	char folder[PATH_MAX];

	*found = 0;
	if (!gn_pipe_kind_is_async(gn_pipe_kind_of(o->pipe_schedule)) || !strcmp(o->resume, "none") || !from ||
	    (from == o->checkpoint && !gn_checkpoint_any(from)) || gn_checkpoint_find(from, gn_session_key(s), s->log, folder, &info, NULL))
		return;
	*found = info.cut[0] && !gn_cuts_parse(s->model, info.cut, stages, nodes, NULL);
	if (*found)
		gn_log_info(s->log, "stages begin where those of %s do: --cut %s", folder, info.cut);
}

static enum gn_status make_slice(struct gn_session *s, const struct gn_model *of, struct gn_err *err)
{
	struct gn_session_pipeline *p = s->pipeline;
	enum gn_status status = gn_model_slice(of, gn_comm_rank(p->group), gn_comm_size(p->group), &p->part, err);

	return status ? status : gn_tensor_group_create(p->group, p->part, &p->tensor, err);
}

static enum gn_status make_part(struct gn_session *s, struct gn_err *err)
{
	struct gn_session_pipeline *p = s->pipeline;
	int stage = gn_comm_rank(p->pipe), stages = gn_comm_size(p->pipe);
	const struct gn_train_options *o = s->options;
	const struct gn_pipe_schedule schedule = {.kind = gn_pipe_kind_of(o->pipe_schedule), .micro = (int)o->micro_batches,
						  .batches = s->schedule.own_batches};
	enum gn_status status = gn_model_part(s->model, stage ? p->nodes[stage - 1] : 1,
					      stage < stages - 1 ? p->nodes[stage] : gn_model_node_count(s->model), p->group ? &p->stage_model : &p->part, err);

	if (!status && p->group)
		status = make_slice(s, p->stage_model, err);
	if (!status)
		status = gn_pipe_stage_create(p->pipe, &schedule, &p->stage, err);
	if (!status && p->group)
		gn_pipe_stage_set_slices(p->stage, gn_tensor_group_updates(p->tensor));
	return status ? gn_err_prefix(err, "stage %d of %d", stage, stages), status : GN_OK;
}

static void name_place(struct gn_session_pipeline *p, int rank)
{
	const int stage = gn_mesh_stage(&p->mesh, rank);

	snprintf(p->place, sizeof p->place, "stage %d of %d from node %d, slice %d of %d", stage, p->mesh.shape.pipeline, stage ? p->nodes[stage - 1] : 0,
		 gn_mesh_slice(&p->mesh, rank), p->mesh.shape.tensor);
}

enum gn_status gn_session_cut(struct gn_session *s, struct gn_err *err)
{
	struct gn_session_pipeline *p = s->pipeline;
	enum gn_status status = GN_OK;
	struct gn_strbuf text = {0};
	int stages, found = 0;

	if (!p)
		return GN_OK;
	if (!p->pipe) {
		name_place(p, gn_comm_rank(s->comm));
		return gn_agree_status(s->comm, make_slice(s, s->model, err), err);
	}
	stages = p->mesh.shape.pipeline;
	p->nodes = calloc((size_t)stages, sizeof *p->nodes);
	if (!p->nodes)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for cuts");
	else if (s->options->cut)
		status = gn_cuts_parse(s->model, s->options->cut, stages, p->nodes, err);
	else if (gn_comm_rank(s->comm) == 0)
		take_cuts(s, stages, p->nodes, &found);
	if (!status && !s->options->cut && !found && gn_comm_rank(s->comm) == 0)
		status = choose_cuts(s, p->nodes, err);
	status = gn_agree_status(s->comm, status, err);
	if (!status)
		status = gn_comm_broadcast(s->comm, p->nodes, (size_t)stages * sizeof *p->nodes, 0, err);
	if (status)
		return status;
	name_place(p, gn_comm_rank(s->comm));
	gn_cuts_text(s->model, p->nodes, stages - 1, &text);
	snprintf(s->checkpoint.info.cut, sizeof s->checkpoint.info.cut, "%s", gn_strbuf_text(&text));
	gn_strbuf_release(&text);
	return gn_agree_status(s->comm, make_part(s, err), err);
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
	if (status || (gn_comm_rank(s->comm) && (!p->stage || !s->options->val)))
		return status;
	p->params = gn_alloc_aligned(params);
	p->buffers = gn_alloc_aligned(buffers + 1);
	p->average_params = averages ? gn_alloc_aligned(params) : NULL;
	p->average_buffers = averages ? gn_alloc_aligned(buffers + 1) : NULL;
	if (!p->params || !p->buffers || (averages && (!p->average_params || !p->average_buffers)))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for all parameters of %s", gn_model_name(s->model));
	return GN_OK;
}

enum gn_status gn_session_open_ring(struct gn_session *s, struct gn_err *err)
{
	struct gn_session_pipeline *p = s->pipeline;
	struct gn_model *ward = NULL;
	int stages, of;
	enum gn_status status;

	/* of several pipelines another one has each stage */
	if (!p || !p->pipe || p->mesh.shape.data > 1 || !s->options->redundancy)
		return GN_OK;
	stages = gn_comm_size(p->pipe);
	of = (gn_comm_rank(p->pipe) + stages - 1) % stages;
	status = gn_model_part(s->model, of ? p->nodes[of - 1] : 1, of < stages - 1 ? p->nodes[of] : gn_model_node_count(s->model), &ward, err);
	status = gn_agree_status(s->comm, status, err);
	if (status)
		gn_model_destroy(ward);
	else
		status = gn_agree_status(s->comm, gn_stage_ring_create(p->pipe, p->part, s->replica.layouts, ward,
					gn_optim_slots(gn_optimizer_kind(s->replica.optimizer)), gn_replica_has_average(&s->replica), &p->ring, err), err);
	s->replica.ring = p->ring;
	return status;
}

void gn_session_pipeline_destroy(struct gn_session_pipeline *p)
{
	if (!p)
		return;
	gn_stage_ring_destroy(p->ring);
	gn_pipe_stage_destroy(p->stage);
	gn_tensor_group_destroy(p->tensor);
	gn_weight_layouts_destroy(p->plain);
	gn_model_destroy(p->part);
	gn_model_destroy(p->stage_model);
	gn_comm_destroy(p->data);
	gn_comm_destroy(p->group);
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
