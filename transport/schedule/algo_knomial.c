/* k-nomial trees: relative to root, rank v written in base k hears from v with its lowest digit that is not zero cleared, and
 * tells v + j m for every power m of k below that digit and every j in 1 .. k - 1, the largest subtrees first. Radix 2 is the
 * binomial tree; larger ones are flatter, with more to send by each. Piece by piece, so that a piece travels on while the next
 * one arrives. */
#include "transport/schedule/algo_part.h"

struct place {
	int v, parent, reach; /* relative to root; reach: the power of k that the lowest digit stands for, or at least size */
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

/* The same tree upwards: the smallest subtrees are ready first. */
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
