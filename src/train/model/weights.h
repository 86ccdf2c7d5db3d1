/* A model's parameters and batch norm buffers as one safetensors file with torchvision's names, as load_state_dict() expects.
 *
 * The file also holds num_batches_tracked (I64 scalar) per batch norm, as PyTorch's state dicts do; reading ignores it. Flat arrays
 * are laid out as in gn_param.
 *
 * Thread safety: no state; the arrays belong to the caller.
 */
#ifndef GN_TRAIN_MODEL_WEIGHTS_H
#define GN_TRAIN_MODEL_WEIGHTS_H

#include "src/base/data_key.h"
#include "src/base/log.h"
#include "src/base/strbuf.h"
#include "src/train/model/model.h"
#include "src/train/model/safetensors.h"

/* Writes a new file at path, synced; GN_ERR_FAILED if a value is NaN or infinite (gn_safetensors_check_finite). key, hex and len_bytes as in gn_safetensors_write(). Blocks. */
enum gn_status gn_weights_save(const char *path, const struct gn_data_key *key, const struct gn_model *model, const float *params,
			       const float *buffers, uint64_t steps, char hex[65], uint64_t *len_bytes,
			       struct gn_err *err);
/* Opens a file of any origin. Where other libraries' names (weight_names.c), or names behind one prefix, are all of the model's but its last
 * layer's, its entries are found by the model's, and the log says so. */
enum gn_status gn_weights_open(const char *path, const struct gn_model *model, struct gn_log *log, struct gn_safetensors **out,
			       struct gn_err *err);
/* Of gn_weights_import(): how many tensors are missing behind the prefix, or are there without it, too. names: appended as one line; NULL: not
 * counted beyond the first. */
size_t gn_weights_missing(const struct gn_safetensors *file, const char *prefix, const struct gn_model *model, int without_head,
			  struct gn_strbuf *names);
/* Fills params and buffers from a file that gn_weights_open() opens. Every tensor of the model must be present with its shape, as F32, F16 or
 * BF16; GN_ERR_DATA names missing tensors, or the first with a different shape and both shapes. The names of additional tensors are
 * appended to ignored as one line, if any, of which the log warns; NULL: they are GN_ERR_DATA. On failure the arrays may be partially filled.
 * without_head: weight and bias of the last layer are neither read nor required; the file may have another number of classes. */
enum gn_status gn_weights_import(const char *path, const struct gn_model *model, int without_head, float *params, float *buffers,
				 struct gn_log *log, struct gn_strbuf *ignored, struct gn_err *err);
/* The same for a file written by Gannet, with key as gn_safetensors_open() takes it: only the model's own names, and no others. */
enum gn_status gn_weights_load(const char *path, const struct gn_data_key *key, const struct gn_model *model, float *params, float *buffers,
			       struct gn_err *err);
/* The sizes of a model like this one in a weights file: channels of images by the first layer, classes by the last. GN_ERR_DATA
 * names a tensor that is missing or whose other dimensions differ from the model's. */
enum gn_status gn_weights_sizes(const char *path, const struct gn_model *like, int64_t *channels, int64_t *classes, struct gn_err *err);
/* *names: the class names in the metadata of a file that gannet export wrote, text of a JSON array, the caller's to free; NULL for
 * a file that has none. */
enum gn_status gn_weights_class_names(const char *path, char **names, struct gn_err *err);
/* SHA-256 over names, shapes and offsets: two builds with equal digests interpret a flat array identically. */
enum gn_status gn_weights_layout_digest(const struct gn_model *model, char hex[65], struct gn_err *err);

#endif
