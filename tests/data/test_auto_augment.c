/* Auto-augmentation, random erasing and cutmix: torchvision's ranges, purity, bounds, shares. */
#include "data/sample/auto_augment.h"
#include "data/sample/mixup.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SIDE = 24, BYTES = SIDE * SIDE * 3, SAMPLES = 4000 };

/* As torch 2.15 and torchvision 0.29 print them. */
static void ranges(void **state)
{
	static const struct {
		enum gn_policy policy;
		enum gn_image_op op;
		int bin;
		double value;
	} known[] = {
		{GN_POLICY_RAND, GN_OP_IDENTITY, 9, 0}, {GN_POLICY_RAND, GN_OP_SHEAR_X, 30, 0.3}, {GN_POLICY_RAND, GN_OP_SHEAR_Y, 9, 0.09},
		{GN_POLICY_RAND, GN_OP_TRANSLATE_X, 30, 150.0 / 331 * 224}, {GN_POLICY_RAND, GN_OP_TRANSLATE_Y, 15, 75.0 / 331 * 112},
		{GN_POLICY_RAND, GN_OP_ROTATE, 9, 9}, {GN_POLICY_RAND, GN_OP_BRIGHTNESS, 10, 0.3}, {GN_POLICY_RAND, GN_OP_SHARPNESS, 30, 0.9},
		{GN_POLICY_RAND, GN_OP_POSTERIZE, 9, 7}, {GN_POLICY_RAND, GN_OP_POSTERIZE, 30, 4}, {GN_POLICY_RAND, GN_OP_SOLARIZE, 10, 170},
		{GN_POLICY_RAND, GN_OP_EQUALIZE, 30, 0}, {GN_POLICY_TRIVIAL, GN_OP_SHEAR_X, 30, 0.99},
		{GN_POLICY_TRIVIAL, GN_OP_TRANSLATE_Y, 30, 32}, {GN_POLICY_TRIVIAL, GN_OP_ROTATE, 20, 90},
		{GN_POLICY_TRIVIAL, GN_OP_CONTRAST, 30, 0.99}, {GN_POLICY_TRIVIAL, GN_OP_POSTERIZE, 30, 2},
		{GN_POLICY_IMAGENET, GN_OP_ROTATE, 9, 30}, {GN_POLICY_IMAGENET, GN_OP_POSTERIZE, 5, 6},
		{GN_POLICY_IMAGENET, GN_OP_SOLARIZE, 3, 170}, {GN_POLICY_IMAGENET, GN_OP_INVERT, 0, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		double value = gn_auto_augment_magnitude(known[i].policy, known[i].op, known[i].bin, 224, 112);

		if (fabs(value - known[i].value) > 1e-5)
			fail_msg("%s at bin %d is %g, not %g", gn_image_op_name(known[i].op), known[i].bin, value, known[i].value);
	}
}

static void fill(uint8_t *pixels)
{
	for (int i = 0; i < BYTES; i++)
		pixels[i] = (uint8_t)(i * 7 % 256);
}

static void augmented(const struct gn_auto_augment *a, uint32_t epoch, uint64_t index, uint32_t channels, uint8_t out[BYTES])
{
	static uint8_t pixels[BYTES], spare[BYTES];
	struct gn_bitmap b = {pixels, spare, SIDE, SIDE, channels};

	fill(pixels);
	memset(spare, (int)(index % 256), sizeof spare);
	gn_auto_augment_apply(a, 3, epoch, index, &b);
	memcpy(out, b.pixels, BYTES / 3 * channels);
}

/* The same for the same index whatever came before, and different for others. */
static void policies_are_pure(void **state)
{
	static const struct gn_auto_augment kinds[] = {
		{.policy = GN_POLICY_RAND, .ops = 2, .magnitude = 9},
		{.policy = GN_POLICY_TRIVIAL},
		{.policy = GN_POLICY_IMAGENET},
		{.jitter = {0.4, 0.4, 0.4, 0.1}},
		{.policy = GN_POLICY_RAND, .ops = 32, .magnitude = 30, .jitter = {100, 100, 100, 0.5}},
	};
	static uint8_t first[40][BYTES], again[BYTES], plain[BYTES];

	(void)state;
	fill(plain);
	for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
		int changed = 0, differs = 0, other_epoch = 0;

		assert_true(gn_auto_augment_is_on(&kinds[k]));
		for (uint64_t i = 0; i < 40; i++)
			augmented(&kinds[k], 1, i, 3, first[i]);
		for (uint64_t i = 40; i-- > 0;) {
			augmented(&kinds[k], 1, i, 3, again);
			assert_memory_equal(first[i], again, BYTES);
			changed += memcmp(first[i], plain, BYTES) != 0;
			differs += memcmp(first[i], first[(i + 1) % 40], BYTES) != 0;
			augmented(&kinds[k], 2, i, 3, again);
			other_epoch += memcmp(first[i], again, BYTES) != 0;
			augmented(&kinds[k], 1, i, 1, again); /* grey: within bounds, under a sanitizer */
		}
		assert_true(changed > 20 && differs > 30 && other_epoch > 20);
	}
	assert_false(gn_auto_augment_is_on(&(struct gn_auto_augment){.ops = 2}));
}

/* p of the samples, one rectangle of 2% to 33% in each, the same in all channels, the rest untouched. */
static void erasing(void **state)
{
	static float image[3][SIDE][SIDE], again[3][SIDE][SIDE];
	const size_t values = sizeof image / sizeof(float);
	int erased = 0;

	(void)state;
	for (uint64_t i = 0; i < SAMPLES; i++) {
		int count = 0, top = SIDE, left = SIDE, bottom = -1, right = -1;

		for (size_t k = 0; k < values; k++)
			(&image[0][0][0])[k] = (&again[0][0][0])[k] = 1;
		gn_random_erase(0.25, 5, 2, i, 3, SIDE, SIDE, &image[0][0][0]);
		gn_random_erase(0.25, 5, 2, i, 3, SIDE, SIDE, &again[0][0][0]);
		assert_memory_equal(image, again, sizeof image);
		assert_memory_equal(image[0], image[1], sizeof image[0]);
		assert_memory_equal(image[0], image[2], sizeof image[0]);
		for (int y = 0; y < SIDE; y++)
			for (int x = 0; x < SIDE; x++)
				if (image[0][y][x] == 0) {
					count++;
					top = y < top ? y : top;
					left = x < left ? x : left;
					bottom = y > bottom ? y : bottom;
					right = x > right ? x : right;
				}
		if (!count)
			continue;
		erased++;
		assert_int_equal(count, (bottom - top + 1) * (right - left + 1));
		assert_true(count >= 0.02 * SIDE * SIDE * 0.6 && count <= 0.33 * SIDE * SIDE * 1.2);
	}
	/* five deviations */
	assert_true(fabs(erased - 0.25 * SAMPLES) < 5 * sqrt(0.25 * 0.75 * SAMPLES));
	for (size_t k = 0; k < values; k++)
		(&image[0][0][0])[k] = (&again[0][0][0])[k] = 1;
	gn_random_erase(0, 5, 2, 1, 3, SIDE, SIDE, &image[0][0][0]);
	gn_random_erase(1, 5, 2, 1, 1, 1, 1, &image[0][0][0]); /* never fits */
	assert_memory_equal(image, again, sizeof image);
}

static void cutmix_boxes(void **state)
{
	struct gn_loader_options o = {.seed = 4, .channels = 3, .height = 20, .width = 30, .cutmix = 1};
	static float image[3 * 20 * 30], pair[3 * 20 * 30];
	double mean = 0;
	int cut = 0;

	(void)state;
	for (uint64_t i = 0; i < SAMPLES; i++) {
		struct gn_mix m, again;
		double sum = 0;

		gn_mix_draw(&o, 7, i, &m);
		gn_mix_draw(&o, 7, i, &again);
		assert_true(m.is_cut && m.lambda == again.lambda && m.left == again.left && m.bottom == again.bottom);
		assert_true(m.left <= m.right && m.right <= o.width && m.top <= m.bottom && m.bottom <= o.height);
		for (size_t k = 0; k < sizeof image / sizeof *image; k++) {
			image[k] = 1;
			pair[k] = 0;
		}
		gn_mix_apply(&m, &o, image, pair);
		for (size_t k = 0; k < sizeof image / sizeof *image; k++)
			sum += image[k];
		/* the weight of the label is the share of the area */
		assert_true(fabs(sum / (3 * 20 * 30) - m.lambda) < 1e-6);
		mean += m.lambda / SAMPLES;
	}
	/* above the 1/2 of Beta(1, 1), because boxes are cut off at the border */
	assert_true(mean > 0.55 && mean < 0.75);
	o.mixup = 0.2;
	for (uint64_t i = 0; i < SAMPLES; i++) {
		struct gn_mix m;

		gn_mix_draw(&o, 7, i, &m);
		cut += m.is_cut;
		assert_true(m.is_cut || m.lambda == gn_mixup_lambda(4, 0.2, 7, i));
	}
	assert_true(fabs(cut - 0.5 * SAMPLES) < 5 * sqrt(0.25 * SAMPLES));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(ranges), cmocka_unit_test(policies_are_pure), cmocka_unit_test(erasing),
					   cmocka_unit_test(cutmix_boxes)};

	return cmocka_run_group_tests_name("data/auto_augment", tests, NULL, NULL);
}
