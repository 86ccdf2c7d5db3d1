/* Mixup: Zhang, Cisse, Dauphin and Lopez-Paz 2018, "mixup: beyond empirical risk minimization", arXiv 1710.09412.
 *
 * A training sample becomes share * itself + (1 - share) * its mate, image and label alike, share drawn from
 * Beta(alpha, alpha). Mates are neighbours in the epoch's permutation, so they change with every epoch, and two neighbours
 * that are in one batch cost no second decoding. Share and mate are pure functions of (seed, epoch, position): the same
 * samples are mixed the same way whatever the world size, the batch and the point where a run was resumed.
 *
 * Thread safety: pure functions.
 */
#ifndef GN_DATA_SAMPLE_MIXUP_H
#define GN_DATA_SAMPLE_MIXUP_H

#include "data/sample/order.h"

#include <stddef.h>

/* The share of the sample itself, in 0..1; alpha > 0. */
double gn_mixup_lambda(uint64_t seed, double alpha, uint32_t epoch, uint64_t index);
/* The position of the mate of a position; itself for the last one of an odd number, which is not mixed. */
uint64_t gn_mixup_pair(const struct gn_order *order, uint64_t position);
/* image = share * image + (1 - share) * mate. */
void gn_mixup_blend(float *image, const float *mate, size_t count, double share);
/* Both at once: each with the other as it was. */
void gn_mixup_blend_pair(float *a, float *b, size_t count, double share_a, double share_b);

#endif
