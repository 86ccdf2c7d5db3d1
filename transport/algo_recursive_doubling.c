#include "transport/algo.h"

/* With 2^k the largest power of two within size, the first 2 (size - 2^k) ranks pair up: the even one hands its value to
 * the odd one, sits out, and gets the result at the end. The others are numbered 0 .. 2^k - 1 by "place". */
static int rank_at(int place, int extra)
{
	return place < extra ? 2 * place + 1 : place + extra;
}

static void exchange_round(struct gn_schedule *s, int rank, int peer, uint32_t pieces, int round)
{
	for (uint32_t p = 0; p < pieces; p++)
		gn_schedule_send(s, peer, p, (uint32_t)round * pieces + p);
	for (uint32_t p = 0; p < pieces; p++)
		gn_schedule_recv_reduce(s, peer, p, (uint32_t)round * pieces + p, peer < rank);
}

static void write(struct gn_schedule *s, int rank, int size, uint32_t pieces)
{
	int power = 1, extra, place, round = 1;

	while (power * 2 <= size)
		power *= 2;
	extra = size - power;
	if (rank < 2 * extra && rank % 2 == 0) {
		for (uint32_t p = 0; p < pieces; p++)
			gn_schedule_send(s, rank + 1, p, p);
		for (uint32_t p = 0; p < pieces; p++)
			gn_schedule_recv(s, rank + 1, p, p);
		return;
	}
	place = rank < 2 * extra ? rank / 2 : rank - extra;
	for (uint32_t p = 0; rank < 2 * extra && p < pieces; p++)
		gn_schedule_recv_reduce(s, rank - 1, p, p, 1);
	for (int distance = 1; distance < power; distance *= 2)
		exchange_round(s, rank, rank_at(place ^ distance, extra), pieces, round++);
	for (uint32_t p = 0; rank < 2 * extra && p < pieces; p++)
		gn_schedule_send(s, rank - 1, p, p);
}

enum gn_status gn_algo_recursive_doubling(int rank, int size, uint32_t pieces, int with_copy, struct gn_schedule **out,
					  struct gn_err *err)
{
	struct gn_schedule *s;
	enum gn_status status = gn_schedule_create(rank, size, pieces, &s, err);

	if (status)
		return status;
	for (uint32_t c = 0; with_copy && c < pieces; c++)
		gn_schedule_copy(s, c);
	write(s, rank, size, pieces);
	status = gn_schedule_finish(s, err);
	if (status)
		gn_schedule_destroy(s);
	else
		*out = s;
	return status;
}
