/* The inputs of micro-batches in flight in a stage of a pipeline that recomputes activations: images or what the stage before has sent, and the
 * targets of the images. Host memory. Thread safety: one thread.
 */
#ifndef GN_TRAIN_LOOP_KEPT_INPUTS_H
#define GN_TRAIN_LOOP_KEPT_INPUTS_H

#include "kernels/op.h"

/* Zeroed: there are none. Members may be read by everybody. */
struct gn_kept_inputs {
	int count; /* micro-batches at a time */
	size_t input_bytes, column_bytes, place_bytes; /* a column: labels, pair labels or lambdas, 4 bytes an image */
	size_t bytes;				       /* of the next two together */
	char *places;				       /* [count] of place_bytes */
	float *buffers;				       /* room for batch norm's, for the caller */
};

/* input_bytes for so many images; buffers: floats. On failure there are none. */
enum gn_status gn_kept_inputs_init(struct gn_kept_inputs *k, int count, size_t input_bytes, int images, size_t buffers, struct gn_err *err);
void gn_kept_inputs_release(struct gn_kept_inputs *k);
/* Copies input and targets of a micro-batch, in the place of number - count. */
void gn_kept_inputs_put(struct gn_kept_inputs *k, int number, const void *input, const struct gn_targets *targets);
/* Borrowed until that place is taken again. */
const void *gn_kept_inputs_get(const struct gn_kept_inputs *k, int number, struct gn_targets *targets);

#endif
