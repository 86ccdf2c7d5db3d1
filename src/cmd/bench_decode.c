/* gannet bench decode: from a file to a sample, beside plain decoding of the same file by the same thread. */
#include "src/cmd/bench.h"

#include "data/loader/loader.h"
#include "data/loader/sample_pipeline.h"
#include "data/sample/augment.h"
#include "data/sample/auto_augment.h"
#include "data/sample/decode.h"
#include "data/sample/image_op.h"
#include "data/sample/mixup.h"
#include "src/base/clock.h"
#include "src/base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- what augmentation costs: processor time for one image; blocks for about a second --- */
enum { AUGMENT_ROWS = 6 + GN_OP_COUNT - 1 };

struct bench_augment_row {
	const char *name; /* static */
	double image_us;
};

/* Work that is timed: on image number i. */
struct work {
	struct gn_loader_options options;
	struct gn_bitmap bitmap;
	const uint8_t *source; /* what the bitmap holds before each run: an operation on its own results soon sees a black image */
	float *image, *pair;
	enum gn_image_op op;
	double magnitude;
	void (*run)(struct work *w, uint64_t i);
};

static void run_policy(struct work *w, uint64_t i)
{
	gn_auto_augment_apply(&w->options.auto_augment, 1, 0, i, &w->bitmap);
}

static void run_erasing(struct work *w, uint64_t i)
{
	gn_random_erase(1, 1, 0, i, w->options.channels, w->options.height, w->options.width, w->image);
}

static void run_cutmix(struct work *w, uint64_t i)
{
	struct gn_mix m;

	gn_mix_draw(&w->options, 0, i, &m);
	gn_mix_apply(&m, &w->options, w->image, w->pair);
}

static void run_op(struct work *w, uint64_t i)
{
	(void)i;
	gn_image_op_apply(w->op, w->magnitude, &w->bitmap);
}

/* The least of three rounds, microseconds for an image. */
static double measure(struct work *w)
{
	enum { rounds = 3, images = 24 };
	double least = INFINITY;

	for (int k = 0; k < rounds; k++) {
		double took = 0;

		for (uint64_t i = 0; i < images; i++) {
			double began;

			memcpy(w->bitmap.pixels, w->source, (size_t)w->bitmap.width * w->bitmap.height * w->bitmap.channels);
			began = gn_clock_thread_cpu_s();
			w->run(w, i);
			took += (gn_clock_thread_cpu_s() - began) * 1e6;
		}
		least = fmin(least, took / images);
	}
	return least;
}

static void measure_all(struct work *w, struct bench_augment_row *rows)
{
	static const struct {
		const char *name;
		struct gn_auto_augment augment;
		void (*run)(struct work *w, uint64_t i);
	} kinds[] = {
		{"randaugment 2,9", {.policy = GN_POLICY_RAND, .ops = 2, .magnitude = 9}, run_policy},
		{"trivialaugment", {.policy = GN_POLICY_TRIVIAL}, run_policy},
		{"auto-augment imagenet", {.policy = GN_POLICY_IMAGENET}, run_policy},
		{"color-jitter 0.4,0.4,0.4,0.1", {.jitter = {0.4, 0.4, 0.4, 0.1}}, run_policy},
		{"random-erasing 1", {.policy = GN_POLICY_NONE}, run_erasing},
		{"cutmix 1", {.policy = GN_POLICY_NONE}, run_cutmix},
	};
	size_t row = 0;

	for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++, row++) {
		w->options.auto_augment = kinds[k].augment;
		w->run = kinds[k].run;
		rows[row] = (struct bench_augment_row){kinds[k].name, measure(w)};
	}
	w->run = run_op;
	for (int op = GN_OP_IDENTITY + 1; op < GN_OP_COUNT; op++, row++) {
		w->op = (enum gn_image_op)op;
		w->magnitude = w->op == GN_OP_HUE ? 0.1 : gn_auto_augment_magnitude(GN_POLICY_RAND, w->op, 9, w->options.width,
										    w->options.height);
		rows[row] = (struct bench_augment_row){gn_image_op_name(w->op), measure(w)};
	}
}

/* Images of side x side pixels and three channels. Policies and the like first, then single operations. */
static enum gn_status bench_augment(uint32_t side, struct bench_augment_row rows[AUGMENT_ROWS], struct gn_err *err)
{
	const size_t values = 3 * (size_t)side * side;
	uint8_t *bytes = malloc(3 * values);
	struct work w = {.options = {.seed = 1, .channels = 3, .height = side, .width = side, .cutmix = 1},
			 .bitmap = {bytes, bytes ? bytes + values : NULL, side, side, 3}, .source = bytes ? bytes + 2 * values : NULL,
			 .image = calloc(values, sizeof(float)), .pair = calloc(values, sizeof(float))};
	enum gn_status status = GN_OK;

	if (bytes && w.image && w.pair) {
		for (size_t i = 0; i < values; i++)
			bytes[2 * values + i] = (uint8_t)(i * 2654435761u >> 13);
		measure_all(&w, rows);
	} else {
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for images of side %u", side);
	}
	free(bytes);
	free(w.image);
	free(w.pair);
	return status;
}

struct decode_bench {
	const struct gn_bench_options *o;
	struct gn_dataset *dataset;
	struct gn_loader_options options;
	struct gn_decoder *decoder;
	struct gn_sample_pipeline *pipeline;
	char *file;
	void *image;
	uint64_t images;
	double bytes, pixels;	    /* means per file */
	double plain_s, sample_s, region_s; /* processor time for all images, the least of all passes */
	double loader_images_per_s; /* wall-clock rate with loader_threads */
	struct bench_augment_row augment[AUGMENT_ROWS];
};

/* Decodes the whole image at full size to RGB: the baseline. */
static enum gn_status decode_plainly(struct decode_bench *b, uint64_t i, double *spent, struct gn_err *err)
{
	struct gn_region all = {0};
	struct gn_sample s;
	struct gn_pixels p;
	double begin;
	enum gn_status status = gn_dataset_read(b->dataset, i, b->file, err);

	gn_dataset_sample(b->dataset, i, &s);
	begin = gn_clock_thread_cpu_s();
	if (!status)
		status = gn_decoder_open(b->decoder, b->file, s.length_bytes, &all.width, &all.height, err);
	if (!status)
		status = gn_decoder_read(b->decoder, &all, 1, b->options.channels, &p, err);
	*spent += gn_clock_thread_cpu_s() - begin;
	return status;
}

/* Decodes the crop of a sample, without resizing and normalisation. */
static enum gn_status decode_region(struct decode_bench *b, uint32_t epoch, uint64_t i, struct gn_err *err)
{
	uint32_t width, height, denominator;
	struct gn_region region;
	struct gn_sample s;
	struct gn_pixels p;
	struct gn_crop_params crop;
	enum gn_status status = gn_dataset_read(b->dataset, i, b->file, err);

	gn_dataset_sample(b->dataset, i, &s);
	if (!status)
		status = gn_decoder_open(b->decoder, b->file, s.length_bytes, &width, &height, err);
	if (status)
		return status;
	gn_crop_params_draw(&b->options, epoch, i, width, height, &crop);
	if (!crop.to_width || !crop.to_height)
		return GN_OK;
	gn_crop_params_decoding(&crop, 8, &denominator, &region);
	return gn_decoder_read(b->decoder, &region, denominator, b->options.channels, &p, err);
}

/* One pass over the images, alternating between the three variants; each pass draws new crops. */
static enum gn_status pass(struct decode_bench *b, uint32_t epoch, struct gn_err *err)
{
	double plain = 0, sample = 0, region = 0;
	enum gn_status status = GN_OK;

	for (uint64_t i = 0; i < b->images && !status; i++) {
		struct gn_crop crop;
		int32_t label;
		double begin;

		status = decode_plainly(b, i, &plain, err);
		begin = gn_clock_thread_cpu_s();
		if (!status)
			status = gn_sample_pipeline_run(b->pipeline, epoch, i, b->image, &crop, &label, err);
		sample += gn_clock_thread_cpu_s() - begin;
		begin = gn_clock_thread_cpu_s();
		if (!status)
			status = decode_region(b, epoch, i, err);
		region += gn_clock_thread_cpu_s() - begin;
	}
	if (!status) {
		b->plain_s = fmin(b->plain_s, plain);
		b->sample_s = fmin(b->sample_s, sample);
		b->region_s = fmin(b->region_s, region);
	}
	return status;
}

/* Wall-clock rate of the loader with all its threads and batches. */
static enum gn_status measure_loader(struct decode_bench *b, struct gn_err *err)
{
	struct gn_loader *l;
	struct gn_batch batch;
	enum gn_status status = gn_loader_create(b->dataset, &b->options, &l, err);
	double begin = gn_clock_s();

	if (status)
		return status;
	status = gn_loader_start(l, 0, 0, err);
	for (uint64_t k = 0; k < gn_loader_batches(l) && !status; k++)
		status = gn_loader_next(l, &batch, err);
	b->loader_images_per_s = (double)gn_loader_batches(l) * b->options.batch / (gn_clock_s() - begin);
	gn_loader_destroy(l);
	return status;
}

static enum gn_status open_all(struct decode_bench *b, struct gn_err *err)
{
	enum gn_status status;

	if (!b->o->data)
		return gn_err_set(err, GN_ERR_USAGE, "bench decode needs --data DIR, a dataset written by gannet pack");
	status = gn_dataset_open(b->o->data, &b->dataset, err);
	if (!status)
		status = gn_dataset_unlock(b->dataset, b->o->key_file, err);
	if (status)
		return status;
	b->images = gn_dataset_count(b->dataset);
	if (b->images > (uint64_t)b->o->images)
		b->images = (uint64_t)b->o->images;
	if (b->options.batch > b->images)
		b->options.batch = (uint32_t)b->images;
	for (uint64_t i = 0; i < b->images; i++) {
		struct gn_sample s;

		gn_dataset_sample(b->dataset, i, &s);
		b->bytes += (double)s.length_bytes / (double)b->images;
		b->pixels += (double)s.width * s.height / (double)b->images;
	}
	b->file = malloc((size_t)gn_dataset_max_length(b->dataset) + 1);
	b->image = malloc(gn_loader_sample_bytes(&b->options));
	if (!b->file || !b->image)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to decode");
	status = gn_decoder_create(&b->decoder, err);
	return status ? status : gn_sample_pipeline_create(b->dataset, &b->options, &b->pipeline, err);
}

static void print(const struct decode_bench *b)
{
	int gpu = b->options.crops;
	const char *whole = gpu ? "read, check, crop, decode, copy crop" : "read, check, crop, decode, resize, normalise";
	const char *part = gpu ? "the same without the copy" : "the same without resize and normalise";
	double n = (double)b->images;
	struct gn_json j;

	if (!b->o->json) {
		printf("# %.0f images of %.0f bytes and %.0f pixels, to %ux%u; images/s of one processor, the best of %lld passes\n"
		       "%-44s %10.1f\n%-44s %10.1f  %.2f of plain\n%-44s %10.1f  %.2f\n%-33s%3d threads %10.1f\n"
		       "%-44s %10.2f processors\n", n, b->bytes, b->pixels,
		       b->options.width, b->options.height, (long long)b->o->iters, "plain libjpeg-turbo, whole image",
		       n / b->plain_s, whole, n / b->sample_s, b->plain_s / b->sample_s, part, n / b->region_s,
		       b->plain_s / b->region_s,
		       "the whole loader,", b->options.threads, b->loader_images_per_s,
		       "for 1000 images/s", 1000 * b->sample_s / n);
		puts("# augmentation: microseconds of a processor for an image, beside these");
		for (int i = 0; i < AUGMENT_ROWS; i++)
			printf("%-44s %10.1f\n", b->augment[i].name, b->augment[i].image_us);
		return;
	}
	gn_json_begin(&j);
	gn_json_put(&j, "op decode images %lu file_bytes %.0f pixels %.0f side %u to %s plain_images_per_s_per_core %.1f "
		    "images_per_s_per_core %.1f unresized_images_per_s_per_core %.1f of_plain %.3f threads %d loader_images_per_s %.1f "
		    "augment_us {", b->images, b->bytes, b->pixels, b->options.height, b->options.crops ? "patches" : "floats",
		    n / b->plain_s, n / b->sample_s, n / b->region_s, b->plain_s / b->sample_s, b->options.threads, b->loader_images_per_s);
	for (int i = 0; i < AUGMENT_ROWS; i++)
		gn_json_fixed(&j, b->augment[i].name, b->augment[i].image_us, 1);
	gn_json_end(&j);
	gn_cmd_print_json(&j);
}

int gn_bench_decode(const struct gn_bench_options *o)
{
	struct decode_bench b = {
		.o = o, .plain_s = INFINITY, .sample_s = INFINITY, .region_s = INFINITY,
		.options = {.seed = 1, .ranks = 1, .batch = 32, .channels = 3, .height = (uint32_t)o->side,
			.width = (uint32_t)o->side,
			    .training = 1, .crops = o->bytes, .augment = GN_AUGMENT_CROP_FLIP, .mean = {0.485f, 0.456f, 0.406f},
			    .deviation = {0.229f, 0.224f, 0.225f}, .threads = (int)o->loader_threads, .prefetch_bytes = 64 << 20},
	};
	struct gn_err err;
	enum gn_status status = open_all(&b, &err);

	for (int64_t i = 0; i < o->iters && !status; i++)
		status = pass(&b, (uint32_t)i, &err);
	if (!status)
		status = measure_loader(&b, &err);
	if (!status)
		status = bench_augment((uint32_t)o->side, b.augment, &err);
	if (!status)
		print(&b);
	gn_sample_pipeline_destroy(b.pipeline);
	gn_decoder_destroy(b.decoder);
	gn_dataset_close(b.dataset);
	free(b.file);
	free(b.image);
	return status ? gn_cmd_fail("bench", &err) : GN_EXIT_DONE;
}
