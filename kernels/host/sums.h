/* Partition of a sum over many floats. Private to kernels/host. */
#ifndef GN_KERNELS_HOST_SUMS_H
#define GN_KERNELS_HOST_SUMS_H

#include "kernels/optim.h"

enum { GN_PIECES_MAX = 64, GN_PIECE_LEAST = 4096 };

struct gn_pieces {
	size_t total, each, count;
};

static inline struct gn_pieces gn_pieces_of(size_t total)
{
	struct gn_pieces p = {.total = total, .each = (total / GN_PIECES_MAX + 16) / 16 * 16};

	if (p.each < GN_PIECE_LEAST)
		p.each = GN_PIECE_LEAST;
	p.count = (total + p.each - 1) / p.each;
	return p;
}

static inline size_t gn_piece_end(const struct gn_pieces *p, size_t i)
{
	return (i + 1) * p->each < p->total ? (i + 1) * p->each : p->total;
}

#endif
