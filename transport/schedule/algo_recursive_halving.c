/* Reduce-scatter by recursive halving (Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
 * MPICH", 2005): pairs at distances size / 2, ..., 2, 1 exchange halves of the blocks that each still has to reduce. log2(size)
 * rounds and peers; for powers of two each rank sends (size - 1) / size of the buffer, most of it over the longest distance. Other
 * sizes are folded (algo_part.h): the active member of a pair reduces the blocks of both, which are adjacent; that sends the buffer
 * and a block once more within a pair. */
#include "transport/schedule/algo_part.h"

/* Adjacent blocks. */
struct blocks {
	uint32_t first, count;
};

/* Of the active numbers [first, end). */
static struct blocks blocks_of(const struct gn_fold *f, int first, int end)
{
	int from = first < f->extra ? 2 * first : first + f->extra, to = end < f->extra ? 2 * end : end + f->extra;

	return (struct blocks){(uint32_t)from, (uint32_t)(to - from)};
}

/* The messages of a transfer: more blocks, more slices, up to `pieces`; the same at both ends. */
static uint32_t slices_of(const struct gn_algo_args *a, struct blocks b)
{
	uint32_t half = a->size > 1 ? (uint32_t)a->size / 2 : 1, slices = (b.count * a->pieces + half - 1) / half;

	return slices > a->pieces ? a->pieces : slices;
}

static void add(struct gn_schedule *s, const struct gn_algo_args *a, enum gn_step_op op, int peer, struct blocks b, uint32_t slice,
		uint32_t first_message)
{
	uint32_t slices = slices_of(a, b), total = b.count * a->pieces, from, to;

	if (slice >= slices)
		return;
	from = (uint32_t)((uint64_t)total * slice / slices);
	to = (uint32_t)((uint64_t)total * (slice + 1) / slices);
	gn_schedule_add(s, (struct gn_step){.op = (uint8_t)op, .peer = peer, .chunk = b.first * a->pieces + from,
					    .chunk_count = to - from, .message = first_message + slice,
					    .from_left = op == GN_STEP_RECV_REDUCE && peer < a->rank});
}

/* Slice by slice, so that a slice is sent while the next is reduced. A transfer without blocks has no slices. */
static void exchange(struct gn_schedule *s, const struct gn_algo_args *a, int peer, struct blocks sent, struct blocks reduced)
{
	for (uint32_t i = 0; i < a->pieces; i++) {
		add(s, a, GN_STEP_SEND, peer, sent, i, 0);
		add(s, a, GN_STEP_RECV_REDUCE, peer, reduced, i, 0);
	}
}

void gn_write_recursive_halving_reduce_scatter(struct gn_schedule *s, const struct gn_algo_args *a)
{
	struct gn_part all = gn_part_all(s, a);
	struct gn_fold f = gn_fold_of(&all);
	struct blocks none = {0, 0}, whole = {0, (uint32_t)a->size}, own = {(uint32_t)a->rank, 1};
	int partner = a->rank ^ 1, folded = a->rank < 2 * f.extra, first = 0;

	if (f.number < 0) {
		exchange(s, a, partner, whole, none);
		for (uint32_t i = 0; i < slices_of(a, own); i++)
			add(s, a, GN_STEP_RECV, partner, own, i, 0);
		return;
	}
	if (folded)
		exchange(s, a, partner, none, whole);
	for (int half = f.power / 2; half; half /= 2) {
		int upper = f.number & half ? 1 : 0, peer = gn_fold_place(&f, f.number ^ half);
		struct blocks low = blocks_of(&f, first, first + half), high = blocks_of(&f, first + half, first + 2 * half);

		exchange(s, a, peer, upper ? low : high, upper ? high : low);
		first += upper ? half : 0;
	}
	own.first--;
	for (uint32_t i = 0; folded && i < slices_of(a, own); i++)
		add(s, a, GN_STEP_SEND, partner, own, i, 0);
}
