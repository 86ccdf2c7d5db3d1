/* Builds the samples of a batch in one worker thread: decodes them and, with mixup, blends them. Private to the loader.
 *
 * Thread safety: one thread per builder. Builders may work on different chunks of one batch concurrently.
 */
#ifndef GN_DATA_LOADER_BATCH_BUILDER_H
#define GN_DATA_LOADER_BATCH_BUILDER_H

#include "data/sample/options.h"
#include "data/sample/order.h"
#include "data/shard/dataset.h"

/* Buffers of one batch. */
struct gn_batch_task {
	void *images; /* samples as options.type and channels_last have them, or with options.crops the pixels of crops */
	struct gn_crop *crops;
	int32_t *labels;
	int32_t *pair_labels; /* with mixup or cutmix: the label of the other sample of the pair */
	float *lambdas;       /* with mixup or cutmix: the weight of the sample itself, 0..1 */
	uint64_t *indices;
	uint64_t first; /* position in the epoch of the batch's first sample */
	uint32_t count; /* valid samples */
};

struct gn_batch_builder;

/* dataset, options and order are borrowed and must outlive the builder. most: of samples that a run builds. */
enum gn_status gn_batch_builder_create(const struct gn_dataset *dataset, const struct gn_loader_options *options,
				const struct gn_order *order, uint32_t most, struct gn_batch_builder **out, struct gn_err *err);
void gn_batch_builder_destroy(struct gn_batch_builder *f);
/* Builds samples begin .. end-1 of the batch; those past count become zeros or black, with label -1. Returns end, or the first
 * index that failed, with the reason in err. Blocks on the file system. */
uint32_t gn_batch_builder_run(struct gn_batch_builder *f, uint32_t epoch, const struct gn_batch_task *batch, uint32_t begin,
			      uint32_t end, struct gn_err *err);
/* Of the time in gn_batch_builder_run() so far, what reading files took. */
uint64_t gn_batch_builder_read_ns(const struct gn_batch_builder *f);

#endif
