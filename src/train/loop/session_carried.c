#include "src/train/loop/carried.h"

#include "src/base/clock.h"
#include "src/train/loop/session.h"
#include "transport/coll/agree.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What ranks tell each other, and then the one that has come furthest all. */
struct place {
	struct gn_run_state state;
	int64_t number;
	int32_t is_there, zero;
};

enum gn_status gn_carried_take(struct gn_carried *c, struct gn_session *s, struct gn_err *err)
{
	struct gn_checkpoint_arrays a = gn_session_arrays(s);
	enum gn_status status;

	/* sums over ranks write to the buffers, and one of them may have come to half of it */
	if (s->is_within_step)
		a.buffers = s->replica.kept_buffers;
	c->is_there = 0;
	status = gn_checkpoint_snapshot_take(&c->copy, s->model, 0, 1, s->checkpoint.info.optimizer, &a, err);
	if (status)
		return status;
	gn_checkpoint_snapshot_to_plain(&c->copy, s->replica.layouts);
	c->state = s->state;
	c->number = s->checkpoint.number;
	memcpy(c->owner, s->checkpoint.nonce, sizeof c->owner);
	c->is_there = 1;
	return GN_OK;
}

/* The lowest rank that has come furthest; -1: nobody has a state. */
static enum gn_status find_furthest(const struct gn_carried *c, struct gn_session *s, struct place *found, int *root, struct gn_err *err)
{
	const struct place mine = {.state = c->state, .number = c->number, .is_there = c->is_there};
	struct place *all = calloc((size_t)gn_comm_size(s->comm), sizeof *all);
	enum gn_status status = all ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the places of ranks");

	status = gn_agree_status(s->comm, status, err);
	if (!status)
		status = gn_agree_gather(s->comm, &mine, sizeof mine, all, err);
	*root = -1;
	for (int r = 0; !status && r < gn_comm_size(s->comm); r++)
		if (all[r].is_there && (*root < 0 || all[r].state.step > found->state.step)) {
			*root = r;
			*found = all[r];
		}
	free(all);
	return status;
}

/* From the root's copy to all ranks' arrays. */
static enum gn_status give(struct gn_session *s, float *to, const float *from, size_t count, int root, struct gn_err *err)
{
	if (!to || !count)
		return GN_OK;
	if (gn_comm_rank(s->comm) == root)
		memcpy(to, from, count * sizeof(float));
	return gn_comm_broadcast(s->comm, to, count * sizeof(float), root, err);
}

static enum gn_status give_all(const struct gn_carried *c, struct gn_session *s, int root, struct gn_err *err)
{
	const struct gn_checkpoint_arrays to = gn_session_arrays(s), *from = &c->copy.arrays;
	size_t params = gn_model_param_elements(s->model), buffers = gn_model_buffer_elements(s->model);
	enum gn_status status = give(s, to.params, from->params, params, root, err);

	if (!status)
		status = give(s, to.buffers, from->buffers, buffers, root, err);
	for (int k = 0; k < gn_optim_slots(s->checkpoint.info.optimizer) && !status; k++)
		status = give(s, to.slots[k], from->slots[k], params, root, err);
	if (!status)
		status = give(s, to.average_params, from->average_params, params, root, err);
	return status ? status : give(s, to.average_buffers, from->average_buffers, buffers, root, err);
}

enum gn_status gn_carried_give(const struct gn_carried *c, struct gn_session *s, int *done, struct gn_err *err)
{
	struct place found = {.number = 0};
	int root;
	enum gn_status status = find_furthest(c, s, &found, &root, err);

	*done = 0;
	if (status || root < 0)
		return status;
	status = give_all(c, s, root, err);
	if (status)
		return status;
	gn_session_take_layouts(s);
	status = gn_agree_status(s->comm, gn_replica_send(&s->replica, err), err);
	if (status)
		return status;
	s->state = found.state;
	s->checkpoint.number = found.number;
	s->checkpoint.saved_step = UINT64_MAX;
	s->checkpoint.begun_ns = gn_clock_ns();
	if (gn_comm_rank(s->comm) == 0)
		gn_log_warn(s->log, "%s; going on with %d ranks from memory: step %" PRIu64 ", epoch %" PRIu64 ", sample %" PRIu64,
			    c->why ? c->why : "a rank was lost", gn_comm_size(s->comm), s->state.step, s->state.epoch, s->state.sample);
	*done = 1;
	return GN_OK;
}

void gn_carried_release(struct gn_carried *c)
{
	gn_checkpoint_snapshot_release(&c->copy);
	*c = (struct gn_carried){.is_there = 0};
}
