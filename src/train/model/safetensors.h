/* The safetensors file format: named tensors, readable by the Python package of that name.
 *
 * A file is an 8-byte little-endian header length, a JSON header {name: {dtype, shape, data_offsets}}, then the bytes of the
 * tensors without gaps. Writing is one call with everything in memory. Opening validates the whole header against the file before
 * anything is read: lengths, offsets, overlaps, shapes and types. Files are not trusted. With a key the whole file is the text of an
 * encrypted one (src/base/cipher_file.h); keys are borrowed for the call, and NULL for plain files.
 *
 * Thread safety: an open file is read-only; any thread may read it.
 */
#ifndef GN_TRAIN_MODEL_SAFETENSORS_H
#define GN_TRAIN_MODEL_SAFETENSORS_H

#include "src/base/data_key.h"
#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

/* All types of the format, so that files with other tensors can be read; F32 and I64 are written. */
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
	uint64_t offset;		   /* when reading: offset in the file */
};

struct gn_safetensors;

/* Writes count tensors to path, which must not exist, and syncs it. metadata: count_metadata pairs key, value. hex (may be NULL)
 * receives the SHA-256 of its bytes as they are in the file, and *len_bytes its size. On failure the file is removed. Blocks. */
enum gn_status gn_safetensors_write(const char *path, const struct gn_data_key *key, const struct gn_tensor_entry *tensors, size_t count,
				    const char *const *metadata, size_t count_metadata, char hex[65],
				    uint64_t *len_bytes, struct gn_err *err);

/* Of one value. */
size_t gn_safetensors_type_bytes(enum gn_tensor_type type);
/* The format's name: "F32". */
const char *gn_safetensors_type_name(enum gn_tensor_type type);

/* Opens and validates. GN_ERR_DATA for invalid files, GN_ERR_USAGE for a key that is missing, wrong, or given for a plain file. */
enum gn_status gn_safetensors_open(const char *path, const struct gn_data_key *key, struct gn_safetensors **out, struct gn_err *err);
void gn_safetensors_close(struct gn_safetensors *file);
size_t gn_safetensors_count(const struct gn_safetensors *file);
/* Its name may be changed, by which gn_safetensors_find() then finds it. */
struct gn_tensor_entry *gn_safetensors_entry(const struct gn_safetensors *file, size_t index);
/* NULL if there is no tensor of that name. Borrowed. */
const struct gn_tensor_entry *gn_safetensors_find(const struct gn_safetensors *file, const char *name);
/* The value of key in the header's metadata, borrowed; NULL if absent. */
const char *gn_safetensors_metadata(const struct gn_safetensors *file, const char *key);
/* GN_ERR_DATA, naming the tensor, if it is of floats of 16 or 32 bits and a value is NaN or infinite, unless the environment has
 * GANNET_ALLOW_NONFINITE. */
enum gn_status gn_safetensors_check_finite(const char *path, const struct gn_tensor_entry *e, const void *data, struct gn_err *err);
/* Reads the tensor's len_bytes into data with all OpenMP threads, and checks that they are finite. Blocks. */
enum gn_status gn_safetensors_read(const struct gn_safetensors *file, const struct gn_tensor_entry *entry, void *data,
				   struct gn_err *err);

#endif
