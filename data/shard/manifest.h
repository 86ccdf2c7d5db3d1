/* The manifest of a packed dataset, gannet-dataset.json: the contents of a folder of shards, written last.
 *
 *     {"format": "gannet-dataset", "version": 2, "digest": "...", "samples": N, "seed": N, "skipped": N,
 *      "classes": [{"name": "cat", "samples": N}, ...],
 *      "shards": [{"file": "shard-00000.h5", "samples": N, "bytes": N, "sha256": "...",
 *                  "data_offset": N, "data_bytes": N, "head_sha256": "..."}, ...]}
 *
 * Of an encrypted dataset (data/shard/encryption.h) version is 3, each shard has "salt", and "encryption" is
 * {"cipher": "AES-256-GCM", "key_check": "...", "mac": "..."}.
 *
 * head_sha256 covers everything in the shard except its dataset `data` (gn_shard_head_digest): every start verifies the tables that
 * decide what is read, without reading all data. Reading validates types, ranges, sums, file names (a plain name in the same
 * folder), and the digest, which covers seed, skipped, class names, shards, salts and key_check. (Version 1, still readable, did not
 * cover seed and skipped.)
 *
 * Thread safety: read-only once loaded. Errors: GN_ERR_NOT_FOUND, GN_ERR_DATA naming file and field.
 */
#ifndef GN_DATA_SHARD_MANIFEST_H
#define GN_DATA_SHARD_MANIFEST_H

#include "src/base/sha256.h"
#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

#define GN_MANIFEST_NAME "gannet-dataset.json"

struct gn_manifest_class {
	char *name;
	uint64_t samples;
};

struct gn_manifest_shard {
	char file[64];
	uint64_t samples;
	uint64_t size_bytes;
	uint64_t data_offset, data_bytes;
	char sha256[GN_SHA256_HEX];
	char head_sha256[GN_SHA256_HEX];
	char salt[GN_SHA256_HEX]; /* "": not encrypted */
};

struct gn_manifest {
	struct gn_manifest_class *classes;
	struct gn_manifest_shard *shards;
	uint32_t class_count, shard_count;
	uint64_t samples; /* in all shards */
	uint64_t skipped; /* bad images skipped with --skip-bad; with pack --split in both datasets those of the whole pack */
	uint64_t seed;	  /* of the shuffle */
	int exif_rotate;  /* images were turned as their EXIF orientation says; not in the digest, absent when 0 */
	uint32_t version; /* of the format */
	char key_check[GN_SHA256_HEX], mac[GN_SHA256_HEX]; /* "": not encrypted */
	char digest[GN_SHA256_HEX];
};

/* Allocates a zeroed manifest for class_count classes and shard_count shards. */
enum gn_status gn_manifest_init(struct gn_manifest *m, uint32_t class_count, uint32_t shard_count, struct gn_err *err);
void gn_manifest_release(struct gn_manifest *m);

/* Sets the version, 3 with key_check and else 2, and computes m->digest. */
enum gn_status gn_manifest_seal(struct gn_manifest *m, struct gn_err *err);
/* Writes directory/gannet-dataset.json atomically. m must be sealed. */
enum gn_status gn_manifest_save(const struct gn_manifest *m, const char *directory, struct gn_err *err);
/* Reads and validates the manifest. The caller releases m. */
enum gn_status gn_manifest_load(const char *directory, struct gn_manifest *m, struct gn_err *err);
/* Whether a folder holds a packed dataset, by the name of its file. */
int gn_manifest_is_there(const char *directory);
/* Where directory is no dataset and folders in it are, as gannet pack --split writes them: GN_ERR_NOT_FOUND, naming two of them. Else
 * GN_OK. */
enum gn_status gn_manifest_check_parent(const char *directory, struct gn_err *err);
/* Parses a text in memory; path is for messages. */
enum gn_status gn_manifest_parse(const char *text, size_t len, const char *path, struct gn_manifest *m,
				 struct gn_err *err);

#endif
