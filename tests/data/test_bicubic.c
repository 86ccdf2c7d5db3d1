/* Bicubic resizing against torchvision's of float tensors (tests/data/resize_reference). */
#include "tests/data/reference.h"

#include "data/sample/augment.h"
#include "data/sample/resize.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE_MAX = 64, CHANNELS = 3, SLACK = 16 };

static uint8_t pixels[SIDE_MAX * SIDE_MAX * CHANNELS + SLACK];
static float wanted[SIDE_MAX * SIDE_MAX], made[CHANNELS * SIDE_MAX * SIDE_MAX];

/* The same value in each channel. */
static void noise(uint32_t count, uint32_t channels)
{
	uint32_t x = 12345;

	for (uint32_t i = 0; i < count; i++) {
		x = x * 1664525u + 1013904223u;
		memset(pixels + (size_t)i * channels, (int)(x >> 24), channels);
	}
}

static void compare(uint32_t width, uint32_t height, uint32_t to_width, uint32_t to_height, uint32_t channels, int is_plain)
{
	const struct gn_resize_target t = {.data = made, .height = to_height, .width = to_width, .to_width = to_width, .to_height = to_height,
					   .interpolation = GN_BICUBIC, .scale = {1, 1, 1}};
	const struct gn_pixels src = {.data = pixels, .stride_bytes = (size_t)width * channels, .width = width, .height = height,
				      .channels = channels};
	struct gn_resizer *r;
	struct gn_err err;

	noise(width * height, channels);
	assert_ok(gn_resizer_create(&r, &err));
	if (is_plain)
		gn_resizer_be_plain(r);
	assert_ok(gn_resizer_run(r, &src, 0, 0, width, height, &t, &err));
	for (uint32_t i = 0; i < channels * to_width * to_height; i++)
		if (fabsf(made[i] - wanted[i % (to_width * to_height)]) > 1e-3f)
			fail_msg("%ux%u to %ux%u, value %u: %g, torchvision's %g", width, height, to_width, to_height, i, made[i],
				 wanted[i % (to_width * to_height)]);
	gn_resizer_destroy(r);
}

static void test_as_torchvision(void **state)
{
	uint32_t width, height, to_width, to_height;
	int cases = 0;
	FILE *f;

	(void)state;
	f = open_reference("tests/data/resize_bicubic.txt");
	for (; fscanf(f, "%u %u %u %u", &width, &height, &to_width, &to_height) == 4; cases++) {
		assert_true(width <= SIDE_MAX && height <= SIDE_MAX && to_width <= SIDE_MAX && to_height <= SIDE_MAX);
		for (uint32_t i = 0; i < to_width * to_height; i++)
			assert_int_equal(fscanf(f, "%f", &wanted[i]), 1);
		compare(width, height, to_width, to_height, 1, 0);
		compare(width, height, to_width, to_height, 3, 0);
		compare(width, height, to_width, to_height, 3, 1);
	}
	fclose(f);
	assert_int_equal(cases, 5);
}

/* The decoded region has all pixels that the wider filter reads. */
static void test_region(void **state)
{
	struct gn_loader_options o = {.height = 32, .width = 32, .resize_shorter = 64, .interpolation = GN_BICUBIC};
	struct gn_crop_params crop;
	struct gn_region bilinear, bicubic;
	uint32_t denominator;

	(void)state;
	gn_crop_params_draw(&o, 0, 0, 128, 128, &crop);
	gn_crop_params_decoding(&crop, 1, &denominator, &bicubic);
	o.interpolation = GN_BILINEAR;
	gn_crop_params_draw(&o, 0, 0, 128, 128, &crop);
	gn_crop_params_decoding(&crop, 1, &denominator, &bilinear);
	/* the box is 64 wide from 32 on, and two pixels become one: radius 4 and 2, and a pixel of margin */
	assert_true(bicubic.x == 27 && bicubic.width == 74 && bilinear.x == 29 && bilinear.width == 70);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_torchvision), cmocka_unit_test(test_region)};

	return cmocka_run_group_tests_name("data/bicubic", tests, NULL, NULL);
}
