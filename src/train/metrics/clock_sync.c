#include "src/train/metrics/clock_sync.h"

#include "src/base/clock.h"
#include "transport/coll/agree.h"
#include "transport/coll/p2p.h"

#include <stdlib.h>

enum { ROUNDS = 20 };

/* A round trip between rank 0 and one other rank; the other ranks do not take part. */
struct ping {
	struct gn_p2p *there, *back;
	uint64_t out, in;
};

static enum gn_status prepare(struct gn_comm *comm, int other, struct ping *p, struct gn_err *err)
{
	int root = gn_comm_rank(comm) == 0;
	struct gn_p2p_args send = {.peer = root ? other : 0, .data = &p->out, .len_bytes = sizeof p->out}, receive = send;
	enum gn_status status;

	receive.data = &p->in;
	status = gn_p2p_prepare_send(comm, &send, root ? &p->there : &p->back, err);
	return status ? status : gn_p2p_prepare_receive(comm, &receive, root ? &p->back : &p->there, err);
}

static enum gn_status run(struct gn_p2p *p, struct gn_err *err)
{
	enum gn_status status = gn_p2p_start(p, NULL, err);

	return status ? status : gn_p2p_wait(p, err);
}

/* On rank 0, *best is the offset of the other's clock. */
static enum gn_status exchange(struct gn_comm *comm, int other, struct gn_clock_offset *best, struct gn_err *err)
{
	struct ping p = {.out = 0};
	enum gn_status status;

	if (gn_comm_rank(comm) && gn_comm_rank(comm) != other)
		return GN_OK;
	status = prepare(comm, other, &p, err);
	best->uncertain_ns = INT64_MAX;
	for (int i = 0; i < ROUNDS && !status; i++) {
		uint64_t sent = gn_clock_ns(), middle;
		int64_t half;

		status = run(p.there, err);
		p.out = gn_clock_ns();
		if (!status)
			status = run(p.back, err);
		half = (int64_t)(gn_clock_ns() - sent) / 2 + 1;
		middle = sent + (uint64_t)half;
		if (!status && half < best->uncertain_ns)
			*best = (struct gn_clock_offset){p.in, (int64_t)(p.in - middle), half};
	}
	gn_p2p_free(p.there);
	gn_p2p_free(p.back);
	return status;
}

enum gn_status gn_clock_sync_compare(struct gn_comm *comm, struct gn_clock_offset *out, struct gn_err *err)
{
	const struct gn_world *w = gn_comm_world(comm);
	struct gn_clock_offset *all = calloc((size_t)gn_world_nodes(w), sizeof *all);
	int known = 1, rank = gn_comm_rank(comm);
	enum gn_status status = all ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to compare clocks");

	status = gn_agree_status(comm, status, err);
	/* nodes are numbered in the order of their first ranks */
	for (int r = 1; r < gn_comm_size(comm) && !status; r++)
		if (gn_world_node_of(w, r) == known)
			status = exchange(comm, r, &all[known++], err);
	if (!status)
		status = gn_comm_broadcast(comm, all, (size_t)gn_world_nodes(w) * sizeof *all, 0, err);
	if (!status) {
		*out = all[gn_world_node_of(w, rank)];
		if (gn_world_node_of(w, rank) == gn_world_node_of(w, 0))
			*out = (struct gn_clock_offset){.at_ns = gn_clock_ns()};
	}
	free(all);
	return status;
}
