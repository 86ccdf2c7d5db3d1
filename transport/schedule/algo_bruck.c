/* Bruck's allgather (Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all communications in multiport
 * message-passing systems", 1997): in round k a rank sends all blocks it has, 2^k or as many as are missing, to the rank 2^k before
 * it. ceil(log2(size)) rounds and peers in each direction for any size; each rank sends (size - 1) / size of the buffer. Blocks are
 * received in their final place, so there is no rotation at the end; a range that wraps around the buffer's end takes two
 * messages. */
#include "transport/schedule/algo_part.h"

/* `count` blocks of `size` from `first` on, wrapping around the buffer's end. */
struct blocks {
	uint32_t first, count, size;
};

static void add(struct gn_schedule *s, enum gn_step_op op, int peer, uint32_t chunk, uint32_t count, uint32_t message)
{
	gn_schedule_add(s, (struct gn_step){.op = (uint8_t)op, .peer = peer, .chunk = chunk, .chunk_count = count,
					    .message = message});
}

/* Sends or receives the blocks in up to `pieces` messages, numbered from *message on, with the same boundaries at both ends; a
 * message that wraps around the end becomes two. Rounds before the last one send less and use fewer messages. */
static void move(struct gn_schedule *s, enum gn_step_op op, int peer, const struct blocks *b, uint32_t pieces, uint32_t *message)
{
	uint32_t chunks = b->size * pieces, total = b->count * pieces, half = b->size > 1 ? b->size / 2 : 1;
	uint32_t slices = (uint32_t)(((uint64_t)total + half - 1) / half), at = b->first * pieces;

	slices = slices > pieces ? pieces : slices;
	for (uint32_t i = 0; i < slices; i++) {
		uint32_t count = total / slices + (i < total % slices), first = at % chunks;
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

	for (uint32_t held = 1; held < size; held *= 2) {
		uint32_t count = held < size - held ? held : size - held, sent = 0, received = 0;
		struct blocks mine = {rank, count, size}, theirs = {(rank + held) % size, count, size};

		move(s, GN_STEP_SEND, (int)((rank + size - held) % size), &mine, a->pieces, &sent);
		move(s, GN_STEP_RECV, (int)((rank + held) % size), &theirs, a->pieces, &received);
	}
}
