/* One image in a worker: it is decoded and becomes a row, or is reported as bad. */
#include "data/pack/pictures.h"

#include "data/pack/pack_collect_internal.h"
#include "data/pack/pack_journal.h"
#include "data/pack/pack_parts_internal.h"
#include "data/sample/image.h"
#include "src/base/alloc.h"
#include "src/base/crc32c.h"
#include "src/base/file.h"

#include <stdlib.h>
#include <string.h>

#define FLIGHT_MAX_BYTES (256u << 20)
#define BAD_MAX 100 /* limit of bad images without --skip-bad */

/* The spool: images that no file holds as they will be packed, between the two passes. With encrypt each is random salt, ciphertext and
 * tag, under HKDF(key, salt, "gannet spool 1"): a pack that resumes may reuse a place in the spool, but never a key. */

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

/* Appends an image to the spool, with encrypt encrypted under a key of its own. *offset is its position. Any thread, with its own lock
 * around the change of spool_end. */
static enum gn_status pack_spool_add(struct gn_pack_set *set, pthread_mutex_t *lock, const void *bytes, size_t len_bytes, uint64_t *offset,
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

/* Reads an image of length_bytes from the spool into buffer, which has space for GN_AEAD_TAG_BYTES more. Does not check its CRC-32C. */
static enum gn_status pack_spool_read(const struct gn_pack_set *set, uint64_t offset, void *buffer, size_t length_bytes, struct gn_err *err)
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

static enum gn_status load_item(const struct gn_pack_options *options, const struct gn_pack_item *item, void *buffer,
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
		status = load_item(options, item, buffer, err);
	else
		status = pack_spool_read(set, item->spool_offset, buffer, item->length_bytes, err);
	if (!status && gn_crc32c(0, buffer, item->length_bytes) != item->crc32c)
		status = gn_err_set(err, GN_ERR_DATA, "%s changed while it was being packed", item->name);
	return status;
}

void gn_pack_job_free(struct gn_pack_job *job)
{
	free(job->bytes);
	free(job->same_as);
	free(job->name);
	free(job);
}

static void fail(struct gn_pack_collector *c, const struct gn_err *err)
{
	pthread_mutex_lock(&c->lock);
	if (!c->failed)
		c->failure = *err;
	c->failed = 1;
	pthread_mutex_unlock(&c->lock);
}

static const char *source_name(const struct gn_pack_job *job)
{
	return job->c->options->sources ? job->c->options->sources[job->source] : "synthetic";
}

/* Reports a bad image in one log line. The pack fails at the end, or at once when there are too many. */
static void report_bad(const struct gn_pack_job *job, const char *why)
{
	struct gn_pack_collector *c = job->c;
	const struct gn_pack_options *options = c->options;
	uint64_t bad;

	pthread_mutex_lock(&c->lock);
	bad = ++c->set->bad;
	if (!options->skip_bad && bad >= BAD_MAX && !c->failed) {
		c->failed = 1;
		gn_err_set(&c->failure, GN_ERR_DATA, "%d bad images, the rest was not checked: repair them, or skip them "
			   "with --skip-bad", BAD_MAX);
	}
	pthread_mutex_unlock(&c->lock);
	if (options->skip_bad)
		gn_log_warn(options->log, "skipped %s: %s: %s", source_name(job), job->name, why);
	else if (bad <= BAD_MAX)
		gn_log_error(options->log, "bad image %s: %s: %s", source_name(job), job->name, why);
}

static enum gn_status load_file(struct gn_pack_job *job, struct gn_err *err)
{
	char path[PATH_MAX], *text;
	enum gn_status status = gn_path_join(path, sizeof path, job->c->options->sources[job->source], job->name, err);

	if (!status)
		status = gn_file_load(path, GN_IMAGE_MAX_BYTES, &text, &job->len_bytes, err);
	if (!status)
		job->bytes = (unsigned char *)text;
	return status;
}

static enum gn_status make_bytes(struct gn_pack_job *job, struct gn_err *err)
{
	const struct gn_pack_options *options = job->c->options;
	struct gn_synthetic_shape shape = {options->synthetic_classes, options->synthetic_height, options->synthetic_width};

	return gn_synthetic_jpeg(&shape, options->seed, job->synthetic - 1, options->quality, &job->bytes, &job->len_bytes,
				 err);
}

/* Converts PNG and CMYK to RGB or grey JPEG, and with exif_rotate turns images. Others are unchanged. */
static enum gn_status convert(struct gn_pack_job *job, int *converted, struct gn_err *err)
{
	const struct gn_pack_options *o = job->c->options;

	if (o->refuse_png && gn_image_sniff(job->bytes, job->len_bytes) == GN_IMAGE_PNG)
		return gn_err_set(err, GN_ERR_DATA, "a PNG file (--png convert converts it to JPEG)");
	return gn_picture_to_jpeg(&job->bytes, &job->len_bytes, o->quality, o->exif_rotate, converted, err);
}

/* Logs libjpeg's warning about a good image, for the first of them. */
static void warn(const struct gn_pack_job *job, const char *warning)
{
	struct gn_pack_collector *c = job->c;
	uint64_t warned;

	pthread_mutex_lock(&c->lock);
	warned = ++c->warnings;
	pthread_mutex_unlock(&c->lock);
	if (warned <= BAD_MAX)
		gn_log_warn(c->options->log, "packed %s: %s: %s", source_name(job), job->name, warning);
}

enum gn_status gn_pack_append_item(struct gn_pack_collector *c, const struct gn_pack_item *item, struct gn_err *err)
{
	struct gn_pack_set *set = c->set;
	enum gn_status status = GN_OK;

	pthread_mutex_lock(&c->lock);
	if (set->count == INT32_MAX)
		status = gn_err_set(err, GN_ERR_DATA, "more than %d images", INT32_MAX);
	else if (gn_array_grow(&set->items, &set->capacity, set->count, sizeof *set->items))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for another image besides %zu", set->count);
	else
		set->items[set->count++] = *item;
	pthread_mutex_unlock(&c->lock);
	return status;
}

static int spool_holds(const struct gn_pack_set *set, const struct gn_pack_done *done)
{
	unsigned char *bytes = malloc(done->length_bytes + GN_AEAD_TAG_BYTES);
	int holds = bytes && !pack_spool_read(set, done->spool_offset, bytes, done->length_bytes, NULL) &&
		    gn_crc32c(0, bytes, done->length_bytes) == done->crc32c;

	free(bytes);
	return holds;
}

/* Whether an earlier pack has processed this same image; then *out is its result. */
static int find_done(const struct gn_pack_job *job, uint32_t in_crc32c, struct gn_pack_done *out)
{
	const struct gn_pack_set *set = job->c->set;
	const struct gn_pack_done *done = gn_pack_journal_find(set->journal, job->source, job->name);

	if (!done || done->in_bytes != job->len_bytes || done->in_crc32c != in_crc32c)
		return 0;
	if (done->spool_offset != GN_PACK_IN_FILE ? !spool_holds(set, done)
						   : !job->in_file || done->length_bytes != job->len_bytes ||
							     done->crc32c != in_crc32c)
		return 0;
	*out = *done;
	return 1;
}

/* Decodes, converts and spools the image and appends the result to the journal. *bad distinguishes a bad image from a failure of
 * the pack. */
static enum gn_status make_done(struct gn_pack_job *job, uint32_t in_crc32c, struct gn_pack_done *out, int *bad,
				struct gn_err *err)
{
	struct gn_pack_done done = {.in_crc32c = in_crc32c, .in_bytes = job->len_bytes, .spool_offset = GN_PACK_IN_FILE};
	struct gn_image_info info;
	int converted = 0;
	enum gn_status status = job->synthetic ? make_bytes(job, err) : convert(job, &converted, err);

	if (!status)
		status = gn_image_check_jpeg(job->bytes, job->len_bytes, &info, err);
	*bad = status == GN_ERR_DATA;
	if (status)
		return status;
	done.length_bytes = (uint32_t)job->len_bytes;
	done.crc32c = converted || job->synthetic ? gn_crc32c(0, job->bytes, job->len_bytes) : in_crc32c;
	done.width = info.width;
	done.height = info.height;
	done.converted = (uint8_t)converted;
	done.warned = info.warning[0] != '\0';
	if (done.warned)
		warn(job, info.warning);
	if (!job->in_file || converted)
		status = pack_spool_add(job->c->set, &job->c->lock, job->bytes, job->len_bytes, &done.spool_offset, err);
	if (!status)
		status = gn_pack_journal_add(job->c->set->journal, job->source, job->name, &done, err);
	*out = done;
	return status;
}

static enum gn_status process(struct gn_pack_job *job, int *bad, struct gn_err *err)
{
	enum gn_status status = job->in_file ? load_file(job, err) : GN_OK;
	struct gn_pack_item item;
	struct gn_pack_done done;
	uint32_t in_crc32c;
	int rotated;

	*bad = status == GN_ERR_DATA || status == GN_ERR_NOT_FOUND;
	if (status)
		return status;
	in_crc32c = gn_crc32c(0, job->bytes, job->len_bytes);
	rotated = gn_image_orientation(job->bytes, job->len_bytes) > 1;
	if (!find_done(job, in_crc32c, &done))
		status = make_done(job, in_crc32c, &done, bad, err);
	if (status)
		return status;
	item = (struct gn_pack_item){
		.name = job->name, .spool_offset = done.spool_offset, .source = job->source, .number = job->number, .class_id = job->class_id,
		.length_bytes = done.length_bytes, .crc32c = done.crc32c, .width = done.width, .height = done.height,
		.converted = done.converted, .warned = done.warned, .rotated = (uint8_t)rotated,
	};
	status = gn_pack_append_item(job->c, &item, err);
	if (!status)
		job->name = NULL;
	return status;
}

static void run_job(void *argument)
{
	struct gn_pack_job *job = argument;
	struct gn_pack_collector *c = job->c;
	struct gn_err err;
	int bad, stop;

	pthread_mutex_lock(&c->lock);
	stop = c->failed;
	pthread_mutex_unlock(&c->lock);
	if (!stop && job->problem)
		report_bad(job, job->problem);
	else if (!stop && process(job, &bad, &err)) {
		if (bad)
			report_bad(job, err.text);
		else
			fail(c, &err);
	}
	gn_progress_bar_add(c->options->progress, 1);
	pthread_mutex_lock(&c->lock);
	c->flight_bytes -= job->flight_bytes;
	pthread_cond_signal(&c->landed);
	pthread_mutex_unlock(&c->lock);
	gn_pack_job_free(job);
}

enum gn_status gn_pack_job_submit(struct gn_pack_collector *c, struct gn_pack_job *job, struct gn_err *err)
{
	enum gn_status status = gn_pack_check_stop(c->options, err);

	if (status) {
		gn_pack_job_free(job);
		return status;
	}
	pthread_mutex_lock(&c->lock);
	while (c->flight_bytes && c->flight_bytes + job->flight_bytes > FLIGHT_MAX_BYTES)
		pthread_cond_wait(&c->landed, &c->lock);
	c->flight_bytes += job->flight_bytes;
	if (c->failed)
		status = gn_err_set(err, c->failure.status, "%s", c->failure.text);
	pthread_mutex_unlock(&c->lock);
	if (status)
		gn_pack_job_free(job);
	else
		gn_thread_pool_submit(c->pool, run_job, job);
	return status;
}

struct gn_pack_job *gn_pack_job_new(struct gn_pack_collector *c, const char *name)
{
	struct gn_pack_job *job = calloc(1, sizeof *job);

	if (!job || !(job->name = strdup(name))) {
		free(job);
		return NULL;
	}
	job->c = c;
	job->source = c->source;
	return job;
}
