/* The first pass: every image is decoded by a worker and becomes a row, or a complaint. */
#include "data/pack_parts.h"

#include "data/image.h"
#include "data/shard.h"
#include "data/source.h"
#include "data/synthetic.h"
#include "src/base/crc32c.h"
#include "src/base/file.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLIGHT_MAX_BYTES (256u << 20)
#define BAD_MAX 100 /* without --skip-bad, enough to see what is wrong with a source */

struct collect {
	struct gn_pack_set *set;
	const struct gn_pack_options *options;
	struct gn_pool *pool;
	uint32_t source; /* being walked */
	pthread_mutex_t lock;
	pthread_cond_t landed;
	/* under lock: */
	uint64_t flight_bytes;
	uint64_t spool_end;
	struct gn_err failure; /* the first that ends the pack */
	int failed;
};

/* One image on its way through a worker, which frees it. */
struct job {
	struct collect *c;
	char *name;
	unsigned char *bytes; /* NULL: in the file */
	size_t len_bytes;
	size_t flight_bytes;
	uint32_t source, class_id;
	uint64_t synthetic; /* index + 1, or 0 */
	const char *problem;
};

static void job_free(struct job *job)
{
	free(job->bytes);
	free(job->name);
	free(job);
}

static void fail(struct collect *c, const struct gn_err *err)
{
	pthread_mutex_lock(&c->lock);
	if (!c->failed)
		c->failure = *err;
	c->failed = 1;
	pthread_mutex_unlock(&c->lock);
}

static const char *source_name(const struct job *job)
{
	return job->c->options->sources ? job->c->options->sources[job->source] : "synthetic";
}

/* A bad image: one line in the log; the pack fails at the end, or at once when there are too many. */
static void complain(const struct job *job, const char *why)
{
	struct collect *c = job->c;
	const struct gn_pack_options *options = c->options;
	uint64_t bad;

	pthread_mutex_lock(&c->lock);
	bad = ++c->set->bad;
	if (!options->skip_bad && bad >= BAD_MAX && !c->failed) {
		c->failed = 1;
		gn_err_set(&c->failure, GN_ERR_DATA, "%d bad images, more were not looked for: mend them, or leave them "
			   "out with --skip-bad", BAD_MAX);
	}
	pthread_mutex_unlock(&c->lock);
	if (options->skip_bad)
		gn_log_warn(options->log, "skipped %s: %s: %s", source_name(job), job->name, why);
	else if (bad <= BAD_MAX)
		gn_log_error(options->log, "bad image %s: %s: %s", source_name(job), job->name, why);
}

static enum gn_status load_bytes(struct job *job, struct gn_err *err)
{
	const struct gn_pack_options *options = job->c->options;
	char path[PATH_MAX], *text;
	enum gn_status status;

	if (job->synthetic) {
		struct gn_synthetic_shape shape = {options->synthetic_classes, options->synthetic_height,
						   options->synthetic_width};

		return gn_synthetic_jpeg(&shape, options->seed, job->synthetic - 1, options->quality, &job->bytes,
					 &job->len_bytes, err);
	}
	status = gn_path_join(path, sizeof path, options->sources[job->source], job->name, err);
	if (!status)
		status = gn_file_load(path, GN_IMAGE_MAX_BYTES, &text, &job->len_bytes, err);
	if (!status)
		job->bytes = (unsigned char *)text;
	return status;
}

static enum gn_status convert_png(struct job *job, struct gn_err *err)
{
	unsigned char *jpeg;
	size_t len;
	enum gn_status status;

	if (job->c->options->refuse_png)
		return gn_err_set(err, GN_ERR_DATA, "a PNG file (--png convert would turn it into JPEG)");
	status = gn_image_png_to_jpeg(job->bytes, job->len_bytes, job->c->options->quality, &jpeg, &len, err);
	if (status)
		return status;
	free(job->bytes);
	job->bytes = jpeg;
	job->len_bytes = len;
	return GN_OK;
}

static enum gn_status append_item(struct collect *c, const struct gn_pack_item *item, struct gn_err *err)
{
	struct gn_pack_set *set = c->set;
	enum gn_status status = GN_OK;

	pthread_mutex_lock(&c->lock);
	if (set->count == set->capacity) {
		uint64_t capacity = set->capacity ? set->capacity * 2 : 4096;
		struct gn_pack_item *items = realloc(set->items, capacity * sizeof *items);

		if (items) {
			set->items = items;
			set->capacity = capacity;
		}
	}
	if (set->count == INT32_MAX)
		status = gn_err_set(err, GN_ERR_DATA, "more than %d images", INT32_MAX);
	else if (set->count == set->capacity)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for another image besides %llu",
				    (unsigned long long)set->count);
	else
		set->items[set->count++] = *item;
	pthread_mutex_unlock(&c->lock);
	return status;
}

/* Bytes that cannot be had again from a file go to the end of the spool. */
static enum gn_status spool_bytes(struct job *job, uint64_t *offset, struct gn_err *err)
{
	struct collect *c = job->c;

	pthread_mutex_lock(&c->lock);
	*offset = c->spool_end;
	c->spool_end += job->len_bytes;
	pthread_mutex_unlock(&c->lock);
	return gn_pwrite_full(c->set->spool, job->bytes, job->len_bytes, *offset, c->set->spool_path, err);
}

/* *bad tells an error of the image from one that ends the pack. */
static enum gn_status process(struct job *job, int *bad, struct gn_err *err)
{
	struct gn_pack_item item = {.source = job->source, .class_id = job->class_id,
				    .spool_offset = GN_PACK_IN_FILE};
	struct gn_image_info info;
	int in_file = !job->bytes && !job->synthetic;
	enum gn_status status = GN_OK;

	*bad = 1;
	if (!job->bytes)
		status = load_bytes(job, err);
	if (!status && gn_image_sniff(job->bytes, job->len_bytes) == GN_IMAGE_PNG) {
		in_file = 0;
		status = convert_png(job, err);
	}
	if (!status)
		status = gn_image_check_jpeg(job->bytes, job->len_bytes, &info, err);
	if (status) {
		*bad = status == GN_ERR_DATA || status == GN_ERR_NOT_FOUND;
		return status;
	}
	*bad = 0;
	item.length_bytes = (uint32_t)job->len_bytes;
	item.crc32c = gn_crc32c(0, job->bytes, job->len_bytes);
	item.width = info.width;
	item.height = info.height;
	if (!in_file)
		status = spool_bytes(job, &item.spool_offset, err);
	item.name = job->name;
	if (!status)
		status = append_item(job->c, &item, err);
	if (!status)
		job->name = NULL;
	return status;
}

static void run_job(void *argument)
{
	struct job *job = argument;
	struct collect *c = job->c;
	struct gn_err err;
	int bad, stop;

	pthread_mutex_lock(&c->lock);
	stop = c->failed;
	pthread_mutex_unlock(&c->lock);
	if (!stop && job->problem)
		complain(job, job->problem);
	else if (!stop && process(job, &bad, &err)) {
		if (bad)
			complain(job, err.text);
		else
			fail(c, &err);
	}
	gn_progress_add(c->options->progress, 1);
	pthread_mutex_lock(&c->lock);
	c->flight_bytes -= job->flight_bytes;
	pthread_cond_signal(&c->landed);
	pthread_mutex_unlock(&c->lock);
	job_free(job);
}

/* Takes job over; waits while too many bytes are in flight. */
static enum gn_status submit(struct collect *c, struct job *job, struct gn_err *err)
{
	enum gn_status status = gn_pack_check_stop(c->options, err);

	if (status) {
		job_free(job);
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
		job_free(job);
	else
		gn_pool_submit(c->pool, run_job, job);
	return status;
}

static struct job *new_job(struct collect *c, const char *name)
{
	struct job *job = calloc(1, sizeof *job);

	if (!job || !(job->name = strdup(name))) {
		free(job);
		return NULL;
	}
	job->c = c;
	job->source = c->source;
	return job;
}

static enum gn_status class_number(struct collect *c, const char *raw, const char *file, uint32_t *id,
				   struct gn_err *err)
{
	char name[GN_SHARD_NAME_MAX];

	gn_pack_class_text(raw, name, sizeof name);
	if (c->options->classes_file && !gn_names_find(c->set->classes, name, NULL))
		return gn_err_set(err, GN_ERR_DATA, "%s: %s: class '%s' is not in %s", c->options->sources[c->source], file,
				  name, c->options->classes_file);
	return gn_names_add(c->set->classes, name, id, err);
}

static enum gn_status take_file(void *context, const struct gn_source_file *file, struct gn_err *err)
{
	struct collect *c = context;
	struct job *job = new_job(c, file->name);
	enum gn_status status = GN_OK;

	if (!job) {
		free(file->bytes);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %s", file->name);
	}
	job->bytes = file->bytes;
	job->len_bytes = job->flight_bytes = file->len_bytes;
	job->problem = file->problem;
	if (!file->class_name)
		job->problem = "lies in no class folder";
	else
		status = class_number(c, file->class_name, file->name, &job->class_id, err);
	if (status) {
		job_free(job);
		return status;
	}
	return submit(c, job, err);
}

static enum gn_status take_empty(void *context, const char *name, const char *class_name, struct gn_err *err)
{
	struct collect *c = context;
	char text[GN_SHARD_NAME_MAX];
	uint32_t id;

	gn_pack_class_text(class_name, text, sizeof text);
	if (c->options->classes_file)
		return class_number(c, class_name, name, &id, err);
	return gn_names_add(c->set->empty, text, NULL, err);
}

static enum gn_status walk_sources(struct collect *c, struct gn_err *err)
{
	const struct gn_source_sink sink = {c, take_file, take_empty};
	enum gn_status status = GN_OK;

	for (; c->source < c->options->source_count && !status; c->source++)
		status = gn_source_walk(c->options->sources[c->source], &sink, err);
	return status;
}

static enum gn_status make_synthetic(struct collect *c, struct gn_err *err)
{
	const struct gn_pack_options *o = c->options;
	char name[64];
	enum gn_status status = GN_OK;

	for (uint32_t i = 0; i < o->synthetic_classes && !status; i++) {
		gn_synthetic_class_name(i, name, sizeof name);
		status = gn_names_add(c->set->classes, name, NULL, err);
	}
	for (uint64_t i = 0; i < o->synthetic_count && !status; i++) {
		uint32_t class_id = (uint32_t)(i % o->synthetic_classes);
		char class_name[32];
		struct job *job;

		gn_synthetic_class_name(class_id, class_name, sizeof class_name);
		snprintf(name, sizeof name, "%s/%08llu.jpg", class_name, (unsigned long long)i);
		job = new_job(c, name);
		if (!job)
			return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %s", name);
		job->class_id = class_id;
		job->synthetic = i + 1;
		job->flight_bytes = (size_t)o->synthetic_height * o->synthetic_width * 4;
		status = submit(c, job, err);
	}
	return status;
}

static enum gn_status verdict(const struct collect *c, struct gn_err *err)
{
	if (c->failed)
		return gn_err_set(err, c->failure.status, "%s", c->failure.text);
	if (c->set->bad && !c->options->skip_bad)
		return gn_err_set(err, GN_ERR_DATA, "%llu bad image%s: mend %s, or leave %s out with --skip-bad",
				  (unsigned long long)c->set->bad, c->set->bad == 1 ? "" : "s",
				  c->set->bad == 1 ? "it" : "them", c->set->bad == 1 ? "it" : "them");
	return GN_OK;
}

enum gn_status gn_pack_collect(struct gn_pack_set *set, const struct gn_pack_options *options, struct gn_err *err)
{
	struct collect c = {.set = set, .options = options};
	enum gn_status status = gn_pool_create(options->threads, (size_t)options->threads * 4, &c.pool, err);

	if (status)
		return status;
	pthread_mutex_init(&c.lock, NULL);
	pthread_cond_init(&c.landed, NULL);
	gn_progress_begin(options->progress, "checking", "images", options->synthetic_count);
	status = options->synthetic_count ? make_synthetic(&c, err) : walk_sources(&c, err);
	gn_pool_wait(c.pool);
	gn_pool_destroy(c.pool);
	gn_progress_end(options->progress);
	if (!status)
		status = verdict(&c, err);
	pthread_cond_destroy(&c.landed);
	pthread_mutex_destroy(&c.lock);
	return status;
}
