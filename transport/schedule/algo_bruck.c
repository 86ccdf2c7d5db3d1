/* Bruck's allgather (Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all communications in multiport
 * message-passing systems", 1997): in round k a rank passes on all the blocks it has, 2^k of them or what is missing, to the rank
 * 2^k before it. ceil(log2(size)) rounds and peers each way for any size, (size - 1) / size of the buffer sent by each rank. Blocks
 * go straight to where they belong, so nothing is rotated at the end; those that lie across the buffer's end go in two messages. */
#include "transport/schedule/algo_part.h"

/* Blocks from first on, around the buffer's end. */
struct blocks {
	uint32_t first, count, size;
};

static void add(struct gn_schedule *s, enum gn_step_op op, int peer, uint32_t chunk, uint32_t count, uint32_t message)
{
	gn_schedule_add(s, (struct gn_step){.op = (uint8_t)op, .peer = peer, .chunk = chunk, .chunk_count = count,
					    .message = message});
}

/* Up to pieces messages of whole chunks, alike at both ends, numbered from *message on; one that lies across the end is two. The
 * rounds before the last have less to send, and are cut into fewer. */
static void move(struct gn_schedule *s, enum gn_step_op op, int peer, const struct blocks *b, uint32_t pieces, uint32_t *message)
{
	uint32_t chunks = b->size * pieces, total = b->count * pieces, half = b->size > 1 ? b->size / 2 : 1;
	uint32_t parts = (uint32_t)(((uint64_t)total + half - 1) / half), at = b->first * pieces;

	parts = parts > pieces ? pieces : parts;
	for (uint32_t i = 0; i < parts; i++) {
		uint32_t count = total / parts + (i < total % parts), first = at % chunks;
		uint32_t before = count < chunks - first ? count : chunks - first;

		add(s, op, peer, first, before, (*message)++);
		if (count > before)
			add(s, op, peer, 0, count - before, (*message)++);
		at += count;
	}
}

void gn_write_bruck_allgather(struct gn_schedule *s, const struct gn_algo_args *a)
{
	uint32_t size = (uint32_t)a->size, rank = (uint32_t)a->rank;

	for (uint32_t have = 1; have < size; have *= 2) {
		uint32_t count = have < size - have ? have : size - have, sent = 0, received = 0;
		struct blocks mine = {rank, count, size}, theirs = {(rank + have) % size, count, size};

		move(s, GN_STEP_SEND, (int)((rank + size - have) % size), &mine, a->pieces, &sent);
		move(s, GN_STEP_RECV, (int)((rank + have) % size), &theirs, a->pieces, &received);
	}
}
