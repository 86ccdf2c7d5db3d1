/* Allreduce by recursive doubling: pairs at distances 1, 2, 4, ... exchange their whole buffers (Thakur, Rabenseifner and Gropp,
 * "Optimization of collective communication operations in MPICH", 2005). `pieces` chunks, log2(size) rounds. The lower rank's value
 * is the left operand on both ranks, so both compute the same bits. */
#include "transport/schedule/algo_part.h"

/* One level of a piece: level 0 folds, the last level unfolds, those between are the rounds. */
static void write_level(const struct gn_part *p, const struct gn_fold *f, int level, uint32_t piece)
{
	uint32_t chunk = p->first_chunk + piece, message = p->first_message + piece;
	int folded = p->place < 2 * f->extra, ends = level == 0 || level == f->rounds + 1, place;

	if (ends && folded) {
		int partner = gn_part_rank(p, p->place ^ 1);

		if (level == 0 && f->number < 0)
			gn_schedule_send(p->schedule, partner, chunk, message);
		else if (level == 0)
			gn_schedule_recv_reduce(p->schedule, partner, chunk, message, 1);
		else if (f->number < 0)
			gn_schedule_recv(p->schedule, partner, chunk, message);
		else
			gn_schedule_send(p->schedule, partner, chunk, message);
	}
	if (ends || f->number < 0)
		return;
	place = gn_fold_place(f, f->number ^ 1 << (level - 1));
	message += (uint32_t)level * p->pieces;
	gn_schedule_send(p->schedule, gn_part_rank(p, place), chunk, message);
	gn_schedule_recv_reduce(p->schedule, gn_part_rank(p, place), chunk, message, place < p->place);
}

/* In waves, for the reason given in algo_halving_doubling.c. */
void gn_write_recursive_doubling(struct gn_schedule *s, const struct gn_algo_args *a)
{
	const struct gn_part p = gn_part_all(s, a);
	struct gn_fold f = gn_fold_of(&p);
	int levels = f.rounds + 2;

	for (int wave = 0; wave < (int)p.pieces + levels - 1; wave++)
		for (int level = levels - 1; level >= 0; level--)
			if (wave >= level && wave - level < (int)p.pieces)
				write_level(&p, &f, level, (uint32_t)(wave - level));
}
