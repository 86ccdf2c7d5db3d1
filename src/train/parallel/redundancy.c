#include "src/train/parallel/redundancy.h"

#include "src/base/alloc.h"
#include "transport/coll/p2p.h"

#include <stdlib.h>

enum { TAG_SUMS = 48 };

struct gn_redundancy {
	const struct gn_shard *shard;
	float *flat, *sent, *received; /* packed */
	struct gn_p2p *send, *receive;
	int holder, is_elsewhere;
};

/* Ranks in the order of nodes, each moved on by as many as the largest node has: past its own node unless that has more than half of all. */
enum gn_status gn_redundancy_holders(const int *node_of, int ranks, int *holders, struct gn_err *err)
{
	int *order = calloc((size_t)ranks, sizeof *order), count = 0, most = 0;

	if (!order)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to place copies of %d ranks", ranks);
	for (int node = 0; count < ranks; node++) {
		int before = count;

		for (int r = 0; r < ranks; r++)
			if (node_of[r] == node)
				order[count++] = r;
		most = count - before > most ? count - before : most;
	}
	for (int i = 0; i < ranks; i++)
		holders[order[i]] = order[(i + (most < ranks ? most : 1)) % ranks];
	free(order);
	return GN_OK;
}

static enum gn_status place(struct gn_comm *comm, int *holder, int *ward, int *is_elsewhere, struct gn_err *err)
{
	const struct gn_world *world = gn_comm_world(comm);
	int ranks = gn_comm_size(comm), rank = gn_comm_rank(comm), *nodes = calloc(2 * (size_t)ranks, sizeof *nodes), *holders = nodes ? nodes + ranks : NULL;
	enum gn_status status = nodes ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to place copies of %d ranks", ranks);

	for (int r = 0; r < ranks && !status; r++)
		nodes[r] = gn_world_node_of(world, gn_comm_world_rank(comm, r));
	if (!status)
		status = gn_redundancy_holders(nodes, ranks, holders, err);
	for (int r = 0; r < ranks && !status; r++)
		if (holders[r] == rank)
			*ward = r;
	if (!status) {
		*holder = holders[rank];
		*is_elsewhere = nodes[*holder] != nodes[rank];
	}
	free(nodes);
	return status;
}

enum gn_status gn_redundancy_ward(struct gn_comm *comm, int *ward, struct gn_err *err)
{
	int holder, is_elsewhere;

	return place(comm, &holder, ward, &is_elsewhere, err);
}

enum gn_status gn_redundancy_create(struct gn_comm *comm, const struct gn_shard *shard, float *flat, struct gn_redundancy **out, struct gn_err *err)
{
	struct gn_redundancy *r = calloc(1, sizeof *r);
	size_t len = gn_shard_block_elements(shard) * sizeof(float);
	struct gn_p2p_args a = {.tag = TAG_SUMS, .len_bytes = len};
	int ward = -1;
	enum gn_status status = GN_OK;

	if (r) {
		*r = (struct gn_redundancy){.shard = shard, .flat = flat, .sent = gn_alloc_aligned(len + 1), .received = gn_alloc_aligned(len + 1)};
		status = place(comm, &r->holder, &ward, &r->is_elsewhere, err);
	}
	if (!r || !r->sent || !r->received)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the gradients of a copy");
	a.peer = ward;
	if (!status) {
		a.data = r->received;
		status = gn_p2p_prepare_receive(comm, &a, &r->receive, err);
	}
	if (!status) {
		a.data = r->sent;
		a.peer = r->holder;
		status = gn_p2p_prepare_send(comm, &a, &r->send, err);
	}
	if (status)
		gn_redundancy_destroy(r);
	else
		*out = r;
	return status;
}

void gn_redundancy_destroy(struct gn_redundancy *r)
{
	if (!r)
		return;
	gn_p2p_free(r->receive);
	gn_p2p_free(r->send);
	free(r->sent);
	free(r->received);
	free(r);
}

enum gn_status gn_redundancy_exchange(struct gn_redundancy *r, struct gn_err *err)
{
	const struct gn_parts *own = gn_shard_own_parts(r->shard), *all = gn_shard_parts(r->shard);
	size_t blocks = gn_shard_block_elements(r->shard);
	enum gn_status status = gn_p2p_start(r->receive, NULL, err);

	for (size_t i = 0; i < own->count && own->list[i].at < blocks; i++)
		memcpy(r->sent + own->list[i].at, r->flat + own->list[i].begin, own->list[i].count * sizeof(float));
	if (!status)
		status = gn_p2p_start(r->send, NULL, err);
	if (!status)
		status = gn_p2p_wait(r->receive, err);
	if (!status)
		status = gn_p2p_wait(r->send, err);
	for (size_t i = own->count; i < all->count && !status; i++)
		memcpy(r->flat + all->list[i].begin, r->received + all->list[i].at - own->elements, all->list[i].count * sizeof(float));
	return status;
}

int gn_redundancy_holder(const struct gn_redundancy *r, int *is_elsewhere)
{
	*is_elsewhere = r->is_elsewhere;
	return r->holder;
}

size_t gn_redundancy_bytes(const struct gn_redundancy *r)
{
	return gn_shard_block_elements(r->shard) * sizeof(float);
}
