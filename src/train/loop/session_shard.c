/* The state of a run with --shard, to checkpoints and back: array by array in the memory of the gradients, which is free between steps, so
 * that no rank ever has all of it. */
#include "src/train/loop/session.h"

#include "transport/coll/agree.h"

#include <stdlib.h>
#include <string.h>

/* Elements begin to end of torch's order are this rank's in files. */
void gn_session_set_range(const struct gn_session *s, struct gn_checkpoint_arrays *a)
{
	size_t count = gn_model_param_elements(s->model), each = (count + (size_t)gn_comm_size(s->comm) - 1) / (size_t)gn_comm_size(s->comm);
	size_t begin = (size_t)gn_comm_rank(s->comm) * each;

	a->is_split = 1;
	a->begin = begin < count ? begin : count;
	a->end = begin + each < count ? begin + each : count;
}

enum gn_status gn_session_split_state(struct gn_session *s, struct gn_checkpoint_arrays *a, struct gn_err *err)
{
	struct gn_replica *r = &s->replica;
	int slots = gn_optim_slots(s->checkpoint.info.optimizer);
	struct gn_ema whole;
	enum gn_status status = GN_OK;

	gn_session_set_range(s, a);
	for (int k = 0; k < slots && !status; k++) {
		a->slots[k] = malloc((a->end - a->begin) * sizeof(float) + 1);
		if (!a->slots[k])
			status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a part of the optimizer's state");
	}
	status = gn_agree_status(s->comm, status, err);
	for (int k = 0; k < slots && !status; k++) {
		status = gn_shard_gather(r->shard, gn_optimizer_slot(r->optimizer, k)->host, r->flat, err);
		gn_weight_layouts_out(r->layouts, r->flat);
		memcpy(a->slots[k], r->flat + a->begin, (a->end - a->begin) * sizeof(float));
	}
	if (status || !gn_replica_has_average(r))
		return status;
	status = gn_replica_whole_average(r, &whole, err);
	gn_weight_layouts_out(r->layouts, whole.params.host);
	a->average_params = whole.params.host;
	a->average_buffers = whole.buffers.host;
	return status;
}

void gn_session_free_split(struct gn_checkpoint_arrays *a)
{
	for (int k = 0; k < GN_OPTIM_SLOTS_MAX; k++)
		free(a->slots[k]);
}

/* What rank 0 has read into the gradients' memory becomes parts on all ranks. */
static enum gn_status take(struct gn_session *s, enum gn_status status, float *packed, struct gn_err *err)
{
	struct gn_replica *r = &s->replica;

	status = gn_agree_status(s->comm, status, err);
	if (!status)
		status = gn_comm_broadcast(s->comm, r->flat, gn_model_param_elements(s->model) * sizeof(float), 0, err);
	if (status)
		return status;
	gn_weight_layouts_in(r->layouts, r->flat);
	gn_parts_pack(gn_shard_parts(r->shard), r->flat, packed);
	return GN_OK;
}

enum gn_status gn_session_restore_parts(struct gn_session *s, const char *folder, const struct gn_checkpoint_info *info, struct gn_err *err)
{
	struct gn_replica *r = &s->replica;
	struct gn_ema *ema = &r->ema;
	int root = gn_comm_rank(s->comm) == 0;
	enum gn_status status = GN_OK;

	for (int k = 0; k < gn_optim_slots(s->checkpoint.info.optimizer) && !status; k++) {
		struct gn_checkpoint_arrays a = {.slots[0] = NULL};

		a.slots[k] = r->flat;
		status = take(s, root ? gn_checkpoint_load(folder, info, gn_session_key(s), s->model, &a, err) : GN_OK,
			      gn_optimizer_slot(r->optimizer, k)->host, err);
	}
	if (!status && gn_replica_has_average(r) && info->has_average) {
		struct gn_checkpoint_arrays a = {.average_params = r->flat, .average_buffers = ema->buffers.host};

		status = take(s, root ? gn_checkpoint_load(folder, info, gn_session_key(s), s->model, &a, err) : GN_OK, ema->params.host, err);
		if (!status && ema->buffers.count)
			status = gn_comm_broadcast(s->comm, ema->buffers.host, ema->buffers.count * sizeof(float), 0, err);
	}
	return status;
}
