/* One sample, whole way: read and check the JPEG file, draw the view, decode, and resize and normalise, or leave that to a GPU.
 *
 * Lifecycle: create one for each thread, run for sample after sample, destroy. Thread safety: one thread per pipeline.
 * The result is a pure function of the options' seed and geometry, the epoch and the index.
 */
#ifndef GN_DATA_LOADER_SAMPLE_PIPELINE_H
#define GN_DATA_LOADER_SAMPLE_PIPELINE_H

#include "data/sample/options.h"
#include "data/shard/dataset.h"

struct gn_sample_pipeline;

/* dataset and options are borrowed and outlive the pipeline. */
enum gn_status gn_sample_pipeline_create(const struct gn_dataset *dataset, const struct gn_loader_options *options,
				  struct gn_sample_pipeline **out, struct gn_err *err);
void gn_sample_pipeline_destroy(struct gn_sample_pipeline *r);
/* image is float [channels][height][width], or with options.crops room of gn_loader_sample_bytes for the pixels that *crop then
 * points to; crop is not looked at without. On failure both may hold anything. Blocks on the file system. GN_ERR_DATA for a sample
 * that is damaged or is not what its shard says, naming shard, row and the name it was packed under. */
enum gn_status gn_sample_pipeline_run(struct gn_sample_pipeline *r, uint32_t epoch, uint64_t index, void *image,
				      struct gn_crop *crop, int32_t *label, struct gn_err *err);

#endif
