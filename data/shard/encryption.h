/* Encrypted datasets: samples by AES-256-GCM (src/base/data_key.h), the manifest signed.
 *
 * Each shard has a random salt of its own, new whenever it is written, also by a pack that resumes; its key is HKDF(key, salt, "gannet
 * shard 1"). A sample's nonce of 96 bits is the shard's number in the manifest (32 bits) and the sample's row (64 bits), big-endian, so
 * that none occurs twice under a key. The tag also covers format, label, width, height and length. A sample in a shard is the encrypted
 * JPEG file and then its tag of 16 bytes; the row's length_bytes and crc32c are of both, so that shards are verified without the key.
 *
 * In the manifest (version 3) key_check, HKDF(key, salt of shard 0, "gannet key check 1"), identifies the key, and mac, HKDF(key, salt
 * of shard 0, "gannet manifest 1 " and the digest), authenticates the digest, hence class names, order, and the tables and bytes of all
 * shards. Not secret: class names, and of each sample its name, label, width, height and length.
 *
 * Thread safety: any thread, no shared state.
 */
#ifndef GN_DATA_SHARD_ENCRYPTION_H
#define GN_DATA_SHARD_ENCRYPTION_H

#include "data/shard/manifest.h"
#include "data/shard/shard.h"
#include "src/base/data_key.h"

/* A new salt for a shard, and the key for it. */
enum gn_status gn_encryption_begin_shard(struct gn_manifest_shard *shard, const struct gn_data_key *key, struct gn_data_key *shard_key,
					 struct gn_err *err);
/* Once all shards are known: sets key_check and mac and seals the manifest (gn_manifest_seal). */
enum gn_status gn_encryption_seal(struct gn_manifest *m, const struct gn_data_key *key, struct gn_err *err);
/* Reads key_file and checks the manifest with it. *keys is then an array of the keys of all shards, which the caller releases, or NULL for
 * a dataset that is not encrypted, without a key_file (NULL). GN_ERR_USAGE: key_file is needed, is not for this dataset, or is given for
 * one that is not encrypted; GN_ERR_DATA: the manifest was changed by someone without the key. */
enum gn_status gn_encryption_open(const struct gn_manifest *m, const char *directory, const char *key_file, struct gn_data_key **keys,
				  struct gn_err *err);
/* Wipes and frees; NULL is fine. */
void gn_encryption_release(struct gn_data_key *keys, uint32_t shards);

/* Encrypts a sample in place: data has row->length_bytes, of which the last GN_AEAD_TAG_BYTES become the tag. */
enum gn_status gn_sample_encrypt(const struct gn_data_key *shard_key, uint32_t shard, uint64_t index, const struct gn_shard_row *row,
				 void *data, struct gn_err *err);
/* GN_ERR_DATA unless it is the sample that was encrypted as this one. */
enum gn_status gn_sample_decrypt(const struct gn_data_key *shard_key, uint32_t shard, uint64_t index, const struct gn_shard_row *row,
				 void *data, struct gn_err *err);
/* Decrypts what gn_shard_read() has read; the error names file and sample. */
enum gn_status gn_shard_decrypt(const struct gn_shard *s, const struct gn_data_key *shard_key, uint32_t shard, uint64_t index, void *data,
				struct gn_err *err);

#endif
