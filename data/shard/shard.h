/* One shard: an HDF5 file that holds JPEG files end to end in one contiguous dataset, and a row for each.
 *
 * Layout, all in the root group, all contiguous, one element a sample except `data`: data (uint8), offset (uint64, into
 * data), length (uint32), label (uint32), crc32c (uint32, of the JPEG file), width (uint16), height (uint16), name (bytes
 * of fixed length, padded with zeros). Attributes: format "gannet-shard", version 1, classes (uint32). No time stamps, so
 * that the same samples give the same bytes. Any HDF5 program reads it; Gannet asks HDF5 where the bytes lie and then
 * reads them with pread.
 *
 * Thread safety: writing and opening use the HDF5 library, which is not thread-safe: one thread of the process at a time.
 * An open shard is read-only and may be read by any thread at once, without HDF5.
 * Errors: GN_ERR_DATA naming file, dataset and row for anything that does not add up; GN_ERR_IO, GN_ERR_NO_SPACE.
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

/* Where things lie in the file. */
struct gn_shard_layout {
	uint64_t size_bytes;		    /* of the whole file */
	uint64_t data_offset, data_bytes;   /* the dataset data */
	uint64_t name_offset;		    /* the dataset name */
	uint32_t name_bytes;		    /* of one name */
	uint32_t classes;
	uint64_t count;
};

struct gn_shard;

/* Makes path (which must not be there) with all rows, and room for the data, which the caller writes at data_offset +
 * row.offset. rows must be packed: each begins where the one before ends, the first at 0. Nothing is synced. On failure
 * path is removed. */
enum gn_status gn_shard_write(const char *path, const struct gn_shard_row *rows, const char *const *names,
			      uint64_t count, uint32_t classes, struct gn_shard_layout *out, struct gn_err *err);

/* Opens path and validates everything but the data's checksums. */
enum gn_status gn_shard_open(const char *path, struct gn_shard **out, struct gn_err *err);
void gn_shard_close(struct gn_shard *s);

/* Borrowed. */
const struct gn_shard_layout *gn_shard_layout(const struct gn_shard *s);
const struct gn_shard_row *gn_shard_rows(const struct gn_shard *s);
const char *gn_shard_path(const struct gn_shard *s);
/* Reads the JPEG file of a row (in range) into buffer (at least its length_bytes) and checks its CRC-32C. */
enum gn_status gn_shard_read(const struct gn_shard *s, uint64_t row, void *buffer, struct gn_err *err);
/* The name of a row, for messages; at most size bytes with the terminating zero; "?" when it cannot be read. */
void gn_shard_name(const struct gn_shard *s, uint64_t row, char *out, size_t size);

/* SHA-256 of everything in the file except data: the small part that every start depends on, cheap enough to check each
 * time. Of a file shorter than the layout says: GN_ERR_DATA. No HDF5: any thread. */
enum gn_status gn_shard_head_digest(const char *path, uint64_t data_offset, uint64_t data_bytes,
				    char hex[GN_SHA256_HEX], struct gn_err *err);

#endif
