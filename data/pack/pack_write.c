/* The second pass: writes the shards one after the other; workers copy images into the current shard and digest the previous
 * one. */
#include "data/pack/pack_parts_internal.h"

#include "data/pack/pack_journal.h"
#include "data/shard/encryption.h"
#include "data/shard/shard.h"
#include "src/base/crc32c.h"
#include "src/base/file.h"
#include "src/base/sha256.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK_ROWS 64
#define SHARD_NAME "shard-%05u.h5"

struct writer {
	const struct gn_pack_set *set;
	const struct gn_pack_options *options;
	const struct gn_pack_part *part;
	struct gn_thread_pool *pool;
	pthread_mutex_t lock;
	struct gn_err failure; /* under lock */
	int failed;	       /* under lock */
};

/* One shard: items set->items[first .. first + count). */
struct shard_work {
	struct writer *w;
	char path[PATH_MAX];
	uint64_t first, count;
	struct gn_shard_layout layout;
	struct gn_shard_row *rows;
	const char **names;
	int fd;
	struct gn_manifest_shard *entry;
	uint32_t number, index; /* in the dataset, in the journal */
	struct gn_data_key key; /* with encryption */
};

struct copy_job {
	struct shard_work *s;
	uint64_t from, to; /* rows */
};

static void fail(struct writer *w, const struct gn_err *err)
{
	pthread_mutex_lock(&w->lock);
	if (!w->failed)
		w->failure = *err;
	w->failed = 1;
	pthread_mutex_unlock(&w->lock);
}

static enum gn_status verdict(struct writer *w, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	pthread_mutex_lock(&w->lock);
	if (w->failed)
		status = gn_err_set(err, w->failure.status, "%s", w->failure.text);
	pthread_mutex_unlock(&w->lock);
	return status;
}

static enum gn_status copy_item(struct shard_work *s, uint64_t row, unsigned char *buffer, struct gn_err *err)
{
	struct gn_shard_row *r = &s->rows[row];
	enum gn_status status = gn_pack_item_read(s->w->set, s->w->options, &s->w->set->items[s->first + row], buffer, err);

	if (!status && s->w->set->encrypt) {
		status = gn_sample_encrypt(&s->key, s->number, row, r, buffer, err);
		r->crc32c = gn_crc32c(0, buffer, r->length_bytes);
	}
	return status ? status : gn_pwrite_full(s->fd, buffer, r->length_bytes, s->layout.data_offset + r->offset, s->path, err);
}

static void run_copy(void *argument)
{
	struct copy_job *job = argument;
	struct shard_work *s = job->s;
	unsigned char *buffer = NULL;
	enum gn_status status = GN_OK;
	struct gn_err err;
	uint32_t longest = 1;

	for (uint64_t i = job->from; i < job->to; i++)
		longest = s->rows[i].length_bytes > longest ? s->rows[i].length_bytes : longest;
	buffer = malloc(longest);
	if (!buffer)
		status = gn_err_set(&err, GN_ERR_NO_MEMORY, "no memory for an image of %u bytes", longest);
	for (uint64_t i = job->from; i < job->to && !status; i++) {
		status = gn_pack_check_stop(s->w->options, &err);
		if (!status)
			status = copy_item(s, i, buffer, &err);
		gn_progress_bar_add(s->w->options->progress, 1);
	}
	if (status)
		fail(s->w, &err);
	free(buffer);
	free(job);
}

static void shard_work_free(struct shard_work *s)
{
	if (s->fd >= 0)
		close(s->fd);
	gn_data_key_wipe(&s->key);
	free(s->rows);
	free(s->names);
	free(s);
}

/* Of ciphertext: known only now, where the shard's tables are written already. */
static enum gn_status write_checksums(const struct shard_work *s, struct gn_err *err)
{
	uint32_t *values = calloc(s->count, sizeof *values);
	enum gn_status status;

	if (!values)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %llu checksums", (unsigned long long)s->count);
	for (uint64_t i = 0; i < s->count; i++)
		values[i] = htole32(s->rows[i].crc32c);
	status = gn_pwrite_full(s->fd, values, s->count * sizeof *values, s->layout.crc32c_offset, s->path, err);
	free(values);
	return status;
}

/* Syncs, digests and frees a shard whose copies have ended. */
static void run_digest(void *argument)
{
	struct shard_work *s = argument;
	struct gn_manifest_shard *m = s->entry;
	enum gn_status status = GN_OK;
	struct gn_err err;

	m->samples = s->count;
	m->data_offset = s->layout.data_offset;
	m->data_bytes = s->layout.data_bytes;
	if (s->w->set->encrypt)
		status = write_checksums(s, &err);
	if (!status && fsync(s->fd))
		status = gn_err_errno(&err, errno, "cannot sync %s", s->path);
	if (!status)
		status = gn_sha256_file(s->path, m->sha256, &m->size_bytes, &err);
	if (!status)
		status = gn_shard_head_digest(s->path, m->data_offset, m->data_bytes, m->head_sha256, &err);
	if (!status)
		status = gn_pack_journal_add_shard(s->w->set->journal, s->index, m, &err);
	if (status)
		fail(s->w, &err);
	shard_work_free(s);
}

static enum gn_status make_rows(struct shard_work *s, struct gn_err *err)
{
	const uint32_t tag = s->w->set->encrypt ? GN_AEAD_TAG_BYTES : 0;
	uint64_t offset = 0;

	s->rows = calloc(s->count, sizeof *s->rows);
	s->names = calloc(s->count, sizeof *s->names);
	if (!s->rows || !s->names)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %llu rows", (unsigned long long)s->count);
	for (uint64_t i = 0; i < s->count; i++) {
		const struct gn_pack_item *item = &s->w->set->items[s->first + i];

		s->rows[i] = (struct gn_shard_row){offset, item->length_bytes + tag, item->class_id, item->crc32c,
						   item->width, item->height};
		s->names[i] = item->name;
		offset += item->length_bytes + tag;
	}
	return GN_OK;
}

static enum gn_status submit_copies(struct shard_work *s, struct gn_err *err)
{
	for (uint64_t from = 0; from < s->count; from += CHUNK_ROWS) {
		struct copy_job *job = malloc(sizeof *job);

		if (!job)
			return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to copy images");
		*job = (struct copy_job){s, from, from + CHUNK_ROWS < s->count ? from + CHUNK_ROWS : s->count};
		gn_thread_pool_submit(s->w->pool, run_copy, job);
	}
	return GN_OK;
}

/* Keeps a shard that an earlier pack completed; removes an incomplete one. Returns whether it was kept. */
static int keep_shard(const struct shard_work *s)
{
	const struct gn_manifest_shard *known = gn_pack_journal_shard(s->w->set->journal, s->index);
	struct stat info;

	if (known && known->samples == s->count && !strcmp(known->file, s->entry->file) && !stat(s->path, &info) &&
	    (uint64_t)info.st_size == known->size_bytes) {
		*s->entry = *known;
		gn_progress_bar_add(s->w->options->progress, s->count);
		return 1;
	}
	unlink(s->path);
	return 0;
}

static enum gn_status write_shard(struct writer *w, uint64_t first, uint64_t count, struct gn_manifest_shard *entry, uint32_t index,
				  struct gn_err *err)
{
	struct shard_work *s = calloc(1, sizeof *s);
	enum gn_status status;

	if (!s)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a shard");
	*s = (struct shard_work){.w = w, .first = first, .count = count, .entry = entry, .index = index, .fd = -1};
	s->number = index - w->part->first_shard;
	status = gn_path_join(s->path, sizeof s->path, w->part->folder, entry->file, err);
	if (!status && keep_shard(s)) {
		shard_work_free(s);
		return GN_OK;
	}
	if (!status && w->set->encrypt)
		status = gn_encryption_begin_shard(entry, &w->set->key, &s->key, err);
	if (!status)
		status = make_rows(s, err);
	if (!status)
		status = gn_shard_write(s->path, s->rows, s->names, count, gn_names_count(w->set->classes), &s->layout,
					err);
	if (!status && (s->fd = open(s->path, O_WRONLY | O_CLOEXEC)) < 0)
		status = gn_err_errno(err, errno, "cannot open %s", s->path);
	if (!status)
		status = submit_copies(s, err);
	gn_thread_pool_wait(w->pool);
	if (!status)
		status = verdict(w, err);
	if (status)
		shard_work_free(s);
	else
		gn_thread_pool_submit(w->pool, run_digest, s);
	return status;
}

/* Number of items in the shard that starts with item first, of those before end. */
static uint64_t shard_length(const struct gn_pack_set *set, uint64_t first, uint64_t end, uint64_t shard_bytes)
{
	uint64_t bytes = 0, i = first;

	for (; i < end; i++) {
		bytes += set->items[i].length_bytes;
		if (bytes > shard_bytes && i > first)
			break;
	}
	return i - first;
}

static enum gn_status describe(const struct gn_pack_set *set, const struct gn_pack_options *options,
			       const struct gn_pack_part *part, struct gn_manifest *m, struct gn_err *err)
{
	const uint64_t end = part->first + part->count;
	uint32_t shards = 0;
	enum gn_status status;

	for (uint64_t i = part->first; i < end; i += shard_length(set, i, end, options->shard_bytes))
		shards++;
	status = gn_manifest_init(m, gn_names_count(set->classes), shards, err);
	if (status)
		return status;
	m->samples = part->count;
	m->skipped = set->bad;
	m->seed = options->seed;
	m->exif_rotate = options->exif_rotate;
	for (uint32_t i = 0; i < m->class_count; i++) {
		m->classes[i].name = strdup(gn_names_get(set->classes, i));
		if (!m->classes[i].name)
			return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %u classes", m->class_count);
	}
	for (uint64_t i = part->first; i < end; i++)
		m->classes[set->items[i].class_id].samples++;
	for (uint32_t i = 0; i < shards; i++)
		snprintf(m->shards[i].file, sizeof m->shards[i].file, SHARD_NAME, i);
	return GN_OK;
}

/* Fails before the copy instead of hours into it. */
static enum gn_status check_space(const struct gn_pack_set *set, const struct gn_pack_part *part, const struct gn_manifest *m,
				  struct gn_err *err)
{
	uint64_t needed = 0, free_bytes;
	enum gn_status status = gn_free_bytes(part->folder, &free_bytes, err);

	for (uint64_t i = part->first; i < part->first + part->count; i++)
		needed += set->items[i].length_bytes + GN_AEAD_TAG_BYTES + sizeof(struct gn_shard_row) + strlen(set->items[i].name);
	for (uint32_t i = 0; i < m->shard_count; i++) {
		const struct gn_manifest_shard *known = gn_pack_journal_shard(set->journal, part->first_shard + i);

		needed -= known && known->data_bytes < needed ? known->data_bytes : 0;
	}
	if (!status && needed > free_bytes)
		status = gn_err_set(err, GN_ERR_NO_SPACE, "no space left for %s: its shards need %llu MB, %llu MB are "
				    "free", part->folder, (unsigned long long)(needed >> 20),
				    (unsigned long long)(free_bytes >> 20));
	return status;
}

/* Digest of everything that determines the bytes of the shards: tells a later pack whether existing shards are usable. */
enum gn_status gn_pack_note_order(const struct gn_pack_set *set, struct gn_err *err)
{
	char digest[GN_SHA256_HEX];
	struct gn_sha256 *s;
	enum gn_status status = gn_sha256_create(&s, err);

	if (status)
		return status;
	for (uint32_t i = 0; i < gn_names_count(set->classes); i++)
		gn_sha256_update(s, gn_names_get(set->classes, i), strlen(gn_names_get(set->classes, i)) + 1);
	for (uint64_t i = 0; i < set->count; i++) {
		const struct gn_pack_item *item = &set->items[i];
		const uint32_t numbers[] = {item->class_id, item->length_bytes, item->crc32c, item->width, item->height, item->held_out};

		gn_sha256_update(s, item->name, strlen(item->name) + 1);
		gn_sha256_update(s, numbers, sizeof numbers);
	}
	gn_sha256_finish(s, digest);
	gn_sha256_destroy(s);
	return gn_pack_journal_order(set->journal, digest, err);
}

/* An earlier pack with other images may have written more shards. */
static void remove_more_shards(const struct gn_pack_part *part, uint32_t index)
{
	char path[PATH_MAX];

	do
		snprintf(path, sizeof path, "%.*s/" SHARD_NAME, PATH_MAX - 32, part->folder, index++);
	while (!unlink(path));
}

enum gn_status gn_pack_write(const struct gn_pack_set *set, const struct gn_pack_options *options,
			     const struct gn_pack_part *part, struct gn_manifest *m, struct gn_err *err)
{
	struct writer w = {.set = set, .options = options, .part = part};
	const uint64_t end = part->first + part->count;
	uint64_t first = part->first;
	enum gn_status status;

	memset(m, 0, sizeof *m);
	status = describe(set, options, part, m, err);
	if (!status)
		status = check_space(set, part, m, err);
	if (!status)
		status = gn_thread_pool_create(options->threads, (size_t)options->threads * 4, &w.pool, err);
	if (status)
		return status;
	pthread_mutex_init(&w.lock, NULL);
	remove_more_shards(part, m->shard_count);
	gn_progress_bar_begin(options->progress, "writing", "images", part->count);
	for (uint32_t i = 0; i < m->shard_count && !status; i++) {
		uint64_t count = shard_length(set, first, end, options->shard_bytes);

		status = write_shard(&w, first, count, &m->shards[i], part->first_shard + i, err);
		first += count;
	}
	gn_thread_pool_wait(w.pool);
	gn_thread_pool_destroy(w.pool);
	gn_progress_bar_end(options->progress);
	if (!status)
		status = verdict(&w, err);
	if (!status)
		status = set->encrypt ? gn_encryption_seal(m, &set->key, err) : gn_manifest_seal(m, err);
	pthread_mutex_destroy(&w.lock);
	return status;
}
