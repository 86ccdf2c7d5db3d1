/* Shared by the writer and the reader of shards: the table of row fields and HDF5's settings. Private to data/shard/. */
#ifndef GN_DATA_SHARD_SHARD_INTERNAL_H
#define GN_DATA_SHARD_SHARD_INTERNAL_H

#include "data/shard/shard.h"

#include <hdf5.h>

#define GN_SHARD_FORMAT "gannet-shard"
#define GN_SHARD_VERSION 1

/* The numeric row datasets, in file order. */
enum gn_shard_field {
	GN_SHARD_OFFSET,
	GN_SHARD_LENGTH,
	GN_SHARD_LABEL,
	GN_SHARD_CRC32C,
	GN_SHARD_WIDTH,
	GN_SHARD_HEIGHT,
	GN_SHARD_FIELDS
};

const char *gn_shard_field_name(enum gn_shard_field field);
size_t gn_shard_field_bytes(enum gn_shard_field field);
void gn_shard_field_set(struct gn_shard_row *row, enum gn_shard_field field, uint64_t value);

/* File access property list: no locks (they fail on NFS and Lustre), file format of HDF5 1.8 (its metadata has checksums, and old
 * programs read it). Negative on failure; the caller closes it. */
hid_t gn_shard_access(void);
/* Disables HDF5's own error output. */
void gn_shard_quiet(void);
/* Sets an error with the innermost message of HDF5's error stack appended. */
enum gn_status gn_shard_hdf5_error(struct gn_err *err, enum gn_status status, const char *path, const char *what);

#endif
