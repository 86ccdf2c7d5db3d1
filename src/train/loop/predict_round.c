#include "src/train/loop/predict_round.h"

#include "data/sample/image.h"
#include "src/base/alloc.h"
#include "src/base/crc32c.h"
#include "src/base/file.h"
#include "src/base/thread_pool.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gn_predict_decoder {
	const struct gn_loader_options *options;
	int exif_rotate;
	struct gn_thread_pool *pool;
	struct gn_sample_pipeline **free_pipelines; /* one for each worker; under lock */
	int free_count;
	pthread_mutex_t lock;
	struct gn_err failure; /* status GN_OK: none; under lock */
};

struct job {
	struct gn_predict_decoder *d;
	struct gn_predict_slot *slot;
	float *image;
	char *name; /* of the file to read; NULL: bytes */
	unsigned char *bytes;
	size_t len_bytes;
};

enum gn_status gn_predict_decoder_create(const struct gn_loader_options *options, int exif_rotate, struct gn_predict_decoder **out,
					   struct gn_err *err)
{
	struct gn_predict_decoder *d = calloc(1, sizeof *d);
	enum gn_status status = gn_loader_options_check(options, err);

	if (!status && d)
		d->free_pipelines = calloc((size_t)options->threads, sizeof(struct gn_sample_pipeline *));
	if (!status && (!d || !d->free_pipelines))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d threads", options->threads);
	if (status) {
		free(d);
		return status;
	}
	pthread_mutex_init(&d->lock, NULL);
	d->options = options;
	d->exif_rotate = exif_rotate;
	for (; d->free_count < options->threads && !status; d->free_count += !status)
		status = gn_sample_pipeline_create(NULL, options, &d->free_pipelines[d->free_count], err);
	if (!status)
		status = gn_thread_pool_create(options->threads, (size_t)options->threads * 4, &d->pool, err);
	if (status)
		gn_predict_decoder_destroy(d);
	else
		*out = d;
	return status;
}

void gn_predict_decoder_destroy(struct gn_predict_decoder *d)
{
	if (!d)
		return;
	gn_thread_pool_destroy(d->pool);
	while (d->free_count > 0)
		gn_sample_pipeline_destroy(d->free_pipelines[--d->free_count]);
	free(d->free_pipelines);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

enum gn_status gn_predict_round_init(struct gn_predict_round *r, const struct gn_loader_options *options, struct gn_err *err)
{
	size_t bytes;

	*r = (struct gn_predict_round){0};
	if (gn_size_mul(gn_loader_sample_bytes(options), options->batch, &bytes))
		return gn_err_set(err, GN_ERR_USAGE, "a batch of %u images is too large", options->batch);
	r->images = gn_alloc_aligned(bytes);
	r->slots = calloc(options->batch, sizeof *r->slots);
	if (r->images && r->slots) {
		memset(r->images, 0, bytes);
		return GN_OK;
	}
	gn_predict_round_release(r);
	return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a batch of %u images", options->batch);
}

void gn_predict_round_release(struct gn_predict_round *r)
{
	free(r->images);
	free(r->slots);
	*r = (struct gn_predict_round){0};
}

static struct gn_sample_pipeline *borrow(struct gn_predict_decoder *d)
{
	struct gn_sample_pipeline *p;

	pthread_mutex_lock(&d->lock);
	p = d->free_pipelines[--d->free_count];
	pthread_mutex_unlock(&d->lock);
	return p;
}

static void give_back(struct gn_predict_decoder *d, struct gn_sample_pipeline *p)
{
	pthread_mutex_lock(&d->lock);
	d->free_pipelines[d->free_count++] = p;
	pthread_mutex_unlock(&d->lock);
}

static enum gn_status decode(struct job *job, struct gn_sample_pipeline *p, struct gn_err *err)
{
	enum gn_status status = GN_OK;
	char *text;

	if (job->name) {
		status = gn_file_load(job->name, GN_IMAGE_MAX_BYTES, &text, &job->len_bytes, err);
		if (!status)
			job->bytes = (unsigned char *)text;
	}
	if (!status) {
		job->slot->is_oriented = gn_image_orientation(job->bytes, job->len_bytes) > 1;
		status = gn_picture_to_jpeg(&job->bytes, &job->len_bytes, GN_PICTURE_QUALITY, job->d->exif_rotate, NULL, err);
	}
	return status ? status : gn_sample_pipeline_run_jpeg(p, job->bytes, job->len_bytes, job->image, err);
}

/* An image that cannot be read or decoded is passed over; lack of memory is not its fault. */
static void run_job(void *argument)
{
	struct job *job = argument;
	struct gn_predict_decoder *d = job->d;
	struct gn_sample_pipeline *p = borrow(d);
	struct gn_err err;
	enum gn_status status = decode(job, p, &err);

	give_back(d, p);
	if (status == GN_ERR_NO_MEMORY) {
		pthread_mutex_lock(&d->lock);
		d->failure = err;
		pthread_mutex_unlock(&d->lock);
	} else if (status) {
		snprintf(job->slot->why, sizeof job->slot->why, "%.*s", GN_PREDICT_WHY - 1, err.text);
	}
	free(job->name);
	free(job->bytes);
	free(job);
}

enum gn_status gn_predict_decoder_add(struct gn_predict_decoder *d, struct gn_predict_round *r, const struct gn_picture *picture,
				      struct gn_err *err)
{
	const size_t sample = gn_loader_sample_bytes(d->options);
	struct gn_predict_slot *slot = &r->slots[r->count];
	struct job *job = calloc(1, sizeof *job);

	*slot = (struct gn_predict_slot){.name_crc32c = gn_crc32c(0, picture->name, strlen(picture->name))};
	if (picture->problem)
		snprintf(slot->why, sizeof slot->why, "%.*s", GN_PREDICT_WHY - 1, picture->problem);
	if (job)
		*job = (struct job){d, slot, r->images + r->count * (sample / sizeof(float)),
				    picture->in_file ? strdup(picture->name) : NULL, picture->bytes, picture->len_bytes};
	if (!job || (picture->in_file && !job->name)) {
		free(job);
		free(picture->bytes);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %s", picture->name);
	}
	r->count++;
	if (!picture->problem) {
		gn_thread_pool_submit(d->pool, run_job, job);
		return GN_OK;
	}
	free(job->name);
	free(job->bytes);
	free(job);
	return GN_OK;
}

enum gn_status gn_predict_decoder_wait(struct gn_predict_decoder *d, struct gn_err *err)
{
	gn_thread_pool_wait(d->pool);
	return d->failure.status ? gn_err_set(err, d->failure.status, "%s", d->failure.text) : GN_OK;
}
