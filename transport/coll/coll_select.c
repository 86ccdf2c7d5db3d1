#include "transport/select/select.h"

#include "transport/coll/coll_device_internal.h"
#include "transport/coll/comm_internal.h"

#include <math.h>
#include <string.h>

/* Without bounce buffers: from this size on the ring is the fastest within a node, measured with 4 ranks on 2 processors (15 to 30
 * % faster than halving-doubling, which the model selects). The cost model does not apply within a node, where ranks read each
 * other's memory directly, or share the processors that copy messages. */
#define RING_FROM_BYTES (64u << 10)

/* From this size of all blocks on bounce buffers are faster than messages between buffers from elsewhere. */
#define BLOCKS_FROM_BYTES (64u << 10)

int gn_coll_has_shared(const struct gn_coll_args *a)
{
	return a->what == GN_COLLECTIVE_ALLREDUCE || a->what == GN_COLLECTIVE_BARRIER ||
	       (a->what == GN_COLLECTIVE_ALLGATHER && !a->counts) || (a->what == GN_COLLECTIVE_REDUCE_SCATTER && a->in);
}

static const char *select_for_shm(const struct gn_comm *c, const struct gn_coll_args *args, size_t bytes)
{
	int has_slot = gn_shm_has_slot(c->shm);

	switch (args->what) {
	case GN_COLLECTIVE_ALLREDUCE:
	case GN_COLLECTIVE_BARRIER:
		if (has_slot && (bytes <= gn_shm_eager_bytes(c->shm) || gn_shm_has_bounce_buffers(c->shm) ||
				 gn_shm_owns(c->shm, args->out, bytes)))
			return "shared";
		return bytes >= RING_FROM_BYTES ? "ring" : NULL;
	case GN_COLLECTIVE_REDUCE_SCATTER:
	case GN_COLLECTIVE_ALLGATHER:
		if (has_slot && bytes >= BLOCKS_FROM_BYTES && gn_coll_has_shared(args) && gn_shm_has_bounce_buffers(c->shm) &&
		    !gn_shm_owns(c->shm, args->out, 1))
			return "shared";
		return "direct";
	default:
		return NULL;
	}
}

/* The fastest algorithm measured by gannet tune; NULL: not measured. */
static const char *select_measured(const struct gn_comm *c, const struct gn_coll_args *args, int size_class, size_t *piece_bytes)
{
	const struct gn_cost_pick *pick =
		args->what == GN_COLLECTIVE_ALLREDUCE && !c->group ? gn_cost_pick(&c->root->cost, (double)((size_t)1 << size_class)) : NULL;

	if (pick && !*piece_bytes)
		*piece_bytes = (size_t)pick->piece_bytes;
	return pick ? pick->algorithm : NULL;
}

/* The size class: the selection is cached by power of two, because blocking calls prepare each time. */
static int size_class_of(size_t bytes)
{
	int k = 0;

	while (k < GN_COLL_SIZES - 1 && (size_t)1 << k < bytes)
		k++;
	return k;
}

static enum gn_status select_by_cost(const struct gn_comm *c, const struct gn_coll_args *args, const char *algo, size_t piece_bytes,
			      int size_class, struct gn_coll_selection *out, struct gn_err *err)
{
	struct gn_select_args how = {.what = args->what, .bytes = (size_t)1 << size_class, .map = c->map, .cost = &c->root->cost,
				     .algo = algo, .piece_bytes = piece_bytes};
	struct gn_choice choice;
	enum gn_status status = gn_select(&how, &choice, err);

	if (!status)
		*out = (struct gn_coll_selection){choice.algorithm->name, choice.pieces, !algo, piece_bytes};
	return status;
}

enum gn_status gn_coll_select(struct gn_comm *c, const struct gn_coll_args *args, size_t bytes,
			      struct gn_coll_selection *out, struct gn_err *err)
{
	int any = !args->algorithm || !strcmp(args->algorithm, "auto"), size_class = size_class_of(bytes);
	struct gn_coll_selection *cached = &c->selected[args->what][size_class];
	size_t piece_bytes = args->piece_bytes;
	const char *algo = !any ? args->algorithm : args->memory == GN_MEMORY_DEVICE ? NULL : gn_comm_all_share(c) ? select_for_shm(c, args, bytes) :
								       select_measured(c, args, size_class, &piece_bytes);
	enum gn_status status = GN_OK;

	if (algo && !strcmp(algo, "shared") && args->memory == GN_MEMORY_DEVICE)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "algorithm shared is for host memory");
	if (algo && !strcmp(algo, "shared")) {
		*out = (struct gn_coll_selection){.algorithm = algo};
		return GN_OK;
	}
	if (!cached->algorithm || cached->piece_bytes != piece_bytes || (algo ? strcmp(cached->algorithm, algo) != 0 : !cached->any))
		status = select_by_cost(c, args, algo, piece_bytes, size_class, cached, err);
	if (!status)
		*out = *cached;
	return status;
}

/* Of the schedule as prepared. */
static enum gn_status predict_by_model(const struct gn_coll *coll, double bytes, double *seconds, struct gn_err *err)
{
	struct gn_select_args how = {.what = coll->args.what, .bytes = (size_t)bytes, .map = coll->comm->map,
				     .cost = &coll->comm->root->cost};
	struct gn_select_form form;
	enum gn_status status = gn_select_closed_form(&how, gn_algorithm_find(how.what, coll->info.algorithm), coll->info.pieces,
						       &form, err);

	if (!status)
		*seconds = form.seconds;
	return status;
}

/* Scales the prediction by measured over predicted time of the measurement nearest in length, if that is near or shorter: gannet
 * tune does not time long messages, for which the model is good. */
static enum gn_status scale_by_trial(const struct gn_coll *coll, struct gn_coll_forecast *f, struct gn_err *err)
{
	double bytes = (double)coll->op.bytes;
	int near;
	const struct gn_cost_pick *pick = coll->comm->group ? NULL : gn_cost_trial(&coll->comm->root->cost, coll->info.algorithm, bytes, &near);
	struct gn_select_args how = {.what = coll->args.what, .map = coll->comm->map, .cost = &coll->comm->root->cost,
				     .algo = coll->info.algorithm};
	struct gn_choice tried;
	enum gn_status status;

	if (!pick || (!near && bytes < pick->bytes))
		return GN_OK;
	how.bytes = (size_t)pick->bytes;
	how.piece_bytes = (size_t)pick->piece_bytes;
	status = gn_select(&how, &tried, err);
	if (!status && tried.predicted_s > 0) {
		f->seconds *= pick->seconds / tried.predicted_s;
		f->source = near ? GN_COLL_TRIED : f->source;
	}
	return status;
}

/* A lower bound of CPU time for any algorithm: a rank sends and receives 2 (p - 1) / p of the buffer in messages of one chunk, and
 * reduces half of that. */
static double processor_s(const struct gn_coll *coll)
{
	const struct gn_comm *c = coll->comm;
	const struct gn_cost_path *path = c->map->nodes > 1 ? &c->root->cost.link : &c->root->cost.node;
	double bytes = (double)coll->op.bytes, ranks = gn_comm_size(c), moved = 2 * (ranks - 1) / ranks * bytes;
	double chunk = bytes / (coll->info.chunks ? coll->info.chunks : 1);
	const struct gn_sim_range *r = gn_sim_range_of(&path->path, chunk);

	return moved / chunk * (r->send_s + r->receive_s) + moved * r->s_per_byte + moved / 2 / c->root->cost.reduce_bytes_per_s;
}

enum gn_status gn_coll_predict(const struct gn_coll *coll, struct gn_coll_forecast *out, struct gn_err *err)
{
	const struct gn_comm *c = coll->comm;
	double bytes = (double)coll->op.bytes, ranks = gn_comm_size(c);
	struct gn_coll_forecast f = {.source = c->root->cost.measured ? GN_COLL_MEASURED : GN_COLL_GUESSED};
	enum gn_status status = GN_OK;

	if (coll->args.what != GN_COLLECTIVE_ALLREDUCE)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "only the time of an allreduce can be predicted");
	if (ranks > 1 && bytes > 0 && !strcmp(coll->info.algorithm, "shared")) {
		f.seconds = (2 - 1 / ranks) * bytes / c->root->cost.reduce_bytes_per_s + 2 * gn_cost_message_s(&c->root->cost.node, 8);
		f.processor_s = f.seconds;
	} else if (ranks > 1 && bytes > 0) {
		status = predict_by_model(coll, bytes, &f.seconds, err);
		if (!status)
			status = scale_by_trial(coll, &f, err);
		f.processor_s = fmin(processor_s(coll), f.seconds);
	}
	if (!status)
		*out = f;
	return status;
}

/* How operations run: schedules, the shared memory of a node, a library's. Staging is in staged.c. */

/* --- schedules --- */

static enum gn_status schedule_start(struct gn_coll *c, struct gn_err *err)
{
	(void)err;
	gn_exec_start(c->exec, c->sequence);
	return GN_OK;
}

static enum gn_status schedule_advance(struct gn_coll *c, int *moved, int *done, struct gn_err *err)
{
	*moved = gn_exec_advance(c->exec);
	*done = gn_exec_done(c->exec);
	c->failed_alone = gn_exec_failed_alone(c->exec);
	return gn_exec_check(c->exec, err);
}

static void schedule_waits_for(const struct gn_coll *c, struct gn_exec_wait *out)
{
	gn_exec_waits_for(c->exec, out);
}

static void schedule_transports(const struct gn_coll *c, int *by_memory, int *by_message)
{
	gn_exec_transports(c->exec, by_memory, by_message);
}

/* Returns 0 if UCX may still use the run's memory, or other ranks still wait for this one. */
static int release_messages(struct gn_coll *c)
{
	if (!gn_comm_goes_on(c->comm) || !gn_comm_check(c->comm, 1, NULL))
		return 0;
	if (!c->exec->cancelled_ns)
		gn_exec_cancel(c->exec, &c->why);
	return gn_exec_release_messages(c->exec);
}

static void schedule_free(struct gn_coll *c)
{
	/* messages may still arrive in the buffers */
	if (c->in_flight && !release_messages(c))
		gn_comm_break(c->comm);
	gn_exec_destroy(c->exec);
}

const struct gn_coll_ops gn_coll_by_schedule = {.start = schedule_start, .advance = schedule_advance, .waits_for = schedule_waits_for,
						.transports = schedule_transports, .free = schedule_free};
const struct gn_coll_ops gn_coll_direct = {.name = "ucx-direct", .start = schedule_start, .advance = schedule_advance,
					   .waits_for = schedule_waits_for, .transports = schedule_transports, .free = schedule_free};

/* --- shared memory of a node --- */

static enum gn_status shared_start(struct gn_coll *c, struct gn_err *err)
{
	(void)err;
	gn_shm_start(c->shared);
	return GN_OK;
}

static enum gn_status shared_advance(struct gn_coll *c, int *moved, int *done, struct gn_err *err)
{
	(void)moved;
	return gn_shm_test(c->shared, done, err);
}

static void shared_waits_for(const struct gn_coll *c, struct gn_exec_wait *out)
{
	gn_shm_waits_for(c->shared, &out->peer);
}

static void shared_transports(const struct gn_coll *c, int *by_memory, int *by_message)
{
	(void)c;
	*by_memory = 1;
	*by_message = 0;
}

static void shared_free(struct gn_coll *c)
{
	gn_shm_op_free(c->shared);
}

const struct gn_coll_ops gn_coll_by_shm = {.start = shared_start, .advance = shared_advance, .waits_for = shared_waits_for,
					   .transports = shared_transports, .free = shared_free};

/* --- a library's --- */

static enum gn_status library_start(struct gn_coll *c, struct gn_err *err)
{
	return c->library->backend->ops->start(c->library, c->before, err);
}

static enum gn_status library_advance(struct gn_coll *c, int *moved, int *done, struct gn_err *err)
{
	(void)moved;
	return c->library->backend->ops->test(c->library, done, err);
}

static void library_free(struct gn_coll *c)
{
	c->library->backend->ops->free(c->library);
}

const struct gn_coll_ops gn_coll_by_library = {.takes_event = 1, .start = library_start, .advance = library_advance, .free = library_free};
