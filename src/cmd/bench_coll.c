#include "src/cmd/bench.h"

#include "transport/schedule/algo.h"

#include <stdio.h>
#include <string.h>

/* The layout of inputs and results: see the table in transport/coll/comm.h. */
struct shape {
	enum gn_collective what;
	int by_block;	/* count is that of one rank's block */
	int reduces, has_root, in_place;
};

static const struct shape shapes[] = {
	{GN_COLLECTIVE_ALLREDUCE, 0, 1, 0, 1},	    {GN_COLLECTIVE_REDUCE_SCATTER, 1, 1, 0, 1},
	{GN_COLLECTIVE_ALLGATHER, 1, 0, 0, 1},	    {GN_COLLECTIVE_BROADCAST, 0, 0, 1, 1},
	{GN_COLLECTIVE_REDUCE, 0, 1, 1, 1},	    {GN_COLLECTIVE_ALL_TO_ALL, 1, 0, 0, 0},
};

/* One measurement. */
struct job {
	struct gn_bench *b;
	const struct shape *shape;
	size_t count;
	int rank, size, root, in_place;
};

static char *at(const struct job *j, void *buffer, size_t element)
{
	return (char *)buffer + element * gn_pattern_bytes(j->b->pattern.type);
}

/* Fills this rank's input where the operation reads it. In place the input lies in the result's buffer. */
static void fill_input(const struct job *j, int with_zeros)
{
	const struct gn_pattern *p = &j->b->pattern;
	size_t blocks = j->shape->by_block ? (size_t)j->size : 1, mine = j->count * (size_t)j->rank, all = j->count * blocks;
	size_t bytes = gn_pattern_bytes(p->type);
	void *to = j->in_place ? j->b->out : j->b->in;

	memset(j->b->out, with_zeros ? 0 : 0xff, all * bytes);
	if (with_zeros)
		return;
	if (j->shape->what == GN_COLLECTIVE_ALLGATHER)
		gn_pattern_fill(p, j->in_place ? at(j, to, mine) : to, mine, j->count, j->rank);
	else if (j->shape->what != GN_COLLECTIVE_BROADCAST || j->rank == j->root)
		gn_pattern_fill(p, to, 0, all, j->rank);
}

static int64_t count_wrong(const struct job *j)
{
	const struct gn_pattern *p = &j->b->pattern;
	size_t mine = j->count * (size_t)j->rank;
	int64_t wrong = 0;

	switch (j->shape->what) {
	case GN_COLLECTIVE_REDUCE_SCATTER:
		return gn_pattern_wrong(p, j->in_place ? at(j, j->b->out, mine) : j->b->out, mine, j->count, -1);
	case GN_COLLECTIVE_ALLGATHER:
	case GN_COLLECTIVE_ALL_TO_ALL:
		for (int r = 0; r < j->size; r++) {
			size_t theirs = j->count * (size_t)r;

			wrong += gn_pattern_wrong(p, at(j, j->b->out, theirs),
						  j->shape->what == GN_COLLECTIVE_ALLGATHER ? theirs : mine, j->count, r);
		}
		return wrong;
	case GN_COLLECTIVE_BROADCAST:
		return gn_pattern_wrong(p, j->b->out, 0, j->count, j->root);
	case GN_COLLECTIVE_REDUCE:
		return j->rank == j->root ? gn_pattern_wrong(p, j->b->out, 0, j->count, -1) : 0;
	default:
		return gn_pattern_wrong(p, j->b->out, 0, j->count, -1);
	}
}

static enum gn_status measure_place(const struct job *j, struct gn_timing *t, int *direct, struct gn_err *err)
{
	struct gn_coll_args args = {.what = j->shape->what, .in = j->in_place ? NULL : j->b->in, .out = j->b->out,
				    .count = j->count, .type = j->b->pattern.type, .reduction = j->b->pattern.reduction,
				    .root = j->root, .algorithm = j->b->o->algo};
	struct gn_coll_info info;
	struct gn_coll *coll = NULL;
	enum gn_status status = gn_coll_prepare(j->b->group, &args, &coll, err);

	if (status)
		return status;
	/* in-place sums would overflow over repeated operations: time zeros, then check one more operation on real values */
	fill_input(j, j->in_place);
	status = gn_bench_time(j->b, gn_bench_run_coll, coll, t, err);
	if (!status && j->in_place) {
		fill_input(j, 0);
		status = gn_bench_run_coll(coll, err);
	}
	if (!status)
		status = gn_bench_add_wrong(j->b, count_wrong(j), t, err);
	gn_coll_describe(coll, &info);
	t->algo = info.algorithm;
	t->pieces = (int)info.pieces;
	t->chunks = (int)info.chunks;
	*direct |= info.direct;
	gn_coll_free(coll);
	return status;
}

static const struct shape *shape_of(enum gn_collective what)
{
	const struct shape *s = shapes;

	while (s->what != what)
		s++;
	return s;
}

/* Lower bound of the traffic, in messages: read and written on one node, or sent by a node. */
static double least_traffic(enum gn_collective what, int ranks, int nodes)
{
	double n = ranks, others = (nodes - 1.0) / nodes;

	switch (what) {
	case GN_COLLECTIVE_ALLREDUCE:
		return nodes > 1 ? 2 * others : 2 * n;
	case GN_COLLECTIVE_ALL_TO_ALL:
		return nodes > 1 ? others * ranks / nodes : 2 * n;
	case GN_COLLECTIVE_BROADCAST:
		return nodes > 1 ? 1 : n;
	case GN_COLLECTIVE_REDUCE:
		return nodes > 1 ? 1 : n + 1;
	default:
		return nodes > 1 ? others : n + 1;
	}
}

static enum gn_status find_limit(struct gn_bench *b, struct gn_bench_row *row, enum gn_collective what, struct gn_err *err)
{
	int size = gn_comm_size(b->group), nodes = gn_comm_map(b->group)->nodes;

	/* groups share the links of their nodes in ways of their own */
	if (b->groups > 1 && gn_world_nodes(b->world) > 1) {
		row->limit_of = "";
		return GN_OK;
	}
	row->limit_bytes = b->groups * least_traffic(what, size, nodes) * (double)row->bytes;
	row->limit_of = nodes > 1 ? "link" : "memory";
	row->limit_gb_per_s = b->link_gb_per_s;
	return nodes > 1 ? GN_OK : gn_bench_memory_roofline(b, row->bytes, size * b->groups, &row->limit_gb_per_s, err);
}

static enum gn_collective what_of(const struct gn_bench_row *row)
{
	enum gn_collective what = 0;

	while (strcmp(gn_collective_name(what), row->op))
		what++;
	return what;
}

static enum gn_status measure_row(struct gn_bench *b, struct gn_bench_row *row, int *direct, struct gn_err *err)
{
	struct job j = {.b = b, .shape = shape_of(what_of(row)), .count = row->count, .rank = gn_comm_rank(b->group),
			.size = gn_comm_size(b->group), .root = row->root < 0 ? 0 : row->root};
	enum gn_status status = find_limit(b, row, j.shape->what, err);

	if (!status && (strcmp(b->o->place, "in") || !j.shape->in_place))
		status = measure_place(&j, &row->out_of_place, direct, err);
	j.in_place = 1;
	if (!status && strcmp(b->o->place, "out") && j.shape->in_place)
		status = measure_place(&j, &row->in_place, direct, err);
	return status;
}

static double bus_factor(const struct shape *s, int n)
{
	return s->what == GN_COLLECTIVE_ALLREDUCE ? 2.0 * (n - 1) / n : s->by_block ? (n - 1.0) / n : 1;
}

static void print_heading(const struct gn_bench *b, enum gn_collective what)
{
	int ranks = gn_comm_size(b->comm), nodes = gn_world_nodes(b->world);

	if (b->groups > 1)
		printf("# in %d groups of %d ranks at once\n", b->groups, gn_comm_size(b->group));
	printf("# %s: %d rank%s on %d node%s, algorithm %s, %s buffers, at most %lld iterations after %lld\n",
	       gn_collective_name(what), ranks, ranks > 1 ? "s" : "", nodes, nodes > 1 ? "s" : "", b->o->algo,
	       b->o->foreign ? "foreign" : "own", (long long)b->o->iters, (long long)b->o->warmup);
	if (nodes > 1)
		printf("# limit: %.4f GB/s each way, measured: every node sends to the next and receives at the same time\n",
		       b->link_gb_per_s);
	else
		puts("# limit: memory bandwidth, measured in each row: all ranks copy messages of that size at once");
	gn_bench_print_heading();
}

enum gn_status gn_bench_collective(struct gn_bench *b, enum gn_collective what, struct gn_err *err)
{
	const struct shape *s = shape_of(what);
	int size = gn_comm_size(b->group);
	size_t blocks = s->by_block ? (size_t)size : 1, each = blocks * gn_pattern_bytes(b->pattern.type), before = 0;
	enum gn_status status = GN_OK;

	if (!b->o->json && gn_comm_rank(b->comm) == 0)
		print_heading(b, what);
	for (int64_t bytes = b->o->min_bytes; bytes <= b->o->max_bytes && !status; bytes *= b->o->factor) {
		struct gn_bench_row row = {.op = gn_collective_name(what), .redop = s->reduces ? b->o->redop : "none",
					   .root = s->has_root ? (int)b->o->root : -1, .bus_factor = bus_factor(s, size)};

		row.count = (size_t)bytes < each ? 1 : (size_t)bytes / each;
		row.bytes = row.count * each;
		if (row.bytes != before)
			status = gn_bench_row(b, &row, measure_row, err);
		before = row.bytes;
	}
	return status;
}

static int peer_of(const struct gn_bench *b)
{
	return b->o->peer < 0 ? gn_comm_size(b->comm) - 1 : (int)b->o->peer;
}

static int same_node(const struct gn_bench *b)
{
	return gn_world_node_of(b->world, 0) == gn_world_node_of(b->world, peer_of(b));
}

/* Rank 0 sends and the peer answers, or each sends one at the same time; the other ranks do not take part. */
static enum gn_status prepare_p2p(struct gn_bench *b, size_t bytes, struct gn_bench_messages *m, struct gn_err *err)
{
	int rank = gn_comm_rank(b->comm), peer = peer_of(b);
	struct gn_p2p_args send = {.peer = rank ? 0 : peer, .data = b->in, .len_bytes = bytes}, receive = send;
	enum gn_status status;

	if (rank && rank != peer)
		return GN_OK;
	receive.data = b->out;
	status = gn_p2p_prepare_receive(b->comm, &receive, rank && !m->together ? &m->first : &m->second, err);
	return status ? status : gn_p2p_prepare_send(b->comm, &send, rank && !m->together ? &m->second : &m->first, err);
}

static enum gn_status check_p2p(struct gn_bench *b, size_t count, struct gn_timing *t, struct gn_err *err)
{
	int rank = gn_comm_rank(b->comm), peer = peer_of(b);
	int64_t wrong = 0;

	if (rank == 0 || rank == peer)
		wrong = gn_pattern_wrong(&b->pattern, b->out, 0, count, rank ? 0 : peer);
	return gn_bench_add_wrong(b, wrong, t, err);
}

static enum gn_status measure_p2p_row(struct gn_bench *b, struct gn_bench_row *row, int *direct, struct gn_err *err)
{
	int both = !strcmp(row->direction, "both-ways"), count = both ? 1 : 2;
	struct gn_timing *t = &row->out_of_place;
	struct gn_bench_messages m = {.together = both};
	enum gn_status status = GN_OK;

	row->limit_of = same_node(b) ? "memory" : "link";
	row->limit_gb_per_s = b->link_gb_per_s;
	row->limit_bytes = (double)row->bytes;
	if (same_node(b)) {
		status = gn_bench_memory_roofline(b, row->bytes, both ? 2 : 1, &row->limit_gb_per_s, err);
		row->limit_bytes *= both ? 4 : 2;
	}
	if (!status)
		status = prepare_p2p(b, row->bytes, &m, err);
	gn_pattern_fill(&b->pattern, b->in, 0, row->count, gn_comm_rank(b->comm));
	memset(b->out, 0xff, row->bytes);
	if (!status)
		status = gn_bench_time(b, gn_bench_run_messages, &m, t, err);
	if (!status)
		status = check_p2p(b, row->count, t, err);
	/* a round trip is two messages */
	t->mean_us /= count;
	t->p50_us /= count;
	t->p99_us /= count;
	t->algo = "message";
	t->pieces = t->chunks = 1;
	*direct = 0;
	gn_p2p_free(m.first);
	gn_p2p_free(m.second);
	return status;
}

static void print_p2p_heading(const struct gn_bench *b)
{
	printf("# p2p: rank 0 on %s and rank %d on %s, %s buffers, at most %lld iterations after %lld\n",
	       gn_world_host_of(b->world, 0), peer_of(b), gn_world_host_of(b->world, peer_of(b)),
	       b->o->foreign ? "foreign" : "own", (long long)b->o->iters, (long long)b->o->warmup);
	if (same_node(b))
		puts("# limit: memory bandwidth, measured in each row: one rank copies messages of that size, for both ways two "
		     "ranks");
	else
		printf("# limit: %.4f GB/s each way, measured: every node sends to the next and receives at the same time\n",
		       b->link_gb_per_s);
	gn_bench_print_heading();
}

enum gn_status gn_bench_p2p(struct gn_bench *b, struct gn_err *err)
{
	static const char *const directions[] = {"one-way", "both-ways"};
	size_t each = gn_pattern_bytes(b->pattern.type);
	enum gn_status status = GN_OK;

	if (peer_of(b) == 0)
		return gn_err_set(err, GN_ERR_USAGE, "p2p needs at least two ranks and a --peer other than rank 0");
	if (!b->o->json && gn_comm_rank(b->comm) == 0)
		print_p2p_heading(b);
	for (int64_t bytes = b->o->min_bytes; bytes <= b->o->max_bytes && !status; bytes *= b->o->factor)
		for (int d = 0; d < 2 && !status; d++) {
			struct gn_bench_row row = {.op = "p2p", .direction = directions[d], .redop = "none", .root = -1,
				.bus_factor = 1};

			row.count = (size_t)bytes < each ? 1 : (size_t)bytes / each;
			row.bytes = row.count * each;
			status = gn_bench_row(b, &row, measure_p2p_row, err);
		}
	return status;
}
