/* Arrays of a network whose channels are divided among the ranks of tensor groups: from the slices of the first group to the whole, and back. */
#include "src/train/loop/session.h"

#include "src/base/alloc.h"
#include "transport/coll/p2p.h"

#include <stdlib.h>
#include <string.h>

/* Of messages in a tensor group's communicator. */
enum { TAG_SLICE = 17 };

/* Between the whole and another rank's slice, of as many elements as this one's. */
static enum gn_status move_slice(const struct gn_session *s, int rank, int kind, float *whole, float *slice, int takes, struct gn_err *err)
{
	struct gn_model *model;
	enum gn_status status = gn_model_slice(s->model, rank, gn_comm_size(s->pipeline->pipe), &model, err);

	if (status)
		return status;
	if (takes)
		gn_model_slice_take(model, s->model, kind, whole, slice);
	else
		gn_model_slice_put(model, s->model, kind, slice, whole);
	gn_model_destroy(model);
	return GN_OK;
}

/* Of the first group, whose slice 0 is rank 0. */
enum gn_status gn_session_collect_slices(const struct gn_session *s, const struct gn_array *part, int kind, float *whole, struct gn_err *err)
{
	struct gn_comm *group = s->pipeline->pipe;
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

/* What rank 0 has of all: to the slices of the first group, then from there to the others. */
enum gn_status gn_session_take_slices(const struct gn_session *s, const float *whole, int kind, const struct gn_array *part, struct gn_err *err)
{
	const struct gn_session_pipeline *p = s->pipeline;
	size_t bytes = part->count * sizeof(float);
	enum gn_status status = GN_OK;

	if (!bytes)
		return GN_OK;
	for (int r = gn_comm_size(p->pipe) - 1; r >= 0 && gn_comm_rank(s->comm) == 0 && !status; r--) {
		status = move_slice(s, r, kind, (float *)(uintptr_t)whole, part->host, 1, err);
		if (r && !status)
			status = gn_p2p_send(p->pipe, r, TAG_SLICE, part->host, bytes, err);
	}
	if (!status && !s->worker && gn_comm_rank(s->comm))
		status = gn_p2p_receive(p->pipe, 0, TAG_SLICE, part->host, bytes, err);
	return status ? status : gn_comm_broadcast(p->data, part->host, bytes, 0, err);
}
