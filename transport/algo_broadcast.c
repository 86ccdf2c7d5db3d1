#include "transport/algo.h"

/* Relative to root, rank v hears from v without its lowest set bit, and tells v + m for every power m below that bit, the
 * largest subtree first. Piece by piece, so that a piece travels down while the next one arrives. */
static void write(struct gn_schedule *s, int rank, int size, int root, uint32_t pieces)
{
	int v = (rank - root + size) % size, low = 1;

	while (low < size && !(v & low))
		low *= 2;
	for (uint32_t p = 0; p < pieces; p++) {
		if (v)
			gn_schedule_recv(s, (v - low + root) % size, p, p);
		for (int m = low / 2; m > 0; m /= 2)
			if (v + m < size)
				gn_schedule_send(s, (v + m + root) % size, p, p);
	}
}

enum gn_status gn_algo_broadcast(int rank, int size, int root, uint32_t pieces, struct gn_schedule **out,
				 struct gn_err *err)
{
	struct gn_schedule *s;
	enum gn_status status = gn_schedule_create(rank, size, pieces, &s, err);

	if (status)
		return status;
	write(s, rank, size, root, pieces);
	status = gn_schedule_finish(s, err);
	if (status)
		gn_schedule_destroy(s);
	else
		*out = s;
	return status;
}
