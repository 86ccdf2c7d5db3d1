#include "transport/algo.h"

static uint32_t segment(int rank, int back, int size)
{
	return (uint32_t)(((rank - back) % size + size) % size);
}

/* Chunk = segment * pieces + piece. In round k rank r sends segment r - k and takes segment r - k - 1; the first size - 1
 * rounds reduce, the others only hand on. */
static void write_round(struct gn_schedule *s, int rank, int size, uint32_t pieces, int round)
{
	int next = (rank + 1) % size, previous = (rank + size - 1) % size;
	uint32_t out = segment(rank, round, size) * pieces, in = segment(rank, round + 1, size) * pieces;

	for (uint32_t p = 0; p < pieces; p++) {
		uint32_t message = (uint32_t)round * pieces + p;

		gn_schedule_send(s, next, out + p, message);
		if (round < size - 1)
			gn_schedule_recv_reduce(s, previous, in + p, message, 0);
		else
			gn_schedule_recv(s, previous, in + p, message);
	}
}

enum gn_status gn_algo_ring(int rank, int size, uint32_t pieces, int with_copy, struct gn_schedule **out,
			    struct gn_err *err)
{
	uint32_t chunks = (uint32_t)size * pieces;
	struct gn_schedule *s;
	enum gn_status status = gn_schedule_create(rank, size, chunks, &s, err);

	if (status)
		return status;
	for (uint32_t c = 0; with_copy && c < chunks; c++)
		gn_schedule_copy(s, c);
	for (int round = 0; round < 2 * (size - 1); round++)
		write_round(s, rank, size, pieces, round);
	status = gn_schedule_finish(s, err);
	if (status)
		gn_schedule_destroy(s);
	else
		*out = s;
	return status;
}
