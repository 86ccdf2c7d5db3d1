#include "data/sample/decode.h"

#include "src/base/philox.h"
#include "tests/data/picture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct picture layouts[] = {
	{.width = 131, .height = 97, .components = 3},			       /* 4:4:4 */
	{.width = 131, .height = 97, .components = 3, .across = 2},	       /* 4:2:2 */
	{.width = 131, .height = 97, .components = 3, .across = 2, .down = 2}, /* 4:2:0 */
	{.width = 131, .height = 97, .components = 3, .down = 2},	       /* 4:4:0 */
	{.width = 131, .height = 97, .components = 3, .across = 4},	       /* 4:1:1: not cropped */
	{.width = 131, .height = 97, .components = 1},
	{.width = 131, .height = 97, .components = 3, .across = 2, .down = 2, .progressive = 1},
	{.width = 131, .height = 97, .components = 3, .across = 2, .down = 2, .restart_rows = 2},
	{.width = 8, .height = 300, .components = 3, .across = 2, .down = 2},
	{.width = 300, .height = 8, .components = 3, .across = 2, .down = 2},
	{.width = 1, .height = 1, .components = 3, .across = 2, .down = 2},
};

static struct gn_decoder *decoder(void)
{
	struct gn_decoder *d = NULL;

	assert_int_equal(gn_decoder_create(&d, NULL), GN_OK);
	return d;
}

/* Decodes region (all of the scaled image when it is empty) into packed rows, the caller's to free. */
static uint8_t *decode(struct gn_decoder *d, const uint8_t *file, size_t len_bytes, struct gn_region *region,
		       uint32_t denominator, uint32_t channels)
{
	struct gn_pixels p;
	struct gn_err err = {0};
	uint32_t width, height;
	uint8_t *out;

	if (gn_decoder_open(d, file, len_bytes, &width, &height, &err))
		fail_msg("%s", err.text);
	if (!region->width)
		*region = (struct gn_region){0, 0, (width + denominator - 1) / denominator,
					     (height + denominator - 1) / denominator};
	if (gn_decoder_read(d, region, denominator, channels, &p, &err))
		fail_msg("%s", err.text);
	assert_true(p.width == region->width && p.height == region->height && p.channels == channels);
	out = malloc((size_t)p.width * p.height * channels);
	assert_non_null(out);
	for (uint32_t y = 0; y < p.height; y++)
		memcpy(out + (size_t)y * p.width * channels, p.data + y * p.stride_bytes, (size_t)p.width * channels);
	return out;
}

static struct gn_region random_region(struct gn_rng *rng, uint32_t width, uint32_t height)
{
	struct gn_region r;

	r.width = 1 + gn_rng_below(rng, width);
	r.height = 1 + gn_rng_below(rng, height);
	r.x = gn_rng_below(rng, width - r.width + 1);
	r.y = gn_rng_below(rng, height - r.height + 1);
	return r;
}

static void check_regions(const struct picture *layout, uint32_t denominator, uint32_t channels, int tries)
{
	struct gn_decoder *d = decoder();
	struct gn_region whole = {0};
	struct gn_rng rng;
	size_t len_bytes;
	uint8_t *file = picture_encode(layout, &len_bytes);
	uint8_t *all = decode(d, file, len_bytes, &whole, denominator, channels);

	gn_rng_init(&rng, 1, GN_RNG_TEST, denominator, channels);
	for (int i = 0; i < tries; i++) {
		struct gn_region r = random_region(&rng, whole.width, whole.height);
		uint8_t *part = decode(d, file, len_bytes, &r, denominator, channels);

		for (uint32_t y = 0; y < r.height; y++)
			if (memcmp(part + (size_t)y * r.width * channels,
				   all + ((size_t)(r.y + y) * whole.width + r.x) * channels,
				   (size_t)r.width * channels))
				fail_msg("layout %dx%d progressive %d, 1/%u, %u channels: row %u of %ux%u at %u,%u "
					 "differs",
					 layout->across, layout->down, layout->progressive, denominator, channels, y,
					 r.width, r.height, r.x, r.y);
		free(part);
	}
	free(all);
	free(file);
	gn_decoder_destroy(d);
}

/* Cropping by scanline and column gives, to the bit, what decoding everything and cutting gives. */
static void regions_equal_the_whole_cut(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
		for (uint32_t denominator = 1; denominator <= 8; denominator *= 2)
			for (uint32_t channels = 1; channels <= 3; channels += 2)
				check_regions(&layouts[i], denominator, channels, 60);
}

/* Scaling in the DCT is close to averaging blocks of pixels. */
static void scaling_is_close_to_averaging(void **state)
{
	struct picture p = {.width = 160, .height = 120, .components = 3, .quality = 98};
	struct gn_decoder *d = decoder();
	struct gn_region whole = {0};
	size_t len_bytes;
	uint8_t *file = picture_encode(&p, &len_bytes), *full = decode(d, file, len_bytes, &whole, 1, 3);

	(void)state;
	for (uint32_t n = 2; n <= 8; n *= 2) {
		struct gn_region scaled = {0};
		uint8_t *small = decode(d, file, len_bytes, &scaled, n, 3);
		double error = 0;

		for (uint32_t i = 0; i < scaled.width * scaled.height * 3; i++) {
			uint32_t c = i % 3, x = i / 3 % scaled.width, y = i / 3 / scaled.width, sum = 0;

			for (uint32_t k = 0; k < n * n; k++)
				sum += full[((y * n + k / n) * p.width + x * n + k % n) * 3 + c];
			error += abs((int)(sum / (n * n)) - small[i]);
		}
		error /= scaled.width * scaled.height * 3;
		if (error > 4)
			fail_msg("1/%u is %.2f grey levels away from averages", n, error);
		free(small);
	}
	free(full);
	free(file);
	gn_decoder_destroy(d);
}

static void expect_refusal(struct gn_decoder *d, const void *file, size_t len_bytes, const char *text)
{
	struct gn_region region = {0, 0, 1, 1};
	uint32_t width, height;
	struct gn_pixels p;
	struct gn_err err = {0};
	enum gn_status status = gn_decoder_open(d, file, len_bytes, &width, &height, &err);

	if (!status) {
		region.width = width;
		region.height = height;
		status = gn_decoder_read(d, &region, 1, 3, &p, &err);
	}
	assert_int_equal(status, GN_ERR_DATA);
	if (!strstr(err.text, text))
		fail_msg("\"%s\" does not say \"%s\"", err.text, text);
}

static void bad_files_are_refused(void **state)
{
	struct picture cmyk = {.width = 20, .height = 20, .components = 4};
	struct picture adobe = {.width = 20, .height = 20, .components = 3, .wrong_adobe = 1};
	struct picture good = {.width = 64, .height = 64, .components = 3};
	struct gn_region all = {0};
	struct gn_decoder *d = decoder();
	size_t len_bytes;
	uint8_t *file = picture_encode(&cmyk, &len_bytes);

	(void)state;
	expect_refusal(d, file, len_bytes, "CMYK");
	free(file);
	/* a harmless warning: pack takes such a file, so this must, too */
	file = picture_encode(&adobe, &len_bytes);
	free(decode(d, file, len_bytes, &all, 1, 3));
	free(file);
	expect_refusal(d, "", 0, "empty");
	expect_refusal(d, "\x89PNG\r\n\x1a\n", 8, "Not a JPEG");
	file = picture_encode(&good, &len_bytes);
	/* every length short of the end-of-image marker */
	for (size_t n = 1; n + 2 < len_bytes; n += 1 + n / 16)
		expect_refusal(d, file, n, "not a good JPEG file");
	/* and the decoder still works after all that */
	{
		struct gn_region whole = {0};

		free(decode(d, file, len_bytes, &whole, 1, 3));
	}
	free(file);
	gn_decoder_destroy(d);
}

/* The header says 65500 x 65500 and the data end at once: nothing of that size may be allocated or filled. */
static void claimed_sizes_are_not_trusted(void **state)
{
	struct picture p = {.width = 16, .height = 16, .components = 3, .progressive = 1};
	struct gn_decoder *d = decoder();
	size_t len_bytes, at = 0;
	uint8_t *file = picture_encode(&p, &len_bytes);

	(void)state;
	for (size_t i = 0; i + 9 < len_bytes && !at; i++)
		if (file[i] == 0xff && file[i + 1] == 0xc2)
			at = i + 5;
	assert_int_not_equal(at, 0);
	memset(file + at, 0xff, 4);
	file[at + 1] = file[at + 3] = 0xdc;
	expect_refusal(d, file, len_bytes, "65500x65500");
	free(file);
	gn_decoder_destroy(d);
}

/* Scans without end are legal as long as each says something new, and each is a pass over the image. */
static void endless_scans_are_refused(void **state)
{
	struct picture p = {.width = 16, .height = 16, .components = 1, .progressive = 1, .many_scans = 1};
	struct gn_decoder *d = decoder();
	size_t len_bytes;
	uint8_t *file = picture_encode(&p, &len_bytes);

	(void)state;
	expect_refusal(d, file, len_bytes, "more than 200 scans");
	free(file);
	gn_decoder_destroy(d);
}

static void wrong_requests_are_refused(void **state)
{
	static const struct gn_region bad[] = {{0, 0, 0, 1},
					       {0, 0, 1, 0},
					       {20, 0, 1, 1},
					       {0, 20, 1, 1},
					       {1, 0, 20, 1},
					       {0, 1, 1, 20},
					       {1, 1, UINT32_MAX, UINT32_MAX}};
	struct picture p = {.width = 20, .height = 20, .components = 3};
	struct gn_decoder *d = decoder();
	const struct gn_region one = {0, 0, 1, 1};
	uint32_t width, height;
	struct gn_pixels out;
	size_t len_bytes;
	uint8_t *file = picture_encode(&p, &len_bytes);

	(void)state;
	assert_int_equal(gn_decoder_read(d, &one, 1, 3, &out, NULL), GN_ERR_USAGE);
	assert_int_equal(gn_decoder_open(d, file, len_bytes, &width, &height, NULL), GN_OK);
	assert_true(width == 20 && height == 20);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(gn_decoder_read(d, &bad[i], 1, 3, &out, NULL), GN_ERR_USAGE);
	assert_int_equal(gn_decoder_read(d, &one, 3, 3, &out, NULL), GN_ERR_USAGE);
	assert_int_equal(gn_decoder_read(d, &one, 0, 3, &out, NULL), GN_ERR_USAGE);
	assert_int_equal(gn_decoder_read(d, &one, 1, 2, &out, NULL), GN_ERR_USAGE);
	assert_int_equal(gn_decoder_read(d, &one, 1, 3, &out, NULL), GN_OK);
	assert_int_equal(gn_decoder_read(d, &one, 1, 3, &out, NULL), GN_ERR_USAGE);
	free(file);
	gn_decoder_destroy(d);
	gn_decoder_destroy(NULL);
}

/* Random damage, from a bit to a run of bytes, cut or moved: pixels or GN_ERR_DATA, and the decoder goes on. */
static void mutate(struct gn_rng *rng, uint8_t *file, size_t *len_bytes)
{
	uint32_t changes = 1 + gn_rng_below(rng, 6);

	for (uint32_t i = 0; i < changes; i++) {
		uint32_t at = gn_rng_below(rng, (uint32_t)*len_bytes);
		uint32_t run = 1 + gn_rng_below(rng, 8);

		switch (gn_rng_below(rng, 4)) {
		case 0:
			file[at] ^= (uint8_t)(1u << gn_rng_below(rng, 8));
			break;
		case 1:
			file[at] = (uint8_t)gn_rng_u32(rng);
			break;
		case 2:
			for (uint32_t k = at; k < at + run && k < *len_bytes; k++)
				file[k] = (uint8_t)gn_rng_u32(rng);
			break;
		default:
			memmove(file + at / 2, file + at, *len_bytes - at);
			break;
		}
	}
	if (!gn_rng_below(rng, 8))
		*len_bytes = 1 + gn_rng_below(rng, (uint32_t)*len_bytes);
}

/* Returns whether pixels came out. */
static int decode_damaged(struct gn_decoder *d, struct gn_rng *rng, const uint8_t *file, size_t len_bytes)
{
	uint32_t width, height, n = 1u << gn_rng_below(rng, 4), channels = gn_rng_below(rng, 2) ? 3 : 1, sum = 0;
	struct gn_err err = {0};
	struct gn_region r;
	struct gn_pixels p;
	enum gn_status status = gn_decoder_open(d, file, len_bytes, &width, &height, &err);

	if (!status) {
		r = random_region(rng, (width + n - 1) / n, (height + n - 1) / n);
		status = gn_decoder_read(d, &r, n, channels, &p, &err);
	}
	if (status) {
		assert_int_equal(status, GN_ERR_DATA);
		assert_int_equal(err.status, GN_ERR_DATA);
		assert_true(strlen(err.text) > 10);
		return 0;
	}
	for (uint32_t y = 0; y < p.height; y++)
		for (uint32_t x = 0; x < p.width * channels; x++)
			sum += p.data[y * p.stride_bytes + x];
	return sum || !sum;
}

static void damage_never_crashes(void **state)
{
	static const struct picture pictures[] = {
		{.width = 28, .height = 28, .components = 1, .quality = 95},
		{.width = 45, .height = 37, .components = 3, .across = 2, .down = 2},
		{.width = 45, .height = 37, .components = 3, .across = 2, .down = 2, .progressive = 1},
		{.width = 45, .height = 37, .components = 3, .across = 2, .restart_rows = 1},
	};
	int good = 0, bad = 0;

	(void)state;
	for (size_t i = 0; i < sizeof pictures / sizeof *pictures; i++) {
		struct gn_decoder *d = decoder();
		size_t whole, len_bytes;
		uint8_t *file = picture_encode(&pictures[i], &whole);
		struct gn_rng rng;

		gn_rng_init(&rng, 5, GN_RNG_TEST, (uint32_t)i, 0);
		for (int n = 0; n < 2000; n++) {
			/* an allocation of its own length, so that ASan sees one byte too far */
			uint8_t *copy = malloc(whole), *exact;

			assert_non_null(copy);
			memcpy(copy, file, whole);
			len_bytes = whole;
			mutate(&rng, copy, &len_bytes);
			exact = malloc(len_bytes);
			assert_non_null(exact);
			memcpy(exact, copy, len_bytes);
			if (decode_damaged(d, &rng, exact, len_bytes))
				good++;
			else
				bad++;
			free(exact);
			free(copy);
		}
		free(file);
		gn_decoder_destroy(d);
	}
	/* damage to coefficients often decodes without a complaint; both must have happened to test anything */
	assert_in_range(good, 100, 7900);
	assert_in_range(bad, 100, 7900);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(regions_equal_the_whole_cut), cmocka_unit_test(scaling_is_close_to_averaging),
		cmocka_unit_test(bad_files_are_refused),       cmocka_unit_test(claimed_sizes_are_not_trusted),
		cmocka_unit_test(endless_scans_are_refused),   cmocka_unit_test(wrong_requests_are_refused),
		cmocka_unit_test(damage_never_crashes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
