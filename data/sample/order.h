/* The order of samples: the permutation of an epoch, and the positions of it that form a rank's batch.
 *
 * The permutation is a keyed bijection (a Feistel network over Z_a x Z_b with a*b barely above the count, as in Black and Rogaway,
 * "Ciphers with arbitrary finite domains", CT-RSA 2002, with cycle walking) with Philox as the round function. Each position is
 * computed independently: there is no array of the dataset's size, nothing to rebuild at a resume, and any thread of any rank gets
 * the same result. A Fisher-Yates array would need memory and a pass over it on every rank in every epoch.
 *
 * Invariant: over all ranks, the batches of an epoch hold each position at most once; without drops exactly once.
 * Thread safety: pure functions.
 */
#ifndef GN_DATA_SAMPLE_ORDER_H
#define GN_DATA_SAMPLE_ORDER_H

#include "src/base/status.h"

#include <stdint.h>

struct gn_order {
	uint64_t seed;
	uint64_t count; /* samples in the dataset, 1 .. 2^32 - 1 */
	uint32_t rank, ranks;
	uint32_t batch; /* samples per rank and step */
	int shuffled;	/* permuted, else as they lie */
	int drops;	/* an incomplete last global batch */
	/* with drops: batches of a step over all ranks, at least ranks, which those take in turns, so that the first ranks may take one more than the
	 * others; 0: each rank takes one */
	uint32_t step_batches;
	uint64_t done;	/* positions at the start of the epoch to skip: a resumed run has processed them */
};

/* GN_ERR_USAGE for invalid numbers, GN_ERR_DATA for an empty dataset and, with drops, for fewer samples than a step takes,
 * GN_ERR_UNSUPPORTED for 2^32 samples or more. The functions below require a checked order. */
enum gn_status gn_order_check(const struct gn_order *o, struct gn_err *err);
/* Batches per rank in an epoch, after those that are done (done <= count). */
uint64_t gn_order_batches(const struct gn_order *o);
/* The positions of batch number `batch` (below gn_order_batches) of this rank: *first and the following ones. Returns their number,
 * at most o->batch. Without drops the last global batch is distributed evenly, so that a rank may get none. */
uint32_t gn_order_slice(const struct gn_order *o, uint64_t batch, uint64_t *first);
/* The sample at position (below o->count) of the epoch. */
uint64_t gn_order_sample(const struct gn_order *o, uint32_t epoch, uint64_t position);

/* Class-balanced sampling: an epoch of as many samples as the dataset has, of every class equally many.
 *
 * Of N samples of K classes (those that have images) each epoch draws floor(N / K) or one more of each class. Within a class the draws of an
 * epoch go through a permutation of its images, and through another when that is used up: images of small classes are repeated, each
 * equally often, and of a large class each epoch takes some at random. Draw number i (0 .. N - 1) takes the place of sample i everywhere: the
 * order of an epoch permutes draws, and augmentation is drawn by their number, so that a repeated image looks different each time. All
 * this is a pure function of (seed, epoch, i).
 *
 * Lifecycle: create, then sample, destroy. Thread safety: read-only once created. */

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
