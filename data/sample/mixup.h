/* Mixup: Zhang, Cisse, Dauphin and Lopez-Paz 2018, "mixup: beyond empirical risk minimization", arXiv 1710.09412.
 *
 * A training sample becomes lambda * itself + (1 - lambda) * its pair, image and label alike, lambda drawn from
 * Beta(alpha, alpha). The two samples of a pair are neighbours in the epoch's permutation: pairs differ between epochs, and a
 * pair within one batch is decoded once. Lambda and pair are pure functions of (seed, epoch, position): they do not depend
 * on the world size, the batch size or the step at which a run was resumed.
 *
 * Thread safety: pure functions.
 */
#ifndef GN_DATA_SAMPLE_MIXUP_H
#define GN_DATA_SAMPLE_MIXUP_H

#include "data/sample/order.h"

#include <stddef.h>

/* The weight of the sample at index itself, in 0..1, drawn from Beta(alpha, alpha); alpha > 0. */
double gn_mixup_lambda(uint64_t seed, double alpha, uint32_t epoch, uint64_t index);
/* The position of the sample that the one at position is mixed with. The last of an odd count is its own pair: not mixed. */
uint64_t gn_mixup_pair(const struct gn_order *order, uint64_t position);
/* image = lambda * image + (1 - lambda) * pair. */
void gn_mixup_blend(float *image, const float *pair, size_t count, double lambda);
/* Blends both samples of a pair: a with the original b, b with the original a. */
void gn_mixup_blend_pair(float *a, float *b, size_t count, double lambda_a, double lambda_b);

#endif
