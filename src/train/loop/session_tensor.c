/* Arrays of a network, or of a pipeline's stage, whose channels are divided among the ranks of tensor groups: from the slices of the first group
 * to the whole, and back. */
#include "src/train/loop/session.h"

#include "src/base/alloc.h"
#include "src/train/plan/plan_cost.h"
#include "transport/coll/agree.h"
#include "transport/coll/p2p.h"

#include <stdlib.h>
#include <string.h>

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

/* Of a group of the first data index; whole: on slice 0. */
enum gn_status gn_session_collect_slices(const struct gn_session *s, const struct gn_array *part, int kind, float *whole, struct gn_err *err)
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
enum gn_status gn_session_take_slices(const struct gn_session *s, const float *whole, int kind, const struct gn_array *part, struct gn_err *err)
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
