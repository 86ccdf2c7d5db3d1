#include "data/sample/decode.h"

#include "data/sample/jpeg_trap_internal.h"

#include <stdlib.h>

enum { slack_bytes = 16 };

struct gn_decoder {
	struct jpeg_decompress_struct jpeg;
	struct gn_jpeg_trap trap;
	uint8_t *buffer;
	size_t buffer_bytes;
	const void *input;
	size_t input_bytes;
	int opened;
	/* state of the read in progress */
	struct gn_region region;
	uint32_t column; /* column of the scaled image where buffer starts */
	int no_memory;
};

/* The only place that libjpeg longjmps to. step keeps all its state in *d, so that no local variable is clobbered. */
static int guarded(struct gn_decoder *d, void (*step)(struct gn_decoder *d))
{
	if (setjmp(d->trap.back))
		return -1;
	step(d);
	return 0;
}

static void step_create(struct gn_decoder *d)
{
	jpeg_create_decompress(&d->jpeg);
	gn_jpeg_trap_limit(&d->trap, &d->jpeg);
}

enum gn_status gn_decoder_create(struct gn_decoder **out, struct gn_err *err)
{
	struct gn_decoder *d = calloc(1, sizeof *d);

	if (!d)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a JPEG decoder");
	gn_jpeg_trap_init(&d->trap);
	d->jpeg.err = &d->trap.manager;
	if (guarded(d, step_create)) {
		enum gn_status status = gn_err_set(err, GN_ERR_FAILED, "libjpeg: %s", d->trap.text);

		gn_decoder_destroy(d);
		return status;
	}
	*out = d;
	return GN_OK;
}

void gn_decoder_destroy(struct gn_decoder *d)
{
	if (!d)
		return;
	if (d->jpeg.mem)
		jpeg_destroy_decompress(&d->jpeg);
	free(d->buffer);
	free(d);
}

static void step_open(struct gn_decoder *d)
{
	jpeg_mem_src(&d->jpeg, d->input, d->input_bytes);
	jpeg_read_header(&d->jpeg, TRUE);
}

enum gn_status gn_decoder_open(struct gn_decoder *d, const void *jpeg, size_t len_bytes, uint32_t *width,
			       uint32_t *height, struct gn_err *err)
{
	jpeg_abort_decompress(&d->jpeg);
	d->opened = 0;
	if (!len_bytes)
		return gn_err_set(err, GN_ERR_DATA, "not a JPEG file: it is empty");
	d->input = jpeg;
	d->input_bytes = len_bytes;
	if (guarded(d, step_open))
		return gn_err_set(err, GN_ERR_DATA, "not a good JPEG file: %s", d->trap.text);
	if ((uint64_t)d->jpeg.image_width * d->jpeg.image_height > gn_decode_max_pixels)
		return gn_err_set(err, GN_ERR_DATA, "JPEG of %ux%u pixels: more than %d are refused",
				  d->jpeg.image_width, d->jpeg.image_height, gn_decode_max_pixels);
	if (d->jpeg.jpeg_color_space != JCS_GRAYSCALE && d->jpeg.jpeg_color_space != JCS_YCbCr &&
	    d->jpeg.jpeg_color_space != JCS_RGB)
		return gn_err_set(err, GN_ERR_DATA, "JPEG that is neither grey nor RGB (%d components; CMYK?)",
				  d->jpeg.num_components);
	d->opened = 1;
	*width = d->jpeg.image_width;
	*height = d->jpeg.image_height;
	return GN_OK;
}

/* Whether the sampling factors are the common ones: luma 1x1, 1x2, 2x1 or 2x2 with chroma 1x1. libjpeg's column cropping is well
 * tested for these; other files are decoded in whole rows. */
static int sampling_common(const struct jpeg_decompress_struct *jpeg)
{
	if (jpeg->comp_info[0].h_samp_factor > 2 || jpeg->comp_info[0].v_samp_factor > 2)
		return 0;
	for (int i = 1; i < jpeg->num_components; i++)
		if (jpeg->comp_info[i].h_samp_factor != 1 || jpeg->comp_info[i].v_samp_factor != 1)
			return 0;
	return 1;
}

/* Columns to decode. Fancy upsampling interpolates chroma from neighbours and treats the first and last decoded column as the
 * border of the image: both must lie outside the region. */
static void crop_columns(struct gn_decoder *d)
{
	enum { border = 4 };
	JDIMENSION whole = d->jpeg.output_width;
	JDIMENSION left = d->region.x > border ? d->region.x - border : 0;
	JDIMENSION right = whole - left;

	if (d->region.x + d->region.width + border < whole)
		right = d->region.x + d->region.width + border - left;
	d->column = 0;
	if (right == whole || !sampling_common(&d->jpeg))
		return;
	jpeg_crop_scanline(&d->jpeg, &left, &right);
	d->column = left;
}

static int reserve(struct gn_decoder *d, size_t bytes)
{
	if (d->buffer_bytes >= bytes)
		return 0;
	free(d->buffer);
	d->buffer = malloc(bytes);
	d->buffer_bytes = d->buffer ? bytes : 0;
	return d->buffer ? 0 : -1;
}

static void step_read(struct gn_decoder *d)
{
	struct jpeg_decompress_struct *jpeg = &d->jpeg;
	size_t stride;

	jpeg_start_decompress(jpeg);
	crop_columns(d);
	stride = (size_t)jpeg->output_width * (size_t)jpeg->output_components;
	d->no_memory = reserve(d, stride * d->region.height + slack_bytes);
	if (d->no_memory)
		return;
	if (d->region.y)
		jpeg_skip_scanlines(jpeg, d->region.y);
	for (uint32_t row = 0; row < d->region.height;) {
		JSAMPROW rows[8];
		JDIMENSION wanted = 0;

		for (; wanted < 8 && row + wanted < d->region.height; wanted++)
			rows[wanted] = d->buffer + (row + wanted) * stride;
		row += jpeg_read_scanlines(jpeg, rows, wanted);
	}
}

static enum gn_status check_request(const struct gn_decoder *d, const struct gn_region *region, uint32_t denominator,
				    uint32_t channels, struct gn_err *err)
{
	uint32_t width, height;

	if (!d->opened)
		return gn_err_set(err, GN_ERR_USAGE, "no JPEG file is open in this decoder");
	if (denominator != 1 && denominator != 2 && denominator != 4 && denominator != 8)
		return gn_err_set(err, GN_ERR_USAGE, "decoding at 1/%u: only 1, 1/2, 1/4 and 1/8 are supported",
				  denominator);
	if (channels != 1 && channels != 3)
		return gn_err_set(err, GN_ERR_USAGE, "decoding to %u channels: only 1 and 3 are supported", channels);
	width = (d->jpeg.image_width + denominator - 1) / denominator;
	height = (d->jpeg.image_height + denominator - 1) / denominator;
	if (!region->width || !region->height || region->x >= width || region->width > width - region->x ||
	    region->y >= height || region->height > height - region->y)
		return gn_err_set(err, GN_ERR_USAGE, "region %ux%u at %u,%u is not inside an image of %ux%u",
				  region->width, region->height, region->x, region->y, width, height);
	return GN_OK;
}

enum gn_status gn_decoder_read(struct gn_decoder *d, const struct gn_region *region, uint32_t denominator,
			       uint32_t channels, struct gn_pixels *out, struct gn_err *err)
{
	enum gn_status status = check_request(d, region, denominator, channels, err);

	if (status)
		return status;
	d->jpeg.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
	d->jpeg.scale_num = 1;
	d->jpeg.scale_denom = denominator;
	d->jpeg.dct_method = JDCT_ISLOW;
	d->jpeg.do_fancy_upsampling = TRUE;
	d->jpeg.do_block_smoothing = FALSE;
	d->region = *region;
	d->opened = 0;
	if (guarded(d, step_read))
		return gn_err_set(err, GN_ERR_DATA, "not a good JPEG file: %s", d->trap.text);
	if (d->no_memory)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to decode %ux%u pixels", region->width,
				  region->height);
	out->stride_bytes = (size_t)d->jpeg.output_width * channels;
	out->data = d->buffer + (size_t)(region->x - d->column) * channels;
	out->width = region->width;
	out->height = region->height;
	out->channels = channels;
	return GN_OK;
}
