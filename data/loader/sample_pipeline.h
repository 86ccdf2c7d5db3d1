/* From a JPEG file to one sample: read and check the file, draw the crop parameters, decode, and resize and normalise, or leave
 * these to a GPU.
 *
 * Lifecycle: create one per thread, run for each sample, destroy. Thread safety: one thread per pipeline. The result is a pure
 * function of the options' seed and geometry, the epoch and the index.
 */
#ifndef GN_DATA_LOADER_SAMPLE_PIPELINE_H
#define GN_DATA_LOADER_SAMPLE_PIPELINE_H

#include "data/sample/options.h"
#include "data/shard/dataset.h"

struct gn_sample_pipeline;

/* dataset and options are borrowed and must outlive the pipeline. dataset may be NULL for gn_sample_pipeline_run_jpeg() alone. */
enum gn_status gn_sample_pipeline_create(const struct gn_dataset *dataset, const struct gn_loader_options *options,
				  struct gn_sample_pipeline **out, struct gn_err *err);
void gn_sample_pipeline_destroy(struct gn_sample_pipeline *r);
/* image: float [channels][height][width], whatever options.type and channels_last are but for GN_SAMPLE_U8, which it then is; or with options.crops gn_loader_sample_bytes() bytes for the pixels that *crop then
 * points to; crop is unused otherwise. On failure both are undefined. Blocks on the file system. GN_ERR_DATA for a sample that is
 * damaged or differs from its shard's row, naming shard, row and packed name. */
enum gn_status gn_sample_pipeline_run(struct gn_sample_pipeline *r, uint32_t epoch, uint64_t index, void *image,
				      struct gn_crop *crop, int32_t *label, struct gn_err *err);
/* The same of a JPEG file in memory, as sample 0 of epoch 0, without options.crops. GN_ERR_DATA with its defect; the caller adds its
 * name. */
enum gn_status gn_sample_pipeline_run_jpeg(struct gn_sample_pipeline *r, const void *jpeg, size_t len_bytes, float *image, struct gn_err *err);
/* Time that all calls of gn_sample_pipeline_run() took to read files so far. */
uint64_t gn_sample_pipeline_read_ns(const struct gn_sample_pipeline *r);

#endif
