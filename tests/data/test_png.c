/* Every kind of PNG file becomes the pixels that Pillow's convert("RGB") gives, but for JPEG's rounding: no colour profile is applied,
 * nothing is laid over a background. */
#include "data/sample/decode.h"
#include "data/sample/image.h"
#include "tests/test.h"

#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two rows of two fields, so large that the middle of each is not touched by its neighbours' chroma. */
enum { SIDE = 128, FIELD = SIDE / 2, MOST = SIDE * 4 };

struct file {
	uint8_t *bytes;
	size_t len;
};

/* What is beside the pixels. */
enum beside { NOTHING, GAMMA, SRGB, CHROMA, PROFILE, BITS, BESIDE_COUNT };

static const int samples[4][4] = {{3, 1, 2, 0}, {0, 3, 1, 2}, {2, 0, 3, 1}, {1, 2, 0, 3}};
static const png_color palette[4] = {{10, 200, 30}, {250, 1, 128}, {77, 77, 77}, {0, 90, 255}};

static void append(png_structp png, png_bytep data, size_t len)
{
	struct file *f = png_get_io_ptr(png);

	f->bytes = realloc(f->bytes, f->len + len);
	assert_non_null(f->bytes);
	memcpy(f->bytes + f->len, data, len);
	f->len += len;
}

static void flush(png_structp png)
{
	(void)png;
}

/* Sample number c of a field: a number of the palette, or from 0 to the largest of the depth. */
static int value_of(int type, int field, int c, int depth)
{
	return depth == 8 && type != PNG_COLOR_TYPE_PALETTE ? 60 * samples[field][c] + 40 : samples[field][c] & (depth == 1 ? 1 : 3);
}

static void write_beside(png_structp png, png_infop info, enum beside what)
{
	static const png_byte nonsense[] = "no profile at all";
	png_color_8 bits = {5, 6, 5, 5, 5};

	if (what == GAMMA)
		png_set_gAMA(png, info, 1.0);
	if (what == CHROMA)
		png_set_cHRM(png, info, 0.3127, 0.329, 0.708, 0.292, 0.17, 0.797, 0.131, 0.046);
	if (what == SRGB)
		png_set_sRGB(png, info, PNG_sRGB_INTENT_PERCEPTUAL);
	if (what == PROFILE) {
		png_unknown_chunk chunk = {"iCCP", (png_byte *)(uintptr_t)nonsense, sizeof nonsense, PNG_HAVE_IHDR};

		png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_ALWAYS, (png_const_bytep) "iCCP", 1);
		png_set_unknown_chunks(png, info, &chunk, 1);
	}
	if (what == BITS && png_get_bit_depth(png, info) == 8)
		png_set_sBIT(png, info, &bits);
}

static void write_row(png_structp png, int type, int y, int components, int depth)
{
	png_byte row[MOST] = {0};

	for (int x = 0; x < SIDE; x++)
		for (int c = 0; c < components; c++) {
			int v = value_of(type, 2 * (y / FIELD) + x / FIELD, c, depth), bit = (x * components + c) * depth;

			row[bit / 8] |= (png_byte)(v << (8 - depth - bit % 8));
		}
	png_write_row(png, row);
}

/* A colour of the fields is marked as transparent, or half of a palette. */
static struct file make(int type, int depth, int interlaced, enum beside what, int transparent)
{
	static const png_byte alpha[2] = {0, 128};
	struct file f = {NULL, 0};
	png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
	png_infop info = png_create_info_struct(png);
	png_color_16 colour = {.gray = (png_uint_16)value_of(type, 0, 0, depth), .red = (png_uint_16)value_of(type, 0, 0, depth),
			       .green = (png_uint_16)value_of(type, 0, 1, depth), .blue = (png_uint_16)value_of(type, 0, 2, depth)};
	int passes;

	png_set_write_fn(png, &f, append, flush);
	png_set_IHDR(png, info, SIDE, SIDE, depth, type, interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
		     PNG_FILTER_TYPE_DEFAULT);
	write_beside(png, info, what);
	if (type == PNG_COLOR_TYPE_PALETTE)
		png_set_PLTE(png, info, palette, depth == 1 ? 2 : 4);
	if (transparent)
		png_set_tRNS(png, info, alpha, 2, &colour);
	png_write_info(png, info);
	passes = png_set_interlace_handling(png);
	for (int pass = 0; pass < passes; pass++)
		for (int y = 0; y < SIDE; y++)
			write_row(png, type, y, png_get_channels(png, info), depth);
	png_write_end(png, NULL);
	png_destroy_write_struct(&png, &info);
	return f;
}

static void expect_field(const struct gn_pixels *p, int field, int type, int depth, const char *title)
{
	const uint8_t *at = p->data + (size_t)(field / 2 * FIELD + FIELD / 2) * p->stride_bytes + (size_t)(field % 2 * FIELD + FIELD / 2) * 3;

	for (int c = 0; c < 3; c++) {
		int from = type & PNG_COLOR_MASK_COLOR ? c : 0;
		int v = value_of(type, field, from, depth) * 255 / ((1 << depth) - 1);

		if (type == PNG_COLOR_TYPE_PALETTE) {
			const png_color *colour = &palette[value_of(type, field, 0, depth)];

			v = c == 0 ? colour->red : c == 1 ? colour->green : colour->blue;
		}
		if (abs(at[c] - v) > 3)
			fail_msg("%s, field %d: component %d is %d, not %d", title, field, c, at[c], v);
	}
}

static void convert(int type, int depth, int interlaced, enum beside what, int transparent)
{
	struct file png = make(type, depth, interlaced, what, transparent);
	struct gn_decoder *decoder;
	struct gn_pixels pixels;
	uint32_t width, height;
	uint8_t *jpeg = NULL;
	char title[100];
	struct gn_err err;
	size_t len = 0;

	snprintf(title, sizeof title, "type %d, %d bits%s, beside %d%s", type, depth, interlaced ? ", interlaced" : "", what,
		 transparent ? ", transparent" : "");
	assert_ok(gn_image_png_to_jpeg(png.bytes, png.len, 100, &jpeg, &len, &err));
	assert_ok(gn_decoder_create(&decoder, &err));
	assert_ok(gn_decoder_open(decoder, jpeg, len, &width, &height, &err));
	assert_int_equal(width, SIDE);
	assert_ok(gn_decoder_read(decoder, &(struct gn_region){0, 0, SIDE, SIDE}, 1, 3, &pixels, &err));
	for (int field = 0; field < 4; field++)
		expect_field(&pixels, field, type, depth, title);
	gn_decoder_destroy(decoder);
	free(jpeg);
	free(png.bytes);
}

static void test_kinds(void **state)
{
	static const int types[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_PALETTE, PNG_COLOR_TYPE_GRAY_ALPHA,
				    PNG_COLOR_TYPE_RGB_ALPHA};

	(void)state;
	for (size_t t = 0; t < sizeof types / sizeof *types; t++)
		for (int depth = 1; depth <= 8; depth *= 2) {
			int is_small = types[t] == PNG_COLOR_TYPE_GRAY || types[t] == PNG_COLOR_TYPE_PALETTE;

			for (int what = 0; what < BESIDE_COUNT && (depth == 8 || is_small); what++)
				for (int k = 0; k < (types[t] & PNG_COLOR_MASK_ALPHA ? 2 : 4); k++)
					convert(types[t], depth, k % 2, (enum beside)what, k / 2);
		}
}

/* Lengths of chunks are not trusted. */
static void test_damage(void **state)
{
	struct file png = make(PNG_COLOR_TYPE_RGB, 8, 0, GAMMA, 0);
	struct gn_err err;
	uint8_t *jpeg;
	size_t len;

	(void)state;
	for (size_t cut = 0; cut < 80; cut++)
		assert_int_equal(gn_image_png_to_jpeg(png.bytes, cut, 95, &jpeg, &len, &err), GN_ERR_DATA);
	for (size_t at = 8; at < 60; at++) {
		uint8_t was = png.bytes[at];

		png.bytes[at] = 0xff;
		if (!gn_image_png_to_jpeg(png.bytes, png.len, 95, &jpeg, &len, &err))
			free(jpeg);
		png.bytes[at] = was;
	}
	free(png.bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds), cmocka_unit_test(test_damage)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
