/* A model's parameters and BN buffers as one safetensors file under torchvision's names: what load_state_dict() takes.
 *
 * Besides the model's tensors the file holds num_batches_tracked (I64 scalar) per batch norm, as torch's state dicts do;
 * reading ignores it. Flat arrays are laid out as gn_param says.
 *
 * Thread safety: none of its own; the arrays are the caller's.
 */
#ifndef GN_TRAIN_MODEL_WEIGHTS_H
#define GN_TRAIN_MODEL_WEIGHTS_H

#include "src/base/strbuf.h"
#include "src/train/model/model.h"

/* Writes a new file at path, synced. hex and len_bytes as in gn_safetensors_write. */
enum gn_status gn_weights_save(const char *path, const struct gn_model *model, const float *params,
			       const float *buffers, uint64_t steps, char hex[65], uint64_t *len_bytes,
			       struct gn_err *err);
/* Fills params and buffers from a file of any origin. Every tensor of the model must be there with its shape, as F32, F16 or
 * BF16; GN_ERR_DATA names those that are missing, or the first of another shape with both shapes. The names of tensors besides
 * are appended to ignored, as one line; nothing when there are none. On failure the arrays may hold part of the file. */
enum gn_status gn_weights_import(const char *path, const struct gn_model *model, float *params, float *buffers,
				 struct gn_strbuf *ignored, struct gn_err *err);
/* The same, of a file of our own: tensors besides are GN_ERR_DATA, too. */
enum gn_status gn_weights_load(const char *path, const struct gn_model *model, float *params, float *buffers,
			       struct gn_err *err);
/* What a file of weights of a model like this one says of its sizes: channels of images, by the first layer, and classes, by the
 * last. GN_ERR_DATA names the tensor that is not there or whose other sizes are not the model's. */
enum gn_status gn_weights_sizes(const char *path, const struct gn_model *like, int64_t *channels, int64_t *classes,
				struct gn_err *err);
/* *names: the class names in the metadata of a file that gannet export wrote, text of a JSON array, the caller's to free; NULL for
 * a file that has none. */
enum gn_status gn_weights_class_names(const char *path, char **names, struct gn_err *err);
/* gn_input_classes_digest of the class names in the metadata of a file that gannet export wrote; "" for a file that has none, or
 * not as they were: a JSON text holds U+FFFD for what is no UTF-8. */
enum gn_status gn_weights_classes_digest(const char *path, char hex[65], struct gn_err *err);
/* SHA-256 over names, shapes and offsets: two builds with the same digest mean the same by a flat array. */
enum gn_status gn_weights_layout_digest(const struct gn_model *model, char hex[65], struct gn_err *err);

#endif
