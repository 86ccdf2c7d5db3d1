/* Arrays of a network that is divided among the stages of pipelines: from the parts of the first pipeline to the whole, and back; and of
 * a network, or of a pipeline's stage, whose channels are divided among the ranks of tensor groups: from the slices of the first group to
 * the whole, and back. */
#include "src/train/loop/session.h"

#include "src/base/alloc.h"
#include "src/train/plan/plan_cost.h"
#include "transport/coll/agree.h"
#include "transport/coll/p2p.h"

#include <stdlib.h>
#include <string.h>

/* Of messages in a pipeline's communicator, beside those of its stages. */
enum { TAG_PART = 16 };
/* Of messages in a tensor group's communicator. */
enum { TAG_SLICE = 17 };

/* Between the whole and another rank's slice, of as many elements as this one's. */
static enum gn_status move_slice(const struct gn_session *s, int rank, int kind, float *whole, float *slice, int takes, struct gn_err *err)
{
	const struct gn_model *of = s->pipeline->stage_model ? s->pipeline->stage_model : s->model;
	struct gn_model *model;
	enum gn_status status = gn_model_slice(of, rank, gn_comm_size(s->pipeline->group), &model, err);

	if (status)
		return status;
	if (takes)
		gn_model_slice_take(model, of, kind, whole, slice);
	else
		gn_model_slice_put(model, of, kind, slice, whole);
	gn_model_destroy(model);
	return GN_OK;
}

/* One array of a tensor group of data index 0, kind 0 of parameters, 1 of buffers: whole of its slices, on slice 0. */
static enum gn_status collect_slices(const struct gn_session *s, const struct gn_array *part, int kind, float *whole, struct gn_err *err)
{
	struct gn_comm *group = s->pipeline->group;
	size_t bytes = part->count * sizeof(float);
	float *own = gn_alloc_aligned(bytes + 1);
	enum gn_status status = own ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a copy of a slice's parameters");

	if (!status && bytes)
		memcpy(own, part->host, bytes);
	if (!status && kind == 0)
		gn_weight_layouts_out(s->replica.layouts, own);
	if (!status && bytes && gn_comm_rank(group))
		status = gn_p2p_send(group, 0, TAG_SLICE, own, bytes, err);
	for (int r = 0; r < gn_comm_size(group) && bytes && !gn_comm_rank(group) && !status; r++) {
		if (r)
			status = gn_p2p_receive(group, r, TAG_SLICE, own, bytes, err);
		if (!status)
			status = move_slice(s, r, kind, whole, own, 0, err);
	}
	free(own);
	return status;
}

/* What slice 0 has of all, to the slices of a group of the first data index. */
static enum gn_status take_slices(const struct gn_session *s, const float *whole, int kind, const struct gn_array *part, struct gn_err *err)
{
	struct gn_comm *group = s->pipeline->group;
	size_t bytes = part->count * sizeof(float);
	enum gn_status status = GN_OK;

	if (!bytes)
		return GN_OK;
	if (gn_comm_rank(group))
		return gn_p2p_receive(group, 0, TAG_SLICE, part->host, bytes, err);
	for (int r = gn_comm_size(group) - 1; r >= 0 && !status; r--) {
		status = move_slice(s, r, kind, (float *)(uintptr_t)whole, part->host, 1, err);
		if (r && !status)
			status = gn_p2p_send(group, r, TAG_SLICE, part->host, bytes, err);
	}
	return status;
}

/* Of all that the plan exchanges, in its order, and how that lies in memory. */
static uint64_t exchange_mark(const struct gn_plan *plan)
{
	uint64_t mark = 14695981039346656037u; /* FNV-1a, by whole numbers */

	for (int i = 0; i < gn_plan_op_count(plan); i++) {
		struct gn_plan_cost c;

		gn_plan_op_cost(plan, i, &c);
		for (int k = 0; k < 2; k++) {
			const struct gn_op_exchange *x = &c.exchange[k];
			const uint64_t values[] = {x->count, (uint64_t)x->element_bytes, (uint64_t)c.out.c, (uint64_t)c.out.block};

			for (size_t v = 0; v < sizeof values / sizeof *values && x->kind; v++)
				mark = (mark ^ values[v]) * 1099511628211u;
		}
	}
	return mark;
}

enum gn_status gn_session_check_exchanges(struct gn_session *s, const struct gn_plan *plan, struct gn_err *err)
{
	struct gn_comm *group = s->pipeline && plan ? s->pipeline->group : NULL;
	const struct gn_world *world = gn_comm_world(s->comm);
	uint64_t mine, *all;
	enum gn_status status;

	if (!group)
		return GN_OK;
	mine = exchange_mark(plan);
	all = calloc((size_t)gn_comm_size(group), sizeof *all);
	status = gn_agree_status(s->comm, all ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for layouts of a tensor group"), err);
	if (!status)
		status = gn_agree_gather(group, &mine, sizeof mine, all, err);
	for (int r = 1; r < gn_comm_size(group) && !status; r++)
		if (all[r] != all[0])
			status = gn_err_set(err, GN_ERR_UNSUPPORTED, "--parallel %s: the processors of %s (rank %d) and %s (rank %d) compute in "
					    "different layouts, and a tensor group exchanges values as they lie in memory: give each tensor group "
					    "nodes of one kind", s->options->parallel, gn_world_host_of(world, gn_comm_world_rank(group, 0)),
					    gn_comm_world_rank(group, 0), gn_world_host_of(world, gn_comm_world_rank(group, r)),
					    gn_comm_world_rank(group, r));
	free(all);
	return gn_agree_status(s->comm, status, err);
}

/* Whether slice 0 speaks for this rank. */
static int is_other_slice(const struct gn_session_pipeline *p)
{
	return p->group && gn_comm_rank(p->group) > 0;
}

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

void gn_session_stage_begins(const struct gn_session *s, int stage, size_t begins[2])
{
	struct range r[2];

	ranges_of(s, stage, r);
	begins[0] = r[0].begin;
	begins[1] = r[1].begin;
}

int gn_session_stage_begin(const struct gn_session *s, size_t begins[2])
{
	int stage = gn_comm_rank(s->pipeline->pipe);

	gn_session_stage_begins(s, stage, begins);
	return stage;
}

/* Of this rank, or of the slices of its stage to slice 0, in torch's order. */
static enum gn_status copy_stage(const struct gn_session *s, const struct gn_array *part, int kind, float *to, struct gn_err *err)
{
	if (s->pipeline->group)
		return collect_slices(s, part, kind, to, err);
	if (part->count)
		memcpy(to, part->host, part->count * sizeof(float));
	if (kind == 0 && part->count)
		gn_weight_layouts_out(s->replica.layouts, to);
	return GN_OK;
}

/* Of the first pipeline, whose stage 0 is rank 0: what stages have goes to rank 0. whole: there alone. */
static enum gn_status collect(const struct gn_session *s, const struct gn_array *part, int kind, float *whole, struct gn_err *err)
{
	const struct gn_session_pipeline *p = s->pipeline;
	int root = gn_comm_rank(s->comm) == 0;
	struct range r[2];
	size_t count;
	float *own;
	enum gn_status status;

	if (!p->pipe || is_other_slice(p))
		return copy_stage(s, part, kind, whole, err);
	ranges_of(s, gn_comm_rank(p->pipe), r);
	count = r[kind].end - r[kind].begin;
	own = root ? whole : gn_alloc_aligned(count * sizeof(float) + 1);
	status = own ? copy_stage(s, part, kind, own, err) : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a copy of a stage's parameters");
	if (!root) {
		if (!status && count)
			status = gn_p2p_send(p->pipe, 0, TAG_PART, own, count * sizeof(float), err);
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
	enum gn_status status = s->worker ? GN_OK : gn_session_alone(s, collect(s, part, kind, whole, err));

	if (status || !everywhere || !elements)
		return status;
	return gn_comm_broadcast(s->comm, whole, elements * sizeof(float), 0, err);
}

enum gn_status gn_session_gather(struct gn_session *s, int everywhere, struct gn_err *err)
{
	const struct gn_session_pipeline *p = s->pipeline;
	struct gn_replica *r = &s->replica;
	struct gn_ema average;
	enum gn_status status = p ? gather(s, &r->params, 0, p->params, everywhere, err) : GN_OK;

	if (!status && p)
		status = gather(s, &r->buffers, 1, p->buffers, everywhere, err);
	if (status || !p || !gn_replica_has_average(r))
		return status;
	status = gn_replica_whole_average(r, &average, err);
	if (!status)
		status = gather(s, &average.params, 0, p->average_params, everywhere, err);
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
	a->end = s->worker || is_other_slice(s->pipeline) ? a->begin : r[0].end; /* pipelines have the same state: the first one writes it */
}

/* All of a slot of this rank's stage and slice; sharded: collective, where gradients are. */
static enum gn_status whole_slot(const struct gn_session *s, int k, struct gn_array *out, struct gn_err *err)
{
	const struct gn_replica *r = &s->replica;

	*out = *gn_optimizer_slot(r->optimizer, k);
	if (!r->shard)
		return GN_OK;
	*out = (struct gn_array){.device = r->flat, .host = r->flat, .count = r->params.count};
	return gn_shard_gather(r->shard, gn_optimizer_slot(r->optimizer, k)->host, r->flat, err);
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
	for (int k = 0; k < slots && !status; k++) {
		struct gn_array slot;

		status = whole_slot(s, k, &slot, err);
		if (!status && !s->worker)
			status = gn_session_alone(s, copy_stage(s, &slot, 0, a->slots[k], err));
	}
	return status;
}

/* On slice 0 of the first pipeline's stage, from rank 0's: *out is whole there, else the caller's to free. */
static enum gn_status take_stage(const struct gn_session *s, const float *whole, int kind, float **out, struct gn_err *err)
{
	const struct gn_session_pipeline *p = s->pipeline;
	struct range r[2];
	size_t bytes;

	if (gn_comm_rank(s->comm) == 0) {
		*out = (float *)(uintptr_t)whole;
		return GN_OK;
	}
	ranges_of(s, gn_comm_rank(p->pipe), r);
	bytes = (r[kind].end - r[kind].begin) * sizeof(float);
	*out = gn_alloc_aligned(bytes + 1);
	if (!*out)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a copy of a stage's parameters");
	return bytes ? gn_p2p_receive(p->pipe, 0, TAG_PART, *out, bytes, err) : GN_OK;
}

/* What rank 0 has of all becomes this rank's part, from stage to stage of the first pipeline and by slices, then from there to the others. */
static enum gn_status take(const struct gn_session *s, const float *whole, int kind, const struct gn_array *part, struct gn_err *err)
{
	const struct gn_session_pipeline *p = s->pipeline;
	int root = gn_comm_rank(s->comm) == 0;
	float *stage_whole = NULL;
	struct range r[2];
	enum gn_status status = GN_OK;

	for (int stage = 1; root && p->pipe && stage < gn_comm_size(p->pipe) && !status; stage++) {
		ranges_of(s, stage, r);
		if (r[kind].end > r[kind].begin)
			status = gn_p2p_send(p->pipe, stage, TAG_PART, whole + r[kind].begin, (r[kind].end - r[kind].begin) * sizeof(float), err);
	}
	if (!status && !s->worker && !is_other_slice(p))
		status = take_stage(s, whole, kind, &stage_whole, err);
	if (!status && !s->worker && p->group)
		status = take_slices(s, stage_whole, kind, part, err);
	else if (!status && !s->worker && part->count)
		memcpy(part->host, stage_whole, part->count * sizeof(float));
	if (!root)
		free(stage_whole);
	return !part->count || status ? status : gn_comm_broadcast(p->data, part->host, part->count * sizeof(float), 0, err);
}

/* The same of optimizer state and averages, of which a rank may have a part, in the run's order. */
static enum gn_status take_state(const struct gn_session *s, const float *whole, const struct gn_array *part, struct gn_err *err)
{
	const struct gn_replica *r = &s->replica;
	const struct gn_array flat = {.device = r->flat, .host = r->flat, .count = r->params.count};
	enum gn_status status = take(s, whole, 0, r->shard ? &flat : part, err);

	if (status || !r->shard)
		return status;
	gn_weight_layouts_in(r->layouts, r->flat);
	gn_parts_pack(gn_shard_parts(r->shard), r->flat, part->host);
	return GN_OK;
}

/* From parameters, which are in torch's order yet; what is sharded is in the run's. */
static void begin_average(struct gn_session *s)
{
	struct gn_replica *r = &s->replica;
	float *params = r->shard ? r->flat : r->params.host;

	if (r->shard) {
		memcpy(params, r->params.host, r->params.count * sizeof *params);
		gn_weight_layouts_in(r->layouts, params);
	}
	gn_ema_set(&r->ema, params, r->buffers.host);
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
			status = take_state(s, whole, gn_optimizer_slot(s->replica.optimizer, k), err);
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
		begin_average(s);
	if (!status && folder && gn_replica_has_average(r) && info->has_average) {
		status = take_state(s, p->average_params, &r->ema.params, err);
		if (!status)
			status = take(s, p->average_buffers, 1, &r->ema.buffers, err);
	}
	return status || !folder ? status : restore_slots(s, folder, info, err);
}
