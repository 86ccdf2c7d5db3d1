#include "transport/select/select.h"
#include "transport/coll/comm_internal.h"

#include <math.h>
#include <string.h>

/* Within a node messages' costs say little: neighbours read straight from each other's memory, or have one place for all, or
 * share processors that copy the messages, too. Measured there instead, where there is no stage: with 4 ranks on 2 processors
 * the ring is the fastest from here up, by 15 to 30 %, when the model would rather have halving-doubling. */
#define RING_FROM_BYTES (64u << 10)

static const char *without_messages(const struct gn_comm *c, const struct gn_coll_args *args, size_t bytes)
{
	switch (args->what) {
	case GN_COLLECTIVE_ALLREDUCE:
	case GN_COLLECTIVE_BARRIER:
		if (bytes <= gn_shm_eager_bytes(c->node) || gn_shm_has_bounce_buffers(c->node) ||
		    gn_shm_owns(c->node, args->out, bytes))
			return "shared";
		return bytes >= RING_FROM_BYTES ? "ring" : NULL;
	case GN_COLLECTIVE_REDUCE_SCATTER:
	case GN_COLLECTIVE_ALLGATHER:
		return "direct";
	default:
		return NULL;
	}
}

/* What gannet tune found to be the fastest, where it has tried. */
static const char *as_tried(const struct gn_comm *c, const struct gn_coll_args *args, int size_class, size_t *piece_bytes)
{
	const struct gn_cost_pick *pick =
		args->what == GN_COLLECTIVE_ALLREDUCE ? gn_cost_pick(&c->cost, (double)((size_t)1 << size_class)) : NULL;

	if (pick && !*piece_bytes)
		*piece_bytes = (size_t)pick->piece_bytes;
	return pick ? pick->algorithm : NULL;
}

/* Sizes between two powers of two are one: choosing may take milliseconds, and blocking calls prepare each time. */
static int class_of(size_t bytes)
{
	int k = 0;

	while (k < GN_COLL_SIZES - 1 && (size_t)1 << k < bytes)
		k++;
	return k;
}

static enum gn_status by_cost(const struct gn_comm *c, const struct gn_coll_args *args, const char *algo, size_t piece_bytes,
			      int size_class, struct gn_coll_choice *out, struct gn_err *err)
{
	struct gn_select_args how = {.what = args->what, .bytes = (size_t)1 << size_class, .map = c->map, .cost = &c->cost,
				     .algo = algo, .piece_bytes = piece_bytes};
	struct gn_choice choice;
	enum gn_status status = gn_select(&how, &choice, err);

	if (!status)
		*out = (struct gn_coll_choice){choice.algorithm->name, choice.pieces, !algo, piece_bytes};
	return status;
}

enum gn_status gn_coll_choose(struct gn_comm *c, const struct gn_coll_args *args, size_t bytes,
			      struct gn_coll_choice *out, struct gn_err *err)
{
	int any = !args->algorithm || !strcmp(args->algorithm, "auto"), size_class = class_of(bytes);
	struct gn_coll_choice *kept = &c->chosen[args->what][size_class];
	size_t piece_bytes = args->piece_bytes;
	const char *algo = !any ? args->algorithm : args->memory ? NULL : gn_comm_all_share(c) ? without_messages(c, args, bytes) :
								       as_tried(c, args, size_class, &piece_bytes);
	enum gn_status status = GN_OK;

	if (algo && !strcmp(algo, "shared") && args->memory)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "algorithm shared is for the host's memory");
	if (algo && !strcmp(algo, "shared")) {
		*out = (struct gn_coll_choice){.algorithm = algo};
		return GN_OK;
	}
	if (!kept->algorithm || kept->piece_bytes != piece_bytes || (algo ? strcmp(kept->algorithm, algo) != 0 : !kept->any))
		status = by_cost(c, args, algo, piece_bytes, size_class, kept, err);
	if (!status)
		*out = *kept;
	return status;
}

/* Between sizes that are powers of two, a line: simulating each bucket of its own size would take long. */
static enum gn_status by_schedule(const struct gn_coll *coll, double bytes, double *seconds, struct gn_err *err)
{
	int k = class_of((size_t)bytes);
	double at[2] = {0, 0}, low = k ? (double)((size_t)1 << (k - 1)) : 0, high = (double)((size_t)1 << k);

	for (int i = 0; i < 2; i++) {
		struct gn_select_args how = {.what = coll->args.what, .bytes = (size_t)(i || !k ? high : low),
					     .map = coll->comm->map, .cost = &coll->comm->cost, .algo = coll->info.algorithm};
		struct gn_choice choice;
		enum gn_status status = gn_select(&how, &choice, err);

		if (status)
			return status;
		at[i] = choice.predicted_s;
	}
	*seconds = at[0] + (at[1] - at[0]) * (bytes - low) / (high - low);
	return GN_OK;
}

/* By how much a trial took longer, or shorter, than the schedule says: that is taken for all lengths near it, and for longer ones,
 * which have not been tried for that. */
static enum gn_status scale_by_trial(const struct gn_coll *coll, struct gn_coll_forecast *f, struct gn_err *err)
{
	double bytes = (double)coll->op.bytes, modelled_s;
	int near;
	const struct gn_cost_pick *pick = gn_cost_trial(&coll->comm->cost, coll->info.algorithm, bytes, &near);
	enum gn_status status;

	if (!pick || (!near && bytes < pick->bytes))
		return GN_OK;
	status = by_schedule(coll, pick->bytes, &modelled_s, err);
	if (!status && modelled_s > 0) {
		f->seconds *= pick->seconds / modelled_s;
		f->source = near ? GN_COLL_TRIED : f->source;
	}
	return status;
}

/* What any algorithm has to do at least: a rank sends and gets 2(p-1)/p of the buffer, in messages of a chunk, and sums half of
 * that. */
static double processor_s(const struct gn_coll *coll)
{
	const struct gn_comm *c = coll->comm;
	const struct gn_cost_path *path = c->map->nodes > 1 ? &c->cost.link : &c->cost.node;
	double bytes = (double)coll->op.bytes, ranks = gn_comm_size(c), moved = 2 * (ranks - 1) / ranks * bytes;
	double chunk = bytes / (coll->info.chunks ? coll->info.chunks : 1);
	const struct gn_sim_range *r = gn_sim_range_of(&path->path, chunk);

	return moved / chunk * (r->send_s + r->receive_s) + moved * r->s_per_byte + moved / 2 / c->cost.reduce_bytes_per_s;
}

enum gn_status gn_coll_predict(const struct gn_coll *coll, struct gn_coll_forecast *out, struct gn_err *err)
{
	const struct gn_comm *c = coll->comm;
	double bytes = (double)coll->op.bytes, ranks = gn_comm_size(c);
	struct gn_coll_forecast f = {.source = c->cost.measured ? GN_COLL_MEASURED : GN_COLL_GUESSED};
	enum gn_status status = GN_OK;

	if (coll->args.what != GN_COLLECTIVE_ALLREDUCE)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "only the time of an allreduce can be predicted");
	if (ranks > 1 && bytes > 0 && !strcmp(coll->info.algorithm, "shared")) {
		f.seconds = (2 - 1 / ranks) * bytes / c->cost.reduce_bytes_per_s + 2 * gn_cost_message_s(&c->cost.node, 8);
		f.processor_s = f.seconds;
	} else if (ranks > 1 && bytes > 0) {
		status = by_schedule(coll, bytes, &f.seconds, err);
		if (!status)
			status = scale_by_trial(coll, &f, err);
		f.processor_s = fmin(processor_s(coll), f.seconds);
	}
	if (!status)
		*out = f;
	return status;
}
