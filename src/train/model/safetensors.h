/* The safetensors file format: named tensors that the Python package of that name reads as they are.
 *
 * A file is an 8-byte little-endian header length, a JSON header {name: {dtype, shape, data_offsets}}, then the tensors'
 * bytes without gaps. Writing is one call with everything in memory. Opening validates the whole header against the file
 * before anything is read: lengths, offsets, overlaps, shapes and types; nothing in a file can make a reader go astray.
 *
 * Thread safety: an open file is read-only and may be read from any thread.
 */
#ifndef GN_TRAIN_MODEL_SAFETENSORS_H
#define GN_TRAIN_MODEL_SAFETENSORS_H

#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

/* All that the format knows, so that files with tensors of no interest can be read; F32 and I64 are written. */
enum gn_tensor_type {
	GN_TENSOR_F32, GN_TENSOR_I64, GN_TENSOR_F16, GN_TENSOR_BF16, GN_TENSOR_F64, GN_TENSOR_F8_E4M3, GN_TENSOR_F8_E5M2,
	GN_TENSOR_I32, GN_TENSOR_I16, GN_TENSOR_I8, GN_TENSOR_U64, GN_TENSOR_U32, GN_TENSOR_U16, GN_TENSOR_U8, GN_TENSOR_BOOL
};

#define GN_TENSOR_NAME_MAX 128
#define GN_TENSOR_DIMS_MAX 8

struct gn_tensor_entry {
	char name[GN_TENSOR_NAME_MAX];
	enum gn_tensor_type type;
	int dims;			   /* 0: a scalar */
	int64_t shape[GN_TENSOR_DIMS_MAX];
	size_t len_bytes;
	const void *data;		   /* when writing: borrowed; when reading: NULL */
	uint64_t offset;		   /* when reading: in the file */
};

struct gn_safetensors;

/* Writes count tensors to path, which must not exist, and syncs it. metadata is count_metadata pairs key, value. When
 * hex is not NULL it gets the file's SHA-256, and *len_bytes its size. On failure the file is removed. */
enum gn_status gn_safetensors_write(const char *path, const struct gn_tensor_entry *tensors, size_t count,
				    const char *const *metadata, size_t count_metadata, char hex[65],
				    uint64_t *len_bytes, struct gn_err *err);

/* As the format calls it: "F32". */
const char *gn_safetensors_type_name(enum gn_tensor_type type);

/* Opens and validates. GN_ERR_DATA tells what is wrong with the file. */
enum gn_status gn_safetensors_open(const char *path, struct gn_safetensors **out, struct gn_err *err);
void gn_safetensors_close(struct gn_safetensors *file);
size_t gn_safetensors_count(const struct gn_safetensors *file);
const struct gn_tensor_entry *gn_safetensors_entry(const struct gn_safetensors *file, size_t index);
/* NULL when there is no tensor of that name. */
const struct gn_tensor_entry *gn_safetensors_find(const struct gn_safetensors *file, const char *name);
/* The text that the header's metadata has for key, borrowed; NULL for none. */
const char *gn_safetensors_metadata(const struct gn_safetensors *file, const char *key);
/* Reads the tensor's len_bytes into data, with as many OpenMP threads as are set. */
enum gn_status gn_safetensors_read(const struct gn_safetensors *file, const struct gn_tensor_entry *entry, void *data,
				   struct gn_err *err);

#endif
