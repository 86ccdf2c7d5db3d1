/* Every pair of nodes, all pairs of a round at once: one-way time, then a stream each way. */
#include "src/jobs/preflight.h"

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/train/metrics/trace.h"
#include "transport/coll/p2p.h"

#include <stdlib.h>
#include <string.h>

#define WINDOW_S 0.25
#define PING_COUNT 40
#define CHUNKS 8
/* Open connections and windows, and use up what a link lets through at once after a pause. */
#define CHUNKS_BEFORE 3
/* For all rounds together. */
#define ROUNDS_S 12.0
#define CHUNK_MIN ((size_t)32 << 10)
#define CHUNK_MAX ((size_t)16 << 20)

int gn_preflight_partner(int i, int r, int n)
{
	int m = n + (n & 1), other;

	/* the circle method: the last of m stands still, the others turn */
	if (i == m - 1)
		other = r % (m - 1);
	else if (i == r % (m - 1))
		other = m - 1;
	else
		other = ((2 * r - i) % (m - 1) + m - 1) % (m - 1);
	return other < n ? other : -1;
}

struct net {
	struct gn_comm *comm;
	char *data, *spare;
	int to_peer; /* rank of the partner, -1: none */
	int first;   /* of the pair */
	size_t chunk_bytes;
};

/* One message between the partners, forth (from the first) or back. Without a partner *out stays NULL. */
static enum gn_status prepare(const struct net *n, int forth, size_t bytes, struct gn_p2p **out, struct gn_err *err)
{
	int sends = n->first == forth;
	struct gn_p2p_args args = {.peer = n->to_peer, .data = sends ? n->data : n->spare, .len_bytes = bytes};

	if (n->to_peer < 0)
		return GN_OK;
	return sends ? gn_p2p_prepare_send(n->comm, &args, out, err) : gn_p2p_prepare_receive(n->comm, &args, out, err);
}

static enum gn_status run_once(struct gn_p2p *p, struct gn_err *err)
{
	enum gn_status status = p ? gn_p2p_start(p, NULL, err) : GN_OK;

	return status || !p ? status : gn_p2p_wait(p, err);
}

/* The shortest of many: others wait for the processor, not for the network. */
static enum gn_status ping(const struct net *n, double *one_way_us, struct gn_err *err)
{
	struct gn_p2p *forth = NULL, *back = NULL;
	double best = 0, started, took;
	enum gn_status status = prepare(n, 1, 8, &forth, err);

	if (!status)
		status = prepare(n, 0, 8, &back, err);
	for (int i = 0; i < PING_COUNT && !status; i++) {
		started = gn_clock_s();
		status = run_once(forth, err);
		if (!status)
			status = run_once(back, err);
		took = (gn_clock_s() - started) / 2 * 1e6;
		if (i && (took < best || best <= 0))
			best = took;
	}
	gn_p2p_free(back);
	gn_p2p_free(forth);
	*one_way_us = n->first ? best : 0;
	return status;
}

/* Chunks one way, then a word back, so that the sender knows when all is there. */
static enum gn_status one_stream(const struct net *n, int forth, double *gbit_per_s, double *seconds, struct gn_err *err)
{
	struct gn_p2p *chunk = NULL, *word = NULL;
	double started = 0;
	enum gn_status status = prepare(n, forth, n->chunk_bytes, &chunk, err);

	if (!status)
		status = prepare(n, !forth, 8, &word, err);
	for (int i = 0; i < CHUNKS_BEFORE + CHUNKS && !status; i++) {
		if (i == CHUNKS_BEFORE) {
			status = run_once(word, err);
			started = gn_clock_s();
		}
		if (!status)
			status = run_once(chunk, err);
	}
	if (!status)
		status = run_once(word, err);
	*seconds = gn_clock_s() - started;
	if (n->to_peer >= 0 && n->first == forth)
		*gbit_per_s = (double)n->chunk_bytes * CHUNKS * 8 / *seconds / 1e9;
	gn_p2p_free(word);
	gn_p2p_free(chunk);
	return status;
}

/* What all ranks have found in a round: the time of the slowest stream decides about the next length. */
static enum gn_status agree_on_length(struct net *n, double seconds, double window_s, struct gn_err *err)
{
	struct gn_gathered all = {0};
	double slowest = 1e-6, factor;
	size_t bytes;
	enum gn_status status = gn_world_exchange(gn_comm_world(n->comm), &seconds, sizeof seconds, &all, err);

	for (size_t r = 0; !status && r < all.size; r++)
		if (*(const double *)all.items[r] > slowest)
			slowest = *(const double *)all.items[r];
	gn_gathered_release(&all);
	factor = window_s / slowest;
	bytes = (size_t)((double)n->chunk_bytes * (factor < 32 ? factor : 32));
	n->chunk_bytes = bytes < CHUNK_MIN ? CHUNK_MIN : bytes > CHUNK_MAX ? CHUNK_MAX : bytes & ~(size_t)4095;
	return status;
}

static int first_rank_of(const struct gn_world *w, int node)
{
	for (int r = 0; r < gn_world_size(w); r++)
		if (gn_world_node_of(w, r) == node)
			return r;
	return -1;
}

/* round -1 is round 0, to find a length; its results do not count. */
static enum gn_status one_round(struct net *n, int round, double window_s, double *rate, double *latency, struct gn_err *err)
{
	const struct gn_world *w = gn_comm_world(n->comm);
	int nodes = gn_world_nodes(w), me = gn_world_node_of(w, gn_world_rank(w));
	int partner = gn_world_local_rank(w) ? -1 : gn_preflight_partner(me, round < 0 ? 0 : round, nodes);
	double one_way = 0, forth = 0, back = 0, seconds[2] = {0};
	enum gn_status status;

	n->to_peer = partner < 0 ? -1 : first_rank_of(w, partner);
	n->first = partner > me;
	status = ping(n, &one_way, err);
	if (!status)
		status = one_stream(n, 1, &forth, &seconds[0], err);
	if (!status)
		status = one_stream(n, 0, &back, &seconds[1], err);
	if (!status && partner >= 0) {
		rate[me * nodes + partner] = n->first ? forth : back;
		latency[me * nodes + partner] = one_way;
	}
	return status ? status : agree_on_length(n, seconds[0] > seconds[1] ? seconds[0] : seconds[1], window_s, err);
}

/* Each node's row to all. */
static enum gn_status share(struct gn_world *w, double *rate, double *latency, struct gn_err *err)
{
	size_t nodes = (size_t)gn_world_nodes(w), row = (size_t)gn_world_node_of(w, gn_world_rank(w)) * nodes;
	size_t bytes = nodes * sizeof(double);
	double *mine = calloc(2 * nodes, sizeof *mine);
	struct gn_gathered all = {0};
	enum gn_status status;

	if (!mine)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu nodes", nodes);
	memcpy(mine, rate + row, bytes);
	memcpy(mine + nodes, latency + row, bytes);
	status = gn_world_exchange(w, mine, gn_world_local_rank(w) ? 0 : 2 * bytes, &all, err);
	for (size_t r = 0; !status && r < all.size; r++)
		if (all.lens[r] == 2 * bytes) {
			row = (size_t)gn_world_node_of(w, (int)r) * nodes;
			memcpy(rate + row, all.items[r], bytes);
			memcpy(latency + row, (const char *)all.items[r] + bytes, bytes);
		}
	for (size_t a = 0; !status && a < nodes; a++)
		for (size_t b = a + 1; b < nodes; b++)
			latency[b * nodes + a] = latency[a * nodes + b];
	gn_gathered_release(&all);
	free(mine);
	return status;
}

enum gn_status gn_preflight_network(struct gn_comm *comm, double window_s, double *rate, double *latency, struct gn_err *err)
{
	struct gn_world *w = gn_comm_world(comm);
	int nodes = gn_world_nodes(w), rounds = nodes + (nodes & 1) - 1;
	struct net n = {.comm = comm, .to_peer = -1, .chunk_bytes = CHUNK_MIN};
	enum gn_status status = GN_OK;

	memset(rate, 0, sizeof *rate * (size_t)nodes * (size_t)nodes);
	memset(latency, 0, sizeof *latency * (size_t)nodes * (size_t)nodes);
	if (nodes < 2)
		return GN_OK;
	window_s = (window_s > 0 ? window_s : WINDOW_S) / 2;
	if (window_s * 2 * (CHUNKS_BEFORE + CHUNKS) / CHUNKS * rounds > ROUNDS_S)
		window_s = ROUNDS_S / rounds / 2 * CHUNKS / (CHUNKS_BEFORE + CHUNKS);
	n.data = gn_alloc_aligned(CHUNK_MAX);
	n.spare = gn_alloc_aligned(CHUNK_MAX);
	if (!n.data || !n.spare)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for messages");
	else
		memset(n.data, 1, CHUNK_MAX);
	for (int round = -1; round < rounds && !status; round++)
		status = one_round(&n, round, window_s, rate, latency, err);
	free(n.data);
	free(n.spare);
	return status ? status : share(w, rate, latency, err);
}

enum gn_status gn_preflight_clocks(struct gn_comm *comm, struct gn_preflight_host *h, struct gn_err *err)
{
	struct gn_clock_offset offset;
	struct gn_gathered all = {0};
	double mine;
	enum gn_status status = gn_clock_sync_compare(comm, &offset, err);

	if (status)
		return status;
	/* by how much the time of day is before the monotonic clock */
	mine = gn_clock_unix_s() - gn_clock_s() + (double)offset.ahead_ns / 1e9;
	status = gn_world_exchange(gn_comm_world(comm), &mine, sizeof mine, &all, err);
	if (status)
		return status;
	h->ahead_s = mine - *(const double *)all.items[0];
	h->uncertain_s = (double)offset.uncertain_ns / 1e9;
	gn_gathered_release(&all);
	return GN_OK;
}
