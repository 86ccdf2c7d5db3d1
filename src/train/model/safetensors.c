#include "src/train/model/safetensors.h"

#include "src/base/cipher_file.h"
#include "src/base/file.h"
#include "src/base/file_kind.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* the limit of the reference implementation */
static const uint64_t header_max = 100u << 20;
static const size_t prefix_bytes = 8;

struct gn_safetensors {
	char *path;
	int fd;
	struct gn_cipher_file *cipher; /* NULL: plain */
	size_t count;
	struct gn_tensor_entry *entries;
	json_t *metadata; /* NULL if absent */
};

static const struct {
	const char *name;
	size_t bytes;
} types[] = {
	[GN_TENSOR_F32] = {"F32", 4}, [GN_TENSOR_I64] = {"I64", 8}, [GN_TENSOR_F16] = {"F16", 2}, [GN_TENSOR_BF16] = {"BF16", 2},
	[GN_TENSOR_F64] = {"F64", 8}, [GN_TENSOR_F8_E4M3] = {"F8_E4M3", 1}, [GN_TENSOR_F8_E5M2] = {"F8_E5M2", 1},
	[GN_TENSOR_I32] = {"I32", 4}, [GN_TENSOR_I16] = {"I16", 2}, [GN_TENSOR_I8] = {"I8", 1}, [GN_TENSOR_U64] = {"U64", 8},
	[GN_TENSOR_U32] = {"U32", 4}, [GN_TENSOR_U16] = {"U16", 2}, [GN_TENSOR_U8] = {"U8", 1}, [GN_TENSOR_BOOL] = {"BOOL", 1},
};

size_t gn_safetensors_type_bytes(enum gn_tensor_type type)
{
	return types[type].bytes;
}

const char *gn_safetensors_type_name(enum gn_tensor_type type)
{
	return types[type].name;
}

static int parse_type(const json_t *value, enum gn_tensor_type *out)
{
	const char *text = json_string_value(value);

	for (size_t i = 0; text && i < sizeof types / sizeof *types; i++)
		if (!strcmp(text, types[i].name)) {
			*out = (enum gn_tensor_type)i;
			return 0;
		}
	return -1;
}

/* Number of elements of the shape; -1 for an invalid shape or on overflow. */
static int parse_shape(const json_t *value, struct gn_tensor_entry *e, size_t *elements)
{
	size_t product = 1;

	if (!json_is_array(value) || json_array_size(value) > GN_TENSOR_DIMS_MAX)
		return -1;
	e->dims = (int)json_array_size(value);
	for (int d = 0; d < e->dims; d++) {
		const json_t *side = json_array_get(value, (size_t)d);

		e->shape[d] = json_integer_value(side);
		if (!json_is_integer(side) || e->shape[d] < 0 ||
		    __builtin_mul_overflow(product, (size_t)e->shape[d], &product))
			return -1;
	}
	*elements = product;
	return 0;
}

static enum gn_status parse_entry(const char *path, const char *name, const json_t *value, uint64_t data_bytes,
				  uint64_t data_start, struct gn_tensor_entry *e, struct gn_err *err)
{
	const json_t *range = json_object_get(value, "data_offsets");
	json_int_t begin = json_integer_value(json_array_get(range, 0)), end = json_integer_value(json_array_get(range, 1));
	size_t elements, len;

	if (strlen(name) >= sizeof e->name)
		return gn_err_set(err, GN_ERR_DATA, "%s: tensor name '%.40s...' is too long", path, name);
	memcpy(e->name, name, strlen(name) + 1);
	if (parse_type(json_object_get(value, "dtype"), &e->type))
		return gn_err_set(err, GN_ERR_DATA, "%s: tensor '%s' has an unknown type", path, name);
	if (parse_shape(json_object_get(value, "shape"), e, &elements))
		return gn_err_set(err, GN_ERR_DATA, "%s: tensor '%s' has an invalid shape", path, name);
	if (json_array_size(range) != 2 || !json_is_integer(json_array_get(range, 0)) ||
	    !json_is_integer(json_array_get(range, 1)) || begin < 0 || end < begin || (uint64_t)end > data_bytes)
		return gn_err_set(err, GN_ERR_DATA, "%s: tensor '%s' extends beyond the file", path, name);
	if (__builtin_mul_overflow(elements, types[e->type].bytes, &len) || len != (uint64_t)(end - begin))
		return gn_err_set(err, GN_ERR_DATA, "%s: tensor '%s' has %lld bytes, which does not match its shape",
				  path, name, (long long)(end - begin));
	e->len_bytes = len;
	e->offset = data_start + (uint64_t)begin;
	return GN_OK;
}

static int by_offset(const void *a, const void *b)
{
	const struct gn_tensor_entry *x = a, *y = b;

	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return x->len_bytes < y->len_bytes ? -1 : x->len_bytes > y->len_bytes;
}

/* The format has neither gaps nor overlaps: sorted by offset, the tensors must tile the data exactly. */
static enum gn_status check_tiling(const struct gn_safetensors *file, uint64_t data_start, uint64_t data_bytes,
				   struct gn_err *err)
{
	uint64_t next = data_start;

	for (size_t i = 0; i < file->count; i++) {
		if (file->entries[i].offset != next)
			return gn_err_set(err, GN_ERR_DATA, "%s: tensor '%s' overlaps another or leaves a gap",
					  file->path, file->entries[i].name);
		next += file->entries[i].len_bytes;
	}
	if (next != data_start + data_bytes)
		return gn_err_set(err, GN_ERR_DATA, "%s has %llu bytes outside all tensors", file->path,
				  (unsigned long long)(data_start + data_bytes - next));
	return GN_OK;
}

static enum gn_status parse_header(struct gn_safetensors *file, json_t *header, uint64_t data_start,
				   uint64_t data_bytes, struct gn_err *err)
{
	const char *name;
	json_t *value;

	if (!json_is_object(header))
		return gn_err_set(err, GN_ERR_DATA, "%s: the header is not a JSON object", file->path);
	file->entries = calloc(json_object_size(header) + 1, sizeof *file->entries);
	if (!file->entries)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the header of %s", file->path);
	json_object_foreach(header, name, value)
	{
		enum gn_status status;

		if (!strcmp(name, "__metadata__")) {
			file->metadata = json_incref(value);
			continue;
		}
		status = parse_entry(file->path, name, value, data_bytes, data_start, &file->entries[file->count], err);
		if (status)
			return status;
		file->count++;
	}
	qsort(file->entries, file->count, sizeof *file->entries, by_offset);
	return check_tiling(file, data_start, data_bytes, err);
}

/* Whether the file starts as a zip archive or a pickle. Checked only for files that are not safetensors, whose length field may
 * start with the same bytes. */
static int is_of_torch_save(const unsigned char prefix[8])
{
	return !memcmp(prefix, "PK\3\4", 4) || (prefix[0] == 0x80 && prefix[1] >= 2 && prefix[1] <= 5);
}

/* Whether it starts as a ModelProto of ONNX: field 1, the version of the format, then another field of bytes, its producer or the graph. */
static int is_onnx(const unsigned char prefix[8])
{
	return prefix[0] == 0x08 && prefix[1] < 0x80 && prefix[2] >= 0x12 && prefix[2] < 0x80 && (prefix[2] & 7) == 2;
}

static enum gn_status read_at(const struct gn_safetensors *file, void *data, size_t len_bytes, uint64_t offset, struct gn_err *err)
{
	return file->cipher ? gn_cipher_read(file->cipher, data, len_bytes, offset, err)
			    : gn_pread_full(file->fd, data, len_bytes, offset, file->path, err);
}

/* *size becomes that of the text. A file that is not encrypted is GN_ERR_USAGE with a key: it may have been put in the place of one. */
static enum gn_status begin_decrypting(struct gn_safetensors *file, const struct gn_data_key *key, uint64_t *size, struct gn_err *err)
{
	unsigned char prefix[16] = {0};
	enum gn_status status = *size < sizeof prefix ? GN_OK : gn_pread_full(file->fd, prefix, sizeof prefix, 0, file->path, err);

	if (status)
		return status;
	if (gn_cipher_begins(prefix))
		return gn_cipher_open(file->fd, file->path, key, &file->cipher, size, err);
	return key ? gn_err_set(err, GN_ERR_USAGE, "%s is not encrypted, but --checkpoint-key is given", file->path) : GN_OK;
}

static enum gn_status not_safetensors(const char *path, const unsigned char prefix[8], uint64_t header_bytes, struct gn_err *err)
{
	const char *kind = prefix[0] == '{' ? "JSON: an index of several files, which have the tensors?" : gn_file_kind_at(path);

	if (is_of_torch_save(prefix))
		return gn_err_set(err, GN_ERR_DATA, "%s was written by torch.save: python -m gannet_torch.convert FILE writes it as safetensors; the page "
				  "training.md has one line of Python for that, too", path);
	if (is_onnx(prefix))
		return gn_err_set(err, GN_ERR_DATA, "%s is an ONNX file: gannet reads safetensors, which gannet export --out FILE.safetensors "
				  "writes", path);
	return kind ? gn_err_set(err, GN_ERR_DATA, "%s is not a safetensors file but %s", path, kind)
		    : gn_err_set(err, GN_ERR_DATA, "%s is not a safetensors file: its header would have %llu bytes", path,
				 (unsigned long long)header_bytes);
}

static enum gn_status load_header(struct gn_safetensors *file, const struct gn_data_key *key, struct gn_err *err)
{
	unsigned char prefix[8];
	uint64_t header_bytes = 0, size;
	struct stat info;
	json_error_t problem;
	json_t *header;
	char *text;
	enum gn_status status;

	if (fstat(file->fd, &info))
		return gn_err_errno(err, errno, "cannot stat %s", file->path);
	size = (uint64_t)info.st_size;
	if (S_ISDIR(info.st_mode))
		return gn_err_set(err, GN_ERR_DATA, "%s is a folder: give a safetensors file, such as model.safetensors in a "
				  "checkpoint",
				  file->path);
	if (!S_ISREG(info.st_mode) || size < prefix_bytes)
		return gn_err_set(err, GN_ERR_DATA, "%s is not a safetensors file: it is too short", file->path);
	status = begin_decrypting(file, key, &size, err);
	if (!status)
		status = read_at(file, prefix, sizeof prefix, 0, err);
	if (status)
		return status;
	for (size_t i = 0; i < prefix_bytes; i++)
		header_bytes |= (uint64_t)prefix[i] << (8 * i);
	if (header_bytes > size - prefix_bytes || header_bytes > header_max)
		return not_safetensors(file->path, prefix, header_bytes, err);
	text = malloc((size_t)header_bytes + 1);
	if (!text)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the header of %s", file->path);
	status = read_at(file, text, (size_t)header_bytes, prefix_bytes, err);
	if (!status) {
		header = json_loadb(text, (size_t)header_bytes, JSON_REJECT_DUPLICATES, &problem);
		if (!header)
			status = gn_err_set(err, GN_ERR_DATA, "%s: the header is not JSON: %s", file->path,
					    problem.text);
		else
			status = parse_header(file, header, prefix_bytes + header_bytes,
					      size - prefix_bytes - header_bytes, err);
		json_decref(header);
	}
	free(text);
	return status;
}

enum gn_status gn_safetensors_open(const char *path, const struct gn_data_key *key, struct gn_safetensors **out, struct gn_err *err)
{
	struct gn_safetensors *file = calloc(1, sizeof *file);
	enum gn_status status = GN_OK;

	if (!file)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to open %s", path);
	file->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (file->fd < 0)
		status = gn_err_errno(err, errno, "cannot open %s", path);
	else if (!(file->path = strdup(path)))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to open %s", path);
	else
		status = load_header(file, key, err);
	if (status)
		gn_safetensors_close(file);
	else
		*out = file;
	return status;
}

void gn_safetensors_close(struct gn_safetensors *file)
{
	if (!file)
		return;
	gn_cipher_close(file->cipher);
	if (file->fd >= 0)
		close(file->fd);
	json_decref(file->metadata);
	free(file->entries);
	free(file->path);
	free(file);
}

size_t gn_safetensors_count(const struct gn_safetensors *file)
{
	return file->count;
}

struct gn_tensor_entry *gn_safetensors_entry(const struct gn_safetensors *file, size_t index)
{
	return &file->entries[index];
}

const struct gn_tensor_entry *gn_safetensors_find(const struct gn_safetensors *file, const char *name)
{
	for (size_t i = 0; i < file->count; i++)
		if (!strcmp(file->entries[i].name, name))
			return &file->entries[i];
	return NULL;
}

const char *gn_safetensors_metadata(const struct gn_safetensors *file, const char *key)
{
	return json_string_value(json_object_get(file->metadata, key));
}

enum gn_status gn_safetensors_check_finite(const char *path, const struct gn_tensor_entry *e, const void *data, struct gn_err *err)
{
	const uint32_t *full = data;
	const uint16_t *half = data;
	const double *twice = data;
	const unsigned mask = e->type == GN_TENSOR_F16 ? 0x7c00 : 0x7f80; /* the exponent's bits, all set in what is not finite */
	const size_t count = e->len_bytes / types[e->type].bytes;
	size_t bad = 0;

	if ((e->type != GN_TENSOR_F32 && e->type != GN_TENSOR_F16 && e->type != GN_TENSOR_BF16 && e->type != GN_TENSOR_F64) || getenv("GANNET_ALLOW_NONFINITE"))
		return GN_OK;
	if (e->type == GN_TENSOR_F32) {
#pragma omp simd reduction(+ : bad)
		for (size_t i = 0; i < count; i++)
			bad += (full[i] & 0x7f800000) == 0x7f800000;
	} else if (e->type == GN_TENSOR_F64) {
		for (size_t i = 0; i < count; i++)
			bad += !isfinite((float)twice[i]); /* as it is used */
	} else {
#pragma omp simd reduction(+ : bad)
		for (size_t i = 0; i < count; i++)
			bad += (half[i] & mask) == mask;
	}
	return !bad ? GN_OK
		    : gn_err_set(err, GN_ERR_DATA, "%s: %zu of %zu values of tensor '%s' are NaN or infinite (set GANNET_ALLOW_NONFINITE=1 to "
				 "use it all the same)", path, bad, count, e->name);
}

enum gn_status gn_safetensors_read(const struct gn_safetensors *file, const struct gn_tensor_entry *entry, void *data,
				   struct gn_err *err)
{
	enum { PIECE_BYTES = 8 << 20 };
	size_t pieces = (entry->len_bytes + PIECE_BYTES - 1) / PIECE_BYTES;
	enum gn_status status = GN_OK;

	/* parallel, because the cost is in the page faults of the destination */
#pragma omp parallel for schedule(dynamic) if (pieces > 1)
	for (size_t i = 0; i < pieces; i++) {
		size_t at = i * PIECE_BYTES, left = entry->len_bytes - at;
		struct gn_err why;
		enum gn_status s = read_at(file, (char *)data + at, left < PIECE_BYTES ? left : PIECE_BYTES, entry->offset + at, &why);

		if (!s)
			continue;
#pragma omp critical(gn_safetensors)
		{
			status = s;
			if (err)
				*err = why;
		}
	}
	return status ? status : gn_safetensors_check_finite(file->path, entry, data, err);
}
