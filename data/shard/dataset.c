#include "data/shard/dataset.h"

#include "data/shard/encryption.h"
#include "data/shard/folders.h"
#include "data/shard/manifest.h"
#include "data/shard/shard.h"
#include "src/base/file.h"
#include "src/base/text.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct gn_dataset {
	char *directory;
	int holds[GN_FOLDERS_MAX]; /* of staged copies, -1: none */
	struct gn_manifest manifest;
	struct gn_shard **shards;
	uint64_t *first; /* [shard_count + 1] index of each shard's first sample */
	uint32_t max_length;
	atomic_ullong *source_bytes; /* read from shards without a copy */
	struct gn_data_key *keys; /* [shard_count] of an encrypted dataset that is unlocked, else NULL */
};

static enum gn_status check_against_manifest(const struct gn_shard *s, const struct gn_manifest_shard *m,
					     uint32_t classes, struct gn_err *err)
{
	const struct gn_shard_layout *l = gn_shard_layout(s);

	if (l->count != m->samples || l->classes != classes || l->data_offset != m->data_offset ||
	    l->data_bytes != m->data_bytes)
		return gn_err_set(err, GN_ERR_DATA, "%s is not the shard that the manifest describes (%llu samples of %u "
				  "classes, not %llu of %u)", gn_shard_path(s), (unsigned long long)l->count, l->classes,
				  (unsigned long long)m->samples, classes);
	return GN_OK;
}

/* HDF5 does not survive every damaged file: it gets only bytes whose digest the manifest confirms. */
static enum gn_status open_shard(struct gn_dataset *d, uint32_t i, struct gn_err *err)
{
	const struct gn_manifest_shard *m = &d->manifest.shards[i];
	char path[PATH_MAX], hex[GN_SHA256_HEX];
	enum gn_status status = gn_folders_find(d->directory, m->file, path, err);
	struct stat info;

	if (status)
		return status;
	if (!stat(path, &info) && (uint64_t)info.st_size != m->size_bytes)
		return gn_err_set(err, GN_ERR_DATA, "%s has %lld bytes, the manifest says %llu: it was truncated or "
				  "replaced", path, (long long)info.st_size, (unsigned long long)m->size_bytes);
	status = gn_shard_head_digest(path, m->data_offset, m->data_bytes, hex, err);
	if (status)
		return status;
	if (strcmp(hex, m->head_sha256))
		return gn_err_set(err, GN_ERR_DATA, "%s: its tables fail their digest: the shard is damaged, stage or "
				  "pack it again", path);
	status = gn_shard_open(path, &d->shards[i], err);
	if (!status)
		status = check_against_manifest(d->shards[i], m, d->manifest.class_count, err);
	return status;
}

static enum gn_status open_shards(struct gn_dataset *d, struct gn_err *err)
{
	uint32_t count = d->manifest.shard_count;
	enum gn_status status = GN_OK;

	d->shards = calloc(count, sizeof *d->shards);
	d->first = calloc((size_t)count + 1, sizeof *d->first);
	if (!d->shards || !d->first)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %u shards", count);
	for (uint32_t i = 0; i < count && !status; i++) {
		const struct gn_shard_row *rows;

		status = open_shard(d, i, err);
		if (status)
			break;
		d->first[i + 1] = d->first[i] + d->manifest.shards[i].samples;
		rows = gn_shard_rows(d->shards[i]);
		for (uint64_t r = 0; r < d->manifest.shards[i].samples; r++)
			d->max_length = rows[r].length_bytes > d->max_length ? rows[r].length_bytes : d->max_length;
	}
	return status;
}

/* The manifest is in each folder. */
static enum gn_status open_folders(struct gn_dataset *d, struct gn_err *err)
{
	char first[PATH_MAX];
	enum gn_status status = gn_folders_hold(d->directory, d->holds, err);

	if (!status)
		status = gn_folders_get(d->directory, 0, first, err);
	return status ? status : gn_manifest_load(first, &d->manifest, err);
}

enum gn_status gn_dataset_open(const char *directory, struct gn_dataset **out, struct gn_err *err)
{
	struct gn_dataset *d = calloc(1, sizeof *d);
	enum gn_status status;

	if (!d || !(d->directory = strdup(directory)) || !(d->source_bytes = calloc(1, sizeof *d->source_bytes))) {
		if (d)
			free(d->directory);
		free(d);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to open %s", directory);
	}
	status = open_folders(d, err);
	if (!status)
		status = open_shards(d, err);
	if (status)
		gn_dataset_close(d);
	else
		*out = d;
	return status;
}

enum gn_status gn_dataset_unlock(struct gn_dataset *d, const char *key_file, struct gn_err *err)
{
	return gn_encryption_open(&d->manifest, d->directory, key_file, &d->keys, err);
}

void gn_dataset_close(struct gn_dataset *d)
{
	if (!d)
		return;
	for (uint32_t i = 0; d->shards && i < d->manifest.shard_count; i++)
		gn_shard_close(d->shards[i]);
	free(d->shards);
	free(d->first);
	gn_encryption_release(d->keys, d->manifest.shard_count);
	gn_manifest_release(&d->manifest);
	gn_folders_release(d->holds);
	free(d->source_bytes);
	free(d->directory);
	free(d);
}

const char *gn_dataset_directory(const struct gn_dataset *d)
{
	return d->directory;
}

enum gn_status gn_dataset_use_copy(struct gn_dataset *d, uint32_t shard, const char *directory, struct gn_err *err)
{
	char path[PATH_MAX];
	enum gn_status status = gn_path_join(path, sizeof path, directory, d->manifest.shards[shard].file, err);

	return status ? status : gn_shard_use_copy(d->shards[shard], path, err);
}

uint64_t gn_dataset_source_bytes(const struct gn_dataset *d)
{
	return atomic_load(d->source_bytes);
}

uint64_t gn_dataset_count(const struct gn_dataset *d)
{
	return d->manifest.samples;
}

uint32_t gn_dataset_classes(const struct gn_dataset *d)
{
	return d->manifest.class_count;
}

int gn_dataset_exif_rotate(const struct gn_dataset *d)
{
	return d->manifest.exif_rotate;
}

const char *gn_dataset_class_name(const struct gn_dataset *d, uint32_t label)
{
	return d->manifest.classes[label].name;
}

enum gn_status gn_dataset_same_classes(const struct gn_dataset *a, const struct gn_dataset *b, struct gn_err *err)
{
	uint32_t left = gn_dataset_classes(a), right = gn_dataset_classes(b), i = 0;
	char one[512], other[512];

	while (i < left && i < right && !strcmp(gn_dataset_class_name(a, i), gn_dataset_class_name(b, i)))
		i++;
	if (i == left && i == right)
		return GN_OK;
	if (i == left || i == right)
		return gn_err_set(err, GN_ERR_DATA, "%s and %s have different class names: only %s has a class %u, '%s'; "
				  "pack the second with --classes %s", gn_dataset_directory(a), gn_dataset_directory(b),
				  gn_dataset_directory(i == left ? b : a), i, gn_dataset_class_name(i == left ? b : a, i),
				  gn_dataset_directory(a));
	return gn_err_set(err, GN_ERR_DATA, "%s and %s have different class names: class %u is %s in the first, %s in the "
			  "second; pack the second with --classes %s", gn_dataset_directory(a), gn_dataset_directory(b), i,
			  gn_text_exact(gn_dataset_class_name(a, i), one, sizeof one),
			  gn_text_exact(gn_dataset_class_name(b, i), other, sizeof other), gn_dataset_directory(a));
}

const char *gn_dataset_digest(const struct gn_dataset *d)
{
	return d->manifest.digest;
}

uint32_t gn_dataset_max_length(const struct gn_dataset *d)
{
	return d->max_length;
}

/* The shard that holds sample index. */
static uint32_t shard_of(const struct gn_dataset *d, uint64_t index)
{
	uint32_t low = 0, high = d->manifest.shard_count;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (d->first[middle] <= index)
			low = middle;
		else
			high = middle;
	}
	return low;
}

void gn_dataset_sample(const struct gn_dataset *d, uint64_t index, struct gn_sample *out)
{
	uint32_t shard = shard_of(d, index), row = (uint32_t)(index - d->first[shard]);
	const struct gn_shard_row *r = &gn_shard_rows(d->shards[shard])[row];

	const uint32_t tag = d->manifest.key_check[0] && r->length_bytes > GN_AEAD_TAG_BYTES ? GN_AEAD_TAG_BYTES : 0;

	*out = (struct gn_sample){shard, row, r->label, r->length_bytes - tag, r->crc32c, r->width, r->height, r->length_bytes};
}

enum gn_status gn_dataset_read(const struct gn_dataset *d, uint64_t index, void *buffer, struct gn_err *err)
{
	uint32_t shard = shard_of(d, index);
	uint64_t row = index - d->first[shard];
	enum gn_status status;

	if (d->manifest.key_check[0] && !d->keys)
		return gn_err_set(err, GN_ERR_USAGE, "%s is encrypted, and no key was read", d->directory);
	if (!gn_shard_is_copied(d->shards[shard]))
		atomic_fetch_add_explicit(d->source_bytes, gn_shard_rows(d->shards[shard])[row].length_bytes, memory_order_relaxed);
	status = gn_shard_read(d->shards[shard], row, buffer, err);
	return status || !d->keys ? status : gn_shard_decrypt(d->shards[shard], &d->keys[shard], shard, row, buffer, err);
}

void gn_dataset_sample_name(const struct gn_dataset *d, uint64_t index, char *out, size_t size)
{
	uint32_t shard = shard_of(d, index);

	gn_shard_name(d->shards[shard], index - d->first[shard], out, size);
}
