/* Batches of decoded, augmented, normalised images, or of crops for a GPU, in an order that is a pure function of (seed, epoch,
 * index).
 *
 * The global batch of step s takes positions s*global_batch .. of the epoch's permutation; rank r takes its slice of it. R ranks
 * with batch B and one rank with batch R*B therefore see the same samples with the same augmentation in the same global order.
 * With step_batches M the global batch is M batches, of which rank r takes numbers r, r + R, ...
 * Every rank gets the same number of batches, but for an M that R does not divide (in training an incomplete last batch is dropped).
 * In evaluation nothing is permuted or dropped: ranks get equal numbers of batches, the last of which may hold fewer or no valid
 * samples; each sample belongs to exactly one rank.
 *
 * Worker threads read, check, decode and augment ahead of the consumer, bounded by prefetch_bytes.
 * Lifecycle: create, start an epoch, next ... next, destroy. Thread safety: one consumer thread per loader.
 */
#ifndef GN_DATA_LOADER_LOADER_H
#define GN_DATA_LOADER_LOADER_H

#include "data/sample/options.h"
#include "data/shard/dataset.h"
#include "src/base/crop.h"

#include <stdint.h>

struct gn_batch {
	/* [batch][channels][height][width], normalised; with options.type or channels_last what they say, whatever its C type. Borrowed until the next
	 * call. */
	const float *images;
	/* With crops, instead of images: [batch], each of at most gn_loader_sample_bytes(); borrowed until the next call. */
	const struct gn_crop *crops;
	const int32_t *labels;	 /* [batch] */
	const int32_t *pair_labels;	 /* [batch] with mixup or cutmix: the label of the other sample of the pair; else NULL */
	const float *lambdas;	 /* [batch] with mixup or cutmix: the weight of the sample itself, 0..1; else NULL */
	const uint64_t *indices; /* [batch] in the dataset, with options.balance numbers of draws; UINT64_MAX past count */
	uint32_t count;		 /* valid samples, <= batch; the rest has zero images or black crops, and label -1 */
	double wait_s;		 /* time that this call waited for the workers */
};

/* The input of a plan: crops or images. */
static inline const void *gn_batch_input(const struct gn_batch *b)
{
	return b->crops ? (const void *)b->crops : b->images;
}

struct gn_loader;

/* What the worker threads did. */
struct gn_loader_effort {
	int threads;	  /* that may work */
	uint64_t samples; /* that were built */
	double running_s; /* since gn_loader_create() */
	double busy_s;	  /* time in which a thread built samples, of all threads */
	double read_s;	  /* of that, until files were read */
};

/* Training with fewer samples than ranks * batch is GN_ERR_DATA ("starved"), naming the numbers. dataset is borrowed and must
 * outlive the loader. */
enum gn_status gn_loader_create(const struct gn_dataset *dataset, const struct gn_loader_options *options,
				struct gn_loader **out, struct gn_err *err);
void gn_loader_destroy(struct gn_loader *l);
/* Number of batches per rank in a whole epoch: the same on every rank. */
uint64_t gn_loader_batches(const struct gn_loader *l);
/* Starts epoch after its first samples_done samples, counted over all ranks: 0, or the position of a resumed run, which may have
 * had another world size. Discards batches in flight. The remaining samples form the same global batches as without the
 * interruption. */
enum gn_status gn_loader_start(struct gn_loader *l, uint32_t epoch, uint64_t samples_done, struct gn_err *err);
/* Blocks until the next batch is complete. *out is valid until the next call. GN_ERR_NOT_FOUND after the last batch. A sample that
 * cannot be read, fails its checksum or cannot be decoded is GN_ERR_DATA, naming shard and sample, from the call for its batch; the
 * next call returns the batch after it. */
enum gn_status gn_loader_next(struct gn_loader *l, struct gn_batch *out, struct gn_err *err);
/* How many of the options' threads work, 1 .. their number (all, at first); the others are idle. Order and bits of batches are the same. Any
 * thread; threads that are building finish that. */
void gn_loader_set_threads(struct gn_loader *l, int threads);
/* Batches that it has memory for. */
uint32_t gn_loader_slots(const struct gn_loader *l);
/* Before the first start: memory of the caller's, aligned to 64 bytes, for the samples of one of its batches. */
void gn_loader_lend(struct gn_loader *l, uint32_t slot, void *images);
/* After gn_loader_next(), with all of its memory lent: the images of that batch are the caller's again, and memory takes their place. */
void gn_loader_swap(struct gn_loader *l, void *memory);
/* Any thread. */
void gn_loader_effort(struct gn_loader *l, struct gn_loader_effort *out);

#endif
