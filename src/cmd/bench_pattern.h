/* What goes into the buffers of a measurement and has to come out: small whole numbers with a period of 61 elements, so that
 * sums are exact in any order and a whole buffer is filled and checked at the speed of memory.
 *
 * An element's value is a function of the rank that gives it and of its place in the whole message. */
#ifndef GN_CMD_BENCH_PATTERN_H
#define GN_CMD_BENCH_PATTERN_H

#include "transport/schedule/types.h"

struct gn_pattern {
	enum gn_dtype type;
	enum gn_reduction reduction;
	int size; /* ranks */
};

/* Bytes of an element. */
size_t gn_pattern_bytes(enum gn_dtype type);
/* What rank gives at [first, first + count). */
void gn_pattern_fill(const struct gn_pattern *p, void *data, size_t first, size_t count, int rank);
/* How many of the elements are not what rank gave there; -1: not all ranks' values, reduced. An average of floating-point
 * numbers may be off by the rounding of one division or multiplication. */
int64_t gn_pattern_wrong(const struct gn_pattern *p, const void *data, size_t first, size_t count, int rank);

#endif
