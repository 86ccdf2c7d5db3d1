#include "data/shard/manifest.h"

#include "data/shard/names.h"
#include "src/base/file.h"
#include "src/base/json.h"

#include <dirent.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MANIFEST_MAX_BYTES (256u << 20)
#define MAX_ENTRIES (1u << 24)
#define NEWEST_VERSION 3
#define ENCRYPTED_VERSION 3
#define PLAIN_VERSION 2
#define CIPHER "AES-256-GCM"

enum gn_status gn_manifest_init(struct gn_manifest *m, uint32_t class_count, uint32_t shard_count, struct gn_err *err)
{
	memset(m, 0, sizeof *m);
	m->classes = calloc(class_count ? class_count : 1, sizeof *m->classes);
	m->shards = calloc(shard_count ? shard_count : 1, sizeof *m->shards);
	if (!m->classes || !m->shards) {
		gn_manifest_release(m);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a manifest of %u classes and %u shards",
				  class_count, shard_count);
	}
	m->class_count = class_count;
	m->shard_count = shard_count;
	return GN_OK;
}

void gn_manifest_release(struct gn_manifest *m)
{
	for (uint32_t i = 0; i < m->class_count; i++)
		free(m->classes[i].name);
	free(m->classes);
	free(m->shards);
	memset(m, 0, sizeof *m);
}

/* Lengths precede names, because a name may hold any byte. */
static enum gn_status digest_of(const struct gn_manifest *m, char hex[GN_SHA256_HEX], struct gn_err *err)
{
	struct gn_strbuf text = {0};
	enum gn_status status;

	gn_strbuf_printf(&text, "gannet-dataset %u\n", m->version);
	if (m->version > 1)
		gn_strbuf_printf(&text, "seed %llu skipped %llu\n", (unsigned long long)m->seed,
				 (unsigned long long)m->skipped);
	if (m->version == ENCRYPTED_VERSION)
		gn_strbuf_printf(&text, "encryption " CIPHER " %s\n", m->key_check);
	gn_strbuf_printf(&text, "classes %u\n", m->class_count);
	for (uint32_t i = 0; i < m->class_count; i++)
		gn_strbuf_printf(&text, "%zu %s %llu\n", strlen(m->classes[i].name), m->classes[i].name,
				 (unsigned long long)m->classes[i].samples);
	gn_strbuf_printf(&text, "shards %u\n", m->shard_count);
	for (uint32_t i = 0; i < m->shard_count; i++) {
		const struct gn_manifest_shard *s = &m->shards[i];

		gn_strbuf_printf(&text, "%llu %llu %llu %llu %s %s%s%s\n", (unsigned long long)s->samples,
				 (unsigned long long)s->size_bytes, (unsigned long long)s->data_offset,
				 (unsigned long long)s->data_bytes, s->sha256, s->head_sha256, s->salt[0] ? " " : "", s->salt);
	}
	if (gn_strbuf_failed(&text))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the digest of a manifest");
	else
		status = gn_sha256_buffer(text.text, text.len, hex, err);
	gn_strbuf_release(&text);
	return status;
}

enum gn_status gn_manifest_seal(struct gn_manifest *m, struct gn_err *err)
{
	m->version = m->key_check[0] ? ENCRYPTED_VERSION : PLAIN_VERSION;
	return digest_of(m, m->digest, err);
}

static void json_shard(struct gn_json *j, const struct gn_manifest_shard *s)
{
	gn_json_put(j, "{ file %s samples %lu bytes %lu sha256 %s data_offset %lu data_bytes %lu head_sha256 %s", s->file, s->samples,
		    s->size_bytes, s->sha256, s->data_offset, s->data_bytes, s->head_sha256);
	if (s->salt[0])
		gn_json_string(j, "salt", s->salt);
	gn_json_end(j);
}

static void json_manifest(struct gn_json *j, const struct gn_manifest *m)
{
	gn_json_put(j, "{ format gannet-dataset version %u digest %s samples %lu seed %lu skipped %lu", m->version, m->digest, m->samples,
		    m->seed, m->skipped);
	if (m->exif_rotate)
		gn_json_bool(j, "exif_rotate", 1);
	if (m->key_check[0])
		gn_json_put(j, "encryption { cipher %s key_check %s mac %s }", CIPHER, m->key_check, m->mac);
	gn_json_array(j, "classes");
	for (uint32_t i = 0; i < m->class_count; i++)
		gn_json_put(j, "{ name %s samples %lu }", m->classes[i].name, m->classes[i].samples);
	gn_json_put(j, "] shards [");
	for (uint32_t i = 0; i < m->shard_count; i++)
		json_shard(j, &m->shards[i]);
	gn_json_put(j, "] }");
}

enum gn_status gn_manifest_save(const struct gn_manifest *m, const char *directory, struct gn_err *err)
{
	char path[PATH_MAX];
	enum gn_status status = gn_path_join(path, sizeof path, directory, GN_MANIFEST_NAME, err);
	struct gn_json j;

	if (status)
		return status;
	gn_json_init(&j);
	json_manifest(&j, m);
	return gn_json_save(&j, path, err);
}

static enum gn_status bad(const char *path, const char *field, struct gn_err *err)
{
	return gn_err_set(err, GN_ERR_DATA, "%s: '%s' is missing or invalid", path, field);
}

/* Seeds and sizes are integers from 0 to 2^63-1, the range that JSON readers agree on. */
static int get_uint(const json_t *object, const char *key, uint64_t *out)
{
	const json_t *value = json_object_get(object, key);

	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return -1;
	*out = (uint64_t)json_integer_value(value);
	return 0;
}

static int get_digest(const json_t *object, const char *key, char out[GN_SHA256_HEX])
{
	const char *text = json_string_value(json_object_get(object, key));

	if (!text || strlen(text) != GN_SHA256_HEX - 1 || strspn(text, "0123456789abcdef") != GN_SHA256_HEX - 1)
		return -1;
	memcpy(out, text, GN_SHA256_HEX);
	return 0;
}

static int get_file_name(const json_t *object, char *out, size_t size)
{
	const char *text = json_string_value(json_object_get(object, "file"));

	if (!text || !text[0] || text[0] == '.' || strchr(text, '/') || strlen(text) >= size)
		return -1;
	snprintf(out, size, "%s", text);
	return 0;
}

static enum gn_status check_unique(const struct gn_manifest *m, const char *path, struct gn_err *err)
{
	struct gn_names *names;
	enum gn_status status = gn_names_create(&names, err);

	if (status)
		return status;
	for (uint32_t i = 0; i < m->class_count && !status; i++) {
		uint32_t id;

		status = gn_names_add(names, m->classes[i].name, &id, err);
		if (!status && id != i)
			status = gn_err_set(err, GN_ERR_DATA, "%s names class '%s' twice", path, m->classes[i].name);
	}
	gn_names_destroy(names);
	return status;
}

static enum gn_status get_classes(const json_t *list, const char *path, struct gn_manifest *m, struct gn_err *err)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < m->class_count; i++) {
		const json_t *entry = json_array_get(list, i);
		const char *name = json_string_value(json_object_get(entry, "name"));

		if (!name || !name[0] || get_uint(entry, "samples", &m->classes[i].samples) ||
		    m->classes[i].samples > INT64_MAX - sum)
			return bad(path, "classes", err);
		m->classes[i].name = strdup(name);
		if (!m->classes[i].name)
			return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to read %s", path);
		sum += m->classes[i].samples;
	}
	if (sum != m->samples)
		return gn_err_set(err, GN_ERR_DATA, "%s: its classes have %llu samples, not %llu", path,
				  (unsigned long long)sum, (unsigned long long)m->samples);
	return check_unique(m, path, err);
}

static enum gn_status get_shards(const json_t *list, const char *path, struct gn_manifest *m, struct gn_err *err)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < m->shard_count; i++) {
		const json_t *entry = json_array_get(list, i);
		struct gn_manifest_shard *s = &m->shards[i];

		if (get_file_name(entry, s->file, sizeof s->file) || get_uint(entry, "samples", &s->samples) ||
		    get_uint(entry, "bytes", &s->size_bytes) || get_uint(entry, "data_offset", &s->data_offset) ||
		    get_uint(entry, "data_bytes", &s->data_bytes) || get_digest(entry, "sha256", s->sha256) ||
		    get_digest(entry, "head_sha256", s->head_sha256) || !s->samples ||
		    (m->version == ENCRYPTED_VERSION && get_digest(entry, "salt", s->salt)) ||
		    s->samples > INT64_MAX - sum || s->data_offset > s->size_bytes ||
		    s->data_bytes > s->size_bytes - s->data_offset)
			return bad(path, "shards", err);
		sum += s->samples;
	}
	if (sum != m->samples)
		return gn_err_set(err, GN_ERR_DATA, "%s: its shards have %llu samples, not %llu", path,
				  (unsigned long long)sum, (unsigned long long)m->samples);
	return GN_OK;
}

/* Version 3 is encrypted, others are not. */
static enum gn_status get_encryption(const json_t *object, const char *path, struct gn_manifest *m, struct gn_err *err)
{
	const char *cipher = json_string_value(json_object_get(object, "cipher"));

	if (m->version != ENCRYPTED_VERSION)
		return object ? bad(path, "encryption", err) : GN_OK;
	if (!cipher || strcmp(cipher, CIPHER) || get_digest(object, "key_check", m->key_check) || get_digest(object, "mac", m->mac))
		return bad(path, "encryption", err);
	return GN_OK;
}

static enum gn_status get_manifest(const json_t *root, const char *path, struct gn_manifest *m, struct gn_err *err)
{
	const json_t *classes = json_object_get(root, "classes"), *shards = json_object_get(root, "shards");
	const char *format = json_string_value(json_object_get(root, "format"));
	size_t class_count = json_array_size(classes), shard_count = json_array_size(shards);
	char digest[GN_SHA256_HEX];
	enum gn_status status;
	uint64_t version;

	if (!format || strcmp(format, "gannet-dataset"))
		return gn_err_set(err, GN_ERR_DATA, "%s is not the manifest of a Gannet dataset", path);
	if (get_uint(root, "version", &version) || version < 1 || version > NEWEST_VERSION)
		return gn_err_set(err, GN_ERR_DATA, "%s has an unknown version; this program reads 1 to 3", path);
	if (!class_count || class_count > MAX_ENTRIES)
		return bad(path, "classes", err);
	if (!shard_count || shard_count > MAX_ENTRIES)
		return bad(path, "shards", err);
	status = gn_manifest_init(m, (uint32_t)class_count, (uint32_t)shard_count, err);
	if (status)
		return status;
	m->version = (uint32_t)version;
	m->exif_rotate = json_is_true(json_object_get(root, "exif_rotate"));
	if (get_uint(root, "samples", &m->samples) || get_uint(root, "seed", &m->seed) ||
	    get_uint(root, "skipped", &m->skipped) || get_digest(root, "digest", m->digest))
		status = bad(path, "samples, seed, skipped or digest", err);
	if (!status)
		status = get_encryption(json_object_get(root, "encryption"), path, m, err);
	if (!status)
		status = get_classes(classes, path, m, err);
	if (!status)
		status = get_shards(shards, path, m, err);
	if (!status)
		status = digest_of(m, digest, err);
	if (!status && strcmp(digest, m->digest))
		status = gn_err_set(err, GN_ERR_DATA, "%s: its digest does not match its contents: it was changed or "
				    "damaged", path);
	if (status)
		gn_manifest_release(m);
	return status;
}

enum gn_status gn_manifest_parse(const char *text, size_t len, const char *path, struct gn_manifest *m,
				 struct gn_err *err)
{
	struct gn_manifest loaded;
	enum gn_status status;
	json_error_t where;
	json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where);

	if (!root)
		return gn_err_set(err, GN_ERR_DATA, "%s, line %d: %s", path, where.line, where.text);
	status = get_manifest(root, path, &loaded, err);
	json_decref(root);
	if (!status)
		*m = loaded;
	return status;
}

int gn_manifest_is_there(const char *directory)
{
	char path[PATH_MAX];

	return !gn_path_join(path, sizeof path, directory, GN_MANIFEST_NAME, NULL) && !access(path, F_OK);
}

enum gn_status gn_manifest_check_parent(const char *directory, struct gn_err *err)
{
	struct dirent **names;
	int count = scandir(directory, &names, NULL, alphasort), found = 0;
	char text[2][NAME_MAX + 1], folder[PATH_MAX];
	const char *slash = *directory && directory[strlen(directory) - 1] == '/' ? "" : "/";

	if (count < 0)
		return GN_OK;
	for (int i = 0; i < count; i++) {
		if (found < 2 && names[i]->d_name[0] != '.' && !gn_path_join(folder, sizeof folder, directory, names[i]->d_name, NULL) &&
		    gn_manifest_is_there(folder))
			snprintf(text[found++], sizeof *text, "%s", names[i]->d_name);
		free(names[i]);
	}
	free(names);
	if (found == 2)
		return gn_err_set(err, GN_ERR_NOT_FOUND, "%s is no packed dataset, but holds some: name one of them, %s%s%s or %s%s%s",
				  directory, directory, slash, text[0], directory, slash, text[1]);
	return found ? gn_err_set(err, GN_ERR_NOT_FOUND, "%s is no packed dataset, but holds one: name %s%s%s", directory, directory, slash,
				  text[0]) : GN_OK;
}

enum gn_status gn_manifest_load(const char *directory, struct gn_manifest *m, struct gn_err *err)
{
	char path[PATH_MAX], *text;
	enum gn_status status = gn_path_join(path, sizeof path, directory, GN_MANIFEST_NAME, err);
	struct gn_err mine;
	size_t len;

	if (status)
		return status;
	status = gn_file_load(path, MANIFEST_MAX_BYTES, &text, &len, &mine);
	if (status == GN_ERR_NOT_FOUND && gn_manifest_check_parent(directory, err))
		return status;
	if (status == GN_ERR_NOT_FOUND)
		return gn_err_set(err, status, "%s is no packed dataset: %s", directory, access(directory, F_OK)
				  ? "there is no such folder" : "it has no " GN_MANIFEST_NAME "; gannet pack writes one");
	if (status)
		return gn_err_set(err, status, "%s", mine.text);
	status = gn_manifest_parse(text, len, path, m, err);
	free(text);
	return status;
}
