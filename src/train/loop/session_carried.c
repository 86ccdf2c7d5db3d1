#include "src/train/loop/carried.h"

#include "src/base/clock.h"
#include "src/base/text.h"
#include "src/train/loop/session.h"
#include "src/train/parallel/mesh.h"
#include "transport/bootstrap/membership.h"
#include "transport/bootstrap/regroup.h"
#include "transport/coll/agree.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What ranks tell each other, and then the one that has come furthest all. */
struct place {
	struct gn_run_state state;
	int64_t number;
	int32_t is_there, zero;
};

enum gn_status gn_elastic_parse(const char *text, int *least, int *most, struct gn_err *err)
{
	int min = 0, max = 0, end = 0, fields;

	if (!text) {
		*least = *most = 0;
		return GN_OK;
	}
	fields = sscanf(text, "%5d%n:%5d%n", &min, &end, &max, &end);
	if (fields == 2 && !text[end] && min >= 1 && max < min)
		return gn_err_set(err, GN_ERR_USAGE, "--elastic %s: at most %d ranks are fewer than at least %d", text, max, min);
	if (fields < 1 || text[end] || min < 0 || min > GN_MEMBERS_MAX || max > GN_MEMBERS_MAX || (fields == 2 && min < 1))
		return gn_err_set(err, GN_ERR_USAGE, "--elastic %s: MIN or MIN:MAX ranks, %d at most", text, GN_MEMBERS_MAX);
	*least = min;
	*most = max;
	return GN_OK;
}

int gn_elastic_least(const struct gn_train_options *o)
{
	int least = 0, most;

	gn_elastic_parse(o->elastic, &least, &most, NULL);
	return least;
}

int gn_elastic_most(const struct gn_train_options *o)
{
	int least, most = 0;

	gn_elastic_parse(o->elastic, &least, &most, NULL);
	return most;
}

enum gn_status gn_carried_take(struct gn_carried *c, struct gn_session *s, struct gn_err *err)
{
	struct gn_checkpoint_arrays a = gn_session_arrays(s);
	enum gn_status status;

	c->is_there = 0;
	c->state = s->state;
	c->epoch = gn_session_epoch(s);
	c->number = s->checkpoint.number;
	c->convolution = 1 + (int32_t)s->device.convolution;
	c->ranks = gn_comm_size(s->comm);
	c->lost_ns = s->metrics.last_ns;
	c->unlogged_steps = s->metrics.unlogged_steps;
	c->unlogged_s = s->metrics.unlogged_s;
	c->goes_back = 0;
	if (gn_session_is_divided(s))
		return gn_session_take_copies(c, s, err);
	/* sums over ranks write to the buffers, and one of them may have come to half of it */
	if (s->is_within_step)
		a.buffers = s->replica.kept_buffers;
	status = gn_checkpoint_snapshot_take(&c->copy, s->model, 0, 1, s->checkpoint.info.optimizer, &a, err);
	if (status)
		return status;
	gn_checkpoint_snapshot_to_plain(&c->copy, s->replica.layouts, s->replica.layouts);
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

/* Of the rank that has come furthest. */
static enum gn_status give_furthest(const struct gn_carried *c, struct gn_session *s, int64_t *number, int *done, struct gn_err *err)
{
	struct place found = {.number = 0};
	int root;
	enum gn_status status = find_furthest(c, s, &found, &root, err);

	if (status || root < 0)
		return status;
	status = give_all(c, s, root, err);
	if (status)
		return status;
	s->state = found.state;
	*number = found.number;
	*done = 1;
	return GN_OK;
}

static enum gn_status give_any(struct gn_carried *c, struct gn_session *s, int64_t *number, int *done, struct gn_strbuf *told, struct gn_err *err)
{
	enum gn_status status = gn_session_is_divided(s) ? gn_session_give_copies(c, s, number, done, told, err)
							 : give_furthest(c, s, number, done, err);

	/* pieces, and not all: the run is known to have begun */
	if (!status && !*done && told->len) {
		c->goes_back = 1;
		if (gn_comm_rank(s->comm) == 0)
			gn_log_warn(s->log, "%s; %s: going on with %d rank%s from the %s", c->why ? c->why : "a rank was lost", gn_strbuf_text(told),
				    gn_comm_size(s->comm), gn_text_plural((uint64_t)gn_comm_size(s->comm)), gn_checkpoint_any(s->options->checkpoint) ? "last checkpoint" : "beginning");
	}
	return status;
}

enum gn_status gn_carried_give(struct gn_carried *c, struct gn_session *s, int *done, struct gn_err *err)
{
	struct gn_strbuf told = {0};
	int64_t number = 0;
	enum gn_status status;

	*done = 0;
	status = give_any(c, s, &number, done, &told, err);
	if (!status && *done) {
		gn_session_take_layouts(s);
		status = gn_agree_status(s->comm, gn_replica_send(&s->replica, err), err);
	}
	if (status || !*done) {
		gn_strbuf_release(&told);
		return status;
	}
	s->checkpoint.number = number;
	s->checkpoint.saved_step = UINT64_MAX;
	s->checkpoint.begun_ns = gn_clock_ns();
	if (gn_comm_rank(s->comm) == 0)
		gn_log_warn(s->log, "%s; going on with %d rank%s from memory: step %" PRIu64 ", epoch %" PRIu64 ", sample %" PRIu64 "%s",
			    c->why ? c->why : "a rank was lost", gn_comm_size(s->comm), gn_text_plural((uint64_t)gn_comm_size(s->comm)), s->state.step, s->state.epoch, s->state.sample,
			    gn_strbuf_text(&told));
	gn_strbuf_release(&told);
	return GN_OK;
}

/* The first world's pipelines, as many as ranks are left for; fewer ranks than one of them has are a shorter one. */
static enum gn_status choose_mesh(struct gn_carried *c, struct gn_comm *comm, int stages, struct gn_train_options *o, struct gn_err *err)
{
	int ranks = gn_comm_size(comm);
	struct gn_mesh_shape shape = {.pipeline = stages};
	enum gn_status status = stages ? GN_OK : gn_mesh_parse(o->parallel, ranks, &shape, err);

	if (status)
		return status;
	c->stages = shape.pipeline;
	if (!stages)
		return GN_OK;
	snprintf(c->mesh, sizeof c->mesh, "pipeline=%d", stages < ranks ? stages : ranks);
	o->parallel = c->mesh;
	if (ranks < stages)
		o->cut = NULL; /* which names the first layers of more */
	return GN_OK;
}

enum gn_status gn_carried_batch(struct gn_carried *c, struct gn_comm *comm, struct gn_train_options *o, struct gn_err *err)
{
	int64_t known[2] = {c->global_batch, c->stages};
	/* one that has just joined learns it */
	enum gn_status status = gn_comm_allreduce(comm, known, 2, GN_I64, gn_reduce_of(GN_I64, GN_MAX), err);

	if (!status && o->parallel)
		status = choose_mesh(c, comm, (int)known[1], o, err);
	if (status)
		return status;
	c->global_batch = known[0];
	if (c->world == 1)
		return GN_OK;
	if (!strcmp(o->elastic_batch, "scale")) {
		o->lr_batch = o->lr_batch > 0 ? o->lr_batch : (double)c->global_batch;
		return GN_OK;
	}
	o->global_batch = c->global_batch;
	o->accumulate = 1;
	return GN_OK;
}

enum gn_status gn_carried_log_recovery(const struct gn_carried *c, struct gn_session *s, struct gn_err *err)
{
	const double seconds = (double)(gn_clock_ns() - c->lost_ns) * 1e-9;
	const uint64_t redone = c->state.step > s->state.step ? c->state.step - s->state.step : 0;
	struct gn_json *j;

	if (gn_comm_rank(s->comm) || !c->ranks)
		return GN_OK;
	gn_log_info(s->log, "%.2f s from the last finished step of %d rank%s to the next one of %d; %" PRIu64 " finished step%s %s done again", seconds,
		    c->ranks, gn_text_plural((uint64_t)c->ranks), gn_comm_size(s->comm), redone, gn_text_plural(redone), redone == 1 ? "is" : "are");
	j = gn_metrics_log_begin(s->metrics.log, "recovered");
	if (j) {
		gn_json_uint(j, "step", s->state.step);
		gn_json_uint(j, "world", c->world);
		gn_json_int(j, "ranks", gn_comm_size(s->comm));
		gn_json_int(j, "ranks_before", c->ranks);
		gn_json_fixed(j, "seconds", seconds, 3);
		gn_json_uint(j, "steps_redone", redone);
		gn_json_uint(j, "unlogged_steps", c->unlogged_steps);
		gn_json_fixed(j, "unlogged_seconds", c->unlogged_s, 3);
		gn_json_string(j, "after", c->why);
	}
	return gn_metrics_log_end(s->metrics.log, err);
}

enum gn_status gn_carried_may_write(void *session, struct gn_err *err)
{
	struct gn_session *s = session;
	const uint64_t now = gn_clock_ns(), silent_ns = (uint64_t)gn_world_silent_after_ms(gn_comm_world(s->comm)) * 1000000;
	enum gn_status status;

	/* all were there after agreed_ns, and the last heartbeat before that was hardly older: nobody can have been taken for lost */
	if (now < s->metrics.agreed_ns + silent_ns / 4 * 3)
		return GN_OK;
	status = gn_regroup_confirm(s->options->regroup, gn_comm_world(s->comm), err);
	if (!status)
		s->metrics.agreed_ns = now;
	/* the others, if they are there for all that, would wait for this rank, and it for them */
	else if (!gn_world_check(gn_comm_world(s->comm), NULL))
		gn_world_abort(gn_comm_world(s->comm), status, err->text);
	return status;
}

void gn_carried_log_failure(const struct gn_carried *c, const struct gn_train_options *o, struct gn_log *log, const struct gn_err *err)
{
	struct gn_metrics_log *lines = NULL;
	uint64_t running = o->log ? gn_metrics_log_running_world(o->log) : 0;
	struct gn_err ignored;

	if (o->checkpoint)
		gn_owner_remove(o->checkpoint, c->owner);
	/* another process may have said it, or even have gone on and ended before this one knew of the loss */
	if (!c->ranks || !running || running > c->world || gn_metrics_log_open(o->log, 1, log, &lines, &ignored))
		return;
	gn_metrics_log_failure(lines, c->state.step, c->epoch, err);
	gn_metrics_log_close(lines);
}

void gn_carried_forget(struct gn_carried *c)
{
	gn_checkpoint_snapshot_release(&c->copy);
	for (int i = 0; i < GN_CARRIED_COPIES; i++)
		gn_carried_copy_release(&c->copies[i]);
	c->is_there = c->has_begun = c->ranks = 0;
	c->goes_back = 1;
}

void gn_carried_release(struct gn_carried *c)
{
	gn_carried_forget(c);
	*c = (struct gn_carried){.is_there = 0};
}
