/* How fast the loader delivers a packed dataset, beside plain libjpeg decoding of the same files in the same run.
 *
 *     bench/loader DATASET [SIDE [CHANNELS [THREADS [AUGMENT]]]]        AUGMENT: none, crop, shift
 *
 * One JSON line: microseconds of one thread per image for decoding whole files at full size and for the loader's way
 * (read, check, decode, augment, resize, normalise), their ratio, and images/s with THREADS threads. Each figure is the
 * best of three passes over at most 4,000 images. The loader's samples are compared between one thread and THREADS.
 */
#include "data/decode.h"
#include "data/loader.h"
#include "src/base/clock.h"
#include "src/base/crc32c.h"
#include "src/base/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { passes = 3, images_max = 4000 };

struct bench {
	struct gn_dataset *dataset;
	struct gn_loader_options options;
	uint64_t images;
	double bytes; /* mean length of a file */
};

static enum gn_status plain_pass(const struct bench *b, struct gn_decoder *d, char *file, double *seconds,
				 struct gn_err *err)
{
	enum gn_status status = GN_OK;
	double spent = 0;

	for (uint64_t i = 0; i < b->images && !status; i++) {
		struct gn_region all = {0};
		struct gn_sample s;
		struct gn_pixels p;
		double begin;

		gn_dataset_sample(b->dataset, i, &s);
		status = gn_dataset_read(b->dataset, i, file, err);
		begin = gn_clock_s();
		if (!status)
			status = gn_decoder_open(d, file, s.length_bytes, &all.width, &all.height, err);
		if (!status)
			status = gn_decoder_read(d, &all, 1, b->options.channels, &p, err);
		spent += gn_clock_s() - begin;
	}
	if (!status)
		*seconds = spent;
	return status;
}

static enum gn_status plain(const struct bench *b, double *seconds, struct gn_err *err)
{
	char *file = malloc(gn_dataset_max_length(b->dataset));
	struct gn_decoder *d = NULL;
	enum gn_status status = file ? gn_decoder_create(&d, err) : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");

	for (int i = 0; i < passes && !status; i++) {
		double pass = 0;

		status = plain_pass(b, d, file, &pass, err);
		*seconds = !i || pass < *seconds ? pass : *seconds;
	}
	gn_decoder_destroy(d);
	free(file);
	return status;
}

static enum gn_status loader_pass(const struct bench *b, struct gn_loader *l, double *seconds, uint32_t *crc32c,
				  struct gn_err *err)
{
	const struct gn_loader_options *o = &b->options;
	size_t bytes = (size_t)o->batch * o->channels * o->height * o->width * sizeof(float);
	double begin = gn_clock_s();
	enum gn_status status = gn_loader_start(l, 0, 0, err);
	struct gn_batch batch;

	*crc32c = 0;
	for (uint64_t k = 0; k < b->images / o->batch && !status; k++) {
		status = gn_loader_next(l, &batch, err);
		/* a checksum in hardware: little beside decoding, and it runs beside the workers */
		if (!status)
			*crc32c = gn_crc32c(*crc32c, batch.images, bytes);
	}
	*seconds = gn_clock_s() - begin;
	return status;
}

static enum gn_status with_threads(struct bench *b, int threads, double *seconds, uint32_t *crc32c, struct gn_err *err)
{
	struct gn_loader *l = NULL;
	enum gn_status status;

	b->options.threads = threads;
	status = gn_loader_create(b->dataset, &b->options, &l, err);
	for (int i = 0; i < passes && !status; i++) {
		double pass = 0;

		status = loader_pass(b, l, &pass, crc32c, err);
		*seconds = !i || pass < *seconds ? pass : *seconds;
	}
	gn_loader_destroy(l);
	return status;
}

static enum gn_status run(struct bench *b, int threads, struct gn_err *err)
{
	double decode_s = 0, one_s = 0, all_s = 0, n = (double)b->images;
	uint32_t one = 0, all = 0;
	enum gn_status status = plain(b, &decode_s, err);

	if (!status)
		status = with_threads(b, 1, &one_s, &one, err);
	if (!status)
		status = with_threads(b, threads, &all_s, &all, err);
	if (status)
		return status;
	if (one != all)
		return gn_err_set(err, GN_ERR_FAILED, "samples differ between 1 and %d threads", threads);
	printf("{\"images\": %.0f, \"file_bytes\": %.0f, \"side\": %u, \"channels\": %u, \"plain_decode_us\": %.1f, "
	       "\"loader_us\": %.1f, \"loader_to_plain\": %.2f, \"threads\": %d, \"images_per_s\": %.0f}\n",
	       n, b->bytes, b->options.height, b->options.channels, decode_s / n * 1e6, one_s / n * 1e6,
	       one_s / decode_s, threads, n / all_s);
	return GN_OK;
}

static enum gn_augment augment(const char *text)
{
	return !strcmp(text, "crop")	? GN_AUGMENT_CROP_FLIP
	       : !strcmp(text, "shift") ? GN_AUGMENT_SHIFT
					: GN_AUGMENT_NONE;
}

int main(int argc, char **argv)
{
	struct bench b = {.options = {.seed = 1,
				      .ranks = 1,
				      .batch = 32,
				      .training = 1,
				      .pad = 2,
				      .deviation = {1, 1, 1},
				      .prefetch_bytes = 64u << 20}};
	int threads = argc > 4 ? atoi(argv[4]) : gn_cpu_count();
	enum gn_status status;
	struct gn_err err;

	if (argc < 2 || argc > 6) {
		fprintf(stderr, "usage: %s DATASET [SIDE [CHANNELS [THREADS [none|crop|shift]]]]\n", argv[0]);
		return 2;
	}
	b.options.height = b.options.width = argc > 2 ? (uint32_t)atoi(argv[2]) : 224;
	b.options.channels = argc > 3 ? (uint32_t)atoi(argv[3]) : 3;
	b.options.augment = augment(argc > 5 ? argv[5] : "crop");
	status = gn_dataset_open(argv[1], &b.dataset, &err);
	if (!status) {
		b.images = gn_dataset_count(b.dataset) < images_max ? gn_dataset_count(b.dataset) : images_max;
		b.images -= b.images % b.options.batch;
		for (uint64_t i = 0; i < b.images; i++) {
			struct gn_sample s;

			gn_dataset_sample(b.dataset, i, &s);
			b.bytes += (double)s.length_bytes / (double)b.images;
		}
		status = run(&b, threads, &err);
		gn_dataset_close(b.dataset);
	}
	if (status)
		fprintf(stderr, "%s: %s\n", argv[0], err.text);
	return status ? 1 : 0;
}
