/* What goes into the buffers of a measurement and has to come out: small whole numbers with a period of 61 elements, so that
 * sums are exact in any order and a whole buffer is filled and checked at the speed of memory. */
#ifndef GN_CMD_BENCH_PATTERN_H
#define GN_CMD_BENCH_PATTERN_H

#include <stddef.h>
#include <stdint.h>

/* What rank gives to a sum of count floats. */
void gn_pattern_fill(float *data, size_t count, int rank);
/* How many elements are not the sum of what ranks 0 .. size-1 gave. */
int64_t gn_pattern_wrong_sums(const float *data, size_t count, int size);

#endif
