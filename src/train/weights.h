/* A model's parameters and BN buffers as one safetensors file under torchvision's names: what load_state_dict() takes.
 *
 * Besides the model's tensors the file holds num_batches_tracked (I64 scalar) per batch norm, as torch's state dicts do;
 * reading ignores it. Flat arrays are laid out as gn_param says.
 *
 * Thread safety: none of its own; the arrays are the caller's.
 */
#ifndef GN_TRAIN_WEIGHTS_H
#define GN_TRAIN_WEIGHTS_H

#include "src/train/model.h"

/* Writes a new file at path, synced. hex and len_bytes as in gn_safetensors_write. */
enum gn_status gn_weights_save(const char *path, const struct gn_model *model, const float *params,
			       const float *buffers, uint64_t steps, char hex[65], uint64_t *len_bytes,
			       struct gn_err *err);
/* Fills params and buffers. Every tensor of the model must be there with its shape and none besides; GN_ERR_DATA names the
 * first that is missing, foreign or of another shape ("a checkpoint of another model?"). On failure the arrays may hold
 * part of the file. */
enum gn_status gn_weights_load(const char *path, const struct gn_model *model, float *params, float *buffers,
			       struct gn_err *err);
/* SHA-256 over names, shapes and offsets: two builds with the same digest mean the same by a flat array. */
enum gn_status gn_weights_layout_digest(const struct gn_model *model, char hex[65], struct gn_err *err);

#endif
