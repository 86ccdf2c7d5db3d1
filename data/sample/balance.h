/* Class-balanced sampling: an epoch of as many samples as the dataset has, of every class equally many.
 *
 * Of N samples of K classes (those that have images) each epoch draws floor(N / K) or one more of each class. Within a class the draws of an
 * epoch go through a permutation of its images, and through another when that is used up: images of small classes are repeated, each
 * equally often, and of a large class each epoch takes some at random. Draw number i (0 .. N - 1) takes the place of sample i everywhere: the
 * order of an epoch permutes draws, and augmentation is drawn by their number, so that a repeated image looks different each time. All
 * this is a pure function of (seed, epoch, i).
 *
 * Lifecycle: create, then sample, destroy. Thread safety: read-only once created.
 */
#ifndef GN_DATA_SAMPLE_BALANCE_H
#define GN_DATA_SAMPLE_BALANCE_H

#include "src/base/status.h"

#include <stdint.h>

struct gn_balance;

/* labels [count], each below classes; count at least 1. */
enum gn_status gn_balance_create(uint64_t seed, const uint32_t *labels, uint64_t count, uint32_t classes, struct gn_balance **out,
				 struct gn_err *err);
void gn_balance_destroy(struct gn_balance *b);
/* The sample that draw number `draw` (below count) of an epoch takes. */
uint64_t gn_balance_sample(const struct gn_balance *b, uint32_t epoch, uint64_t draw);
/* Classes that have samples, and how many the smallest of them has. */
uint32_t gn_balance_classes(const struct gn_balance *b);
uint64_t gn_balance_smallest(const struct gn_balance *b);

#endif
