#include "src/train/plan/group_sums.h"

#include "src/base/option.h"
#include "src/device/device.h"
#include "transport/schedule/algo.h"

#include <stdlib.h>
#include <string.h>

/* A collective that is prepared for one kind of exchange. */
struct prepared {
	struct prepared *next;
	struct gn_op_exchange exchange;
	struct gn_coll *coll; /* NULL: the memory has grown since */
};

struct gn_group_sums {
	struct gn_plan_group group;
	struct gn_comm *comm;
	struct prepared *first;
	void *memory; /* of all, for one runs at a time */
	size_t bytes;
};

struct gn_sync_bn {
	struct gn_comm *own; /* NULL: the group is all ranks */
	struct gn_group_sums *sums;
};

/* Blocks of all ranks follow each other; this one's at *own. */
static size_t bytes_of(const struct gn_group_sums *g, const struct gn_op_exchange *x, size_t *own)
{
	size_t block = x->count * (size_t)x->element_bytes;

	*own = x->kind == GN_EXCHANGE_SUM ? 0 : (size_t)gn_comm_rank(g->comm) * block;
	return x->kind == GN_EXCHANGE_SUM ? block : (size_t)g->group.members * block;
}

static void drop_prepared(struct gn_group_sums *g)
{
	for (struct prepared *x = g->first; x; x = x->next) {
		gn_coll_free(x->coll);
		x->coll = NULL;
	}
	gn_comm_free(g->comm, g->memory);
	g->memory = NULL;
	g->bytes = 0;
}

static enum gn_status find(struct gn_group_sums *g, const struct gn_op_exchange *wanted, struct prepared **out, struct gn_err *err)
{
	struct prepared *x = g->first;

	while (x && (x->exchange.kind != wanted->kind || x->exchange.count != wanted->count || x->exchange.element_bytes != wanted->element_bytes))
		x = x->next;
	if (!x) {
		x = calloc(1, sizeof *x);
		if (!x)
			return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for sums over ranks");
		x->exchange = *wanted;
		x->next = g->first;
		g->first = x;
	}
	*out = x;
	return GN_OK;
}

static enum gn_status prepare(struct gn_group_sums *g, struct gn_stream *s, struct prepared *x, struct gn_err *err)
{
	static const enum gn_collective what[] = {[GN_EXCHANGE_SUM] = GN_COLLECTIVE_ALLREDUCE, [GN_EXCHANGE_GATHER] = GN_COLLECTIVE_ALLGATHER,
						  [GN_EXCHANGE_SCATTER] = GN_COLLECTIVE_REDUCE_SCATTER};
	struct gn_coll_args a = {.what = what[x->exchange.kind], .count = x->exchange.count,
				 .type = x->exchange.element_bytes == sizeof(double) ? GN_F64 : GN_F32};
	size_t own, bytes = bytes_of(g, &x->exchange, &own);

	if (bytes > g->bytes) {
		/* the copy that ends an earlier exchange reads the memory that is given back */
		enum gn_status status = gn_stream_wait(s, err);

		if (status)
			return status;
		drop_prepared(g);
		status = gn_comm_alloc(g->comm, bytes, &g->memory, err);
		if (status)
			return status;
		g->bytes = bytes;
	}
	a.out = g->memory;
	return x->coll ? GN_OK : gn_coll_prepare(g->comm, &a, &x->coll, err);
}

static enum gn_status run_exchange(struct gn_plan_group *group, struct gn_stream *s, const struct gn_op_exchange *wanted, void *values,
				   struct gn_err *err)
{
	struct gn_group_sums *g = (struct gn_group_sums *)group;
	struct prepared *x = NULL;
	size_t own, bytes = bytes_of(g, wanted, &own), block = wanted->count * (size_t)wanted->element_bytes;
	int gathers = wanted->kind == GN_EXCHANGE_GATHER, scatters = wanted->kind == GN_EXCHANGE_SCATTER;
	enum gn_status status = find(g, wanted, &x, err);

	if (!status)
		status = prepare(g, s, x, err);
	if (!status)
		status = gathers ? gn_stream_copy(s, (char *)g->memory + own, (char *)values + own, block, err)
				 : gn_stream_copy(s, g->memory, values, bytes, err);
	if (!status)
		status = gn_stream_wait(s, err);
	if (!status)
		status = gn_coll_start(x->coll, NULL, err);
	if (!status)
		status = gn_coll_wait(x->coll, err);
	if (status)
		return status;
	return scatters ? gn_stream_copy(s, (char *)values + own, (char *)g->memory + own, block, err)
			: gn_stream_copy(s, values, g->memory, bytes, err);
}

enum gn_status gn_group_sums_create(struct gn_comm *comm, struct gn_group_sums **out, struct gn_err *err)
{
	struct gn_group_sums *g = calloc(1, sizeof *g);

	if (!g)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for sums over ranks");
	g->group = (struct gn_plan_group){gn_comm_size(comm), run_exchange};
	g->comm = comm;
	*out = g;
	return GN_OK;
}

void gn_group_sums_destroy(struct gn_group_sums *g)
{
	if (!g)
		return;
	drop_prepared(g);
	while (g->first) {
		struct prepared *x = g->first;

		g->first = x->next;
		free(x);
	}
	free(g);
}

struct gn_plan_group *gn_group_sums_group(struct gn_group_sums *g)
{
	return &g->group;
}

/* --- synchronised batch norm --- */

/* *color: which group this rank is in, of *groups. */
static enum gn_status choose_group(const char *text, struct gn_comm *comm, int *color, int *groups, struct gn_err *err)
{
	const struct gn_node_map *map = gn_comm_map(comm);
	int64_t ranks = gn_comm_size(comm), members = ranks;

	if (!strcmp(text, "node")) {
		*groups = map->nodes;
		*color = gn_world_node_of(gn_comm_world(comm), gn_comm_world_rank(comm, gn_comm_rank(comm)));
		return GN_OK;
	}
	if (strcmp(text, "all") && (gn_parse_int(text, &members, NULL) || members < 1 || members > ranks || ranks % members))
		return gn_err_set(err, GN_ERR_USAGE, "--sync-bn '%s': write all, node, or how many of the %lld rank%s make a group, "
				  "a divisor of them", text, (long long)ranks, ranks == 1 ? "" : "s");
	*groups = (int)(ranks / members);
	*color = (int)(gn_comm_rank(comm) / members);
	return GN_OK;
}

enum gn_status gn_sync_bn_create(const char *text, struct gn_comm *comm, struct gn_sync_bn **out, struct gn_err *err)
{
	int color = 0, groups = 1;
	struct gn_sync_bn *s = NULL;
	enum gn_status status = choose_group(text, comm, &color, &groups, err);

	if (status)
		return status;
	*out = NULL;
	if (groups == gn_comm_size(comm))
		return GN_OK;
	s = calloc(1, sizeof *s);
	if (!s)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for synchronised batch norm");
	if (groups > 1)
		status = gn_comm_split(comm, color, 0, "batch-norm", &s->own, err);
	/* its ranks take part in sums over all, too */
	if (!status && s->own)
		gn_comm_end_with_world(s->own);
	if (!status)
		status = gn_group_sums_create(s->own ? s->own : comm, &s->sums, err);
	if (status)
		gn_sync_bn_destroy(s);
	else
		*out = s;
	return status;
}

void gn_sync_bn_destroy(struct gn_sync_bn *s)
{
	if (!s)
		return;
	gn_group_sums_destroy(s->sums);
	gn_comm_destroy(s->own);
	free(s);
}

struct gn_plan_group *gn_sync_bn_group(const struct gn_sync_bn *s)
{
	return s ? gn_group_sums_group(s->sums) : NULL;
}
