/* Gradients made smaller for the way between ranks: the largest of them, or all in 8 bits.
 *
 * Both are defined exactly, so that every backend chooses and rounds alike and ranks agree. Here are the definitions as plain
 * loops, the oracle of kernels/cuda/compress.cu. Thread safety: pure functions.
 */
#ifndef GN_KERNELS_REF_COMPRESS_H
#define GN_KERNELS_REF_COMPRESS_H

#include <stddef.h>
#include <stdint.h>

/* The k (1 .. count) elements of largest magnitude, of equals the first, in the order of their indices. NaN is larger than
 * anything: what is wrong is not kept back. indices and values: [k]. */
void gn_ref_top_k(const float *x, size_t count, size_t k, uint32_t *indices, float *values);

/* Elements that share a scale. */
#define GN_QUANTISE_GROUP 1024
#define GN_QUANTISE_GROUPS(count) (((count) + GN_QUANTISE_GROUP - 1) / GN_QUANTISE_GROUP)
/* Groups with nothing larger become zeros: their scale would not have all its digits. */
#define GN_QUANTISE_LEAST 1e-35f

/* to[i] = x[i] / scale, rounded to nearest even, -127 .. 127, with scale = largest magnitude of the group / 127. A group with
 * something that is not finite has scale NaN and zeros, so that the other side gets NaN. scales:
 * [GN_QUANTISE_GROUPS(count)]. */
void gn_ref_quantise(const float *x, size_t count, int8_t *to, float *scales);

#endif
