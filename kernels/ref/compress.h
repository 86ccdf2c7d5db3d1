/* Gradient compression: top-k sparsification, and quantisation to 8 bits.
 *
 * Both are defined exactly, so that every backend selects and rounds identically and ranks agree. These plain loops are the
 * reference for kernels/cuda/compress.cu. Thread safety: pure functions.
 */
#ifndef GN_KERNELS_REF_COMPRESS_H
#define GN_KERNELS_REF_COMPRESS_H

#include <stddef.h>
#include <stdint.h>

/* Selects the k (1 .. count) elements of largest magnitude, of equals the first, in the order of their indices. NaN counts as the
 * largest, so that it is not hidden. indices and values: [k]. */
void gn_ref_top_k(const float *x, size_t count, size_t k, uint32_t *indices, float *values);

/* elements per scale */
#define GN_QUANTISE_GROUP 1024
#define GN_QUANTISE_GROUPS(count) (((count) + GN_QUANTISE_GROUP - 1) / GN_QUANTISE_GROUP)
/* Groups whose largest magnitude is not above this become zeros: their scale would be subnormal. */
#define GN_QUANTISE_LEAST 1e-35f

/* to[i] = x[i] / scale, rounded to nearest even, -127 .. 127, with scale = largest magnitude of the group / 127. A group with a
 * non-finite element has scale NaN and zeros, so that the receiver gets NaN. scales: [GN_QUANTISE_GROUPS(count)]. */
void gn_ref_quantise(const float *x, size_t count, int8_t *to, float *scales);

#endif
