#include "src/train/checkpoint/checkpoint_internal.h"

#include "src/base/file.h"
#include "src/base/sha256.h"
#include "src/train/model/safetensors.h"
#include "src/train/model/weights.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Manifests of encrypted checkpoints: they name the key, and are signed with it. */

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

/* GN_ERR_USAGE: another key, or not encrypted; GN_ERR_DATA: changed. Blocks on the file system. */
static enum gn_status checkpoint_authenticate(const char *folder, const struct gn_data_key *key, struct gn_err *err)
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

static enum gn_status verify_file(const char *folder, const struct gn_checkpoint_file *file, struct gn_err *err)
{
	char path[PATH_MAX], hex[GN_SHA256_HEX];
	struct stat info;
	uint64_t len_bytes;
	enum gn_status status = gn_path_join(path, sizeof path, folder, file->name, err);

	if (status)
		return status;
	/* checked first: cheap, and detects truncated files */
	if (stat(path, &info))
		return gn_err_set(err, GN_ERR_DATA, "%s is named in the manifest but cannot be read: %s", path,
				  strerror(errno));
	if ((uint64_t)info.st_size != file->len_bytes)
		return gn_err_set(err, GN_ERR_DATA, "%s has %lld bytes, the manifest says %" PRIu64, path,
				  (long long)info.st_size, file->len_bytes);
	status = gn_sha256_file(path, hex, &len_bytes, err);
	if (status)
		return status;
	if (strcmp(hex, file->sha256))
		return gn_err_set(err, GN_ERR_DATA, "%s was changed: its SHA-256 is %.16s..., the manifest says %.16s...",
				  path, hex, file->sha256);
	return GN_OK;
}

static enum gn_status verify(const char *folder, const struct gn_data_key *key, struct gn_checkpoint_info *info, struct gn_err *err)
{
	struct gn_checkpoint_file *files;
	size_t count;
	enum gn_status status = gn_checkpoint_manifest_read(folder, info, &files, &count, err);

	if (status)
		return status;
	for (size_t i = 0; i < count && !status; i++)
		status = verify_file(folder, &files[i], err);
	free(files);
	return status || !key ? status : checkpoint_authenticate(folder, key, err);
}

static int is_step_folder(const struct dirent *entry)
{
	const char *name = entry->d_name;

	return !strncmp(name, "step-", 5) && strlen(name) >= 13 && strspn(name + 5, "0123456789") == strlen(name) - 5;
}

/* Whether a checkpoint is not damaged, but cannot be used: an older one must not replace it. */
static int is_unusable(enum gn_status status)
{
	return status == GN_ERR_UNSUPPORTED || status == GN_ERR_USAGE;
}

/* Newest first; the first that verifies is used. */
static enum gn_status find_newest(const char *directory, const struct gn_data_key *key, struct gn_log *log, char found[PATH_MAX],
				  struct gn_checkpoint_info *info, struct gn_err *err)
{
	struct dirent **names;
	struct gn_err why = {0};
	int count = scandir(directory, &names, is_step_folder, versionsort);
	enum gn_status status = GN_ERR_NOT_FOUND;

	if (count < 0)
		return gn_err_errno(err, errno, "cannot list %s", directory);
	for (int i = count - 1; i >= 0; i--) {
		char path[PATH_MAX];

		if (status && !is_unusable(status) &&
		    !gn_path_join(path, sizeof path, directory, names[i]->d_name, &why)) {
			status = verify(path, key, info, &why);
			if (!status)
				memcpy(found, path, strlen(path) + 1);
			else if (!is_unusable(status))
				gn_log_warn(log, "checkpoint %s is skipped, it is damaged or incomplete: %s", path, why.text);
		}
		free(names[i]);
	}
	free(names);
	if (is_unusable(status))
		return gn_err_set(err, status, "%s", why.text);
	if (status && count == 1)
		return gn_err_set(err, GN_ERR_DATA, "the only checkpoint in %s is not whole: %s", directory, why.text);
	if (status && count)
		return gn_err_set(err, GN_ERR_DATA, "none of the %d checkpoints in %s is valid; the oldest: %s", count,
				  directory, why.text);
	if (status)
		return gn_err_set(err, GN_ERR_NOT_FOUND, "%s holds no checkpoint", directory);
	return GN_OK;
}

enum gn_status gn_checkpoint_find(const char *path, const struct gn_data_key *key, struct gn_log *log, char found[PATH_MAX],
				  struct gn_checkpoint_info *info, struct gn_err *err)
{
	struct gn_checkpoint_info read;
	char manifest[PATH_MAX];
	enum gn_status status = gn_path_join(manifest, sizeof manifest, path, "manifest.json", err);

	if (status)
		return status;
	if (access(manifest, F_OK))
		status = find_newest(path, key, log, found, &read, err);
	else if (!(status = verify(path, key, &read, err)))
		snprintf(found, PATH_MAX, "%s", path);
	if (!status)
		*info = read;
	return status;
}

static const struct gn_param *find_param(const struct gn_model *model, const char *name, size_t len, int *index)
{
	for (int i = 0; i < gn_model_param_count(model); i++) {
		const struct gn_param *p = gn_model_param(model, i);

		if (strlen(p->name) == len && !strncmp(p->name, name, len)) {
			*index = i;
			return p;
		}
	}
	return NULL;
}

/* The slots being filled; NULL: one that is only checked. covered[slot][i] counts the elements of parameter i read so far: pieces are
 * stored in order, so each must start where the previous one ended. */
struct filling {
	const struct gn_model *model;
	float *const *slots;
	int slot_count;
	size_t *covered[GN_OPTIM_SLOTS_MAX];
};

/* The slot of a piece by its prefix, and the name after the slash; -1 for none. */
static int slot_of(const struct filling *f, const char *piece, const char **name)
{
	for (int k = 0; k < f->slot_count; k++) {
		size_t len = strlen(gn_optim_slot_name(k));

		*name = piece + len + 1;
		if (!strncmp(piece, gn_optim_slot_name(k), len) && piece[len] == '/')
			return k;
	}
	return -1;
}

/* Copies one piece "momentum/NAME@FIRST" to its place. */
static enum gn_status place_piece(const struct gn_safetensors *file, const struct gn_tensor_entry *piece,
				  const char *path, struct filling *f, struct gn_err *err)
{
	const char *name, *at = strrchr(piece->name, '@');
	const struct gn_param *p = NULL;
	size_t count = piece->len_bytes / sizeof(float);
	unsigned long long first;
	int index = 0, slot = slot_of(f, piece->name, &name);
	char tail;

	if (slot >= 0 && at && at > name && sscanf(at + 1, "%20llu%c", &first, &tail) == 1)
		p = find_param(f->model, name, (size_t)(at - name), &index);
	if (!p || piece->type != GN_TENSOR_F32)
		return gn_err_set(err, GN_ERR_DATA, "%s: '%s' is not a piece of this model's optimizer", path, piece->name);
	if (first != f->covered[slot][index] || count > p->count - f->covered[slot][index])
		return gn_err_set(err, GN_ERR_DATA, "%s: piece '%s' leaves a gap, overlaps another or is too long", path,
				  piece->name);
	f->covered[slot][index] += count;
	return f->slots[slot] ? gn_safetensors_read(file, piece, f->slots[slot] + p->offset + first, err) : GN_OK;
}

static enum gn_status load_share(const char *folder, const char *name, const struct gn_data_key *key, struct filling *f, struct gn_err *err)
{
	struct gn_safetensors *file;
	char path[PATH_MAX];
	enum gn_status status = gn_path_join(path, sizeof path, folder, name, err);

	if (!status)
		status = gn_safetensors_open(path, key, &file, err);
	if (status)
		return status;
	for (size_t i = 0; i < gn_safetensors_count(file) && !status; i++)
		status = place_piece(file, gn_safetensors_entry(file, i), path, f, err);
	gn_safetensors_close(file);
	return status;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct gn_checkpoint_file *)a)->name, ((const struct gn_checkpoint_file *)b)->name);
}

/* Every element of every slot must be covered. */
static enum gn_status check_covered(const struct filling *f, const char *folder, struct gn_err *err)
{
	for (int k = 0; k < f->slot_count; k++)
		for (int i = 0; i < gn_model_param_count(f->model); i++)
			if (f->covered[k][i] != gn_model_param(f->model, i)->count)
				return gn_err_set(err, GN_ERR_DATA, "%s: %s of '%s' is incomplete", folder,
						  gn_optim_slot_name(k), gn_model_param(f->model, i)->name);
	return GN_OK;
}

static enum gn_status load_slots(const char *folder, const struct gn_data_key *key, const struct gn_model *model, enum gn_optim_kind optimizer,
				 float *const *slots, struct gn_err *err)
{
	size_t params = (size_t)gn_model_param_count(model), count;
	size_t *covered = calloc(GN_OPTIM_SLOTS_MAX * params + 1, sizeof *covered);
	struct filling f = {model, slots, gn_optim_slots(optimizer), {covered, covered + params}};
	struct gn_checkpoint_info info;
	struct gn_checkpoint_file *files = NULL;
	enum gn_status status;

	if (!covered)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to load %s", folder);
	status = gn_checkpoint_manifest_read(folder, &info, &files, &count, err);
	if (!status) {
		qsort(files, count, sizeof *files, by_name);
		for (size_t i = 0; i < count && !status; i++)
			if (!strncmp(files[i].name, "optimizer-", 10))
				status = load_share(folder, files[i].name, key, &f, err);
		free(files);
	}
	if (!status)
		status = check_covered(&f, folder, err);
	free(covered);
	return status;
}

enum gn_status gn_checkpoint_weights(const char *folder, const struct gn_checkpoint_info *info, int average,
				     char path[PATH_MAX], struct gn_err *err)
{
	if (average && !info->has_average)
		return gn_err_set(err, GN_ERR_DATA, "%s holds no moving average: it was trained without --ema", folder);
	return gn_path_join(path, PATH_MAX, folder, average ? "ema.safetensors" : "model.safetensors", err);
}

static enum gn_status load_weights(const char *folder, const struct gn_checkpoint_info *info, const struct gn_data_key *key,
				   const struct gn_model *model, int average, float *params, float *buffers,
				   struct gn_err *err)
{
	char path[PATH_MAX];
	enum gn_status status = gn_checkpoint_weights(folder, info, average, path, err);

	return status ? status : gn_weights_load(path, key, model, params, buffers, err);
}

enum gn_status gn_checkpoint_load(const char *folder, const struct gn_checkpoint_info *info, const struct gn_data_key *key,
				  const struct gn_model *model, const struct gn_checkpoint_arrays *a, struct gn_err *err)
{
	enum gn_status status = gn_checkpoint_needs_key(folder, info, key, err);

	if (status)
		return status;
	if (strcmp(info->model, gn_model_name(model)) || info->classes != gn_model_classes(model) ||
	    info->channels != gn_model_channels(model) || info->side != gn_model_side(model))
		return gn_err_set(err, GN_ERR_DATA,
				  "%s holds %s for %" PRId64 " classes and %" PRId64 "x%" PRId64 "x%" PRId64
				  " images, not %s for %d classes and %dx%dx%d images", folder, info->model,
				  info->classes, info->channels, info->side, info->side, gn_model_name(model),
				  gn_model_classes(model), gn_model_channels(model), gn_model_side(model),
				  gn_model_side(model));
	if (a->params)
		status = load_weights(folder, info, key, model, 0, a->params, a->buffers, err);
	if (!status && a->average_params)
		status = load_weights(folder, info, key, model, 1, a->average_params, a->average_buffers, err);
	if (!status && (a->slots[0] || a->slots[1]))
		status = load_slots(folder, key, model, info->optimizer, a->slots, err);
	return status;
}
