/* Hierarchical allreduce: reduce-scatter within each node, an allreduce between nodes for each shard, allgather within each node. A
 * node sends 2 (nodes - 1) / nodes of the buffer over the network, whatever its number of ranks, and as many of its ranks send at
 * the same time, over all rails, as the smallest node has.
 *
 * The buffer is cut into one shard per local index that every node has; the rank with that index owns the shard on its node.
 * Further ranks of larger nodes send to the owners and receive from them. Pieces overlap: while one piece of a shard is reduced
 * between nodes, the next is reduced within them. */
#include "transport/schedule/algo_part.h"

struct place {
	const struct gn_node_map *map;
	int node, local, ranks;			  /* this rank's node, its local index, the ranks on that node */
	uint32_t shards, pieces, piece_chunks;
	const struct gn_part_algorithm *between;
};

static struct place place_of(const struct gn_algo_args *a, const struct gn_part_algorithm *between)
{
	struct place p = {.map = a->map, .local = a->rank, .ranks = a->size, .pieces = a->pieces, .between = between};

	if (p.map) {
		p.node = p.map->node[a->rank];
		p.local = p.map->local[a->rank];
		p.ranks = p.map->first[p.node + 1] - p.map->first[p.node];
	}
	p.shards = (uint32_t)(p.map ? p.map->smallest : a->size);
	p.piece_chunks = between->chunks(p.map ? p.map->nodes : 1, 1);
	return p;
}

/* Adds a step for one piece of a shard, in one message. */
static void add(struct gn_schedule *s, const struct place *p, enum gn_step_op op, int local, int shard, uint32_t piece,
		uint32_t message)
{
	int peer = p->map ? p->map->members[p->map->first[p->node] + local] : local;

	gn_schedule_add(s, (struct gn_step){.op = (uint8_t)op, .peer = peer,
					    .chunk = ((uint32_t)shard * p->pieces + piece) * p->piece_chunks,
					    .chunk_count = p->piece_chunks, .message = message});
}

/* Round i: sends to the local rank i further its shard, if it owns one, and receives from the one i before. */
static void reduce_scatter(struct gn_schedule *s, const struct place *p, uint32_t piece)
{
	for (int i = 1; i < p->ranks; i++) {
		int to = (p->local + i) % p->ranks, from = (p->local + p->ranks - i) % p->ranks;

		if ((uint32_t)to < p->shards)
			add(s, p, GN_STEP_SEND, to, to, piece, piece);
		if ((uint32_t)p->local < p->shards)
			add(s, p, GN_STEP_RECV_REDUCE, from, p->local, piece, piece);
	}
}

static void between_nodes(struct gn_schedule *s, const struct place *p, uint32_t piece)
{
	struct gn_part part = {.schedule = s, .map = p->map, .pieces = 1, .local = p->local};

	if ((uint32_t)p->local >= p->shards || !p->map || p->map->nodes == 1)
		return;
	part.size = p->map->nodes;
	part.place = p->node;
	part.first_chunk = ((uint32_t)p->local * p->pieces + piece) * p->piece_chunks;
	part.first_message = piece * p->between->messages(part.size);
	p->between->write(&part);
}

static void allgather(struct gn_schedule *s, const struct place *p, uint32_t piece)
{
	for (int i = 1; i < p->ranks; i++) {
		int to = (p->local + i) % p->ranks, from = (p->local + p->ranks - i) % p->ranks;

		if ((uint32_t)p->local < p->shards)
			add(s, p, GN_STEP_SEND, to, p->local, piece, p->pieces + piece);
		if ((uint32_t)from < p->shards)
			add(s, p, GN_STEP_RECV, from, from, piece, p->pieces + piece);
	}
}

static void write(struct gn_schedule *s, const struct gn_algo_args *a, const struct gn_part_algorithm *between)
{
	struct place p = place_of(a, between);

	for (uint32_t piece = 0; piece < p.pieces; piece++)
		reduce_scatter(s, &p, piece);
	for (uint32_t piece = 0; piece < p.pieces; piece++)
		between_nodes(s, &p, piece);
	for (uint32_t piece = 0; piece < p.pieces; piece++)
		allgather(s, &p, piece);
}

static uint32_t chunks(const struct gn_algo_args *a, const struct gn_part_algorithm *between)
{
	struct place p = place_of(a, between);

	return p.shards * p.pieces * p.piece_chunks;
}

void gn_write_hierarchical(struct gn_schedule *s, const struct gn_algo_args *a)
{
	write(s, a, &gn_part_halving_doubling);
}

uint32_t gn_chunks_hierarchical(const struct gn_algo_args *a)
{
	return chunks(a, &gn_part_halving_doubling);
}

void gn_write_hierarchical_ring(struct gn_schedule *s, const struct gn_algo_args *a)
{
	write(s, a, &gn_part_ring);
}

uint32_t gn_chunks_hierarchical_ring(const struct gn_algo_args *a)
{
	return chunks(a, &gn_part_ring);
}
