#include "data/sample/image.h"

#include "data/sample/decode.h"
#include "data/sample/jpeg_trap_internal.h"
#include "src/base/file_kind.h"

#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Checks header and limits; a refusal's text goes to trap->text. wants_cmyk: four components are expected, else refused. Returns 0,
 * or -1. */
static int accept_header(struct jpeg_decompress_struct *d, struct gn_jpeg_trap *trap, int wants_cmyk)
{
	int cmyk;

	jpeg_read_header(d, TRUE);
	cmyk = d->jpeg_color_space == JCS_CMYK || d->jpeg_color_space == JCS_YCCK;
	if (cmyk && !wants_cmyk)
		snprintf(trap->text, sizeof trap->text, "%s colours; convert it to RGB",
			 d->jpeg_color_space == JCS_CMYK ? "CMYK" : "YCCK");
	else if (cmyk != wants_cmyk || (!cmyk && d->num_components != 1 && d->num_components != 3))
		snprintf(trap->text, sizeof trap->text, "%d colour components, not 1 or 3", d->num_components);
	else if (d->data_precision != 8)
		snprintf(trap->text, sizeof trap->text, "%d bits per sample, not 8", d->data_precision);
	else if (!d->image_width || !d->image_height)
		snprintf(trap->text, sizeof trap->text, "no pixels");
	else if (d->image_width > GN_IMAGE_MAX_SIDE || d->image_height > GN_IMAGE_MAX_SIDE ||
		 (uint64_t)d->image_width * d->image_height > GN_IMAGE_MAX_PIXELS)
		snprintf(trap->text, sizeof trap->text, "%ux%u pixels are too many", d->image_width, d->image_height);
	else
		return 0;
	return -1;
}

/* Converts a row of inverted CMYK to RGB with Pillow's rounding. */
static void cmyk_row(const JSAMPLE *cmyk, size_t width, unsigned char *rgb)
{
	for (size_t x = 0; x < width; x++, cmyk += 4, rgb += 3)
		for (int c = 0; c < 3; c++)
			rgb[c] = (unsigned char)((cmyk[c] * cmyk[3] + 127) / 255);
}

/* Everything that may longjmp, in a separate function so that no local variable of the caller is clobbered. rgb NULL: decodes a
 * grey or RGB file and drops the pixels. Else decodes a CMYK file to *rgb, which the caller frees even after a failure. Returns 0, -1, or -2 when out of memory. */
static int decode_all(struct jpeg_decompress_struct *d, struct gn_jpeg_trap *trap, const void *data, size_t len_bytes,
		      unsigned char **rgb)
{
	JSAMPARRAY row;

	if (setjmp(trap->back))
		return -1;
	jpeg_create_decompress(d);
	gn_jpeg_trap_limit(trap, d);
	jpeg_mem_src(d, data, (unsigned long)len_bytes);
	if (accept_header(d, trap, rgb != NULL))
		return -1;
	d->out_color_space = rgb ? JCS_CMYK : d->num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
	jpeg_start_decompress(d);
	if (rgb && !(*rgb = malloc((size_t)d->output_width * d->output_height * 3)))
		return -2;
	row = d->mem->alloc_sarray((j_common_ptr)d, JPOOL_IMAGE, d->output_width * (JDIMENSION)d->output_components, 1);
	while (d->output_scanline < d->output_height) {
		JDIMENSION y = d->output_scanline;

		jpeg_read_scanlines(d, row, 1);
		if (rgb)
			cmyk_row(row[0], d->output_width, *rgb + (size_t)y * d->output_width * 3);
	}
	jpeg_finish_decompress(d);
	return 0;
}

enum gn_image_kind gn_image_sniff(const void *data, size_t len_bytes)
{
	const char *kind = gn_file_kind(data, len_bytes);

	return !kind ? GN_IMAGE_OTHER : !strcmp(kind, "a JPEG image") ? GN_IMAGE_JPEG : !strcmp(kind, "a PNG image") ? GN_IMAGE_PNG : GN_IMAGE_OTHER;
}

/* Reads a number of 2 or 4 bytes; 0 beyond the end. */
static uint32_t tiff_number(const unsigned char *tiff, size_t len_bytes, size_t at, size_t width)
{
	uint32_t value = 0;

	if (at > len_bytes || len_bytes - at < width)
		return 0;
	for (size_t i = 0; i < width; i++)
		value = value << 8 | tiff[at + (tiff[0] == 'M' ? i : width - 1 - i)];
	return value;
}

/* Tag 0x0112 of the first directory (TIFF 6.0, section 8; EXIF 2.3, 4.6.4); 1 if absent. */
static uint32_t tiff_orientation(const unsigned char *tiff, size_t len_bytes)
{
	size_t at = tiff_number(tiff, len_bytes, 4, 4);
	uint32_t count = tiff_number(tiff, len_bytes, at, 2);

	if (len_bytes < 4 || (memcmp(tiff, "II*\0", 4) && memcmp(tiff, "MM\0*", 4)))
		return 1;
	for (uint32_t i = 0; i < count; i++)
		if (tiff_number(tiff, len_bytes, at + 2 + 12 * (size_t)i, 2) == 0x0112)
			return tiff_number(tiff, len_bytes, at + 2 + 12 * (size_t)i + 8, 2);
	return 1;
}

int gn_image_orientation(const void *data, size_t len_bytes)
{
	const unsigned char *bytes = data;
	size_t at = 2, segment;

	if (gn_image_sniff(data, len_bytes) != GN_IMAGE_JPEG)
		return 1;
	/* segments: a marker and a length that includes itself, up to the first scan (SOS) */
	for (; at < len_bytes && len_bytes - at >= 4 && bytes[at] == 0xff && bytes[at + 1] != 0xda; at += 2 + segment) {
		segment = (size_t)bytes[at + 2] << 8 | bytes[at + 3];
		if (segment < 2 || segment > len_bytes - at - 2)
			return 1;
		if (bytes[at + 1] == 0xe1 && segment >= 8 && !memcmp(bytes + at + 4, "Exif\0\0", 6)) {
			uint32_t orientation = tiff_orientation(bytes + at + 10, segment - 8);

			return orientation >= 2 && orientation <= 8 ? (int)orientation : 1;
		}
	}
	return 1;
}

enum gn_status gn_image_not_jpeg(const void *data, size_t len_bytes, struct gn_err *err)
{
	const char *kind = gn_file_kind(data, len_bytes);

	return kind ? gn_err_set(err, GN_ERR_DATA, "is %s, not a JPEG file; only JPEG and PNG are read%s", kind,
				 strstr(kind, " image") ? ": convert it" : "")
		    : gn_err_set(err, GN_ERR_DATA, "not a JPEG file");
}

enum gn_status gn_image_check_jpeg(const void *data, size_t len_bytes, struct gn_image_info *out, struct gn_err *err)
{
	struct gn_jpeg_trap trap;
	struct jpeg_decompress_struct decoder = {.err = &trap.manager};
	int failed;

	if (!len_bytes)
		return gn_err_set(err, GN_ERR_DATA, "the file is empty");
	if (len_bytes > GN_IMAGE_MAX_BYTES)
		return gn_err_set(err, GN_ERR_DATA, "%zu bytes exceed the limit of an image file (%u)", len_bytes,
				  GN_IMAGE_MAX_BYTES);
	if (gn_image_sniff(data, len_bytes) != GN_IMAGE_JPEG)
		return gn_image_not_jpeg(data, len_bytes, err);
	gn_jpeg_trap_init(&trap);
	failed = decode_all(&decoder, &trap, data, len_bytes, NULL);
	if (!failed) {
		*out = (struct gn_image_info){.width = (uint16_t)decoder.image_width, .height = (uint16_t)decoder.image_height,
					      .components = (uint8_t)decoder.num_components};
		snprintf(out->warning, sizeof out->warning, "%s", trap.warning);
	}
	jpeg_destroy_decompress(&decoder);
	return failed ? gn_err_set(err, GN_ERR_DATA, "bad JPEG: %s", trap.text) : GN_OK;
}

static int encode_all(struct jpeg_compress_struct *c, struct gn_jpeg_trap *trap, const unsigned char *pixels,
		      const struct gn_image_info *info, int quality, int whole_chroma, unsigned char **jpeg, unsigned long *jpeg_bytes)
{
	if (setjmp(trap->back))
		return -1;
	jpeg_create_compress(c);
	jpeg_mem_dest(c, jpeg, jpeg_bytes);
	c->image_width = info->width;
	c->image_height = info->height;
	c->input_components = info->components;
	c->in_color_space = info->components == 1 ? JCS_GRAYSCALE : JCS_RGB;
	jpeg_set_defaults(c);
	jpeg_set_quality(c, quality, TRUE);
	if (whole_chroma)
		c->comp_info[0].h_samp_factor = c->comp_info[0].v_samp_factor = 1;
	jpeg_start_compress(c, TRUE);
	while (c->next_scanline < c->image_height) {
		JSAMPROW row = (JSAMPROW)(pixels + (size_t)c->next_scanline * info->width * info->components);

		jpeg_write_scanlines(c, &row, 1);
	}
	jpeg_finish_compress(c);
	return 0;
}

enum gn_status gn_image_encode_jpeg(const unsigned char *pixels, const struct gn_image_info *info, int quality, int whole_chroma,
				    unsigned char **jpeg, size_t *jpeg_bytes, struct gn_err *err)
{
	struct gn_jpeg_trap trap;
	struct jpeg_compress_struct encoder = {.err = &trap.manager};
	unsigned char *bytes = NULL;
	unsigned long len = 0;
	int failed;

	gn_jpeg_trap_init(&trap);
	failed = encode_all(&encoder, &trap, pixels, info, quality, whole_chroma, &bytes, &len);
	jpeg_destroy_compress(&encoder);
	if (failed) {
		free(bytes);
		return gn_err_set(err, GN_ERR_FAILED, "cannot encode as JPEG: %s", trap.text);
	}
	*jpeg = bytes;
	*jpeg_bytes = len;
	return GN_OK;
}

static int read_header(struct jpeg_decompress_struct *d, struct gn_jpeg_trap *trap, const void *data, size_t len_bytes)
{
	if (setjmp(trap->back))
		return -1;
	jpeg_create_decompress(d);
	jpeg_mem_src(d, data, (unsigned long)len_bytes);
	jpeg_read_header(d, TRUE);
	return 0;
}

int gn_image_is_cmyk(const void *data, size_t len_bytes)
{
	struct gn_jpeg_trap trap;
	struct jpeg_decompress_struct decoder = {.err = &trap.manager};
	int cmyk;

	if (gn_image_sniff(data, len_bytes) != GN_IMAGE_JPEG)
		return 0;
	gn_jpeg_trap_init(&trap);
	cmyk = !read_header(&decoder, &trap, data, len_bytes) &&
	       (decoder.jpeg_color_space == JCS_CMYK || decoder.jpeg_color_space == JCS_YCCK);
	jpeg_destroy_decompress(&decoder);
	return cmyk;
}

enum gn_status gn_image_cmyk_to_jpeg(const void *data, size_t len_bytes, int quality, unsigned char **jpeg,
				     size_t *jpeg_bytes, struct gn_err *err)
{
	struct gn_jpeg_trap trap;
	struct jpeg_decompress_struct decoder = {.err = &trap.manager};
	struct gn_image_info info = {.components = 3};
	unsigned char *rgb = NULL;
	enum gn_status status;
	int failed;

	gn_jpeg_trap_init(&trap);
	failed = decode_all(&decoder, &trap, data, len_bytes, &rgb);
	info.width = (uint16_t)decoder.image_width;
	info.height = (uint16_t)decoder.image_height;
	jpeg_destroy_decompress(&decoder);
	if (failed == -2)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %ux%u pixels", info.width, info.height);
	else if (failed)
		status = gn_err_set(err, GN_ERR_DATA, "bad JPEG: %s", trap.text);
	else
		status = gn_image_encode_jpeg(rgb, &info, quality, 1, jpeg, jpeg_bytes, err);
	free(rgb);
	return status;
}

/* PNG files. */

enum gn_status gn_image_encode_png(const unsigned char *pixels, uint32_t width, uint32_t height, int components, unsigned char **out,
				   size_t *len_bytes, struct gn_err *err)
{
	png_image image = {.version = PNG_IMAGE_VERSION, .width = width, .height = height,
			   .format = components == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY};
	png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
	unsigned char *bytes = malloc(size);

	if (!bytes)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a PNG file of %u x %u pixels", width, height);
	if (!png_image_write_to_memory(&image, bytes, &size, 0, pixels, 0, NULL)) {
		free(bytes);
		return gn_err_set(err, GN_ERR_FAILED, "libpng cannot write an image of %u x %u pixels: %s", width, height, image.message);
	}
	*out = bytes;
	*len_bytes = size;
	return GN_OK;
}

/* The bit depth of the header chunk, which libpng's simplified API does not report. */
static int png_depth(const unsigned char *data, size_t len_bytes)
{
	return len_bytes > 24 && !memcmp(data + 12, "IHDR", 4) ? data[24] : 0;
}

static enum gn_status png_accept(const png_image *image, int depth, struct gn_err *err)
{
	if (depth > 8)
		return gn_err_set(err, GN_ERR_DATA, "PNG with %d bits per sample; convert it to 8", depth);
	if (image->width > GN_IMAGE_MAX_SIDE || image->height > GN_IMAGE_MAX_SIDE ||
	    (uint64_t)image->width * image->height > GN_IMAGE_MAX_PIXELS)
		return gn_err_set(err, GN_ERR_DATA, "%ux%u pixels are too many", image->width, image->height);
	return GN_OK;
}

/* A copy without the chunks by which libpng's simplified interface changes colours, for displays: Pillow and torchvision do not.
 * NULL: no memory. */
static unsigned char *without_profiles(const unsigned char *png, size_t len_bytes, size_t *out_bytes)
{
	static const char names[][5] = {"gAMA", "cHRM", "sRGB", "iCCP", "cICP", "sBIT"};
	unsigned char *out = calloc(1, len_bytes ? len_bytes : 1);
	size_t to = 0, chunk = 8; /* the signature */

	for (size_t at = 0; out && at < len_bytes; at += chunk) {
		const unsigned char *here = png + at;
		int is_profile = 0;

		if (at)
			chunk = len_bytes - at < 12 ? 12 : 12 + ((size_t)here[0] << 24 | here[1] << 16 | here[2] << 8 | here[3]);
		if (chunk > len_bytes - at)
			chunk = len_bytes - at;
		for (size_t i = 0; at && chunk >= 12 && i < sizeof names / sizeof *names; i++)
			is_profile |= !memcmp(here + 4, names[i], 4);
		memcpy(out + to, here, is_profile ? 0 : chunk);
		to += is_profile ? 0 : chunk;
	}
	*out_bytes = to;
	return out;
}

/* Drops the last component of each pixel. */
static void drop_alpha(unsigned char *pixels, size_t count, size_t components)
{
	for (size_t i = 0; i < count; i++)
		memmove(pixels + i * (components - 1), pixels + i * components, components - 1);
}

/* Takes an image whose header was read. */
static enum gn_status png_read(png_image *image, int quality, unsigned char **jpeg, size_t *jpeg_bytes, struct gn_err *err)
{
	const size_t count = (size_t)image->width * image->height;
	struct gn_image_info info = {.width = (uint16_t)image->width, .height = (uint16_t)image->height};
	unsigned char *pixels;
	enum gn_status status;

	image->format = image->format & PNG_FORMAT_FLAG_COLOR ? PNG_FORMAT_RGBA : PNG_FORMAT_GA;
	info.components = (uint8_t)(PNG_IMAGE_PIXEL_CHANNELS(image->format) - 1);
	pixels = malloc(PNG_IMAGE_SIZE(*image));
	if (!pixels)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %ux%u pixels", image->width, image->height);
	if (png_image_finish_read(image, NULL, pixels, 0, NULL)) {
		drop_alpha(pixels, count, (size_t)info.components + 1);
		status = gn_image_encode_jpeg(pixels, &info, quality, 1, jpeg, jpeg_bytes, err);
	} else {
		status = gn_err_set(err, GN_ERR_DATA, "bad PNG: %s", image->message);
	}
	free(pixels);
	return status;
}

enum gn_status gn_image_png_to_jpeg(const void *data, size_t len_bytes, int quality, unsigned char **jpeg,
				    size_t *jpeg_bytes, struct gn_err *err)
{
	png_image image = {.version = PNG_IMAGE_VERSION};
	size_t plain_bytes;
	unsigned char *plain = without_profiles(data, len_bytes, &plain_bytes);
	enum gn_status status;

	if (!plain)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a PNG file of %zu bytes", len_bytes);
	if (!png_image_begin_read_from_memory(&image, plain, plain_bytes))
		status = gn_err_set(err, GN_ERR_DATA, "bad PNG: %s", image.message);
	else
		status = png_accept(&image, png_depth(plain, plain_bytes), err);
	if (!status)
		status = png_read(&image, quality, jpeg, jpeg_bytes, err);
	png_image_free(&image);
	free(plain);
	return status;
}

/* The pixel of an image of width x height that comes to (x, y): EXIF 2.3, 4.6.4, tag Orientation. */
static void source_of(int orientation, uint32_t width, uint32_t height, uint32_t x, uint32_t y, uint32_t *from_x, uint32_t *from_y)
{
	const uint32_t across = orientation >= 5 ? y : x, down = orientation >= 5 ? x : y;
	const int mirrors_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
	const int mirrors_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;

	*from_x = mirrors_x ? width - 1 - across : across;
	*from_y = mirrors_y ? height - 1 - down : down;
}

static void turn(const struct gn_pixels *from, int orientation, const struct gn_image_info *to, unsigned char *out)
{
	for (uint32_t y = 0; y < to->height; y++)
		for (uint32_t x = 0; x < to->width; x++, out += to->components) {
			uint32_t from_x, from_y;

			source_of(orientation, from->width, from->height, x, y, &from_x, &from_y);
			memcpy(out, from->data + from_y * from->stride_bytes + (size_t)from_x * to->components, to->components);
		}
}

enum gn_status gn_image_turn_jpeg(const void *data, size_t len_bytes, int orientation, int quality, unsigned char **jpeg,
				  size_t *jpeg_bytes, struct gn_err *err)
{
	struct gn_region all = {0};
	struct gn_image_info info;
	unsigned char *turned = NULL;
	struct gn_decoder *d = NULL;
	struct gn_pixels pixels;
	enum gn_status status = gn_image_check_jpeg(data, len_bytes, &info, err);

	if (!status)
		status = gn_decoder_create(&d, err);
	if (!status)
		status = gn_decoder_open(d, data, len_bytes, &all.width, &all.height, err);
	if (!status)
		status = gn_decoder_read(d, &all, 1, info.components, &pixels, err);
	if (!status) {
		turned = malloc((size_t)all.width * all.height * info.components);
		if (!turned)
			status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %ux%u pixels", all.width, all.height);
	}
	if (!status) {
		info.width = (uint16_t)(orientation >= 5 ? all.height : all.width);
		info.height = (uint16_t)(orientation >= 5 ? all.width : all.height);
		turn(&pixels, orientation, &info, turned);
		status = gn_image_encode_jpeg(turned, &info, quality, 1, jpeg, jpeg_bytes, err);
	}
	free(turned);
	gn_decoder_destroy(d);
	return status;
}
