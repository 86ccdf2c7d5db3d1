#include "data/image.h"

#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

/* A scan costs a pass over all coefficients however few bytes it has: more than any encoder writes is an attack. */
#define MAX_SCANS 200
#define MAX_DECODER_BYTES (1l << 30)

struct jpeg_trap {
	struct jpeg_error_mgr manager;
	struct jpeg_progress_mgr progress;
	jmp_buf back;
	char text[JMSG_LENGTH_MAX];
};

static void trap_exit(j_common_ptr codec)
{
	struct jpeg_trap *trap = (struct jpeg_trap *)codec->err;

	codec->err->format_message(codec, trap->text);
	longjmp(trap->back, 1);
}

static void trap_message(j_common_ptr codec, int level)
{
	if (level < 0)
		trap_exit(codec);
}

static void trap_progress(j_common_ptr codec)
{
	struct jpeg_trap *trap = (struct jpeg_trap *)codec->err;

	if (((j_decompress_ptr)codec)->input_scan_number > MAX_SCANS) {
		snprintf(trap->text, sizeof trap->text, "more than %d scans", MAX_SCANS);
		longjmp(trap->back, 1);
	}
}

static void trap_init(struct jpeg_trap *trap)
{
	memset(trap, 0, sizeof *trap);
	jpeg_std_error(&trap->manager);
	trap->manager.error_exit = trap_exit;
	trap->manager.emit_message = trap_message;
	trap->progress.progress_monitor = trap_progress;
}

/* Header and limits; the text of a refusal goes to trap->text. Returns 0, or -1. */
static int accept_header(struct jpeg_decompress_struct *d, struct jpeg_trap *trap)
{
	jpeg_read_header(d, TRUE);
	if (d->jpeg_color_space == JCS_CMYK || d->jpeg_color_space == JCS_YCCK)
		snprintf(trap->text, sizeof trap->text, "%s colours; convert it to RGB",
			 d->jpeg_color_space == JCS_CMYK ? "CMYK" : "YCCK");
	else if (d->num_components != 1 && d->num_components != 3)
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

/* Everything that may longjmp, in a function of its own so that no local of the caller is at stake. */
static int decode_all(struct jpeg_decompress_struct *d, struct jpeg_trap *trap, const void *data, size_t len_bytes)
{
	JSAMPARRAY row;

	if (setjmp(trap->back))
		return -1;
	jpeg_create_decompress(d);
	d->progress = &trap->progress;
	d->mem->max_memory_to_use = MAX_DECODER_BYTES;
	jpeg_mem_src(d, data, (unsigned long)len_bytes);
	if (accept_header(d, trap))
		return -1;
	d->out_color_space = d->num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
	jpeg_start_decompress(d);
	row = d->mem->alloc_sarray((j_common_ptr)d, JPOOL_IMAGE, d->output_width * (JDIMENSION)d->output_components, 1);
	while (d->output_scanline < d->output_height)
		jpeg_read_scanlines(d, row, 1);
	jpeg_finish_decompress(d);
	return 0;
}

enum gn_image_kind gn_image_sniff(const void *data, size_t len_bytes)
{
	static const unsigned char png[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
	static const unsigned char jpeg[3] = {0xff, 0xd8, 0xff};

	if (len_bytes >= sizeof png && !memcmp(data, png, sizeof png))
		return GN_IMAGE_PNG;
	if (len_bytes >= sizeof jpeg && !memcmp(data, jpeg, sizeof jpeg))
		return GN_IMAGE_JPEG;
	return GN_IMAGE_OTHER;
}

enum gn_status gn_image_check_jpeg(const void *data, size_t len_bytes, struct gn_image_info *out, struct gn_err *err)
{
	struct jpeg_decompress_struct decoder;
	struct jpeg_trap trap;
	int failed;

	if (!len_bytes)
		return gn_err_set(err, GN_ERR_DATA, "the file is empty");
	if (len_bytes > GN_IMAGE_MAX_BYTES)
		return gn_err_set(err, GN_ERR_DATA, "%zu bytes are more than an image may have (%u)", len_bytes,
				  GN_IMAGE_MAX_BYTES);
	if (gn_image_sniff(data, len_bytes) != GN_IMAGE_JPEG)
		return gn_err_set(err, GN_ERR_DATA, "not a JPEG file");
	memset(&decoder, 0, sizeof decoder);
	trap_init(&trap);
	decoder.err = &trap.manager;
	failed = decode_all(&decoder, &trap, data, len_bytes);
	if (!failed)
		*out = (struct gn_image_info){(uint16_t)decoder.image_width, (uint16_t)decoder.image_height,
					      (uint8_t)decoder.num_components};
	jpeg_destroy_decompress(&decoder);
	return failed ? gn_err_set(err, GN_ERR_DATA, "bad JPEG: %s", trap.text) : GN_OK;
}

static int encode_all(struct jpeg_compress_struct *c, struct jpeg_trap *trap, const unsigned char *pixels,
		      const struct gn_image_info *info, int quality, unsigned char **jpeg, unsigned long *jpeg_bytes)
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
	jpeg_start_compress(c, TRUE);
	while (c->next_scanline < c->image_height) {
		JSAMPROW row = (JSAMPROW)(pixels + (size_t)c->next_scanline * info->width * info->components);

		jpeg_write_scanlines(c, &row, 1);
	}
	jpeg_finish_compress(c);
	return 0;
}

enum gn_status gn_image_encode_jpeg(const unsigned char *pixels, const struct gn_image_info *info, int quality,
				    unsigned char **jpeg, size_t *jpeg_bytes, struct gn_err *err)
{
	struct jpeg_compress_struct encoder;
	struct jpeg_trap trap;
	unsigned char *bytes = NULL;
	unsigned long len = 0;
	int failed;

	memset(&encoder, 0, sizeof encoder);
	trap_init(&trap);
	encoder.err = &trap.manager;
	failed = encode_all(&encoder, &trap, pixels, info, quality, &bytes, &len);
	jpeg_destroy_compress(&encoder);
	if (failed) {
		free(bytes);
		return gn_err_set(err, GN_ERR_FAILED, "cannot encode as JPEG: %s", trap.text);
	}
	*jpeg = bytes;
	*jpeg_bytes = len;
	return GN_OK;
}

/* The bit depth as the header chunk has it: libpng's simplified reader hides it. */
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

enum gn_status gn_image_png_to_jpeg(const void *data, size_t len_bytes, int quality, unsigned char **jpeg,
				    size_t *jpeg_bytes, struct gn_err *err)
{
	static const png_color white = {255, 255, 255};
	struct gn_image_info info;
	unsigned char *pixels = NULL;
	enum gn_status status;
	png_image image;

	memset(&image, 0, sizeof image);
	image.version = PNG_IMAGE_VERSION;
	if (!png_image_begin_read_from_memory(&image, data, len_bytes)) {
		png_image_free(&image);
		return gn_err_set(err, GN_ERR_DATA, "bad PNG: %s", image.message);
	}
	status = png_accept(&image, png_depth(data, len_bytes), err);
	if (status)
		goto done;
	image.format = image.format & PNG_FORMAT_FLAG_COLOR ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
	info = (struct gn_image_info){(uint16_t)image.width, (uint16_t)image.height,
				      (uint8_t)PNG_IMAGE_PIXEL_CHANNELS(image.format)};
	pixels = malloc(PNG_IMAGE_SIZE(image));
	if (!pixels)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %ux%u pixels", image.width, image.height);
	else if (!png_image_finish_read(&image, &white, pixels, 0, NULL))
		status = gn_err_set(err, GN_ERR_DATA, "bad PNG: %s", image.message);
	else
		status = gn_image_encode_jpeg(pixels, &info, quality, jpeg, jpeg_bytes, err);
done:
	png_image_free(&image);
	free(pixels);
	return status;
}
