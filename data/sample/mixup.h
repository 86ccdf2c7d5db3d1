/* Mixup: Zhang, Cisse, Dauphin and Lopez-Paz 2018, "mixup: beyond empirical risk minimization", arXiv 1710.09412.
 *
 * A training sample becomes lambda * itself + (1 - lambda) * its pair, image and label alike, lambda drawn from
 * Beta(alpha, alpha). The two samples of a pair are neighbours in the epoch's permutation: pairs differ between epochs, and a
 * pair within one batch is decoded once. Lambda and pair are pure functions of (seed, epoch, position): they do not depend
 * on the world size, the batch size or the step at which a run was resumed.
 *
 * Cutmix: Yun et al. 2019, "CutMix: regularization strategy to train strong classifiers with localizable features", arXiv 1905.04899. The
 * pair's pixels replace a box of the sample, of 1 - lambda of its area where it does not reach beyond the border; its centre is uniform.
 * With both, either happens to a sample with probability 1/2, as in torchvision's references.
 *
 * Thread safety: pure functions.
 */
#ifndef GN_DATA_SAMPLE_MIXUP_H
#define GN_DATA_SAMPLE_MIXUP_H

#include "data/sample/options.h"
#include "data/sample/order.h"

/* The weight of the sample at index itself, in 0..1, drawn from Beta(alpha, alpha); alpha > 0. */
double gn_mixup_lambda(uint64_t seed, double alpha, uint32_t epoch, uint64_t index);
/* The position of the sample that the one at position is mixed with. The last of an odd count is its own pair: not mixed. */
uint64_t gn_mixup_pair(const struct gn_order *order, uint64_t position);

/* How a sample is mixed with its pair. */
struct gn_mix {
	double lambda;	     /* the weight of the sample's own label; cutmix: the share of its area that remains */
	int is_cut;	     /* the pair's pixels replace a box, which may be empty; else images are blended by lambda */
	uint32_t left, top, right, bottom; /* that box: columns left .. right - 1, rows top .. bottom - 1 */
};

/* What o's mixup and cutmix, of which one at least is above 0, do to the sample at index. */
void gn_mix_draw(const struct gn_loader_options *o, uint32_t epoch, uint64_t index, struct gn_mix *out);
/* image and pair: [o->channels][o->height][o->width]. */
void gn_mix_apply(const struct gn_mix *m, const struct gn_loader_options *o, float *image, const float *pair);

#endif
