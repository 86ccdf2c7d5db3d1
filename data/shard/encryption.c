#include "data/shard/encryption.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHARD_USE "gannet shard 1"
#define CHECK_USE "gannet key check 1"
#define MANIFEST_USE "gannet manifest 1 "
#define SAMPLE_FORMAT "gannet sample 1"

static enum gn_status salt_of(const struct gn_manifest_shard *shard, uint8_t salt[GN_DATA_SALT_BYTES], struct gn_err *err)
{
	return gn_data_salt_of_hex(shard->salt, salt) ? gn_err_set(err, GN_ERR_DATA, "the salt of a shard is not 64 hexadecimal digits") : GN_OK;
}

static enum gn_status derive(const struct gn_data_key *key, const struct gn_manifest_shard *shard, const char *use, struct gn_data_key *out,
			     struct gn_err *err)
{
	uint8_t salt[GN_DATA_SALT_BYTES];
	enum gn_status status = salt_of(shard, salt, err);

	return status ? status : gn_data_key_derive(key, salt, use, out, err);
}

static enum gn_status derive_hex(const struct gn_data_key *key, const struct gn_manifest_shard *shard, const char *use,
				 char hex[GN_SHA256_HEX], struct gn_err *err)
{
	uint8_t salt[GN_DATA_SALT_BYTES];
	enum gn_status status = salt_of(shard, salt, err);

	return status ? status : gn_data_key_derive_hex(key, salt, use, hex, err);
}

static enum gn_status mac_of(const struct gn_manifest *m, const struct gn_data_key *key, char hex[GN_SHA256_HEX], struct gn_err *err)
{
	char use[sizeof MANIFEST_USE + GN_SHA256_HEX];

	snprintf(use, sizeof use, MANIFEST_USE "%s", m->digest);
	return derive_hex(key, &m->shards[0], use, hex, err);
}

enum gn_status gn_encryption_begin_shard(struct gn_manifest_shard *shard, const struct gn_data_key *key, struct gn_data_key *shard_key,
					 struct gn_err *err)
{
	uint8_t salt[GN_DATA_SALT_BYTES];
	enum gn_status status = gn_data_salt(salt, err);

	if (status)
		return status;
	gn_data_salt_to_hex(salt, shard->salt);
	return derive(key, shard, SHARD_USE, shard_key, err);
}

enum gn_status gn_encryption_seal(struct gn_manifest *m, const struct gn_data_key *key, struct gn_err *err)
{
	enum gn_status status = derive_hex(key, &m->shards[0], CHECK_USE, m->key_check, err);

	if (!status)
		status = gn_manifest_seal(m, err);
	return status ? status : mac_of(m, key, m->mac, err);
}

static enum gn_status check(const struct gn_manifest *m, const char *directory, const char *key_file, const struct gn_data_key *key,
			    struct gn_err *err)
{
	char found[GN_SHA256_HEX];
	enum gn_status status = derive_hex(key, &m->shards[0], CHECK_USE, found, err);

	if (!status && strcmp(found, m->key_check))
		return gn_err_set(err, GN_ERR_USAGE, "--key-file %s: it is not the key that %s was encrypted with", key_file, directory);
	if (!status)
		status = mac_of(m, key, found, err);
	if (!status && strcmp(found, m->mac))
		return gn_err_set(err, GN_ERR_DATA, "%s/" GN_MANIFEST_NAME " fails its authentication: it was changed by someone without the "
				  "key; take the dataset from where it was packed", directory);
	return status;
}

static enum gn_status shard_keys(const struct gn_manifest *m, const struct gn_data_key *key, struct gn_data_key **out, struct gn_err *err)
{
	struct gn_data_key *keys = calloc(m->shard_count, sizeof *keys);
	enum gn_status status = GN_OK;

	if (!keys)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the keys of %u shards", m->shard_count);
	for (uint32_t i = 0; i < m->shard_count && !status; i++)
		status = derive(key, &m->shards[i], SHARD_USE, &keys[i], err);
	if (status)
		gn_encryption_release(keys, m->shard_count);
	else
		*out = keys;
	return status;
}

enum gn_status gn_encryption_open(const struct gn_manifest *m, const char *directory, const char *key_file, struct gn_data_key **keys,
				  struct gn_err *err)
{
	struct gn_data_key key;
	enum gn_status status;

	if (m->key_check[0] && !key_file)
		return gn_err_set(err, GN_ERR_USAGE, "%s is encrypted: give --key-file FILE, with the key it was packed with", directory);
	if (!m->key_check[0] && key_file)
		return gn_err_set(err, GN_ERR_USAGE, "--key-file is given, but %s is not encrypted: if it should be, it was replaced; else "
				  "pack it with --encrypt, or leave --key-file out", directory);
	*keys = NULL;
	if (!key_file)
		return GN_OK;
	status = gn_data_key_read(key_file, &key, err);
	if (!status)
		status = check(m, directory, key_file, &key, err);
	if (!status)
		status = shard_keys(m, &key, keys, err);
	gn_data_key_wipe(&key);
	return status;
}

void gn_encryption_release(struct gn_data_key *keys, uint32_t shards)
{
	for (uint32_t i = 0; keys && i < shards; i++)
		gn_data_key_wipe(&keys[i]);
	free(keys);
}

static unsigned char *put(unsigned char *at, uint64_t value, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		at[i] = (unsigned char)(value >> 8 * (bytes - 1 - i));
	return at + bytes;
}

struct binding {
	uint8_t nonce[GN_AEAD_NONCE_BYTES];
	unsigned char bound[sizeof SAMPLE_FORMAT + 12];
};

static void bind_sample(uint32_t shard, uint64_t index, const struct gn_shard_row *row, struct binding *b)
{
	unsigned char *at = b->bound + sizeof SAMPLE_FORMAT;

	put(put(b->nonce, shard, 4), index, 8);
	memcpy(b->bound, SAMPLE_FORMAT, sizeof SAMPLE_FORMAT);
	put(put(put(put(at, row->label, 4), row->width, 2), row->height, 2), row->length_bytes, 4);
}

enum gn_status gn_sample_encrypt(const struct gn_data_key *shard_key, uint32_t shard, uint64_t index, const struct gn_shard_row *row,
				 void *data, struct gn_err *err)
{
	struct binding b;

	bind_sample(shard, index, row, &b);
	return gn_aead_encrypt(shard_key, b.nonce, b.bound, sizeof b.bound, data, row->length_bytes - GN_AEAD_TAG_BYTES, err);
}

enum gn_status gn_sample_decrypt(const struct gn_data_key *shard_key, uint32_t shard, uint64_t index, const struct gn_shard_row *row,
				 void *data, struct gn_err *err)
{
	struct binding b;

	if (row->length_bytes <= GN_AEAD_TAG_BYTES)
		return gn_err_set(err, GN_ERR_DATA, "has %u bytes, too few for an encrypted sample", row->length_bytes);
	bind_sample(shard, index, row, &b);
	return gn_aead_decrypt(shard_key, b.nonce, b.bound, sizeof b.bound, data, row->length_bytes - GN_AEAD_TAG_BYTES, err);
}

enum gn_status gn_shard_decrypt(const struct gn_shard *s, const struct gn_data_key *shard_key, uint32_t shard, uint64_t index, void *data,
				struct gn_err *err)
{
	char name[256];
	struct gn_err cause;
	enum gn_status status = gn_sample_decrypt(shard_key, shard, index, &gn_shard_rows(s)[index], data, &cause);

	if (!status)
		return GN_OK;
	gn_shard_name(s, index, name, sizeof name);
	return gn_err_set(err, status, "%s: sample %llu (%s) %s", gn_shard_path(s), (unsigned long long)index, name, cause.text);
}
