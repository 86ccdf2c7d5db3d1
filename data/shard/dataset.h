/* A packed dataset: a folder of HDF5 shards with a manifest.
 *
 * `gannet pack` writes it; everything else reads it. The manifest (gannet-dataset.json, written last) holds the class names, and
 * for each shard its file, sample count, size and SHA-256. A shard is an HDF5 file with a contiguous uint8 dataset `data` that
 * holds the JPEG files one after the other, and one row per sample in `offset`, `length`, `label`, `crc32c`, `width`, `height`,
 * `name`. Opening validates every row against the file (bounds, order, labels) and keeps the position of the bytes, so that reading
 * a sample is one pread.
 *
 * A dataset that gannet stage has copied is held while it is open (data/shard/folders.h).
 *
 * Lifecycle: gn_dataset_open, gn_dataset_unlock before the first read ... gn_dataset_close. Thread safety: read-only after that; any
 * thread may call any function below concurrently. Errors: GN_ERR_DATA with file and sample for inconsistent data, GN_ERR_NOT_FOUND
 * without a manifest, GN_ERR_IO.
 */
#ifndef GN_DATA_SHARD_DATASET_H
#define GN_DATA_SHARD_DATASET_H

#include "src/base/sha256.h"
#include "src/base/status.h"

#include <stdint.h>

struct gn_dataset;

struct gn_sample {
	uint32_t shard;
	uint32_t row;		/* within the shard */
	uint32_t label;
	uint32_t length_bytes;	/* of the JPEG file */
	uint32_t crc32c;	/* of the bytes in the shard */
	uint16_t width, height; /* pixels, recorded when packing */
	uint32_t stored_bytes;	/* in the shard: length_bytes, and 16 more of an encrypted dataset */
};

/* Opens every shard of the manifest in directory, which may be several folders (data/shard/folders.h). Blocks on the file system. */
enum gn_status gn_dataset_open(const char *directory, struct gn_dataset **out, struct gn_err *err);
/* Reads the key of an encrypted dataset, without which gn_dataset_read() fails; key_file NULL: none. For commands that read samples,
 * whether it is encrypted or not. GN_ERR_USAGE for a key that is missing, wrong, or given for a dataset that is not encrypted; GN_ERR_DATA
 * when the manifest was changed by someone without the key. The keys are wiped when it is closed. */
enum gn_status gn_dataset_unlock(struct gn_dataset *d, const char *key_file, struct gn_err *err);
void gn_dataset_close(struct gn_dataset *d);

/* From now on samples of a shard are read from its copy in another directory, which gannet stage has verified. Once a shard, from one
 * thread, while others read. On failure it is read as before. */
enum gn_status gn_dataset_use_copy(struct gn_dataset *d, uint32_t shard, const char *directory, struct gn_err *err);
/* Bytes of samples that were read, so far, from shards without a copy. */
uint64_t gn_dataset_source_bytes(const struct gn_dataset *d);

const char *gn_dataset_directory(const struct gn_dataset *d);
uint64_t gn_dataset_count(const struct gn_dataset *d);
uint32_t gn_dataset_classes(const struct gn_dataset *d);
/* Borrowed. */
/* Whether its images were turned as their EXIF orientation says (gannet pack --exif-rotate). */
int gn_dataset_exif_rotate(const struct gn_dataset *d);
const char *gn_dataset_class_name(const struct gn_dataset *d, uint32_t label);
/* GN_ERR_DATA, naming the first label that differs, unless both have the same class names in the same order. */
enum gn_status gn_dataset_same_classes(const struct gn_dataset *a, const struct gn_dataset *b, struct gn_err *err);
/* SHA-256 over seed, class names, shard digests and counts, in order: datasets with equal digests hold the same samples in the same
 * order. Borrowed, 64 hexadecimal digits. */
const char *gn_dataset_digest(const struct gn_dataset *d);
/* The largest stored_bytes of a sample: the size of a read buffer. */
uint32_t gn_dataset_max_length(const struct gn_dataset *d);

/* index: 0 .. count-1 over all shards in the manifest's order; not checked. */
void gn_dataset_sample(const struct gn_dataset *d, uint64_t index, struct gn_sample *out);
/* Reads the JPEG file of sample index into buffer (at least its stored_bytes), checks its CRC-32C, and decrypts it. */
enum gn_status gn_dataset_read(const struct gn_dataset *d, uint64_t index, void *buffer, struct gn_err *err);
/* The name that the sample was packed under (a path inside its source), for messages. Writes at most size bytes. */
void gn_dataset_sample_name(const struct gn_dataset *d, uint64_t index, char *out, size_t size);

#endif
