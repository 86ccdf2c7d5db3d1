#include "data/loader/loader.h"

#include "data/pack/pack.h"
#include "data/sample/decode.h"
#include "data/stage/stage.h"
#include "src/base/crc32c.h"
#include "src/base/file.h"
#include "src/base/half.h"
#include "src/base/philox.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char base[] = "/tmp/gannet-loader-XXXXXX";
static struct gn_dataset *digits; /* the 1,000 digits for validation */
static struct gn_dataset *photos; /* 60 made-up images of 90x70 */

static const struct gn_loader_options plain = {
	.seed = 11,
	.ranks = 1,
	.batch = 16,
	.channels = 1,
	.height = 28,
	.width = 28,
	.deviation = {1, 1, 1},
	.threads = 2,
	.prefetch_bytes = 1 << 20,
};

static void must(enum gn_status status, const struct gn_err *err)
{
	if (status)
		fail_msg("%s: %s", gn_status_text(status), err->text);
}

static struct gn_dataset *pack(const char *name, const char *source, uint64_t synthetic, uint64_t shard_bytes)
{
	struct gn_pack_options o = {.sources = &source,
				    .source_count = source ? 1 : 0,
				    .synthetic_count = synthetic,
				    .synthetic_classes = 5,
				    .synthetic_height = 70,
				    .synthetic_width = 90,
				    .shard_bytes = shard_bytes,
				    .seed = 1,
				    .threads = 2,
				    .quality = 90};
	struct gn_dataset *d = NULL;
	struct gn_progress_bar progress;
	struct gn_pack_result result;
	char out[256];
	struct gn_err err;

	snprintf(out, sizeof out, "%s/%s", base, name);
	o.out = out;
	o.progress = &progress;
	must(gn_pack(&o, &result, &err), &err);
	must(gn_dataset_open(out, &d, &err), &err);
	return d;
}

static int set_up(void **state)
{
	const char *source = getenv("GN_SOURCE");
	char tar[512];

	(void)state;
	/* a loader that hangs ends the program */
	alarm(300);
	if (!mkdtemp(base))
		return -1;
	snprintf(tar, sizeof tar, "%s/data/digits/digits-val.tar.xz", source ? source : ".");
	digits = pack("digits", tar, 0, 300000);
	photos = pack("photos", NULL, 60, 1 << 20);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	gn_dataset_close(digits);
	gn_dataset_close(photos);
	return gn_remove_tree(base, NULL) ? -1 : 0;
}

static struct gn_loader *loader(const struct gn_dataset *d, const struct gn_loader_options *o)
{
	struct gn_loader *l = NULL;
	struct gn_err err;

	must(gn_loader_create(d, o, &l, &err), &err);
	return l;
}

static struct gn_batch next(struct gn_loader *l)
{
	struct gn_batch b;
	struct gn_err err;

	must(gn_loader_next(l, &b, &err), &err);
	return b;
}

/* What one sample came out as: enough to see a single differing bit. */
struct print {
	uint64_t index;
	int32_t label;
	uint32_t crc32c;
};

static size_t image_bytes(const struct gn_loader_options *o)
{
	return (size_t)o->channels * o->height * o->width * sizeof(float);
}

/* An epoch (from batch `first` on) of every rank of a world, its samples at their places in the global order. */
static void collect(const struct gn_dataset *d, struct gn_loader_options o, uint32_t ranks, uint32_t epoch,
		    uint64_t first, struct print *out)
{
	o.batch /= ranks;
	o.ranks = ranks;
	for (o.rank = 0; o.rank < ranks; o.rank++) {
		struct gn_loader *l;
		struct gn_err err;

		o.threads = 1 + (int)(o.rank + ranks) % 4;
		l = loader(d, &o);
		must(gn_loader_start(l, epoch, first * o.batch * ranks, &err), &err);
		for (uint64_t b = first; b < gn_loader_batches(l); b++) {
			struct gn_batch batch = next(l);

			assert_int_equal(batch.count, o.batch);
			for (uint32_t i = 0; i < o.batch; i++)
				out[(b * ranks + o.rank) * o.batch + i] =
					(struct print){batch.indices[i], batch.labels[i],
						       gn_crc32c(0, (const char *)batch.images + i * image_bytes(&o),
								 image_bytes(&o))};
		}
		gn_loader_destroy(l);
	}
}

static void check_worlds(const struct gn_dataset *d, const struct gn_loader_options *o)
{
	static const uint32_t worlds[] = {2, 3, 4, 6, 12};
	uint64_t count = gn_dataset_count(d) / o->batch * o->batch;
	struct print *one = calloc(count, sizeof *one), *many = calloc(count, sizeof *many);

	assert_true(one && many && count);
	collect(d, *o, 1, 3, 0, one);
	for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
		memset(many, 0, count * sizeof *many);
		collect(d, *o, worlds[w], 3, 0, many);
		assert_memory_equal(one, many, count * sizeof *one);
	}
	free(one);
	free(many);
}

static void every_world_sees_the_same_pixels(void **state)
{
	struct gn_loader_options o = plain;

	(void)state;
	o.training = 1;
	o.batch = 48;
	o.augment = GN_AUGMENT_SHIFT;
	o.pad = 2;
	check_worlds(digits, &o);
	o.batch = 12;
	o.channels = 3;
	o.height = o.width = 32;
	o.augment = GN_AUGMENT_CROP_FLIP;
	check_worlds(photos, &o);
	o.augment = GN_AUGMENT_SHIFT_FLIP;
	check_worlds(photos, &o);
}

static void resuming_goes_on_with_the_same_batches(void **state)
{
	enum { batches = 15, all = batches * 64 };
	struct gn_loader_options o = plain;
	struct print *whole = calloc(all, sizeof *whole), *rest = calloc(all, sizeof *rest);

	(void)state;
	assert_true(whole && rest);
	o.training = 1;
	o.batch = 64;
	o.augment = GN_AUGMENT_CROP_FLIP;
	collect(digits, o, 1, 7, 0, whole);
	for (uint64_t first = 1; first < batches; first += 6) {
		collect(digits, o, 4, 7, first, rest);
		assert_memory_equal(whole + first * 64, rest + first * 64, (all - first * 64) * sizeof *rest);
	}
	free(whole);
	free(rest);
}

static void epochs_differ_in_order_and_crops(void **state)
{
	enum { all = 960 };
	struct gn_loader_options o = plain;
	struct print *a = calloc(all, sizeof *a), *b = calloc(all, sizeof *b);
	int same_place = 0, same_crop = 0;

	(void)state;
	assert_true(a && b);
	o.training = 1;
	o.batch = 64;
	o.augment = GN_AUGMENT_CROP_FLIP;
	collect(digits, o, 1, 0, 0, a);
	collect(digits, o, 1, 1, 0, b);
	for (int i = 0; i < all; i++) {
		same_place += a[i].index == b[i].index;
		for (int k = 0; k < all; k++)
			same_crop += a[i].index == b[k].index && a[i].crc32c == b[k].crc32c;
	}
	assert_in_range(same_place, 0, 9);
	assert_in_range(same_crop, 0, 5);
	free(a);
	free(b);
}

static void evaluate_rank(const struct gn_dataset *d, const struct gn_loader_options *o, uint8_t *seen,
			  uint64_t *batches)
{
	struct gn_loader *l = loader(d, o);
	struct gn_sample sample;
	struct gn_batch b;

	*batches = gn_loader_batches(l);
	must(gn_loader_start(l, 0, 0, NULL), NULL);
	for (uint64_t k = 0; k < *batches; k++) {
		b = next(l);
		assert_in_range(b.count, 0, o->batch);
		for (uint32_t i = 0; i < o->batch; i++) {
			const float *image = b.images + i * image_bytes(o) / sizeof *image;

			if (i < b.count) {
				gn_dataset_sample(d, b.indices[i], &sample);
				assert_int_equal(b.labels[i], sample.label);
				assert_int_equal(seen[b.indices[i]]++, 0);
				continue;
			}
			assert_int_equal(b.labels[i], -1);
			for (size_t f = 0; f < image_bytes(o) / sizeof *image; f++)
				assert_true(image[f] == 0);
		}
	}
	assert_int_equal(gn_loader_next(l, &b, NULL), GN_ERR_NOT_FOUND);
	assert_int_equal(gn_loader_next(l, &b, NULL), GN_ERR_NOT_FOUND);
	gn_loader_destroy(l);
}

static void evaluation_covers_each_sample_once(void **state)
{
	static const uint32_t worlds[][2] = {{1, 16}, {1, 7}, {2, 16}, {3, 7}, {4, 15}, {7, 100}, {61, 1}, {64, 4}};

	(void)state;
	for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
		struct gn_loader_options o = plain;
		uint64_t batches, before = 0;
		uint8_t seen[60] = {0};

		o.ranks = worlds[w][0];
		o.batch = worlds[w][1];
		o.mean[0] = 0.5f;
		for (o.rank = 0; o.rank < o.ranks; o.rank++) {
			evaluate_rank(photos, &o, seen, &batches);
			assert_true(!o.rank || batches == before);
			before = batches;
		}
		for (int i = 0; i < 60; i++)
			assert_int_equal(seen[i], 1);
	}
}

/* Without augmentation a digit is delivered pixel by pixel, normalised. */
static void pixels_are_the_digits_own(void **state)
{
	struct gn_loader_options o = plain;
	struct gn_decoder *d = NULL;
	struct gn_loader *l;
	uint8_t file[4096];

	(void)state;
	assert_true(gn_dataset_max_length(digits) <= sizeof file);
	o.height = o.width = 32;
	o.mean[0] = 0.25f;
	o.deviation[0] = 0.5f;
	assert_int_equal(gn_decoder_create(&d, NULL), GN_OK);
	l = loader(digits, &o);
	must(gn_loader_start(l, 0, 0, NULL), NULL);
	for (int k = 0; k < 4; k++) {
		struct gn_batch b = next(l);

		for (uint32_t i = 0; i < b.count; i++) {
			const struct gn_region all = {0, 0, 28, 28};
			uint32_t width, height;
			struct gn_sample sample;
			struct gn_pixels p;

			gn_dataset_sample(digits, b.indices[i], &sample);
			must(gn_dataset_read(digits, b.indices[i], file, NULL), NULL);
			must(gn_decoder_open(d, file, sample.length_bytes, &width, &height, NULL), NULL);
			must(gn_decoder_read(d, &all, 1, 1, &p, NULL), NULL);
			for (uint32_t at = 0; at < 32 * 32; at++) {
				uint32_t x = at % 32 - 2, y = at / 32 - 2;
				float v = x < 28 && y < 28 ? p.data[y * p.stride_bytes + x] : 0;
				float expected = (v / 255 - 0.25f) / 0.5f, got = b.images[i * 1024 + at];

				assert_true(got - expected < 1e-6f && expected - got < 1e-6f);
			}
		}
	}
	gn_loader_destroy(l);
	gn_decoder_destroy(d);
}

/* Three slots however little memory is allowed, and no more than that memory holds; a batch in the consumer's hands stays
 * as it is while the workers go on. */
static void memory_is_bounded(void **state)
{
	static const size_t allowed[] = {0, 1, 5 * 16 * (28 * 28 * 4 + 20), SIZE_MAX};
	static const uint32_t slots[] = {3, 3, 5, 63};

	(void)state;
	for (size_t n = 0; n < sizeof slots / sizeof *slots; n++) {
		struct gn_loader_options o = plain;
		const float *addresses[64];
		uint32_t used = 0;
		struct gn_loader *l;

		o.prefetch_bytes = allowed[n];
		l = loader(digits, &o);
		must(gn_loader_start(l, 0, 0, NULL), NULL);
		for (uint64_t k = 0; k < gn_loader_batches(l); k++) {
			struct gn_batch b = next(l);
			uint32_t crc32c = gn_crc32c(0, b.images, 16 * image_bytes(&o)), i;

			for (i = 0; i < used && addresses[i] != b.images; i++)
				;
			if (i == used)
				addresses[used++] = b.images;
			for (int again = 0; again < 20; again++)
				assert_int_equal(gn_crc32c(0, b.images, 16 * image_bytes(&o)), crc32c);
		}
		assert_int_equal(used, slots[n]);
		gn_loader_destroy(l);
	}
}

/* Destroyed or started again wherever it stands: never started, before the first batch, in the middle, at the end. */
static void leaving_early_is_fine(void **state)
{
	struct gn_loader_options o = plain;

	(void)state;
	for (int n = 0; n < 60; n++) {
		struct gn_loader *l;

		o.threads = 1 + n % 5;
		o.prefetch_bytes = n % 3 ? 1 << 20 : 0;
		l = loader(photos, &o);
		for (int start = 0; start < n % 4; start++) {
			must(gn_loader_start(l, (uint32_t)start, (uint64_t)start * 16, NULL), NULL);
			for (int k = 0; k < n % 5 && start + k < (int)gn_loader_batches(l); k++)
				assert_int_equal(next(l).indices[0], (start + k) * 16);
		}
		gn_loader_destroy(l);
	}
	gn_loader_destroy(NULL);
}

/* Batches of another epoch, half made when the next one starts, leave nothing behind. */
static void starting_again_drops_what_was_in_flight(void **state)
{
	enum { all = 1000, batch = 250 };
	struct gn_loader_options o = plain;
	struct print *expected = calloc(all, sizeof *expected);
	struct gn_loader *l;

	(void)state;
	assert_non_null(expected);
	o.training = 1;
	o.batch = batch;
	o.augment = GN_AUGMENT_SHIFT;
	o.pad = 3;
	collect(digits, o, 1, 9, 0, expected);
	o.threads = 4;
	o.prefetch_bytes = 4 * batch * image_bytes(&o) + 4 * batch * 20;
	l = loader(digits, &o);
	for (uint32_t n = 0; n < 60; n++) {
		must(gn_loader_start(l, n, n % 3 * batch, NULL), NULL);
		for (uint32_t k = 0; k < n % 2; k++)
			next(l);
		must(gn_loader_start(l, 9, n % 4 * batch, NULL), NULL);
		for (uint32_t k = n % 4; k < 4; k++) {
			struct gn_batch b = next(l);

			for (uint32_t i = 0; i < batch; i++) {
				const char *image = (const char *)b.images + i * image_bytes(&o);

				assert_int_equal(b.indices[i], expected[k * batch + i].index);
				assert_int_equal(gn_crc32c(0, image, image_bytes(&o)), expected[k * batch + i].crc32c);
			}
		}
	}
	gn_loader_destroy(l);
	free(expected);
}

/* The folder of d with one byte changed in the middle of sample index. */
static struct gn_dataset *damaged(const struct gn_dataset *d, const char *name, uint64_t index)
{
	struct gn_dataset *out = NULL;
	struct gn_sample sample;
	char path[512], to[256];
	uint8_t jpeg[4096];
	struct dirent *e;
	int hits = 0;
	DIR *dir;

	gn_dataset_sample(d, index, &sample);
	assert_true(sample.length_bytes <= sizeof jpeg);
	must(gn_dataset_read(d, index, jpeg, NULL), NULL);
	snprintf(to, sizeof to, "%s/%s", base, name);
	must(gn_make_dirs(to, NULL), NULL);
	dir = opendir(gn_dataset_directory(d));
	assert_non_null(dir);
	while ((e = readdir(dir))) {
		size_t len_bytes;
		char *bytes, *at;

		if (e->d_name[0] == '.')
			continue;
		must(gn_path_join(path, sizeof path, gn_dataset_directory(d), e->d_name, NULL), NULL);
		must(gn_file_load(path, 1 << 24, &bytes, &len_bytes, NULL), NULL);
		at = memmem(bytes, len_bytes, jpeg, sample.length_bytes);
		if (at) {
			at[sample.length_bytes / 2] ^= 4;
			hits++;
		}
		must(gn_path_join(path, sizeof path, to, e->d_name, NULL), NULL);
		must(gn_file_replace(path, bytes, len_bytes, NULL), NULL);
		free(bytes);
	}
	closedir(dir);
	assert_int_equal(hits, 1);
	must(gn_dataset_open(to, &out, NULL), NULL);
	return out;
}

static void use_copy(void *context, uint32_t shard, const char *folder)
{
	must(gn_dataset_use_copy(digits, shard, folder, NULL), NULL);
	++*(int *)context;
}

/* Shards by their numbers in the source's manifest: of another dataset there, numbers might be too large. */
static void copies_are_of_the_dataset_that_was_opened(void **state)
{
	char to[256];
	int used = 0;
	struct gn_stage_options o = {.from = gn_dataset_directory(photos), .digest = gn_dataset_digest(digits), .to = to, .threads = 1, .ready = use_copy,
				     .context = &used};
	struct gn_stage_result result;
	struct gn_err err;

	(void)state;
	snprintf(to, sizeof to, "%s/copies", base);
	assert_int_equal(gn_stage(&o, &result, &err), GN_ERR_DATA);
	assert_non_null(strstr(err.text, "holds another dataset"));
	assert_int_equal(used, 0);
	o.from = gn_dataset_directory(digits);
	must(gn_stage(&o, &result, &err), &err);
	assert_int_equal(used, (int)result.copied);
	assert_true(used > 0);
}

static void a_damaged_sample_is_told_at_its_batch(void **state)
{
	struct gn_dataset *bad = damaged(digits, "damaged", 5 * 16 + 3);
	struct gn_loader_options o = plain;

	(void)state;
	for (o.threads = 1; o.threads < 5; o.threads++) {
		struct gn_loader *l = loader(bad, &o);
		struct gn_sample sample;
		char name[256];

		gn_dataset_sample(bad, 83, &sample);
		gn_dataset_sample_name(bad, 83, name, sizeof name);
		must(gn_loader_start(l, 0, 0, NULL), NULL);
		for (uint64_t k = 0; k < gn_loader_batches(l); k++) {
			struct gn_batch b = {0};
			struct gn_err err = {0};
			enum gn_status status = gn_loader_next(l, &b, &err);

			assert_int_equal(status, k == 5 ? GN_ERR_DATA : GN_OK);
			assert_true(status ? !b.images : b.indices[0] == k * 16);
			if (!status)
				continue;
			assert_int_equal(err.status, GN_ERR_DATA);
			if (!strstr(err.text, name) || !strstr(err.text, "damaged"))
				fail_msg("\"%s\" names neither folder nor sample %s", err.text, name);
		}
		gn_loader_destroy(l);
	}
	gn_dataset_close(bad);
}

/* A real digit, damaged 2,000 times: pixels or GN_ERR_DATA, and the decoder goes on. */
static void damaged_digits_never_crash(void **state)
{
	uint8_t whole[4096], copy[4096];
	struct gn_decoder *d = NULL;
	struct gn_sample sample;
	int results[2] = {0};
	struct gn_rng rng;

	(void)state;
	gn_rng_init(&rng, 3, GN_RNG_TEST, 0, 0);
	assert_int_equal(gn_decoder_create(&d, NULL), GN_OK);
	gn_dataset_sample(digits, 7, &sample);
	must(gn_dataset_read(digits, 7, whole, NULL), NULL);
	for (int n = 0; n < 2000; n++) {
		struct gn_region all = {0};
		enum gn_status status;
		struct gn_pixels p;

		memcpy(copy, whole, sample.length_bytes);
		for (uint32_t changes = 1 + gn_rng_below(&rng, 4); changes; changes--)
			copy[gn_rng_below(&rng, sample.length_bytes)] = (uint8_t)gn_rng_u32(&rng);
		status = gn_decoder_open(d, copy, sample.length_bytes, &all.width, &all.height, NULL);
		if (!status)
			status = gn_decoder_read(d, &all, 1, 1 + 2 * gn_rng_below(&rng, 2), &p, NULL);
		assert_true(status == GN_OK || status == GN_ERR_DATA);
		results[status == GN_OK]++;
	}
	assert_true(results[0] > 50 && results[1] > 50);
	gn_decoder_destroy(d);
}

static void expect_refused(const struct gn_dataset *d, const struct gn_loader_options *o, enum gn_status expected,
			   const char *text)
{
	struct gn_loader *l = NULL;
	struct gn_err err = {0};

	assert_int_equal(gn_loader_create(d, o, &l, &err), expected);
	assert_null(l);
	if (!strstr(err.text, text))
		fail_msg("\"%s\" does not say \"%s\"", err.text, text);
}

static void nonsense_is_refused(void **state)
{
	struct gn_loader_options o = plain;

	(void)state;
	o.training = 1;
	o.ranks = 4;
	expect_refused(photos, &o, GN_ERR_DATA, "holds 60 samples, fewer than a step takes: 64 in batches of 16 on 4 ranks");
	o = plain;
	o.batch = 0;
	expect_refused(photos, &o, GN_ERR_USAGE, "batch of 0");
	o = plain;
	o.rank = 1;
	expect_refused(photos, &o, GN_ERR_USAGE, "rank 1 of 1");
	o = plain;
	o.channels = 4;
	expect_refused(photos, &o, GN_ERR_USAGE, "4 channels");
	o = plain;
	o.width = 0;
	expect_refused(photos, &o, GN_ERR_USAGE, "28x0");
	o = plain;
	o.threads = 0;
	expect_refused(photos, &o, GN_ERR_USAGE, "0 threads");
	o = plain;
	o.deviation[0] = 0;
	expect_refused(photos, &o, GN_ERR_USAGE, "deviation");
	o = plain;
	o.pad = 28;
	expect_refused(photos, &o, GN_ERR_USAGE, "padding of 28");
	o = plain;
	o.augment = (enum gn_augment)9;
	expect_refused(photos, &o, GN_ERR_USAGE, "augmentation 9");
	o = plain;
	o.batch = UINT32_MAX;
	o.height = o.width = 16384;
	expect_refused(photos, &o, GN_ERR_USAGE, "more than 1 TiB");
}

/* A run that stopped after 40 samples goes on with a global batch of 7: the 41st sample is next, and none is lost. */
static void another_batch_goes_on_with_the_right_sample(void **state)
{
	struct gn_loader_options o = plain;
	struct gn_batch b;
	struct gn_loader *whole, *rest;

	(void)state;
	o.training = 1;
	o.batch = 20;
	whole = loader(photos, &o);
	o.batch = 7;
	rest = loader(photos, &o);
	must(gn_loader_start(whole, 5, 40, NULL), NULL);
	must(gn_loader_start(rest, 5, 40, NULL), NULL);
	assert_int_equal(gn_loader_batches(rest), 60 / 7);
	b = next(whole);
	for (uint32_t k = 0; k < 2; k++) {
		struct gn_batch part = next(rest);

		assert_memory_equal(part.indices, b.indices + 7 * k, 7 * sizeof *b.indices);
		assert_memory_equal(part.images, b.images + 7 * k * image_bytes(&o) / sizeof(float), 7 * image_bytes(&o));
	}
	assert_int_equal(gn_loader_next(rest, &b, NULL), GN_ERR_NOT_FOUND);
	gn_loader_destroy(whole);
	gn_loader_destroy(rest);
}

/* A value of an image as floats [channels][height][width] has it, and as other types and orders do. */
static void compare_value(const struct gn_loader_options *o, const struct gn_batch *floats, const void *other, uint32_t i, uint32_t c, uint32_t at)
{
	const size_t plane = (size_t)o->height * o->width, image = i * plane * o->channels;
	const size_t place = image + (o->channels_last ? at * o->channels + c : c * plane + at);
	const float value = floats->images[image + c * plane + at];

	if (o->type == GN_SAMPLE_F32)
		assert_memory_equal((const float *)other + place, &value, sizeof value);
	else if (o->type == GN_SAMPLE_BF16)
		assert_int_equal(((const uint16_t *)other)[place], gn_bf16_of_f32(value));
	else if (fabsf(((const uint8_t *)other)[place] - (value * o->deviation[c] + o->mean[c]) * 255) > 0.51f)
		fail_msg("image %u, channel %u, pixel %u: %d, wanted %g", i, c, at, ((const uint8_t *)other)[place],
			 (double)((value * o->deviation[c] + o->mean[c]) * 255));
}

/* The same pixels as bytes, bfloat16 and with channels last, also after augmentation and mixing. */
static void types_and_orders_have_the_same_pixels(void **state)
{
	(void)state;
	for (int t = 0; t < 24; t++) {
		struct gn_loader_options o = plain, f;
		struct gn_loader *a, *b;

		o.channels = t % 2 ? 3 : 1;
		o.height = 40;
		o.width = 48;
		o.training = 1;
		o.augment = GN_AUGMENT_CROP_FLIP;
		for (int c = 0; c < 3; c++) {
			o.mean[c] = 0.1f * (float)(4 + c);
			o.deviation[c] = 0.2f + 0.1f * (float)c;
		}
		if (t / 12)
			o.auto_augment.policy = GN_POLICY_TRIVIAL;
		f = o;
		o.type = (enum gn_sample_type)(t / 2 % 3);
		o.channels_last = t / 6 % 2;
		f.mixup = o.mixup = o.type != GN_SAMPLE_U8 && t % 5 == 0 ? 0.4 : 0;
		a = loader(photos, &f);
		b = loader(photos, &o);
		must(gn_loader_start(a, 2, 0, NULL), NULL);
		must(gn_loader_start(b, 2, 0, NULL), NULL);
		for (int k = 0; k < 3; k++) {
			struct gn_batch floats = next(a), other = next(b);

			assert_memory_equal(floats.indices, other.indices, o.batch * sizeof *floats.indices);
			for (uint32_t i = 0; i < o.batch; i++)
				for (uint32_t c = 0; c < o.channels; c++)
					for (uint32_t at = 0; at < o.height * o.width; at++)
						compare_value(&o, &floats, other.images, i, c, at);
		}
		gn_loader_destroy(a);
		gn_loader_destroy(b);
	}
}

/* In training, too: images as they lie, and the last ones. */
static void order_and_rest_can_be_chosen(void **state)
{
	struct gn_loader_options o = plain;
	struct gn_loader *l;
	struct gn_batch b = {0};
	char seen[60] = {0};

	(void)state;
	o.training = o.in_order = 1;
	l = loader(photos, &o);
	assert_int_equal(gn_loader_batches(l), 60 / 16);
	must(gn_loader_start(l, 3, 0, NULL), NULL);
	for (uint64_t i = 0; i < 48; i++) {
		if (i % 16 == 0)
			b = next(l);
		assert_int_equal(b.indices[i % 16], i);
	}
	gn_loader_destroy(l);
	o.in_order = 0;
	o.keeps_last = 1;
	l = loader(photos, &o);
	assert_int_equal(gn_loader_batches(l), 4);
	must(gn_loader_start(l, 3, 0, NULL), NULL);
	for (uint32_t k = 0, moved = 0; k < 4; k++) {
		b = next(l);
		assert_int_equal(b.count, k < 3 ? 16 : 12);
		for (uint32_t i = 0; i < b.count; i++) {
			moved += b.indices[i] != 16 * k + i;
			assert_int_equal(seen[b.indices[i]]++, 0);
		}
		assert_true(k < 3 || moved > 40);
	}
	gn_loader_destroy(l);
}

/* Batches in the caller's memory, which the loader gives back for other memory. */
static void memory_of_batches_can_be_the_callers(void **state)
{
	struct gn_loader_options o = plain;
	struct gn_loader *a = loader(photos, &o), *b = loader(photos, &o);
	const size_t bytes = 16 * image_bytes(&o);
	void *lent[64], *kept[4];
	uint32_t count = gn_loader_slots(b);

	(void)state;
	assert_true(count >= 3 && count <= 60);
	for (uint32_t i = 0; i < count + 4; i++)
		lent[i] = aligned_alloc(64, (bytes + 63) / 64 * 64);
	for (uint32_t i = 0; i < count; i++)
		gn_loader_lend(b, i, lent[i]);
	must(gn_loader_start(a, 0, 0, NULL), NULL);
	must(gn_loader_start(b, 0, 0, NULL), NULL);
	for (uint32_t k = 0; k < 4; k++) {
		struct gn_batch mine = next(a), theirs = next(b);

		kept[k] = (void *)(uintptr_t)theirs.images;
		gn_loader_swap(b, lent[count + k]);
		assert_memory_equal(mine.images, kept[k], bytes);
	}
	must(gn_loader_start(a, 0, 0, NULL), NULL);
	for (uint32_t k = 0; k < 4; k++)
		assert_memory_equal(next(a).images, kept[k], bytes);
	gn_loader_destroy(a);
	gn_loader_destroy(b);
	for (uint32_t i = 0; i < count + 4; i++)
		free(lent[i]);
}

static void starting_where_there_is_nothing(void **state)
{
	struct gn_loader *l = loader(photos, &plain);
	struct gn_batch b;

	(void)state;
	assert_int_equal(gn_loader_batches(l), 4);
	assert_int_equal(gn_loader_next(l, &b, NULL), GN_ERR_USAGE);
	assert_int_equal(gn_loader_start(l, 0, 61, NULL), GN_ERR_USAGE);
	assert_int_equal(gn_loader_start(l, 0, 60, NULL), GN_OK);
	assert_int_equal(gn_loader_next(l, &b, NULL), GN_ERR_NOT_FOUND);
	assert_int_equal(gn_loader_start(l, 0, 48, NULL), GN_OK);
	b = next(l);
	assert_int_equal(b.count, 60 - 48);
	assert_true(b.wait_s >= 0);
	gn_loader_destroy(l);
}

static void effort_is_of_the_threads_work(void **state)
{
	struct gn_loader *l = loader(photos, &plain);
	struct gn_loader_effort e, again;

	(void)state;
	gn_loader_effort(l, &e);
	assert_int_equal(e.threads, plain.threads);
	assert_true(e.busy_s == 0 && e.read_s == 0);
	must(gn_loader_start(l, 0, 0, NULL), NULL);
	for (uint64_t i = 0; i < gn_loader_batches(l); i++)
		next(l);
	gn_loader_effort(l, &e);
	/* images are decoded, too, and no thread works longer than the loader exists */
	assert_true(e.read_s > 0 && e.read_s < e.busy_s && e.busy_s <= e.threads * e.running_s);
	gn_loader_effort(l, &again);
	assert_true(again.busy_s == e.busy_s && again.read_s == e.read_s && again.running_s >= e.running_s);
	gn_loader_destroy(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_world_sees_the_same_pixels),
		cmocka_unit_test(resuming_goes_on_with_the_same_batches),
		cmocka_unit_test(another_batch_goes_on_with_the_right_sample),
		cmocka_unit_test(epochs_differ_in_order_and_crops),
		cmocka_unit_test(evaluation_covers_each_sample_once),
		cmocka_unit_test(pixels_are_the_digits_own),
		cmocka_unit_test(memory_is_bounded),
		cmocka_unit_test(leaving_early_is_fine),
		cmocka_unit_test(starting_again_drops_what_was_in_flight),
		cmocka_unit_test(a_damaged_sample_is_told_at_its_batch),
		cmocka_unit_test(damaged_digits_never_crash),
		cmocka_unit_test(copies_are_of_the_dataset_that_was_opened),
		cmocka_unit_test(nonsense_is_refused),
		cmocka_unit_test(types_and_orders_have_the_same_pixels),
		cmocka_unit_test(order_and_rest_can_be_chosen),
		cmocka_unit_test(memory_of_batches_can_be_the_callers),
		cmocka_unit_test(starting_where_there_is_nothing),
		cmocka_unit_test(effort_is_of_the_threads_work),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
