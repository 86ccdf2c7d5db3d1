/* The two passes of a resize over one row, with vectors of eight. Private to resize*.c.
 *
 * They multiply and add in the order of the plain loops in resize.c and do neither in one: samples are the same bits on all
 * machines.
 */
#ifndef GN_DATA_SAMPLE_RESIZE_INTERNAL_H
#define GN_DATA_SAMPLE_RESIZE_INTERNAL_H

#include "data/sample/resize.h"

/* Values are mixed so many at a time. */
enum { gn_resize_chunk = 16 };

/* One output: the sum of weights[k] * source[first + k], k < count. */
struct gn_resize_span {
	uint32_t first, count;
};

/* Outputs by twos, all with as many taps (those of weight 0 behind an output's own): weights of tap k of outputs 2p and 2p + 1
 * in wide[8 * (p * taps + k)], four times each. */
struct gn_resize_wide {
	const struct gn_resize_span *spans;
	const float *wide;
	uint32_t taps, outputs;
};

/* Whether this processor has what they need. */
int gn_resize_has_vectors(void);
/* out[i] = sum over rows of weight * pixel, i < n. Reads and writes up to chunk-1 values past n. */
void gn_resize_mix_rows(float *out, size_t n, const uint8_t *src, size_t stride_bytes, const float *weights, uint32_t rows);
/* Three interleaved channels to planes. row has values (any) for all taps, and a vector more. */
void gn_resize_mix_columns(const struct gn_resize_wide *a, const float *row, const struct gn_resize_target *t, float *to);

#endif
