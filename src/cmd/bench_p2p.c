#include "src/cmd/bench.h"

#include <stdio.h>
#include <string.h>

static int peer_of(const struct gn_bench *b)
{
	return b->o->peer < 0 ? gn_comm_size(b->comm) - 1 : (int)b->o->peer;
}

static int same_node(const struct gn_bench *b)
{
	return gn_world_node_of(b->world, 0) == gn_world_node_of(b->world, peer_of(b));
}

/* One message from one rank to another, or with to_and_from each way. All ranks take part in the call. */
static enum gn_status prepare(struct gn_bench *b, int from, int to, int both, size_t count, struct gn_coll **out,
			      struct gn_err *err)
{
	int rank = gn_comm_rank(b->comm);
	struct gn_coll_args args = {.what = GN_COLLECTIVE_SEND_RECV, .in = b->in, .out = b->out, .count = count,
				    .type = b->pattern.type, .to = -1, .from = -1, .algorithm = b->o->algo};

	if (rank == from || (both && rank == to))
		args.to = rank == from ? to : from;
	if (rank == to || (both && rank == from))
		args.from = rank == to ? from : to;
	return gn_coll_prepare(b->comm, &args, out, err);
}

static enum gn_status check(struct gn_bench *b, size_t count, struct gn_timing *t, struct gn_err *err)
{
	int rank = gn_comm_rank(b->comm), peer = peer_of(b);
	int64_t wrong = 0;

	if (rank == 0 || rank == peer)
		wrong = gn_pattern_wrong(&b->pattern, b->out, 0, count, rank ? 0 : peer);
	return gn_bench_add_wrong(b, wrong, t, err);
}

static enum gn_status measure_row(struct gn_bench *b, struct gn_bench_row *row, int *direct, struct gn_err *err)
{
	int both = !strcmp(row->direction, "both-ways"), count = both ? 1 : 2, peer = peer_of(b);
	struct gn_timing *t = &row->out_of_place;
	struct gn_coll *colls[2] = {NULL, NULL};
	struct gn_coll_info info = {.algorithm = "none"};
	enum gn_status status = GN_OK;

	row->limit_of = same_node(b) ? "memory" : "link";
	row->limit_gb_per_s = b->link_gb_per_s;
	row->limit_bytes = (double)row->bytes;
	if (same_node(b)) {
		status = gn_bench_memory_limit(b, row->bytes, both ? 2 : 1, &row->limit_gb_per_s, err);
		row->limit_bytes *= both ? 4 : 2;
	}
	if (!status)
		status = prepare(b, 0, peer, both, row->count, &colls[0], err);
	if (!status && !both)
		status = prepare(b, peer, 0, 0, row->count, &colls[1], err);
	gn_pattern_fill(&b->pattern, b->in, 0, row->count, gn_comm_rank(b->comm));
	memset(b->out, 0xff, row->bytes);
	if (!status)
		status = gn_bench_time(b, colls, count, t, err);
	if (!status)
		status = check(b, row->count, t, err);
	/* there and back */
	t->mean_us /= count;
	t->p50_us /= count;
	t->p99_us /= count;
	if (colls[0])
		gn_coll_describe(colls[0], &info);
	t->algo = info.algorithm;
	t->pieces = (int)info.pieces;
	t->chunks = (int)info.chunks;
	*direct = info.direct;
	gn_coll_free(colls[1]);
	gn_coll_free(colls[0]);
	return status;
}

static void print_heading(const struct gn_bench *b)
{
	printf("# p2p: rank 0 on %s and rank %d on %s, %s buffers, at most %lld iterations after %lld\n",
	       gn_world_host_of(b->world, 0), peer_of(b), gn_world_host_of(b->world, peer_of(b)),
	       b->o->foreign ? "foreign" : "own", (long long)b->o->iters, (long long)b->o->warmup);
	if (same_node(b))
		puts("# limit: of memory, measured in each row: one rank copies messages of that size, or for both ways two");
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
		return gn_err_set(err, GN_ERR_USAGE, "p2p needs two ranks, and a --peer that is not rank 0");
	if (!b->o->json && gn_comm_rank(b->comm) == 0)
		print_heading(b);
	for (int64_t bytes = b->o->min_bytes; bytes <= b->o->max_bytes && !status; bytes *= b->o->factor)
		for (int d = 0; d < 2 && !status; d++) {
			struct gn_bench_row row = {.op = "p2p", .direction = directions[d], .redop = "none", .root = -1, .bus_factor = 1};

			row.count = (size_t)bytes < each ? 1 : (size_t)bytes / each;
			row.bytes = row.count * each;
			status = gn_bench_row(b, &row, measure_row, err);
		}
	return status;
}
