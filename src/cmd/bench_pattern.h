/* Test pattern for the buffers of a measurement: small integers with a period of 61 elements. Sums are exact in any order, and a
 * buffer is filled and checked at the speed of memory.
 *
 * An element's value is a function of the rank that contributes it and of its index in the whole message. Thread safety: no
 * state. */
#ifndef GN_CMD_BENCH_PATTERN_H
#define GN_CMD_BENCH_PATTERN_H

#include "transport/schedule/types.h"

struct gn_pattern {
	enum gn_dtype type;
	enum gn_reduction reduction;
	int size; /* number of ranks */
};

/* size of an element in bytes */
size_t gn_pattern_bytes(enum gn_dtype type);
/* Writes rank's input for elements [first, first + count). */
void gn_pattern_fill(const struct gn_pattern *p, void *data, size_t first, size_t count, int rank);
/* Number of elements in [first, first + count) that differ from rank's input, or with rank -1 from the reduction over all ranks.
 * Averages of floating-point numbers may differ by the rounding of one division or multiplication. */
int64_t gn_pattern_wrong(const struct gn_pattern *p, const void *data, size_t first, size_t count, int rank);

#endif
