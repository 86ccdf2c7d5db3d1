/* Random changes of the colours and geometry of a training image: ColorJitter, RandAugment, TrivialAugmentWide and AutoAugment as
 * torchvision applies them to Pillow images (nearest pixel, fill 0), and RandomErasing. What happens to a sample is a pure function of
 * (seed, epoch, index).
 *
 * RandAugment: Cubuk et al. 2020, arXiv 1909.13719. TrivialAugment: Mueller and Hutter 2021, arXiv 2103.10158. AutoAugment: Cubuk et al.
 * 2019, arXiv 1805.09501. Random erasing: Zhong et al. 2020, arXiv 1708.04896.
 * Thread safety: pure functions.
 */
#ifndef GN_DATA_SAMPLE_AUTO_AUGMENT_H
#define GN_DATA_SAMPLE_AUTO_AUGMENT_H

#include "data/sample/image_op.h"
#include "data/sample/options.h"

/* Whether gn_auto_augment_apply would change anything. */
int gn_auto_augment_is_on(const struct gn_auto_augment *a);
/* The magnitude of an operation at a bin of a policy's range, for an image of this size; 0 for operations without. */
double gn_auto_augment_magnitude(enum gn_policy policy, enum gn_image_op op, int bin, uint32_t width, uint32_t height);
/* Colour jitter, then the policy. */
void gn_auto_augment_apply(const struct gn_auto_augment *a, uint64_t seed, uint32_t epoch, uint64_t index, struct gn_bitmap *b);
/* With probability p, sets a rectangle of a normalised sample to 0: 2% to 33% of its area, height by width 0.3 to 3.3; nothing if ten
 * draws do not fit. image: [channels][height][width]. */
void gn_random_erase(double p, uint64_t seed, uint32_t epoch, uint64_t index, uint32_t channels, uint32_t height, uint32_t width,
		     float *image);

#endif
