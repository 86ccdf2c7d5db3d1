/* The two passes of a resize over one row, with vectors of eight floats. Private to data/sample/.
 *
 * They multiply and add separately and in the order of the plain loops in resize.c: samples are bitwise equal on all machines.
 */
#ifndef GN_DATA_SAMPLE_RESIZE_INTERNAL_H
#define GN_DATA_SAMPLE_RESIZE_INTERNAL_H

#include "data/sample/resize.h"

/* values per step of the vertical pass */
enum { gn_resize_chunk = 16 };

/* An output is the sum of weights[k] * source[first + k], k < count. */
struct gn_resize_span {
	uint32_t first, count;
};

/* Weights for pairs of outputs, all with the same number of taps (padded with weights of 0): those of tap k of outputs 2p and 2p +
 * 1 are in wide[8 * (p * taps + k)], repeated four times each. */
struct gn_resize_wide {
	const struct gn_resize_span *spans;
	const float *wide;
	uint32_t taps, outputs;
};

/* Whether this processor has the vector instructions. */
int gn_resize_has_vectors(void);
/* out[i] = sum over rows of weight * pixel, i < n. Reads and writes up to chunk-1 values past n. */
void gn_resize_mix_rows(float *out, size_t n, const uint8_t *src, size_t stride_bytes, const float *weights, uint32_t rows);
/* Three interleaved channels to planes. row must be readable for all taps and one more vector. */
void gn_resize_mix_columns(const struct gn_resize_wide *a, const float *row, const struct gn_resize_target *t, float *to);

#endif
