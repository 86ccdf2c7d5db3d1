#include "transport/choose.h"
#include "transport/coll.h"

#include <string.h>

/* Within a node messages' costs say little: neighbours read straight from each other's memory, or have one place for all, or
 * share processors that copy the messages, too. Measured there instead: with 4 ranks on 2 processors the ring is the fastest
 * from here up, by 15 to 30 %, when the model would rather have halving-doubling. */
#define RING_FROM_BYTES (64u << 10)

static const char *without_messages(const struct gn_comm *c, const struct gn_coll_args *args, size_t bytes)
{
	switch (args->what) {
	case GN_COLLECTIVE_ALLREDUCE:
	case GN_COLLECTIVE_BARRIER:
		if (bytes <= gn_node_mail_bytes(c->node) || gn_node_stages(c->node, bytes) ||
		    gn_node_owns(c->node, args->out, bytes))
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
static const char *as_tried(const struct gn_comm *c, const struct gn_coll_args *args, int size_class)
{
	const struct gn_cost_pick *pick =
		args->what == GN_COLLECTIVE_ALLREDUCE ? gn_cost_pick(&c->cost, (double)((size_t)1 << size_class)) : NULL;

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

static enum gn_status by_cost(const struct gn_comm *c, const struct gn_coll_args *args, const char *algo, int size_class,
			      struct gn_coll_choice *out, struct gn_err *err)
{
	struct gn_choose_args how = {.what = args->what, .bytes = (size_t)1 << size_class, .map = c->map, .cost = &c->cost,
				     .algo = algo};
	struct gn_choice choice;
	enum gn_status status = gn_choose(&how, &choice, err);

	if (!status)
		*out = (struct gn_coll_choice){choice.algorithm->name, choice.pieces, !algo};
	return status;
}

enum gn_status gn_coll_choose(struct gn_comm *c, const struct gn_coll_args *args, size_t bytes,
			      struct gn_coll_choice *out, struct gn_err *err)
{
	int any = !args->algorithm || !strcmp(args->algorithm, "auto"), size_class = class_of(bytes);
	struct gn_coll_choice *kept = &c->chosen[args->what][size_class];
	const char *algo = !any ? args->algorithm : gn_comm_all_share(c) ? without_messages(c, args, bytes) :
								       as_tried(c, args, size_class);
	enum gn_status status = GN_OK;

	if (algo && !strcmp(algo, "shared")) {
		*out = (struct gn_coll_choice){algo, 0, 0};
		return GN_OK;
	}
	if (!kept->algorithm || (algo ? strcmp(kept->algorithm, algo) != 0 : !kept->any))
		status = by_cost(c, args, algo, size_class, kept, err);
	if (!status)
		*out = *kept;
	return status;
}

/* Between sizes that are powers of two, a line: simulating each bucket of its own size would take long. */
static enum gn_status by_schedule(const struct gn_coll *coll, double *seconds, struct gn_err *err)
{
	int k = class_of(coll->op.bytes);
	double at[2] = {0, 0}, low = k ? (double)((size_t)1 << (k - 1)) : 0, high = (double)((size_t)1 << k);

	for (int i = 0; i < 2; i++) {
		struct gn_choose_args how = {.what = coll->args.what, .bytes = (size_t)(i || !k ? high : low),
					     .map = coll->comm->map, .cost = &coll->comm->cost, .algo = coll->info.algorithm};
		struct gn_choice choice;
		enum gn_status status = gn_choose(&how, &choice, err);

		if (status)
			return status;
		at[i] = choice.predicted_s;
	}
	*seconds = at[0] + (at[1] - at[0]) * ((double)coll->op.bytes - low) / (high - low);
	return GN_OK;
}

enum gn_status gn_coll_predict(const struct gn_coll *coll, double *seconds, int *measured, struct gn_err *err)
{
	const struct gn_comm *c = coll->comm;
	double bytes = (double)coll->op.bytes, ranks = gn_comm_size(c);
	enum gn_status status = GN_OK;

	if (coll->args.what != GN_COLLECTIVE_ALLREDUCE)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "only the time of an allreduce can be predicted");
	if (ranks < 2)
		*seconds = 0;
	else if (!strcmp(coll->info.algorithm, "shared"))
		*seconds = (2 - 1 / ranks) * bytes / c->cost.reduce_bytes_per_s + 2 * gn_cost_message_s(&c->cost.node, 8);
	else
		status = by_schedule(coll, seconds, err);
	if (!status)
		*measured = c->cost.measured;
	return status;
}
