/* Batches of decoded, augmented, normalised images, or of what a GPU makes them of, in an order that is a pure function of
 * (seed, epoch, index).
 *
 * The global batch of step s takes positions s*global_batch .. of the epoch's permutation; rank r takes its slice of
 * it, so that R ranks x batch B and one rank x batch R*B see the same samples with the same augmentation in the same
 * global order. Every rank gets the same number of batches by construction (an incomplete last batch is dropped in
 * training). In evaluation nothing is permuted and nothing dropped: ranks get equal numbers of batches whose tail may
 * hold fewer, or no, valid samples, each sample belonging to exactly one rank.
 *
 * Worker threads read, check, decode and augment ahead of the consumer, bounded by prefetch_bytes.
 * Lifecycle: create, start an epoch, next ... next, destroy. One thread consumes; the workers are inside.
 */
#ifndef GN_DATA_LOADER_LOADER_H
#define GN_DATA_LOADER_LOADER_H

#include "data/sample/options.h"
#include "data/shard/dataset.h"
#include "src/base/crop.h"

#include <stddef.h>
#include <stdint.h>

struct gn_batch {
	const float *images;	 /* [batch][channels][height][width], normalised; borrowed until the next call */
	/* with crops, instead of images: [batch], none of more than gn_loader_sample_bytes; borrowed likewise */
	const struct gn_crop *crops;
	const int32_t *labels;	 /* [batch] */
	const int32_t *pair_labels;	 /* [batch] with mixup: the label of the other sample of the pair; else NULL */
	const float *lambdas;	 /* [batch] with mixup: the weight of the sample itself, 0..1; else NULL */
	const uint64_t *indices; /* [batch] in the dataset; UINT64_MAX past count */
	uint32_t count;		 /* valid samples, <= batch; the rest of images is zero, of crops black, and labels is -1 */
	double wait_s;		 /* how long this call waited for the workers */
};

/* What a plan takes: crops, or images. */
static inline const void *gn_batch_input(const struct gn_batch *b)
{
	return b->crops ? (const void *)b->crops : b->images;
}

struct gn_loader;

/* Training with fewer samples than ranks * batch is GN_ERR_DATA ("starved"), naming the numbers. dataset is borrowed
 * and outlives the loader. */
enum gn_status gn_loader_create(const struct gn_dataset *dataset, const struct gn_loader_options *options,
				struct gn_loader **out, struct gn_err *err);
void gn_loader_destroy(struct gn_loader *l);
/* Batches that each rank gets in an epoch that begins at its first sample: the same on every rank. */
uint64_t gn_loader_batches(const struct gn_loader *l);
/* Begins epoch after its first samples_done samples, counted over all ranks (0, or where a resumed run goes on, which may
 * have had another world size); drops what was in flight. The rest is cut into global batches as the whole would be. */
enum gn_status gn_loader_start(struct gn_loader *l, uint32_t epoch, uint64_t samples_done, struct gn_err *err);
/* Blocks until the next batch is ready. *out is valid until the next call on l. Past the last batch: GN_ERR_NOT_FOUND.
 * A sample that cannot be read, fails its checksum or cannot be decoded is GN_ERR_DATA, naming shard and sample; it is
 * told when its batch is due, and the next call goes on with the batch after it. */
enum gn_status gn_loader_next(struct gn_loader *l, struct gn_batch *out, struct gn_err *err);

#endif
