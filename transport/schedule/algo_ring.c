/* Allreduce as reduce-scatter and allgather around a ring (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
 * clusters of workstations", 2009): size * pieces chunks, 2 (size - 1) rounds, each rank sends 2 (size - 1) / size of the buffer.
 * Each chunk is reduced in one order, so all ranks get the same bits. */
#include "transport/schedule/algo_part.h"

/* One round: sends a segment to the next member and receives the segment before it from the previous member. */
static void write_round(const struct gn_part *p, int round, int offset, int reduces)
{
	int next = gn_part_rank(p, (p->place + 1) % p->size);
	int previous = gn_part_rank(p, (p->place + p->size - 1) % p->size);
	int segment = (p->place + offset - round) % p->size, sent = (segment + p->size) % p->size;
	uint32_t out = p->first_chunk + (uint32_t)sent * p->pieces;
	uint32_t in = p->first_chunk + (uint32_t)((sent + p->size - 1) % p->size) * p->pieces;

	for (uint32_t i = 0; i < p->pieces; i++) {
		uint32_t message = p->first_message + (uint32_t)round * p->pieces + i;

		gn_schedule_send(p->schedule, next, out + i, message);
		if (reduces)
			gn_schedule_recv_reduce(p->schedule, previous, in + i, message, 0);
		else
			gn_schedule_recv(p->schedule, previous, in + i, message);
	}
}

/* In round k member r sends segment r - k and receives segment r - k - 1; the first size - 1 rounds reduce. */
static void write(const struct gn_part *p)
{
	for (int round = 0; round < 2 * (p->size - 1); round++)
		write_round(p, round, 0, round < p->size - 1);
}

static uint32_t chunks(int size, uint32_t pieces)
{
	return (uint32_t)size * pieces;
}

static uint32_t messages(int size)
{
	return 2 * (uint32_t)(size - 1);
}

const struct gn_part_algorithm gn_part_ring = {write, chunks, messages};

/* Shifted by one segment, so that rank r completes segment r last. */
void gn_write_ring_reduce_scatter(struct gn_schedule *s, const struct gn_algo_args *a)
{
	struct gn_part p = gn_part_all(s, a);

	for (int round = 0; round < a->size - 1; round++)
		write_round(&p, round, a->size - 1, 1);
}

void gn_write_ring_allgather(struct gn_schedule *s, const struct gn_algo_args *a)
{
	struct gn_part p = gn_part_all(s, a);

	for (int round = 0; round < a->size - 1; round++)
		write_round(&p, round, 0, 0);
}
