/* Which sample comes when: the permutation of an epoch, and which positions of it belong to a rank's batch.
 *
 * The permutation is a keyed bijection (a Feistel network over Z_a x Z_b with a*b barely above the count, as in Black
 * and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002, with cycle walking) whose round function is
 * Philox. It is computed position by position: no array of the dataset's size, nothing to rebuild at a resume, and any
 * thread of any rank gets the same answer. A Fisher-Yates array would reach every one of the count! orders, which no
 * run can notice, and cost memory and a pass over it on every rank at the start of every epoch.
 *
 * Invariant: over all ranks, the batches of an epoch hold each position at most once; in evaluation exactly once.
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
	int training;	/* permuted, an incomplete last global batch dropped; or in order, nothing dropped */
	uint64_t done;	/* positions at the beginning of the epoch that are left out: a resumed run did them already */
};

/* GN_ERR_USAGE for numbers that make no sense, GN_ERR_DATA for an empty dataset and for training with fewer samples
 * than ranks * batch, GN_ERR_UNSUPPORTED for 2^32 samples or more. Everything below wants an order that passed. */
enum gn_status gn_order_check(const struct gn_order *o, struct gn_err *err);
/* Batches of every rank in an epoch, after those that are done (done <= count). */
uint64_t gn_order_batches(const struct gn_order *o);
/* The positions that are batch number `batch` (below gn_order_batches) of this rank: *first and those after it. Returns
 * how many, at most o->batch. In evaluation the last global batch is dealt out evenly, so a rank may get none. */
uint32_t gn_order_slice(const struct gn_order *o, uint64_t batch, uint64_t *first);
/* The sample at position (below o->count) of the epoch. */
uint64_t gn_order_sample(const struct gn_order *o, uint32_t epoch, uint64_t position);

#endif
