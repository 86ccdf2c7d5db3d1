#include "data/shard/verify.h"

#include "data/sample/image.h"
#include "data/shard/encryption.h"
#include "data/shard/folders.h"
#include "data/shard/manifest.h"
#include "data/shard/shard.h"
#include "src/base/thread_pool.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CHUNK_ROWS 64

struct check {
	const struct gn_verify_options *options;
	const struct gn_manifest *manifest;
	struct gn_data_key *keys; /* of the shards; NULL: not encrypted, or no key */
	struct gn_thread_pool *pool;
	pthread_mutex_t lock;
	struct gn_verify_result result; /* under lock */
	struct gn_err failure;		/* protected by lock: a failure of the check itself, as opposed to damage */
	int failed;			/* under lock */
};

/* A shard; freed when its last job has ended. */
struct shard_check {
	struct check *c;
	const struct gn_manifest_shard *entry;
	uint32_t index; /* of it */
	char path[PATH_MAX];
	struct gn_shard *shard;
	unsigned jobs; /* protected by c->lock; includes one for the thread that submits them */
	int bad;       /* under c->lock */
};

struct rows_job {
	struct shard_check *s;
	uint64_t from, to;
};

/* Damage is counted and logged; any other error ends the check. */
static void note(struct shard_check *s, const struct gn_err *err, int is_sample)
{
	struct check *c = s->c;
	int damage = err->status == GN_ERR_DATA || err->status == GN_ERR_NOT_FOUND;

	pthread_mutex_lock(&c->lock);
	if (!damage && !c->failed) {
		c->failure = *err;
		c->failed = 1;
	}
	if (damage && is_sample)
		c->result.bad_samples++;
	if (damage && !s->bad) {
		c->result.bad_shards++;
		s->bad = 1;
	}
	pthread_mutex_unlock(&c->lock);
	if (damage)
		gn_log_error(c->options->log, "%s", err->text);
}

static void release(struct shard_check *s)
{
	unsigned left;

	pthread_mutex_lock(&s->c->lock);
	left = --s->jobs;
	pthread_mutex_unlock(&s->c->lock);
	if (left)
		return;
	gn_shard_close(s->shard);
	free(s);
}

static enum gn_status check_digest(const struct shard_check *s, struct gn_err *err)
{
	char hex[GN_SHA256_HEX];
	enum gn_status status = gn_sha256_file(s->path, hex, NULL, err);

	if (status)
		return status;
	if (strcmp(hex, s->entry->sha256))
		return gn_err_set(err, GN_ERR_DATA, "%s fails its SHA-256 digest: stage or pack it again", s->path);
	return GN_OK;
}

static void run_digest(void *argument)
{
	struct shard_check *s = argument;
	struct gn_err err;

	if (check_digest(s, &err))
		note(s, &err, 0);
	gn_progress_bar_add(s->c->options->progress, s->entry->size_bytes);
	release(s);
}

static enum gn_status check_row(const struct shard_check *s, uint64_t row, unsigned char *buffer, struct gn_err *err)
{
	const struct gn_shard_row *r = &gn_shard_rows(s->shard)[row];
	struct gn_image_info info;
	char name[256];
	enum gn_status status = gn_shard_read(s->shard, row, buffer, err);

	if (!status && s->c->keys)
		status = gn_shard_decrypt(s->shard, &s->c->keys[s->index], s->index, row, buffer, err);
	if (status || !s->c->options->decode)
		return status;
	status = gn_image_check_jpeg(buffer, r->length_bytes - (s->c->keys ? GN_AEAD_TAG_BYTES : 0), &info, err);
	if (!status && (info.width != r->width || info.height != r->height))
		status = gn_err_set(err, GN_ERR_DATA, "%ux%u pixels, the row says %ux%u", info.width, info.height,
				    r->width, r->height);
	if (!status)
		return GN_OK;
	gn_shard_name(s->shard, row, name, sizeof name);
	return gn_err_prefix(err, "%s: sample %llu (%s)", s->path, (unsigned long long)row, name);
}

static void run_rows(void *argument)
{
	struct rows_job *job = argument;
	struct shard_check *s = job->s;
	const struct gn_shard_row *rows = gn_shard_rows(s->shard);
	uint64_t bytes = 0;
	uint32_t longest = 1;
	unsigned char *buffer;
	struct gn_err err;

	for (uint64_t i = job->from; i < job->to; i++)
		longest = rows[i].length_bytes > longest ? rows[i].length_bytes : longest;
	buffer = malloc(longest);
	if (!buffer) {
		gn_err_set(&err, GN_ERR_NO_MEMORY, "no memory for an image of %u bytes", longest);
		note(s, &err, 1);
	}
	for (uint64_t i = job->from; buffer && i < job->to; i++) {
		if (check_row(s, i, buffer, &err))
			note(s, &err, 1);
		bytes += rows[i].length_bytes;
	}
	gn_progress_bar_add(s->c->options->progress, bytes);
	pthread_mutex_lock(&s->c->lock);
	s->c->result.samples += job->to - job->from;
	s->c->result.bytes += bytes;
	pthread_mutex_unlock(&s->c->lock);
	free(buffer);
	free(job);
	release(s);
}

/* HDF5 opens only tables whose digest is right. */
static enum gn_status open_shard(struct shard_check *s, struct gn_err *err)
{
	const struct gn_manifest_shard *m = s->entry;
	const struct gn_shard_layout *l;
	char hex[GN_SHA256_HEX];
	struct stat info;
	enum gn_status status;

	if (stat(s->path, &info))
		return gn_err_errno(err, errno, "cannot open shard %s", s->path);
	if ((uint64_t)info.st_size != m->size_bytes)
		return gn_err_set(err, GN_ERR_DATA, "%s has %lld bytes, the manifest says %llu: it was truncated or "
				  "replaced", s->path, (long long)info.st_size, (unsigned long long)m->size_bytes);
	status = gn_shard_head_digest(s->path, m->data_offset, m->data_bytes, hex, err);
	if (status)
		return status;
	if (strcmp(hex, m->head_sha256))
		return gn_err_set(err, GN_ERR_DATA, "%s: its tables fail their digest; its samples cannot be checked",
				  s->path);
	status = gn_shard_open(s->path, &s->shard, err);
	if (status)
		return status;
	l = gn_shard_layout(s->shard);
	if (l->count != m->samples || l->data_offset != m->data_offset || l->data_bytes != m->data_bytes ||
	    l->classes != s->c->manifest->class_count)
		return gn_err_set(err, GN_ERR_DATA, "%s is not the shard that the manifest describes", s->path);
	return GN_OK;
}

static void submit_job(struct shard_check *s, void (*run)(void *), void *argument)
{
	pthread_mutex_lock(&s->c->lock);
	s->jobs++;
	pthread_mutex_unlock(&s->c->lock);
	gn_thread_pool_submit(s->c->pool, run, argument);
}

static enum gn_status check_shard(struct check *c, uint32_t i, struct gn_err *err)
{
	struct shard_check *s = calloc(1, sizeof *s);
	enum gn_status status;
	int damaged;

	if (!s)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to check a shard");
	s->c = c;
	s->entry = &c->manifest->shards[i];
	s->index = i;
	s->jobs = 1;
	status = gn_folders_find(c->options->directory, s->entry->file, s->path, err);
	if (status) {
		free(s);
		return status;
	}
	damaged = open_shard(s, err) != GN_OK;
	if (damaged)
		note(s, err, 0);
	else
		submit_job(s, run_digest, s);
	for (uint64_t from = 0; !damaged && from < s->entry->samples; from += CHUNK_ROWS) {
		struct rows_job *job = malloc(sizeof *job);

		if (!job) {
			status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to check a shard");
			break;
		}
		*job = (struct rows_job){s, from, from + CHUNK_ROWS < s->entry->samples ? from + CHUNK_ROWS
											 : s->entry->samples};
		submit_job(s, run_rows, job);
	}
	release(s);
	return status;
}

static enum gn_status verdict(const struct check *c, struct gn_err *err)
{
	const struct gn_verify_result *r = &c->result;

	if (c->failed)
		return gn_err_set(err, c->failure.status, "%s", c->failure.text);
	if (r->bad_shards)
		return gn_err_set(err, GN_ERR_DATA, "%s is damaged: %llu of %u shards; %llu bad samples",
				  c->options->directory, (unsigned long long)r->bad_shards, r->shards,
				  (unsigned long long)r->bad_samples);
	return GN_OK;
}

static enum gn_status check_all(struct check *c, struct gn_err *err)
{
	enum gn_status status = gn_thread_pool_create(c->options->threads, (size_t)c->options->threads * 4, &c->pool, err);
	uint64_t bytes = 0;

	if (status)
		return status;
	for (uint32_t i = 0; i < c->manifest->shard_count; i++)
		bytes += c->manifest->shards[i].size_bytes + c->manifest->shards[i].data_bytes;
	gn_progress_bar_begin(c->options->progress, "verifying", "B", bytes);
	for (uint32_t i = 0; i < c->manifest->shard_count && !status; i++)
		status = check_shard(c, i, err);
	gn_thread_pool_wait(c->pool);
	gn_thread_pool_destroy(c->pool);
	gn_progress_bar_end(c->options->progress);
	return status;
}

static enum gn_status verify_held(const struct gn_verify_options *options, struct gn_verify_result *out, struct gn_err *err)
{
	struct gn_manifest manifest;
	struct check c = {.options = options, .manifest = &manifest};
	struct gn_err mine;
	char first[PATH_MAX];
	enum gn_status status = gn_folders_get(options->directory, 0, first, err);

	if (!status)
		status = gn_manifest_load(first, &manifest, err);
	if (status)
		return status;
	if (manifest.key_check[0] && !options->key_file && options->decode)
		status = gn_err_set(err, GN_ERR_USAGE, "%s is encrypted: --decode needs --key-file FILE", options->directory);
	else if (options->key_file)
		status = gn_encryption_open(&manifest, first, options->key_file, &c.keys, err);
	if (status) {
		gn_manifest_release(&manifest);
		return status;
	}
	c.result.shards = manifest.shard_count;
	c.result.encrypted = manifest.key_check[0] != '\0';
	c.result.authenticated = c.keys != NULL;
	pthread_mutex_init(&c.lock, NULL);
	status = check_all(&c, &mine);
	if (status)
		gn_err_set(err, status, "%s", mine.text);
	else
		status = verdict(&c, err);
	*out = c.result;
	pthread_mutex_destroy(&c.lock);
	gn_encryption_release(c.keys, manifest.shard_count);
	gn_manifest_release(&manifest);
	return status;
}

enum gn_status gn_verify(const struct gn_verify_options *options, struct gn_verify_result *out, struct gn_err *err)
{
	int holds[GN_FOLDERS_MAX];
	enum gn_status status = gn_folders_hold(options->directory, holds, err);

	if (!status)
		status = verify_held(options, out, err);
	gn_folders_release(holds);
	return status;
}
