/* Allreduce by recursive halving and doubling (Rabenseifner, "Optimization of collective reduction operations", 2004): pairs at
 * distances 1, 2, 4, ... exchange halves of the range that each still has to reduce, then gather the sums in the opposite order. 2
 * log2(size) rounds; for powers of two each rank sends 2 (size - 1) / size of the buffer, most of it over the shortest distance.
 * Other sizes are folded (algo_part.h), which sends the whole buffer twice more within a pair. Each chunk is reduced on one rank,
 * so all ranks get the same bits.
 *
 * Steps are written in waves, in each of which a piece advances by one level: receive buffers are assigned in the order of the
 * steps, and if all pieces of a level came first, the levels would wait for each other. */
#include "transport/schedule/algo_part.h"

/* The range of each piece that a member still has to reduce, in chunks; a piece has fold.power chunks. */
struct range {
	uint32_t first, count;
};

/* What a member does with each piece at one level: folding, a round of halving or doubling, unfolding. */
struct level {
	int peer; /* -1: the member is passive */
	struct range send, receive; /* count 0: none */
	uint8_t reduces;
	uint32_t message;
};

/* Folding, unfolding, and two rounds per bit of a rank. */
#define LEVELS_MAX (2 + 2 * 31)

static void add(const struct gn_part *p, uint32_t piece, const struct gn_fold *f, enum gn_step_op op,
		const struct level *l, struct range r)
{
	struct gn_step step = {.op = (uint8_t)op, .peer = l->peer, .chunk_count = r.count};

	step.chunk = p->first_chunk + piece * (uint32_t)f->power + r.first;
	step.message = p->first_message + l->message * p->pieces + piece;
	step.from_left = op == GN_STEP_RECV_REDUCE && l->peer < gn_part_rank(p, p->place);
	gn_schedule_add(p->schedule, step);
}

static int peer_in(const struct gn_part *p, const struct gn_fold *f, int round)
{
	return gn_part_rank(p, gn_fold_place(f, f->number ^ 1 << round));
}

static int find_rounds(const struct gn_part *p, const struct gn_fold *f, struct level *levels)
{
	struct range mine = {0, (uint32_t)f->power}, other;
	int count = 0;

	for (int round = 0; round < f->rounds; round++) {
		other = mine = (struct range){mine.first, mine.count / 2};
		*(f->number >> round & 1 ? &mine : &other) = (struct range){mine.first + mine.count, mine.count};
		levels[count++] = (struct level){peer_in(p, f, round), other, mine, 1, 1 + (uint32_t)round};
	}
	for (int round = f->rounds - 1; round >= 0; round--) {
		int upper = f->number >> round & 1;

		other = (struct range){upper ? mine.first - mine.count : mine.first + mine.count, mine.count};
		levels[count++] = (struct level){peer_in(p, f, round), mine, other, 0, 1 + (uint32_t)(f->rounds + round)};
		mine = (struct range){upper ? other.first : mine.first, mine.count * 2};
	}
	return count;
}

/* All members have the same number of levels, active or not. */
static int find_levels(const struct gn_part *p, const struct gn_fold *f, struct level *levels)
{
	const struct range all = {0, (uint32_t)f->power}, none = {0, 0};
	int folded = p->place < 2 * f->extra, passive = f->number < 0, last = 1 + 2 * f->rounds;
	int partner = folded ? gn_part_rank(p, p->place ^ 1) : -1;

	levels[0] = (struct level){partner, passive ? all : none, passive ? none : all, 1, 0};
	for (int i = 1; passive && i < last; i++)
		levels[i] = (struct level){.peer = -1};
	if (!passive)
		find_rounds(p, f, levels + 1);
	levels[last] = (struct level){partner, passive ? none : all, passive ? all : none, 0, 0};
	return last + 1;
}

static void write(const struct gn_part *p)
{
	struct level levels[LEVELS_MAX];
	struct gn_fold f = gn_fold_of(p);
	int count = find_levels(p, &f, levels);

	for (int wave = 0; wave < (int)p->pieces + count - 1; wave++) {
		for (int i = count - 1; i >= 0; i--) {
			const struct level *l = &levels[i];

			if (l->peer < 0 || wave < i || wave - i >= (int)p->pieces)
				continue;
			if (l->send.count)
				add(p, (uint32_t)(wave - i), &f, GN_STEP_SEND, l, l->send);
			if (l->receive.count)
				add(p, (uint32_t)(wave - i), &f, l->reduces ? GN_STEP_RECV_REDUCE : GN_STEP_RECV, l, l->receive);
		}
	}
}

static uint32_t chunks(int size, uint32_t pieces)
{
	uint32_t power = 1;

	while (power <= (uint32_t)size / 2)
		power *= 2;
	return power * pieces;
}

static uint32_t messages(int size)
{
	uint32_t rounds = 0;

	for (; size > 1; size /= 2)
		rounds++;
	return 1 + 2 * rounds;
}

const struct gn_part_algorithm gn_part_halving_doubling = {write, chunks, messages};
