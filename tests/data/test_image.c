#include "data/sample/image.h"
#include "tests/data/picture.h"
#include "tests/test.h"

#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

static struct picture base_picture(void)
{
	return (struct picture){.width = 40, .height = 24, .components = 3, .across = 2, .down = 2, .quality = 90};
}

static void accept(struct picture p)
{
	struct gn_image_info info;
	struct gn_err err;
	size_t len;
	uint8_t *file = picture_encode(&p, &len);

	assert_ok(gn_image_check_jpeg(file, len, &info, &err));
	assert_int_equal(info.width, p.width);
	assert_int_equal(info.height, p.height);
	assert_int_equal(info.components, p.components);
	free(file);
}

static void refuse_bytes(const void *file, size_t len, const char *why)
{
	struct gn_image_info info = {.width = 1};
	struct gn_err err = {0};

	assert_int_equal(gn_image_check_jpeg(file, len, &info, &err), GN_ERR_DATA);
	if (!strstr(err.text, why))
		fail_msg("'%s' does not say '%s'", err.text, why);
	assert_int_equal(info.width, 1);
}

static void refuse(struct picture p, const char *why)
{
	size_t len;
	uint8_t *file = picture_encode(&p, &len);

	refuse_bytes(file, len, why);
	free(file);
}

/* The frame header: precision, height (2), width (2). */
static uint8_t *frame(uint8_t *file, size_t len)
{
	for (size_t i = 2; i + 9 < len; i += 2 + (size_t)file[i + 2] * 256 + file[i + 3])
		if (file[i] == 0xff && file[i + 1] >= 0xc0 && file[i + 1] <= 0xc2)
			return file + i + 4;
	fail_msg("the picture has no frame header");
	return NULL;
}

static void good_jpegs_are_accepted(void **state)
{
	struct picture p = base_picture();

	(void)state;
	accept(p);
	p.progressive = 1;
	accept(p);
	p.restart_rows = 1;
	accept(p);
	p = base_picture();
	p.components = p.across = p.down = 1;
	accept(p);
	p.width = p.height = 1;
	accept(p);
}

static void every_cut_is_found(void **state)
{
	struct picture p = base_picture();
	size_t len;
	uint8_t *file;

	(void)state;
	for (p.progressive = 0; p.progressive < 2; p.progressive++) {
		file = picture_encode(&p, &len);
		refuse_bytes(file, 0, "empty");
		for (size_t cut = 1; cut < len; cut++)
			refuse_bytes(file, cut, "JPEG");
		free(file);
	}
}

static void other_colours_and_depths_are_refused(void **state)
{
	struct picture p = base_picture();
	size_t len;
	uint8_t *file;

	(void)state;
	p.components = 4;
	p.across = p.down = 1;
	refuse(p, "CMYK");
	p = (struct picture){.width = 20, .height = 20, .components = 1, .across = 1, .down = 1, .progressive = 1,
			     .many_scans = 1, .quality = 90};
	refuse(p, "scans");
	p = base_picture();
	file = picture_encode(&p, &len);
	frame(file, len)[0] = 12;
	refuse_bytes(file, len, "12");
	frame(file, len)[0] = 16;
	refuse_bytes(file, len, "16");
	free(file);
}

static void wrong_sizes_are_refused(void **state)
{
	static const struct {
		uint8_t size[4];
		const char *why;
	} cases[] = {{{0, 0, 0, 40}, ""}, {{0, 24, 0, 0}, "mpty"}, {{0xff, 0xff, 0, 40}, ""}, {{0xff, 0xdc, 0xff, 0xdc}, "too many"}};
	struct picture p = base_picture();
	size_t len;
	uint8_t *file = picture_encode(&p, &len);

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		memcpy(frame(file, len) + 1, cases[i].size, 4);
		refuse_bytes(file, len, cases[i].why);
	}
	free(file);
}

static void other_files_are_refused(void **state)
{
	(void)state;
	refuse_bytes("", 0, "empty");
	refuse_bytes("GIF89a..........", 16, "a GIF image, not a JPEG");
	refuse_bytes("RIFF....WEBPVP8 ", 16, "a WebP image");
	refuse_bytes("BM1234\0\0\0\0....", 14, "a BMP image");
	refuse_bytes("BM is a text", 12, "not a JPEG");
	refuse_bytes("II*\0....", 8, "a TIFF image");
	refuse_bytes("MM\0*....", 8, "a TIFF image");
	refuse_bytes("\x89PNG\r\n\x1a\n", 8, "a PNG image");
	refuse_bytes("\xff\xd8\xff", 3, "bad JPEG");
	refuse_bytes("\xff\xd8\xff\xd9", 4, "bad JPEG");
	assert_int_equal(gn_image_sniff("\xff\xd8", 2), GN_IMAGE_OTHER);
	assert_int_equal(gn_image_sniff("\x89PNG\r\n\x1a\n", 8), GN_IMAGE_PNG);
}

static void trailing_bytes_are_accepted(void **state)
{
	struct picture p = base_picture();
	struct gn_image_info info;
	struct gn_err err;
	size_t len;
	uint8_t *file = picture_encode(&p, &len), *longer = realloc(file, len + 100);

	(void)state;
	assert_non_null(longer);
	memset(longer + len, 0x55, 100);
	assert_ok(gn_image_check_jpeg(longer, len + 100, &info, &err));
	free(longer);
}

/* What decodes to its last pixel is good, whatever libjpeg has to say about it. */
static void harmless_warnings_are_reported(void **state)
{
	struct picture p = base_picture();
	struct gn_image_info info;
	struct gn_err err;
	size_t len;
	uint8_t *file = picture_encode(&p, &len), *longer = malloc(len + 7);

	(void)state;
	assert_non_null(longer);
	memcpy(longer, file, len - 2);
	memset(longer + len - 2, 0x12, 7);
	memcpy(longer + len + 5, file + len - 2, 2);
	assert_ok(gn_image_check_jpeg(file, len, &info, &err));
	assert_string_equal(info.warning, "");
	assert_ok(gn_image_check_jpeg(longer, len + 7, &info, &err));
	assert_non_null(strstr(info.warning, "extraneous bytes before marker 0xd9"));
	/* without the marker the bytes do not help: the data end early */
	refuse_bytes(longer, len + 5, "Premature end");
	free(longer);
	free(file);
	p.wrong_adobe = 1;
	file = picture_encode(&p, &len);
	assert_ok(gn_image_check_jpeg(file, len, &info, &err));
	assert_non_null(strstr(info.warning, "Adobe"));
	free(file);
}

static uint32_t next_random(uint32_t *x)
{
	*x = *x * 1664525u + 1013904223u;
	return *x >> 8;
}

/* Whatever is wrong with a file, it is accepted or refused, never worse (run under the sanitizers). */
static void damage_is_survived(void **state)
{
	struct picture p = base_picture();
	uint32_t random = 7;

	(void)state;
	for (p.progressive = 0; p.progressive < 2; p.progressive++) {
		size_t len;
		uint8_t *file = picture_encode(&p, &len), *copy = malloc(len);

		assert_non_null(copy);
		for (int i = 0; i < 3000; i++) {
			struct gn_image_info info;
			struct gn_err err;

			memcpy(copy, file, len);
			for (uint32_t n = next_random(&random) % 4 + 1; n; n--)
				copy[next_random(&random) % len] = (uint8_t)next_random(&random);
			if (gn_image_check_jpeg(copy, len, &info, &err))
				assert_true(err.status == GN_ERR_DATA && err.text[0]);
		}
		free(copy);
		free(file);
	}
}

/* A PNG file of 20x10 pixels in one of libpng's simplified formats, all samples of the value given. */
static uint8_t *make_png(uint32_t format, int value, size_t *len)
{
	png_alloc_size_t room = 65536;
	uint8_t *file = malloc(room), *pixels;
	png_image image;

	memset(&image, 0, sizeof image);
	image.version = PNG_IMAGE_VERSION;
	image.width = 20;
	image.height = 10;
	image.format = format;
	pixels = malloc(PNG_IMAGE_SIZE(image));
	assert_true(file && pixels);
	memset(pixels, value, PNG_IMAGE_SIZE(image));
	assert_true(png_image_write_to_memory(&image, file, &room, 0, pixels, 0, NULL));
	free(pixels);
	*len = room;
	return file;
}

static void first_samples(const uint8_t *jpeg, size_t len, uint8_t out[3])
{
	struct jpeg_decompress_struct d;
	struct jpeg_error_mgr errors;
	JSAMPLE row[20 * 3];
	JSAMPROW rows[1] = {row};

	d.err = jpeg_std_error(&errors);
	jpeg_create_decompress(&d);
	jpeg_mem_src(&d, jpeg, len);
	jpeg_read_header(&d, TRUE);
	jpeg_start_decompress(&d);
	jpeg_read_scanlines(&d, rows, 1);
	jpeg_destroy_decompress(&d);
	memcpy(out, row, 3);
}

static int first_pixel(const uint8_t *jpeg, size_t len)
{
	uint8_t samples[3];

	first_samples(jpeg, len, samples);
	return samples[0];
}

static void convert(uint32_t format, int value, int components, int wanted)
{
	size_t png_len, len = 0;
	uint8_t *png = make_png(format, value, &png_len), *jpeg = NULL;
	struct gn_image_info info;
	struct gn_err err;

	assert_ok(gn_image_png_to_jpeg(png, png_len, 95, &jpeg, &len, &err));
	assert_ok(gn_image_check_jpeg(jpeg, len, &info, &err));
	assert_int_equal(info.width, 20);
	assert_int_equal(info.height, 10);
	assert_int_equal(info.components, components);
	assert_in_range(first_pixel(jpeg, len), wanted - 2, wanted + 2);
	free(jpeg);
	free(png);
}

static void pngs_become_jpegs(void **state)
{
	(void)state;
	convert(PNG_FORMAT_RGB, 90, 3, 90);
	convert(PNG_FORMAT_GRAY, 200, 1, 200);
	/* what is transparent has its colour, as for Pillow's convert("RGB") */
	convert(PNG_FORMAT_RGBA, 7, 3, 7);
	convert(PNG_FORMAT_GA, 130, 1, 130);
}

/* Adobe's samples are inverted: 255 is no ink, so red is C * K / 255. */
static void cmyk_becomes_rgb(void **state)
{
	static const struct {
		uint8_t cmyk[4], rgb[3];
	} cases[] = {
		{{255, 255, 255, 255}, {255, 255, 255}}, {{40, 90, 200, 0}, {0, 0, 0}}, {{200, 100, 50, 255}, {200, 100, 50}},
		{{200, 100, 50, 128}, {100, 50, 25}},	 {{0, 255, 255, 255}, {0, 255, 255}},
	};

	(void)state;
	for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
		struct picture p = {.width = 20, .height = 10, .components = 4, .quality = 100, .ycck = i & 1,
				    .flat = cases[i / 2].cmyk};
		size_t len, jpeg_len = 0;
		uint8_t *file = picture_encode(&p, &len), *jpeg = NULL, samples[3];
		struct gn_image_info info;
		struct gn_err err;

		assert_true(gn_image_is_cmyk(file, len));
		assert_ok(gn_image_cmyk_to_jpeg(file, len, 100, &jpeg, &jpeg_len, &err));
		assert_false(gn_image_is_cmyk(jpeg, jpeg_len));
		assert_ok(gn_image_check_jpeg(jpeg, jpeg_len, &info, &err));
		assert_true(info.width == 20 && info.height == 10 && info.components == 3);
		first_samples(jpeg, jpeg_len, samples);
		for (int c = 0; c < 3; c++)
			assert_in_range(samples[c] + 3, cases[i / 2].rgb[c], cases[i / 2].rgb[c] + 6);
		free(jpeg);
		free(file);
	}
}

static void bad_cmyk_is_refused(void **state)
{
	struct picture p = {.width = 40, .height = 24, .components = 4, .quality = 90};
	struct gn_err err;
	size_t len, jpeg_len = 0;
	uint8_t *file = picture_encode(&p, &len), *jpeg = NULL;

	(void)state;
	for (size_t cut = 0; cut < len; cut++) {
		gn_image_is_cmyk(file, cut);
		assert_int_equal(gn_image_cmyk_to_jpeg(file, cut, 95, &jpeg, &jpeg_len, &err), GN_ERR_DATA);
		assert_null(jpeg);
	}
	free(file);
	p.components = 3;
	file = picture_encode(&p, &len);
	assert_false(gn_image_is_cmyk(file, len));
	assert_int_equal(gn_image_cmyk_to_jpeg(file, len, 95, &jpeg, &jpeg_len, &err), GN_ERR_DATA);
	free(file);
}

static void bad_pngs_are_refused(void **state)
{
	size_t len, jpeg_len = 0;
	uint8_t *png = make_png(PNG_FORMAT_LINEAR_RGB, 90, &len), *jpeg = NULL;
	struct gn_err err;

	(void)state;
	assert_int_equal(gn_image_png_to_jpeg(png, len, 95, &jpeg, &jpeg_len, &err), GN_ERR_DATA);
	assert_non_null(strstr(err.text, "16 bits"));
	free(png);
	png = make_png(PNG_FORMAT_RGB, 90, &len);
	for (size_t cut = 0; cut + 12 < len; cut++) {
		assert_int_equal(gn_image_png_to_jpeg(png, cut, 95, &jpeg, &jpeg_len, &err), GN_ERR_DATA);
		assert_null(jpeg);
	}
	for (size_t i = 0; i < len; i++) {
		png[i] ^= 0x10;
		if (!gn_image_png_to_jpeg(png, len, 95, &jpeg, &jpeg_len, &err))
			free(jpeg);
		jpeg = NULL;
		png[i] ^= 0x10;
	}
	free(png);
}

/* A JPEG file's start with an EXIF segment; big: numbers have their high byte first. */
static size_t oriented(uint8_t *file, int big, uint8_t orientation)
{
	static const uint8_t motorola[] = "\xff\xd8\xff\xe1\0\x22" "Exif\0\0MM\0*\0\0\0\x8\0\x1\x1\x12\0\x3\0\0\0\x1\0\0\0\0\0\0\0\0";
	static const uint8_t intel[] = "\xff\xd8\xff\xe1\0\x22" "Exif\0\0II*\0\x8\0\0\0\x1\0\x12\x1\x3\0\x1\0\0\0\0\0\0\0\0\0\0\0";

	memcpy(file, big ? motorola : intel, 38);
	file[30 + big] = orientation;
	return 38;
}

static void exif_orientations_are_found(void **state)
{
	uint8_t file[38];

	(void)state;
	for (int big = 0; big < 2; big++) {
		for (uint8_t orientation = 0; orientation < 10; orientation++)
			assert_int_equal(gn_image_orientation(file, oriented(file, big, orientation)),
					 orientation >= 2 && orientation <= 8 ? orientation : 1);
		/* its own block for each cut, so that a checker of memory sees a read beyond the end */
		for (size_t len = oriented(file, big, 6) - 1; len > 0; len--) {
			uint8_t *cut = malloc(len);

			assert_non_null(cut);
			memcpy(cut, file, len);
			assert_int_equal(gn_image_orientation(cut, len), 1);
			if (len > 12) {
				cut[5] = (uint8_t)(len - 4);
				assert_int_equal(gn_image_orientation(cut, len), len >= 32 ? 6 : 1);
			}
			free(cut);
		}
		oriented(file, big, 6);
		memset(file + 16, 0xff, 4);
		assert_int_equal(gn_image_orientation(file, sizeof file), 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_jpegs_are_accepted),
		cmocka_unit_test(every_cut_is_found),
		cmocka_unit_test(other_colours_and_depths_are_refused),
		cmocka_unit_test(wrong_sizes_are_refused),
		cmocka_unit_test(other_files_are_refused),
		cmocka_unit_test(trailing_bytes_are_accepted),
		cmocka_unit_test(harmless_warnings_are_reported),
		cmocka_unit_test(damage_is_survived),
		cmocka_unit_test(pngs_become_jpegs),
		cmocka_unit_test(cmyk_becomes_rgb),
		cmocka_unit_test(bad_cmyk_is_refused),
		cmocka_unit_test(exif_orientations_are_found),
		cmocka_unit_test(bad_pngs_are_refused),
	};

	return cmocka_run_group_tests_name("image", tests, NULL, NULL);
}
