#include "src/cmd/bench.h"

#include "src/base/arena.h"
#include "src/base/clock.h"

#include <stdlib.h>
#include <string.h>

#define LINK_BYTES (4u << 20)
#define LINK_MS 200
/* At least so much in one timing, so that the clock does not count. */
#define COPY_BYTES (8u << 20)
#define COPIES_MAX 20000u
#define COPY_TRIES 3

static enum gn_status slowest(struct gn_bench *b, double *value, struct gn_err *err)
{
	return gn_comm_allreduce(b->comm, value, 1, GN_F64, gn_reduce_max(GN_F64), err);
}

enum gn_status gn_bench_memory_limit(struct gn_bench *b, size_t bytes, int copiers, double *gb_per_s, struct gn_err *err)
{
	size_t copies = bytes ? COPY_BYTES / bytes + 1 : 1;
	enum gn_status status = GN_OK;
	double best_s = 0, took_s;
	/* through a volatile pointer, so that no copy is left out */
	void *(*volatile copy)(void *, const void *, size_t) = memcpy;

	copies = copies < COPIES_MAX ? copies : COPIES_MAX;
	for (int i = 0; i < COPY_TRIES && !status; i++) {
		double start;

		status = gn_comm_barrier(b->comm, err);
		start = gn_clock_s();
		for (size_t k = 0; k < copies && gn_comm_rank(b->comm) < copiers; k++)
			copy(b->out, b->in, bytes);
		took_s = gn_clock_s() - start;
		if (!status)
			status = slowest(b, &took_s, err);
		best_s = i && best_s < took_s ? best_s : took_s;
	}
	if (!status)
		*gb_per_s = best_s > 0 ? 2.0 * (double)bytes * (double)copies * copiers / best_s / 1e9 : 0;
	return status;
}

/* The first rank of a node. */
static int first_of(const struct gn_world *w, int node)
{
	int r = 0;

	while (r < gn_world_size(w) - 1 && gn_world_node_of(w, r) != node)
		r++;
	return r;
}

enum gn_status gn_bench_link_limit(struct gn_bench *b, double *gb_per_s, struct gn_err *err)
{
	int nodes = gn_world_nodes(b->world), node = gn_world_node_of(b->world, gn_world_rank(b->world));
	int speaks = gn_world_rank(b->world) == first_of(b->world, node);
	struct gn_bench_options few = {.iters = 20, .warmup = 2, .row_ms = LINK_MS};
	struct gn_coll_args args = {.what = GN_COLLECTIVE_SEND_RECV, .count = LINK_BYTES, .type = GN_BYTES, .to = -1, .from = -1};
	const struct gn_bench_options *options = b->o;
	struct gn_timing t = {0};
	struct gn_coll *coll = NULL;
	double times[20], *own_times = b->times;
	enum gn_status status = GN_OK;
	char *memory = gn_alloc_aligned(2 * LINK_BYTES);

	if (!memory)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to measure links with");
	memset(memory, 1, 2 * LINK_BYTES);
	args.in = memory;
	args.out = memory + LINK_BYTES;
	if (speaks) {
		args.to = first_of(b->world, (node + 1) % nodes);
		args.from = first_of(b->world, (node + nodes - 1) % nodes);
	}
	b->o = &few;
	b->times = times;
	status = gn_coll_prepare(b->comm, &args, &coll, err);
	if (!status)
		status = gn_bench_time(b, &coll, 1, &t, err);
	/* the loop has sorted them; what disturbs a link is no limit of it, but one lucky message is none either */
	if (!status)
		*gb_per_s = LINK_BYTES / times[t.iters / 4] / 1e3;
	b->o = options;
	b->times = own_times;
	gn_coll_free(coll);
	free(memory);
	return status;
}
