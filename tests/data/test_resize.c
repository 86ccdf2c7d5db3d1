#include "data/sample/resize.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { slack = 16 };

static uint8_t *noise(uint32_t width, uint32_t height, uint32_t channels, struct gn_pixels *out)
{
	size_t bytes = (size_t)width * height * channels;
	uint8_t *data = calloc(1, bytes + slack);
	uint32_t x = 12345;

	assert_non_null(data);
	for (size_t i = 0; i < bytes; i++) {
		x = x * 1664525u + 1013904223u;
		data[i] = (uint8_t)(x >> 24);
	}
	*out = (struct gn_pixels){.data = data,
				  .stride_bytes = (size_t)width * channels,
				  .width = width,
				  .height = height,
				  .channels = channels};
	return data;
}

static struct gn_resize_target whole(float *data, uint32_t height, uint32_t width)
{
	return (struct gn_resize_target){.data = data,
					 .height = height,
					 .width = width,
					 .to_width = width,
					 .to_height = height,
					 .scale = {1, 1, 1}};
}

/* The definition, straight: a triangle around the sample's centre, as wide as a step, normalised over pixels. */
static double weight(uint32_t pixel, double centre, double reach)
{
	double w = 1 - fabs((pixel + 0.5 - centre) / reach);

	return w > 0 ? w : 0;
}

static double reference(const struct gn_pixels *p, uint32_t c, double centre_x, double reach_x, double centre_y,
			double reach_y)
{
	double sum = 0, norm = 0;

	for (uint32_t y = 0; y < p->height; y++) {
		for (uint32_t x = 0; x < p->width; x++) {
			double w = weight(x, centre_x, reach_x) * weight(y, centre_y, reach_y);

			sum += w * p->data[y * p->stride_bytes + x * p->channels + c];
			norm += w;
		}
	}
	return sum / norm;
}

static void check_against_reference(uint32_t width, uint32_t height, uint32_t channels, double x, double y, double w,
				    double h, uint32_t to_height, uint32_t to_width, int flip)
{
	float *out = calloc((size_t)channels * to_height * to_width, sizeof *out);
	struct gn_resize_target t = whole(out, to_height, to_width);
	struct gn_resizer *r = NULL;
	struct gn_pixels p;
	uint8_t *data = noise(width, height, channels, &p);

	t.flip = flip;
	assert_int_equal(gn_resizer_create(&r, NULL), GN_OK);
	assert_int_equal(gn_resizer_run(r, &p, x, y, w, h, &t, NULL), GN_OK);
	for (uint32_t c = 0; c < channels; c++) {
		for (uint32_t i = 0; i < to_height * to_width; i++) {
			uint32_t row = i / to_width, column = i % to_width;
			uint32_t at = flip ? to_width - 1 - column : column;
			double expected = reference(&p, c, x + (at + 0.5) * w / to_width, fmax(1, w / to_width),
						    y + (row + 0.5) * h / to_height, fmax(1, h / to_height));
			double got = out[(size_t)c * to_height * to_width + i];

			if (fabs(got - expected) > 1e-3)
				fail_msg("channel %u row %u column %u: %f, not %f", c, row, column, got, expected);
		}
	}
	gn_resizer_destroy(r);
	free(data);
	free(out);
}

static void resizing_follows_the_definition(void **state)
{
	(void)state;
	check_against_reference(40, 30, 3, 0, 0, 40, 30, 16, 16, 0);
	check_against_reference(40, 30, 3, 3.25, 1.5, 30.3, 27.1, 17, 23, 1);
	check_against_reference(40, 30, 1, 3.25, 1.5, 30.3, 27.1, 17, 23, 1);
	check_against_reference(9, 7, 3, 0, 0, 9, 7, 32, 32, 0);
	check_against_reference(9, 7, 1, 2, 2, 3, 3, 32, 32, 1);
	check_against_reference(1, 1, 3, 0, 0, 1, 1, 5, 5, 0);
	check_against_reference(200, 3, 1, 0, 0, 200, 3, 4, 2, 0);
}

static void scale_one_copies(void **state)
{
	struct gn_resizer *r = NULL;
	float out[28 * 28];
	struct gn_resize_target t = whole(out, 28, 28);
	struct gn_pixels p;
	uint8_t *data = noise(28, 28, 1, &p);

	(void)state;
	t.scale[0] = 0.25f;
	t.bias[0] = -3;
	assert_int_equal(gn_resizer_create(&r, NULL), GN_OK);
	assert_int_equal(gn_resizer_run(r, &p, 0, 0, 28, 28, &t, NULL), GN_OK);
	for (int i = 0; i < 28 * 28; i++)
		assert_true(out[i] == (float)data[i] * 0.25f - 3);
	gn_resizer_destroy(r);
	free(data);
}

/* With vectors and without: the same bits, for every remainder of widths, up and down, at borders. */
static void vectors_change_nothing(void **state)
{
	struct gn_resizer *fast = NULL, *plain = NULL;

	(void)state;
	assert_int_equal(gn_resizer_create(&fast, NULL), GN_OK);
	assert_int_equal(gn_resizer_create(&plain, NULL), GN_OK);
	gn_resizer_be_plain(plain);
	for (uint32_t to = 1; to < 40; to++)
		for (uint32_t channels = 1; channels <= 3; channels += 2) {
			float a[3 * 40 * 40] = {0}, b[3 * 40 * 40] = {0};
			struct gn_resize_target ta = whole(a, to, to), tb = whole(b, to, to);
			uint32_t width = 1 + to * 7 % 53;
			struct gn_pixels p;
			uint8_t *data = noise(width, 31, channels, &p);

			ta.flip = tb.flip = to % 2 == 0;
			assert_int_equal(gn_resizer_run(fast, &p, width * 0.1, 1.5, width * 0.9, 29, &ta, NULL), GN_OK);
			assert_int_equal(gn_resizer_run(plain, &p, width * 0.1, 1.5, width * 0.9, 29, &tb, NULL), GN_OK);
			assert_memory_equal(a, b, sizeof a);
			free(data);
		}
	gn_resizer_destroy(fast);
	gn_resizer_destroy(plain);
}

/* Only the rectangle is written, and mirroring moves it to the other side. */
static void rectangles_and_mirroring(void **state)
{
	struct gn_resizer *r = NULL;
	float out[3][6][8];
	struct gn_pixels p;
	uint8_t *data = noise(4, 3, 3, &p);

	(void)state;
	assert_int_equal(gn_resizer_create(&r, NULL), GN_OK);
	for (int flip = 0; flip < 2; flip++) {
		struct gn_resize_target t = whole(&out[0][0][0], 6, 8);

		t.to_x = 1;
		t.to_y = 2;
		t.to_width = 4;
		t.to_height = 3;
		t.flip = flip;
		for (int i = 0; i < 3 * 6 * 8; i++)
			(&out[0][0][0])[i] = -7;
		assert_int_equal(gn_resizer_run(r, &p, 0, 0, 4, 3, &t, NULL), GN_OK);
		for (int i = 0; i < 3 * 6 * 8; i++) {
			int c = i / 48, y = i / 8 % 6 - 2, x = (flip ? 7 - i % 8 : i % 8) - 1;
			int inside = y >= 0 && y < 3 && x >= 0 && x < 4;

			assert_true(out[c][i / 8 % 6][i % 8] == (inside ? (float)data[(y * 4 + x) * 3 + c] : -7));
		}
	}
	gn_resizer_destroy(r);
	free(data);
}

/* Scaling stripes one pixel wide down by four gives flat grey; sampling without a filter would give black or white. */
static void downscaling_does_not_alias(void **state)
{
	uint8_t data[32 * 32 + slack];
	struct gn_pixels p = {.data = data, .stride_bytes = 32, .width = 32, .height = 32, .channels = 1};
	struct gn_resizer *r = NULL;
	float out[8 * 8];
	struct gn_resize_target t = whole(out, 8, 8);

	(void)state;
	for (int i = 0; i < 32 * 32; i++)
		data[i] = i % 2 ? 255 : 0;
	assert_int_equal(gn_resizer_create(&r, NULL), GN_OK);
	assert_int_equal(gn_resizer_run(r, &p, 0, 0, 32, 32, &t, NULL), GN_OK);
	for (int i = 0; i < 64; i++)
		assert_true(fabsf(out[i] - 127.5f) < 10);
	gn_resizer_destroy(r);
}

/* One resizer for sizes that come and go gives what a fresh one gives. */
static void reuse_leaves_no_trace(void **state)
{
	static const uint32_t sizes[] = {5, 90, 17, 64, 3};
	struct gn_resizer *kept = NULL, *fresh = NULL;
	float a[3 * 24 * 24], b[3 * 24 * 24];

	(void)state;
	assert_int_equal(gn_resizer_create(&kept, NULL), GN_OK);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		uint32_t to = 4 + 5 * (uint32_t)i, channels = i % 2 ? 1 : 3;
		struct gn_resize_target ta = whole(a, to, to), tb = whole(b, to, to);
		struct gn_pixels p;
		uint8_t *data = noise(sizes[i], sizes[i], channels, &p);

		assert_int_equal(gn_resizer_create(&fresh, NULL), GN_OK);
		assert_int_equal(gn_resizer_run(kept, &p, 0.5, 0, sizes[i] - 1, sizes[i], &ta, NULL), GN_OK);
		assert_int_equal(gn_resizer_run(fresh, &p, 0.5, 0, sizes[i] - 1, sizes[i], &tb, NULL), GN_OK);
		assert_memory_equal(a, b, (size_t)channels * to * to * sizeof *a);
		gn_resizer_destroy(fresh);
		free(data);
	}
	gn_resizer_destroy(kept);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(resizing_follows_the_definition), cmocka_unit_test(scale_one_copies),
		cmocka_unit_test(vectors_change_nothing),
		cmocka_unit_test(rectangles_and_mirroring),	   cmocka_unit_test(downscaling_does_not_alias),
		cmocka_unit_test(reuse_leaves_no_trace),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
