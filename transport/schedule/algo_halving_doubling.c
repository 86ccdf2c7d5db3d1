/* Recursive halving, then recursive doubling (Rabenseifner, "Optimization of collective reduction operations", 2004): pairs
 * at distances 1, 2, 4, ... exchange halves of what each is still to sum, then the sums come back the other way. 2 log2(size)
 * rounds and, for powers of two, 2 (size - 1) / size of the buffer sent by each rank; the most bytes go the shortest way.
 * Other sizes fold (algo_part.h): the pair moves the whole buffer twice more. Each chunk is summed in one place: the same
 * bits everywhere.
 *
 * Written in waves, a piece one level on in each: memory for messages goes to receptions in this order, and if one level's
 * came all before the next one's, the levels would wait for each other. */
#include "transport/schedule/algo_part.h"

/* What a member is still to sum of each piece, in chunks: pieces have as many chunks as the power has members. */
struct range {
	uint32_t first, count;
};

/* What a member does with every piece at one level: handing over, a round of halving or doubling, handing back. */
struct level {
	int peer; /* -1: nothing */
	struct range give, take; /* count 0: none */
	uint8_t reduces;
	uint32_t message;
};

/* Handing over and back, and two rounds for each bit of a rank. */
#define LEVELS_MAX (2 + 2 * 31)

static void add(const struct gn_part *p, uint32_t piece, const struct gn_bn_folding *f, enum gn_step_op op,
		const struct level *l, struct range r)
{
	struct gn_step step = {.op = (uint8_t)op, .peer = l->peer, .chunk_count = r.count};

	step.chunk = p->first_chunk + piece * (uint32_t)f->power + r.first;
	step.message = p->first_message + l->message * p->pieces + piece;
	step.from_left = op == GN_STEP_RECV_REDUCE && l->peer < gn_part_rank(p, p->place);
	gn_schedule_add(p->schedule, step);
}

static int peer_in(const struct gn_part *p, const struct gn_bn_folding *f, int round)
{
	return gn_part_rank(p, gn_bn_folding_place(f, f->number ^ 1 << round));
}

static int find_rounds(const struct gn_part *p, const struct gn_bn_folding *f, struct level *levels)
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

/* All members have as many levels, whether they do something there or not. */
static int find_levels(const struct gn_part *p, const struct gn_bn_folding *f, struct level *levels)
{
	const struct range all = {0, (uint32_t)f->power}, none = {0, 0};
	int folded = p->place < 2 * f->extra, out = f->number < 0, last = 1 + 2 * f->rounds;
	int partner = folded ? gn_part_rank(p, p->place ^ 1) : -1;

	levels[0] = (struct level){partner, out ? all : none, out ? none : all, 1, 0};
	for (int i = 1; out && i < last; i++)
		levels[i] = (struct level){.peer = -1};
	if (!out)
		find_rounds(p, f, levels + 1);
	levels[last] = (struct level){partner, out ? none : all, out ? all : none, 0, 0};
	return last + 1;
}

static void write(const struct gn_part *p)
{
	struct level levels[LEVELS_MAX];
	struct gn_bn_folding f = gn_bn_folding_of(p);
	int count = find_levels(p, &f, levels);

	for (int wave = 0; wave < (int)p->pieces + count - 1; wave++) {
		for (int i = count - 1; i >= 0; i--) {
			const struct level *l = &levels[i];

			if (l->peer < 0 || wave < i || wave - i >= (int)p->pieces)
				continue;
			if (l->give.count)
				add(p, (uint32_t)(wave - i), &f, GN_STEP_SEND, l, l->give);
			if (l->take.count)
				add(p, (uint32_t)(wave - i), &f, l->reduces ? GN_STEP_RECV_REDUCE : GN_STEP_RECV, l, l->take);
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

static uint32_t messages(int size, uint32_t pieces)
{
	uint32_t rounds = 0;

	for (; size > 1; size /= 2)
		rounds++;
	return (1 + 2 * rounds) * pieces;
}

const struct gn_part_algorithm gn_part_halving_doubling = {write, chunks, messages};
