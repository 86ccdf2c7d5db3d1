/* Pairs exchange all they have, at distances 1, 2, 4, ... (Thakur, Rabenseifner and Gropp, "Optimization of collective
 * communication operations in MPICH", 2005): pieces chunks, log2(size) rounds. The lower rank's value is the left operand
 * on both sides: the same bits. */
#include "transport/algo_part.h"

static void exchange_round(const struct gn_part *p, int place, int round)
{
	int peer = gn_part_rank(p, place);
	uint32_t message = p->first_message + (uint32_t)round * p->pieces;

	for (uint32_t i = 0; i < p->pieces; i++)
		gn_schedule_send(p->schedule, peer, p->first_chunk + i, message + i);
	for (uint32_t i = 0; i < p->pieces; i++)
		gn_schedule_recv_reduce(p->schedule, peer, p->first_chunk + i, message + i, place < p->place);
}

static void write(const struct gn_part *p)
{
	struct gn_fold f = gn_fold_of(p);
	int folded = p->place < 2 * f.extra, partner = folded ? gn_part_rank(p, p->place ^ 1) : 0;

	for (uint32_t i = 0; f.number < 0 && i < p->pieces; i++)
		gn_schedule_send(p->schedule, partner, p->first_chunk + i, p->first_message + i);
	for (uint32_t i = 0; f.number < 0 && i < p->pieces; i++)
		gn_schedule_recv(p->schedule, partner, p->first_chunk + i, p->first_message + i);
	if (f.number < 0)
		return;
	for (uint32_t i = 0; folded && i < p->pieces; i++)
		gn_schedule_recv_reduce(p->schedule, partner, p->first_chunk + i, p->first_message + i, 1);
	for (int round = 0; round < f.rounds; round++)
		exchange_round(p, gn_fold_place(&f, f.number ^ 1 << round), round + 1);
	for (uint32_t i = 0; folded && i < p->pieces; i++)
		gn_schedule_send(p->schedule, partner, p->first_chunk + i, p->first_message + i);
}

static uint32_t chunks(int size, uint32_t pieces)
{
	(void)size;
	return pieces;
}

static uint32_t messages(int size, uint32_t pieces)
{
	uint32_t rounds = 1;

	for (; size > 1; size /= 2)
		rounds++;
	return rounds * pieces;
}

const struct gn_part_algorithm gn_part_recursive_doubling = {write, chunks, messages};
