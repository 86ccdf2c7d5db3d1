/* The spool: images that no file holds as they will be packed, between the two passes. With encrypt each is random salt, ciphertext and
 * tag, under HKDF(key, salt, "gannet spool 1"): a pack that resumes may reuse a place in the spool, but never a key. */
#include "data/pack/pack_parts_internal.h"

#include "data/sample/image.h"
#include "src/base/crc32c.h"
#include "src/base/file.h"

#include <stdlib.h>
#include <string.h>

#define SPOOL_USE "gannet spool 1"

static const uint8_t only_nonce[GN_AEAD_NONCE_BYTES]; /* of a key that is used once */

/* out: salt, image and tag. */
static enum gn_status encrypt_image(const struct gn_pack_set *set, const void *bytes, size_t len_bytes, unsigned char *out,
				    struct gn_err *err)
{
	struct gn_data_key key;
	enum gn_status status = gn_data_salt(out, err);

	if (!status)
		status = gn_data_key_derive(&set->key, out, SPOOL_USE, &key, err);
	if (status)
		return status;
	memcpy(out + GN_DATA_SALT_BYTES, bytes, len_bytes);
	status = gn_aead_encrypt(&key, only_nonce, "", 0, out + GN_DATA_SALT_BYTES, len_bytes, err);
	gn_data_key_wipe(&key);
	return status;
}

enum gn_status gn_pack_spool_add(struct gn_pack_set *set, pthread_mutex_t *lock, const void *bytes, size_t len_bytes, uint64_t *offset,
				 struct gn_err *err)
{
	const uint64_t total = len_bytes + (set->encrypt ? GN_DATA_SALT_BYTES + GN_AEAD_TAG_BYTES : 0);
	unsigned char *text = set->encrypt ? malloc(total) : NULL;
	enum gn_status status = GN_OK;

	if (set->encrypt && !text)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to encrypt %zu bytes", len_bytes);
	if (text)
		status = encrypt_image(set, bytes, len_bytes, text, err);
	if (!status) {
		pthread_mutex_lock(lock);
		*offset = set->spool_end;
		set->spool_end += total;
		pthread_mutex_unlock(lock);
		status = gn_pwrite_full(set->spool, text ? text : bytes, total, *offset, set->spool_path, err);
	}
	free(text);
	return status;
}

enum gn_status gn_pack_spool_read(const struct gn_pack_set *set, uint64_t offset, void *buffer, size_t length_bytes, struct gn_err *err)
{
	uint8_t salt[GN_DATA_SALT_BYTES];
	struct gn_data_key key;
	enum gn_status status;

	if (!set->encrypt)
		return gn_pread_full(set->spool, buffer, length_bytes, offset, set->spool_path, err);
	status = gn_pread_full(set->spool, salt, sizeof salt, offset, set->spool_path, err);
	if (!status)
		status = gn_pread_full(set->spool, buffer, length_bytes + GN_AEAD_TAG_BYTES, offset + sizeof salt, set->spool_path, err);
	if (!status)
		status = gn_data_key_derive(&set->key, salt, SPOOL_USE, &key, err);
	if (status)
		return status;
	status = gn_aead_decrypt(&key, only_nonce, "", 0, buffer, length_bytes, err);
	gn_data_key_wipe(&key);
	return status;
}

static enum gn_status load_file(const struct gn_pack_options *options, const struct gn_pack_item *item, void *buffer,
				struct gn_err *err)
{
	char path[PATH_MAX], *text;
	size_t len;
	enum gn_status status = gn_path_join(path, sizeof path, options->sources[item->source], item->name, err);

	if (!status)
		status = gn_file_load(path, GN_IMAGE_MAX_BYTES, &text, &len, err);
	if (status)
		return status;
	if (len == item->length_bytes)
		memcpy(buffer, text, len);
	free(text);
	if (len != item->length_bytes)
		return gn_err_set(err, GN_ERR_DATA, "%s changed while it was being packed", path);
	return GN_OK;
}

enum gn_status gn_pack_item_read(const struct gn_pack_set *set, const struct gn_pack_options *options, const struct gn_pack_item *item,
				 void *buffer, struct gn_err *err)
{
	enum gn_status status;

	if (item->spool_offset == GN_PACK_IN_FILE)
		status = load_file(options, item, buffer, err);
	else
		status = gn_pack_spool_read(set, item->spool_offset, buffer, item->length_bytes, err);
	if (!status && gn_crc32c(0, buffer, item->length_bytes) != item->crc32c)
		status = gn_err_set(err, GN_ERR_DATA, "%s changed while it was being packed", item->name);
	return status;
}
