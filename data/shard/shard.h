/* A shard: an HDF5 file with JPEG files end to end in one contiguous dataset, and a row for each.
 *
 * Layout, all in the root group, all contiguous, one element per sample except `data`: data (uint8), offset (uint64, into data), length
 * (uint32), label (uint32), crc32c (uint32, of the bytes in data), width (uint16), height (uint16), name (bytes of fixed length, padded
 * with zeros). With encryption (data/shard/encryption.h) the bytes in data are a JPEG file's ciphertext and its tag. Attributes: format
 * "gannet-shard", version 1, classes (uint32). No time stamps, so that the same samples give the same bytes. Any HDF5 program reads it;
 * Gannet asks HDF5 for the position of the bytes and reads them with pread.
 *
 * Thread safety: writing and opening use the HDF5 library, which is not thread-safe: one thread of the process at a time. Any
 * thread may read an open shard concurrently; reading does not use HDF5.
 * Errors: GN_ERR_DATA naming file, dataset and row for inconsistent data; GN_ERR_IO, GN_ERR_NO_SPACE.
 */
#ifndef GN_DATA_SHARD_SHARD_H
#define GN_DATA_SHARD_SHARD_H

#include "src/base/sha256.h"
#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

#define GN_SHARD_NAME_MAX 4096 /* bytes of a sample's name */

struct gn_shard_row {
	uint64_t offset;	/* into data */
	uint32_t length_bytes;
	uint32_t label;
	uint32_t crc32c;
	uint16_t width, height; /* pixels */
};

/* Positions in the file. */
struct gn_shard_layout {
	uint64_t size_bytes;		    /* size of the whole file */
	uint64_t data_offset, data_bytes;   /* the dataset data */
	uint64_t name_offset;		    /* the dataset name */
	uint64_t crc32c_offset;		    /* the dataset crc32c, for a writer that knows its values later: little-endian */
	uint32_t name_bytes;		    /* bytes per name */
	uint32_t classes;
	uint64_t count;
};

struct gn_shard;

/* Creates path (which must not exist) with all rows, and space for the data, which the caller writes at data_offset + row.offset.
 * Rows must be contiguous: each starts where the previous ends, the first at 0. Does not sync. On failure path is removed. */
enum gn_status gn_shard_write(const char *path, const struct gn_shard_row *rows, const char *const *names,
			      uint64_t count, uint32_t classes, struct gn_shard_layout *out, struct gn_err *err);

/* Opens path and validates everything except the checksums of the data. */
enum gn_status gn_shard_open(const char *path, struct gn_shard **out, struct gn_err *err);
void gn_shard_close(struct gn_shard *s);

/* Borrowed. */
const struct gn_shard_layout *gn_shard_layout(const struct gn_shard *s);
const struct gn_shard_row *gn_shard_rows(const struct gn_shard *s);
const char *gn_shard_path(const struct gn_shard *s);
/* From now on the shard is read from the file at path, which has the same bytes: once, at any time, while others read it. GN_ERR_DATA for
 * a file of another size; the shard is then read as before. */
enum gn_status gn_shard_use_copy(struct gn_shard *s, const char *path, struct gn_err *err);
int gn_shard_is_copied(const struct gn_shard *s);
/* Reads the bytes of a row (not range-checked) into buffer (at least its length_bytes) and verifies its CRC-32C. */
enum gn_status gn_shard_read(const struct gn_shard *s, uint64_t row, void *buffer, struct gn_err *err);
/* The name of a row, for messages: at most size bytes including the terminator; "?" when it cannot be read. */
void gn_shard_name(const struct gn_shard *s, uint64_t row, char *out, size_t size);

/* SHA-256 of everything in the file except data: the small part that determines what is read, cheap enough to verify at every
 * start. GN_ERR_DATA for a file shorter than the layout. Does not use HDF5: any thread. */
enum gn_status gn_shard_head_digest(const char *path, uint64_t data_offset, uint64_t data_bytes,
				    char hex[GN_SHA256_HEX], struct gn_err *err);

#endif
