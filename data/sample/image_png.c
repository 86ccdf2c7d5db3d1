/* PNG files. */
#include "data/sample/image.h"

#include <png.h>
#include <stdlib.h>
#include <string.h>

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
