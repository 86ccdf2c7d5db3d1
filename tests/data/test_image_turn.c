/* JPEG files turned by their EXIF orientation: four quarters of different brightness, and where they come to. */
#include "tests/test.h"

#include "data/sample/decode.h"
#include "data/sample/image.h"

#include <stdlib.h>
#include <string.h>

enum { WIDTH = 48, HEIGHT = 32 };

static const int shades[4] = {10, 90, 170, 250};
/* By orientation, the quarters in reading order: A is the upper left one of the file, then B, C, D (EXIF 2.3: where row 0 and column 0
 * are). */
static const char *const places[9] = {"", "ABCD", "BADC", "DCBA", "CDAB", "ACBD", "CADB", "DBCA", "BDAC"};

static unsigned char *quarters(uint8_t components, size_t *len_bytes)
{
	static unsigned char pixels[WIDTH * HEIGHT * 3];
	const struct gn_image_info info = {.width = WIDTH, .height = HEIGHT, .components = components};
	unsigned char *jpeg;
	struct gn_err err;

	for (int y = 0; y < HEIGHT; y++)
		for (int x = 0; x < WIDTH; x++)
			memset(pixels + (y * WIDTH + x) * components, shades[(y >= HEIGHT / 2) * 2 + (x >= WIDTH / 2)], components);
	assert_ok(gn_image_encode_jpeg(pixels, &info, 95, 0, &jpeg, len_bytes, &err));
	return jpeg;
}

/* The middle of each quarter. */
static void look(const unsigned char *jpeg, size_t len_bytes, uint8_t components, const char *wanted, int is_turned)
{
	struct gn_region all = {0};
	struct gn_pixels p;
	struct gn_decoder *d;
	struct gn_err err;

	assert_ok(gn_decoder_create(&d, &err));
	assert_ok(gn_decoder_open(d, jpeg, len_bytes, &all.width, &all.height, &err));
	assert_int_equal(all.width, is_turned ? HEIGHT : WIDTH);
	assert_int_equal(all.height, is_turned ? WIDTH : HEIGHT);
	assert_ok(gn_decoder_read(d, &all, 1, components, &p, &err));
	for (uint32_t q = 0; q < 4; q++) {
		uint32_t x = all.width / 4 + q % 2 * all.width / 2, y = all.height / 4 + q / 2 * (all.height / 2);

		assert_in_range(p.data[y * p.stride_bytes + x * components] + 3, shades[wanted[q] - 'A'], shades[wanted[q] - 'A'] + 6);
	}
	gn_decoder_destroy(d);
}

static void test_all(void **state)
{
	(void)state;
	for (uint8_t components = 1; components <= 3; components = (uint8_t)(components + 2)) {
		size_t len, turned_len;
		unsigned char *jpeg = quarters(components, &len), *turned;
		struct gn_err err;

		look(jpeg, len, components, places[1], 0);
		for (int orientation = 2; orientation <= 8; orientation++) {
			struct gn_image_info info;

			assert_ok(gn_image_turn_jpeg(jpeg, len, orientation, 95, &turned, &turned_len, &err));
			look(turned, turned_len, components, places[orientation], orientation >= 5);
			assert_ok(gn_image_check_jpeg(turned, turned_len, &info, &err));
			assert_int_equal(info.components, components);
			free(turned);
		}
		free(jpeg);
	}
}

static void test_damaged(void **state)
{
	size_t len, turned_len;
	unsigned char *jpeg = quarters(3, &len), *turned;
	struct gn_err err;

	(void)state;
	assert_int_equal(gn_image_turn_jpeg(jpeg, len / 2, 6, 95, &turned, &turned_len, &err), GN_ERR_DATA);
	free(jpeg);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_all), cmocka_unit_test(test_damaged)};

	return cmocka_run_group_tests_name("data/image_turn", tests, NULL, NULL);
}
