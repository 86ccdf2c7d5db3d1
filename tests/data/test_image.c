#include "data/image.h"
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
	struct gn_image_info info = {1, 2, 3};
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
	p = base_picture();
	p.wrong_adobe = 1;
	refuse(p, "Adobe");
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
	refuse_bytes("GIF89a..........", 16, "not a JPEG");
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

static int first_pixel(const uint8_t *jpeg, size_t len)
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
	return row[0];
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
	convert(PNG_FORMAT_RGBA, 0, 3, 253); /* transparent: white */
	convert(PNG_FORMAT_GA, 255, 1, 253);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_jpegs_are_accepted),
		cmocka_unit_test(every_cut_is_found),
		cmocka_unit_test(other_colours_and_depths_are_refused),
		cmocka_unit_test(wrong_sizes_are_refused),
		cmocka_unit_test(other_files_are_refused),
		cmocka_unit_test(trailing_bytes_are_accepted),
		cmocka_unit_test(damage_is_survived),
		cmocka_unit_test(pngs_become_jpegs),
		cmocka_unit_test(bad_pngs_are_refused),
	};

	return cmocka_run_group_tests_name("image", tests, NULL, NULL);
}
