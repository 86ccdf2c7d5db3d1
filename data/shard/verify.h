/* Checks a packed dataset byte by byte: each shard's size and SHA-256, its tables, each sample's CRC-32C and, if asked,
 * that each sample decodes to the size in its row.
 *
 * Goes on after damage and names all of it. Blocks; one at a time in a process (HDF5).
 */
#ifndef GN_DATA_SHARD_VERIFY_H
#define GN_DATA_SHARD_VERIFY_H

#include "src/base/log.h"
#include "src/base/progress_bar.h"
#include "src/base/status.h"

#include <stdint.h>

struct gn_verify_options {
	const char *directory;
	int threads;		      /* >= 1 */
	int decode;		      /* decode every image, too */
	struct gn_log *log;	      /* an error line for each damaged shard and sample; may be NULL */
	struct gn_progress_bar *progress; /* ours while we work */
};

struct gn_verify_result {
	uint64_t samples, bytes;	   /* that were checked */
	uint64_t bad_samples, bad_shards;
	uint32_t shards;
};

/* GN_ERR_DATA when anything is damaged; *out is set then, too, once the manifest could be read. */
enum gn_status gn_verify(const struct gn_verify_options *options, struct gn_verify_result *out, struct gn_err *err);

#endif
