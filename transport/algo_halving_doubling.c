/* Recursive halving, then recursive doubling (Rabenseifner, "Optimization of collective reduction operations", 2004): pairs
 * at distances 1, 2, 4, ... exchange halves of what each is still to sum, then the sums come back the other way. 2 log2(size)
 * rounds and, for powers of two, 2 (size - 1) / size of the buffer sent by each rank; the most bytes go the shortest way.
 * Other sizes fold (algo_part.h): the pair moves the whole buffer twice more. Each chunk is summed in one place: the same
 * bits everywhere. */
#include "transport/algo_part.h"

/* What a member is still to sum of each piece, in chunks: pieces have as many chunks as the power has members. */
struct range {
	uint32_t first, count;
};

static void add(const struct gn_part *p, uint32_t piece, const struct gn_fold *f, enum gn_step_op op, int peer,
		struct range r, uint32_t message)
{
	struct gn_step step = {.op = (uint8_t)op, .peer = peer, .chunk_count = r.count};

	step.chunk = p->first_chunk + piece * (uint32_t)f->power + r.first;
	step.message = p->first_message + message * p->pieces + piece;
	step.from_left = op == GN_STEP_RECV_REDUCE && peer < gn_part_rank(p, p->place);
	gn_schedule_add(p->schedule, step);
}

static void exchange(const struct gn_part *p, const struct gn_fold *f, int round, struct range give, struct range take,
		     int reduces)
{
	int peer = gn_part_rank(p, gn_fold_place(f, f->number ^ 1 << round));
	uint32_t message = (uint32_t)(reduces ? 1 + round : 1 + f->rounds + round);

	for (uint32_t i = 0; i < p->pieces; i++)
		add(p, i, f, GN_STEP_SEND, peer, give, message);
	for (uint32_t i = 0; i < p->pieces; i++)
		add(p, i, f, reduces ? GN_STEP_RECV_REDUCE : GN_STEP_RECV, peer, take, message);
}

static void write_rounds(const struct gn_part *p, const struct gn_fold *f)
{
	struct range mine = {0, (uint32_t)f->power}, other;

	for (int round = 0; round < f->rounds; round++) {
		other = mine = (struct range){mine.first, mine.count / 2};
		*(f->number >> round & 1 ? &mine : &other) = (struct range){mine.first + mine.count, mine.count};
		exchange(p, f, round, other, mine, 1);
	}
	for (int round = f->rounds - 1; round >= 0; round--) {
		int upper = f->number >> round & 1;

		other = (struct range){upper ? mine.first - mine.count : mine.first + mine.count, mine.count};
		exchange(p, f, round, mine, other, 0);
		mine = (struct range){upper ? other.first : mine.first, mine.count * 2};
	}
}

static void write(const struct gn_part *p)
{
	struct gn_fold f = gn_fold_of(p);
	struct range all = {0, (uint32_t)f.power};
	int folded = p->place < 2 * f.extra, partner = folded ? gn_part_rank(p, p->place ^ 1) : 0;

	for (uint32_t i = 0; folded && i < p->pieces; i++)
		add(p, i, &f, f.number < 0 ? GN_STEP_SEND : GN_STEP_RECV_REDUCE, partner, all, 0);
	if (f.number >= 0)
		write_rounds(p, &f);
	for (uint32_t i = 0; folded && i < p->pieces; i++)
		add(p, i, &f, f.number < 0 ? GN_STEP_RECV : GN_STEP_SEND, partner, all, 0);
}

static uint32_t chunks(int size, uint32_t pieces)
{
	uint32_t power = 1;

	while (power <= (uint32_t)size / 2)
		power *= 2;
	return power * pieces;
}

static uint32_t messages(int size, uint32_t pieces)
{
	uint32_t rounds = 0;

	for (; size > 1; size /= 2)
		rounds++;
	return (1 + 2 * rounds) * pieces;
}

const struct gn_part_algorithm gn_part_halving_doubling = {write, chunks, messages};
