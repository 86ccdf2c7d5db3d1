/* Broadcast and reduce by k-nomial trees. With ranks relative to root and written in base k, the parent of v is v with its lowest
 * nonzero digit cleared; its children are v + j m for every power m of k below that digit and every j in 1 .. k - 1, largest
 * subtrees first. Radix 2 is the binomial tree; a larger radix gives a flatter tree in which each rank sends more. Pieces are
 * pipelined: a piece is forwarded while the next one arrives. */
#include "transport/schedule/algo_part.h"

struct place {
	int v, parent, reach; /* relative to root; reach: the power of k of the lowest nonzero digit; for root at least size */
};

static struct place place_of(const struct gn_algo_args *a, int radix)
{
	struct place p = {.v = (a->rank - a->root + a->size) % a->size, .parent = -1, .reach = 1};

	for (; p.reach < a->size; p.reach *= radix) {
		if (p.v % (p.reach * radix)) {
			p.parent = p.v - p.v % (p.reach * radix);
			break;
		}
	}
	return p;
}

static int rank_of(const struct gn_algo_args *a, int v)
{
	return (v + a->root) % a->size;
}

void gn_write_broadcast_tree(struct gn_schedule *s, const struct gn_algo_args *a, int radix)
{
	struct place p = place_of(a, radix);

	for (uint32_t i = 0; i < a->pieces; i++) {
		if (p.parent >= 0)
			gn_schedule_recv(s, rank_of(a, p.parent), i, i);
		for (int m = p.reach / radix; m > 0; m /= radix)
			for (int j = 1; j < radix && p.v + j * m < a->size; j++)
				gn_schedule_send(s, rank_of(a, p.v + j * m), i, i);
	}
}

/* The same tree from the leaves to root: the smallest subtrees complete first. */
void gn_write_reduce_tree(struct gn_schedule *s, const struct gn_algo_args *a, int radix)
{
	struct place p = place_of(a, radix);

	for (uint32_t i = 0; i < a->pieces; i++) {
		for (int m = 1; m < p.reach; m *= radix)
			for (int j = 1; j < radix && p.v + j * m < a->size; j++)
				gn_schedule_recv_reduce(s, rank_of(a, p.v + j * m), i, i, 0);
		if (p.parent >= 0)
			gn_schedule_send(s, rank_of(a, p.parent), i, i);
	}
}
