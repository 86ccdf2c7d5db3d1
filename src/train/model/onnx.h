/* A network with its weights as an ONNX file, for inference by onnxruntime and others.
 *
 * The file is a ModelProto of IR version 8, operator set 17, without external data. The input "input" is float
 * [batch][channels][side][side], normalised; or with pixel_input uint8 of the same shape, pixels of 0 to 255 that the graph normalises. The
 * output "logits" is float [batch][classes]. The batch is the only free dimension. Values and initialisers have torchvision's
 * names where the network's layers have one. Dropout and what else acts only in training is left out.
 *
 * The messages are encoded here instead of by protobuf-c: eight message types and two wire types are needed, and weights are written from
 * the caller's arrays without a packed copy of the whole file in memory.
 *
 * Thread safety: no state.
 */
#ifndef GN_TRAIN_MODEL_ONNX_H
#define GN_TRAIN_MODEL_ONNX_H

#include "src/train/model/model.h"

enum { GN_ONNX_OPSET = 17 };

struct gn_onnx_options {
	int fold_batch_norm; /* into the convolution before it, where that has no other reader */
	int pixel_input;
	double mean[3], deviation[3]; /* of pixels in 0..1, by channel, for pixel_input */
	const char *const *metadata;  /* pairs key, value, for metadata_props; borrowed */
	size_t metadata_count;	      /* of pairs */
};

/* Writes a new file at path, which must not exist, and syncs it; on failure the file is removed. params and buffers: flat arrays of the
 * model, in torch's order. GN_ERR_UNSUPPORTED: a layer that has no entry in the table of operators, or more than the 2 GiB that a
 * protobuf message can have. Blocks. */
enum gn_status gn_onnx_write(const char *path, const struct gn_model *model, const float *params, const float *buffers,
			     const struct gn_onnx_options *options, uint64_t *len_bytes, struct gn_err *err);

#endif
