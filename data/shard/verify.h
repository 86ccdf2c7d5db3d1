/* Verifies all data of a packed dataset: each shard's size and SHA-256, its tables, each sample's CRC-32C and, on request, that
 * each sample decodes to the size in its row.
 *
 * Continues after damage and reports all of it. Blocks; one at a time per process (HDF5).
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
	int decode;		      /* also decode every image; of an encrypted dataset only with a key_file */
	const char *key_file;	      /* also authenticate manifest and samples of an encrypted dataset; may be NULL */
	struct gn_log *log;	      /* an error line for each damaged shard and sample; may be NULL */
	struct gn_progress_bar *progress; /* used exclusively by the check */
};

struct gn_verify_result {
	uint64_t samples, bytes;	   /* that were verified */
	uint64_t bad_samples, bad_shards;
	uint32_t shards;
	int encrypted, authenticated; /* authenticated: manifest and images, by the key */
};

/* GN_ERR_DATA when anything is damaged; *out is then set, too, if the manifest could be read. */
enum gn_status gn_verify(const struct gn_verify_options *options, struct gn_verify_result *out, struct gn_err *err);

#endif
