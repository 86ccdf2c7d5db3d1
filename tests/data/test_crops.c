/* What a loader leaves to a GPU: resized by another, crops are the very samples, and they fit into their room. */
#include "tests/test.h"

#include "data/loader/loader.h"
#include "data/pack/pack.h"
#include "data/sample/augment.h"
#include "data/sample/resize.h"
#include "src/base/file.h"
#include "src/base/philox.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char root[64];
static struct gn_dataset *small, *large; /* images of 90x70 and of 360x280 */

static const struct gn_loader_options plain = {
	.seed = 11, .ranks = 1, .batch = 7, .channels = 3, .mean = {0, 0.5f, 0}, .deviation = {1, 1, 0.25f}, .threads = 2,
	.prefetch_bytes = 1 << 20,
};

static struct gn_dataset *make(const char *name, uint64_t count, uint32_t scale)
{
	struct gn_progress_bar progress = {0};
	char path[80];
	struct gn_pack_options o = {
		.out = path, .synthetic_count = count, .synthetic_classes = 5, .synthetic_height = 70 * scale,
		.synthetic_width = 90 * scale, .shard_bytes = 1 << 20, .seed = 1, .threads = 1, .quality = 90, .progress = &progress,
	};
	struct gn_pack_result result;
	struct gn_dataset *d = NULL;
	struct gn_err err;

	snprintf(path, sizeof path, "%s/%s", root, name);
	assert_ok(gn_pack(&o, &result, &err));
	assert_ok(gn_dataset_open(path, &d, &err));
	return d;
}

static int make_data(void **state)
{
	(void)state;
	memcpy(root, "/tmp/gannet-crops.XXXXXX", 25);
	if (!mkdtemp(root))
		return -1;
	small = make("small", 30, 1);
	large = make("large", 20, 4);
	return 0;
}

static int drop_data(void **state)
{
	(void)state;
	gn_dataset_close(small);
	gn_dataset_close(large);
	return gn_remove_tree(root, NULL) ? -1 : 0;
}

/* What a GPU is to make of a crop. */
static void make_sample(struct gn_resizer *r, const struct gn_loader_options *o, const struct gn_crop *p, float *out)
{
	struct gn_resize_target t = {.data = out, .height = o->height, .width = o->width, .to_x = p->to_x, .to_y = p->to_y,
				     .to_width = p->to_width, .to_height = p->to_height, .flip = p->flip};
	size_t plane = (size_t)o->height * o->width;
	uint8_t *pixels = calloc(1, gn_crop_bytes(p) + 16);
	struct gn_pixels src = {pixels, (size_t)p->width * 3, p->width, p->height, 3};
	struct gn_err err;

	assert_non_null(pixels);
	for (uint32_t c = 0; c < 3; c++) {
		t.scale[c] = 1 / (255 * o->deviation[c]);
		t.bias[c] = -o->mean[c] / o->deviation[c];
		for (size_t i = 0; i < plane; i++)
			out[c * plane + i] = t.bias[c];
	}
	if (p->to_width && p->to_height) {
		memcpy(pixels, p->pixels, gn_crop_bytes(p));
		assert_ok(gn_resizer_run(r, &src, p->x, p->y, p->from_width, p->from_height, &t, &err));
	}
	free(pixels);
}

/* What was made here: a crop that is the sample. */
static int was_resized(const struct gn_loader_options *o, const struct gn_crop *p)
{
	return p->width == o->width && p->height == o->height && p->from_width == o->width && p->from_height == o->height &&
	       p->to_width == o->width && p->to_height == o->height && !p->flip && p->x == 0 && p->y == 0;
}

struct seen {
	int resized, empty, mirrored;
};

/* The same bits, but for what was rounded to bytes. */
static void compare(struct gn_resizer *r, const struct gn_loader_options *o, const struct gn_crop *p, const float *want,
		    struct seen *seen)
{
	size_t count = (size_t)3 * o->height * o->width;
	float *sample = calloc(count, sizeof *sample);

	assert_non_null(sample);
	assert_true(gn_crop_bytes(p) <= gn_loader_sample_bytes(o));
	make_sample(r, o, p, sample);
	seen->empty += !p->to_width;
	seen->mirrored += p->flip;
	if (memcmp(sample, want, count * sizeof *sample)) {
		assert_true(was_resized(o, p));
		seen->resized++;
	}
	for (size_t i = 0; i < count; i++)
		assert_true(fabsf(sample[i] - want[i]) * o->deviation[i * 3 / count] * 255 < 0.501);
	free(sample);
}

static struct seen compare_epochs(const struct gn_dataset *d, struct gn_loader_options o, uint32_t epochs)
{
	size_t count = (size_t)3 * o.height * o.width;
	struct gn_loader *values, *crops;
	struct gn_resizer *r = NULL;
	struct seen seen = {0};
	struct gn_err err;

	assert_ok(gn_loader_create(d, &o, &values, &err));
	o.crops = 1;
	assert_ok(gn_loader_create(d, &o, &crops, &err));
	assert_ok(gn_resizer_create(&r, &err));
	for (uint32_t epoch = 0; epoch < epochs; epoch++) {
		assert_ok(gn_loader_start(values, epoch, 0, &err));
		assert_ok(gn_loader_start(crops, epoch, 0, &err));
		for (uint64_t k = 0; k < gn_loader_batches(values); k++) {
			struct gn_batch v, p;

			assert_ok(gn_loader_next(values, &v, &err));
			assert_ok(gn_loader_next(crops, &p, &err));
			assert_true(!p.images && !v.crops && gn_batch_input(&p) == p.crops && gn_batch_input(&v) == v.images);
			assert_memory_equal(v.labels, p.labels, o.batch * sizeof *v.labels);
			for (uint32_t i = 0; i < p.count; i++)
				compare(r, &o, &p.crops[i], v.images + i * count, &seen);
			for (uint32_t i = p.count; i < o.batch; i++)
				assert_int_equal(p.crops[i].width + p.crops[i].to_width, 0);
		}
	}
	gn_resizer_destroy(r);
	gn_loader_destroy(values);
	gn_loader_destroy(crops);
	return seen;
}

static void test_samples(void **state)
{
	/* at 80 the smaller images keep their size when they are moved, and may be moved out of sight */
	static const uint32_t sides[] = {8, 32, 80, 128};
	struct gn_loader_options o = plain;
	int empty = 0, mirrored = 0;

	(void)state;
	for (size_t n = 0; n < sizeof sides / sizeof *sides; n++)
		for (int augment = GN_AUGMENT_NONE; augment <= GN_AUGMENT_SHIFT_FLIP; augment++) {
			struct seen seen;

			o.height = o.width = sides[n];
			o.augment = (enum gn_augment)augment;
			o.pad = o.height - 1;
			o.training = 1;
			seen = compare_epochs(small, o, 3);
			empty += seen.empty;
			mirrored += seen.mirrored;
			assert_true(!seen.resized || (augment == GN_AUGMENT_NONE && o.height == 8));
			/* of the others some are beyond the room of a side of 8, and those that are decoded whole beyond that of 80 */
			seen = compare_epochs(large, o, 3);
			assert_true(augment == GN_AUGMENT_NONE && o.height <= 80 ? seen.resized > 0 : o.height == 8 || !seen.resized);
		}
	assert_true(empty && mirrored);
}

/* Boxes of more than 16 times the sample: resized, mirrored and black here. */
static void test_beyond_room(void **state)
{
	struct gn_loader_options o = plain;

	(void)state;
	o.height = o.width = 2;
	o.pad = 1;
	for (int augment = GN_AUGMENT_NONE; augment <= GN_AUGMENT_SHIFT_FLIP; augment++) {
		o.augment = (enum gn_augment)augment;
		o.training = 1;
		assert_true(compare_epochs(large, o, 3).resized > 10);
	}
}

/* Views of images of all sizes, onto squares: up to 16 times the sample there is room. */
static void test_room(void **state)
{
	double fullest = 0;
	struct gn_rng rng;

	(void)state;
	gn_rng_init(&rng, 5, GN_RNG_AUGMENT, 0, 0);
	for (uint64_t i = 0; i < 200000; i++) {
		uint32_t side = 1 + gn_rng_below(&rng, 256), d, width = 1 + gn_rng_below(&rng, 16 * side);
		uint32_t height = 1 + gn_rng_below(&rng, 16 * side);
		struct gn_loader_options o = {.seed = i, .height = side, .width = side, .augment = (enum gn_augment)(i % 4),
					      .pad = side - 1};
		struct gn_region region;
		struct gn_crop_params v;
		double share;

		gn_crop_params_draw(&o, 0, i, width, height, &v);
		if (!v.to_width || !v.to_height)
			continue;
		gn_crop_params_decoding(&v, 8, &d, &region);
		share = 3.0 * region.width * region.height / (double)gn_crop_room_bytes(side, side);
		if (share > 1)
			fail_msg("%ux%u of an image of %ux%u for side %u, %.0f %% of the room", region.width, region.height,
				 width, height, side, 100 * share);
		fullest = share > fullest ? share : fullest;
	}
	assert_true(fullest > 0.8);
}

static void test_refused(void **state)
{
	struct gn_loader_options o = plain;
	struct gn_loader *l;
	struct gn_err err;

	(void)state;
	o.height = o.width = 16;
	o.crops = 1;
	o.channels = 1;
	assert_int_equal(gn_loader_create(small, &o, &l, &err), GN_ERR_USAGE);
	o.channels = 3;
	/* evaluation is of all pixels, and as the host resizes */
	assert_int_equal(gn_loader_create(small, &o, &l, &err), GN_ERR_USAGE);
	o.mixup = 0.2;
	o.training = 1;
	assert_int_equal(gn_loader_create(small, &o, &l, &err), GN_ERR_USAGE);
	/* samples that change after normalisation */
	o.mixup = 0;
	o.cutmix = 1;
	assert_int_equal(gn_loader_create(small, &o, &l, &err), GN_ERR_USAGE);
	o.cutmix = 0;
	o.erasing = 0.1;
	assert_int_equal(gn_loader_create(small, &o, &l, &err), GN_ERR_USAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_samples), cmocka_unit_test(test_beyond_room),
					   cmocka_unit_test(test_room), cmocka_unit_test(test_refused)};

	alarm(300); /* a loader that hangs ends the program */
	return cmocka_run_group_tests(tests, make_data, drop_data);
}
