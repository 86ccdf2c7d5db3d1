/* Manifests of encrypted checkpoints: they name the key, and are signed with it. */
#include "src/train/checkpoint/checkpoint_internal.h"

#include "src/base/file.h"
#include "src/base/sha256.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char mac_begin[] = ", \"mac\": \"", mac_end[] = "\"}\n";
enum { MAC_TAIL = sizeof mac_begin - 1 + 64 + sizeof mac_end - 1, MANIFEST_MAX = 256 << 20 };

static enum gn_status mac_of(const struct gn_data_key *key, const uint8_t *salt, const char *text, size_t len, char hex[GN_SHA256_HEX],
			     struct gn_err *err)
{
	char digest[GN_SHA256_HEX], use[128];
	enum gn_status status = gn_sha256_buffer(text, len, digest, err);

	if (status)
		return status;
	snprintf(use, sizeof use, "gannet checkpoint 1 %s", digest);
	return gn_data_key_derive_hex(key, salt, use, hex, err);
}

enum gn_status gn_checkpoint_sign(struct gn_strbuf *text, const struct gn_data_key *key, struct gn_err *err)
{
	uint8_t salt[GN_DATA_SALT_BYTES];
	char hex[GN_SHA256_HEX], check[GN_SHA256_HEX], mac[GN_SHA256_HEX];
	enum gn_status status = gn_data_salt(salt, err);

	if (!status)
		status = gn_data_key_derive_hex(key, salt, "gannet checkpoint check 1", check, err);
	if (status || gn_strbuf_failed(text))
		return status;
	gn_data_salt_to_hex(salt, hex);
	text->len--; /* the brace that ends the object */
	gn_strbuf_printf(text, ", \"encryption\": {\"cipher\": \"AES-256-GCM\", \"salt\": \"%s\", \"key_check\": \"%s\"}", hex, check);
	if (gn_strbuf_failed(text))
		return GN_OK;
	status = mac_of(key, salt, gn_strbuf_text(text), text->len, mac, err);
	if (!status)
		gn_strbuf_printf(text, "%s%s%s", mac_begin, mac, mac_end);
	return status;
}

/* root: text as JSON. */
static enum gn_status check_signature(const char *path, const json_t *root, const char *text, size_t len, const struct gn_data_key *key,
				      struct gn_err *err)
{
	const json_t *encryption = json_object_get(root, "encryption");
	const char *key_check = json_string_value(json_object_get(encryption, "key_check"));
	const char *tail = text + (len < MAC_TAIL ? 0 : len - MAC_TAIL);
	uint8_t salt[GN_DATA_SALT_BYTES];
	char found[GN_SHA256_HEX];
	enum gn_status status;

	if (gn_data_salt_from_hex(json_string_value(json_object_get(encryption, "salt")), salt) || !key_check || len < MAC_TAIL ||
	    memcmp(tail, mac_begin, sizeof mac_begin - 1) || memcmp(text + len - (sizeof mac_end - 1), mac_end, sizeof mac_end - 1))
		return gn_err_set(err, GN_ERR_DATA, "%s: its encryption is not described as Gannet does it, or the manifest was changed", path);
	status = gn_data_key_derive_hex(key, salt, "gannet checkpoint check 1", found, err);
	if (!status && strcmp(found, key_check))
		return gn_err_set(err, GN_ERR_USAGE, "--checkpoint-key: %s was written with another key", path);
	if (!status)
		status = mac_of(key, salt, text, len - MAC_TAIL, found, err);
	if (!status && memcmp(found, tail + sizeof mac_begin - 1, 64))
		return gn_err_set(err, GN_ERR_DATA, "%s fails its authentication: it was changed by someone without the key", path);
	return status;
}

enum gn_status gn_checkpoint_authenticate(const char *folder, const struct gn_data_key *key, struct gn_err *err)
{
	char path[PATH_MAX], *text;
	size_t len;
	json_t *root;
	enum gn_status status = gn_path_join(path, sizeof path, folder, "manifest.json", err);

	if (!status)
		status = gn_file_load(path, MANIFEST_MAX, &text, &len, err);
	if (status)
		return status;
	root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	if (!json_object_get(root, "encryption"))
		status = gn_err_set(err, GN_ERR_USAGE, "--checkpoint-key is given, but %s is not encrypted: if it should be, it was replaced; "
				    "else leave the key out, or begin a new run with --init of its weights", folder);
	else
		status = check_signature(path, root, text, len, key, err);
	json_decref(root);
	free(text);
	return status;
}

enum gn_status gn_checkpoint_needs_key(const char *folder, const struct gn_checkpoint_info *info, const struct gn_data_key *key, struct gn_err *err)
{
	if (!info->is_encrypted || key)
		return GN_OK;
	return gn_err_set(err, GN_ERR_USAGE, "%s is encrypted: give --checkpoint-key FILE, with the key of the run that wrote it", folder);
}
