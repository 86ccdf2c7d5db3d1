/* A packed dataset: a folder of HDF5 shards with a manifest that vouches for them.
 *
 * `gannet pack` writes it, everything else reads it. The manifest (gannet-dataset.json, written last) names the classes,
 * and for each shard its file, sample count, size and SHA-256. A shard is one HDF5 file with a contiguous uint8 dataset
 * `data` that holds the JPEG files one after the other, and one row a sample in `offset`, `length`, `label`, `crc32c`,
 * `width`, `height`, `name`. Opening validates every row against the file (bounds, order of magnitude, labels) and keeps
 * where the bytes lie, so that a sample is then one pread.
 *
 * Lifecycle: gn_dataset_open ... gn_dataset_close. Thread safety: a dataset is read-only after opening; every operation
 * below may be called from any thread at once. Errors: GN_ERR_DATA with file and sample for anything that does not add
 * up, GN_ERR_NOT_FOUND when there is no manifest, GN_ERR_IO.
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
	uint32_t crc32c;	/* of the JPEG file */
	uint16_t width, height; /* pixels, as found when packing */
};

/* Opens every shard that the manifest in directory names. Blocks on the file system. */
enum gn_status gn_dataset_open(const char *directory, struct gn_dataset **out, struct gn_err *err);
void gn_dataset_close(struct gn_dataset *d);

const char *gn_dataset_directory(const struct gn_dataset *d);
uint64_t gn_dataset_count(const struct gn_dataset *d);
uint32_t gn_dataset_classes(const struct gn_dataset *d);
/* Borrowed. */
const char *gn_dataset_class_name(const struct gn_dataset *d, uint32_t label);
/* GN_ERR_DATA, naming the first label whose names differ, unless both have the same class names in the same order. */
enum gn_status gn_dataset_same_classes(const struct gn_dataset *a, const struct gn_dataset *b, struct gn_err *err);
/* SHA-256 over seed, class names, shard digests and counts, in order: two datasets with the same digest hold the same samples in
 * the same order. Borrowed, 64 hexadecimal digits. */
const char *gn_dataset_digest(const struct gn_dataset *d);
/* The longest JPEG file in the dataset, in bytes: what a read buffer needs. */
uint32_t gn_dataset_max_length(const struct gn_dataset *d);

/* index counts through all shards in the manifest's order, 0 .. count-1; the caller keeps it in range. */
void gn_dataset_sample(const struct gn_dataset *d, uint64_t index, struct gn_sample *out);
/* Reads the JPEG file of sample index into buffer (at least its length_bytes) and checks its CRC-32C. */
enum gn_status gn_dataset_read(const struct gn_dataset *d, uint64_t index, void *buffer, struct gn_err *err);
/* The name the sample was packed under (a path inside its source), for messages; writes at most size bytes. */
void gn_dataset_sample_name(const struct gn_dataset *d, uint64_t index, char *out, size_t size);

#endif
