#include "data/loader/sample_pipeline.h"

#include "data/sample/augment.h"
#include "data/sample/auto_augment.h"
#include "data/sample/order.h"
#include "data/sample/resize.h"
#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/vector.h"

#include <stdlib.h>
#include <string.h>

struct gn_sample_pipeline {
	const struct gn_dataset *dataset;
	const struct gn_loader_options *options;
	struct gn_decoder *decoder;
	struct gn_resizer *resizer;
	void *file;
	float *planes;	/* with bytes, crops or auto-augmentation: buffer for samples that are resized on the host, in 0..255 */
	uint8_t *bytes; /* with auto-augmentation: two samples of 8 bits, as a bitmap has them */
	struct gn_resize_target target; /* without the rectangle, which depends on the crop parameters */
	float scale[3], bias[3];	/* of normalisation */
	uint64_t read_ns;
};

enum gn_status gn_sample_pipeline_create(const struct gn_dataset *dataset, const struct gn_loader_options *options,
				  struct gn_sample_pipeline **out, struct gn_err *err)
{
	const int is_bytes = options->crops || options->type == GN_SAMPLE_U8 || gn_auto_augment_is_on(&options->auto_augment);
	const size_t values = (size_t)options->channels * options->height * options->width;
	struct gn_sample_pipeline *r = calloc(1, sizeof *r);
	enum gn_status status;

	if (!r)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a sample pipeline");
	r->dataset = dataset;
	r->options = options;
	r->target.height = options->height;
	r->target.interpolation = options->interpolation;
	r->target.width = options->width;
	for (uint32_t c = 0; c < options->channels; c++) {
		r->scale[c] = 1 / (255 * options->deviation[c]);
		r->bias[c] = -options->mean[c] / options->deviation[c];
		r->target.scale[c] = is_bytes ? 1 : r->scale[c];
		r->target.bias[c] = is_bytes ? 0 : r->bias[c];
	}
	status = gn_decoder_create(&r->decoder, err);
	if (!status)
		status = gn_resizer_create(&r->resizer, err);
	if (!status && dataset) {
		r->file = malloc((size_t)gn_dataset_max_length(dataset) + 1);
		if (!r->file)
			status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a JPEG file of %u bytes",
					    gn_dataset_max_length(dataset));
	}
	if (!status && is_bytes) {
		r->planes = gn_alloc_aligned(values * sizeof(float));
		r->bytes = gn_auto_augment_is_on(&options->auto_augment) ? malloc(2 * values) : NULL;
		if (!r->planes || (gn_auto_augment_is_on(&options->auto_augment) && !r->bytes))
			status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a sample");
	}
	if (status)
		gn_sample_pipeline_destroy(r);
	else
		*out = r;
	return status;
}

void gn_sample_pipeline_destroy(struct gn_sample_pipeline *r)
{
	if (!r)
		return;
	gn_decoder_destroy(r->decoder);
	gn_resizer_destroy(r->resizer);
	free(r->planes);
	free(r->bytes);
	free(r->file);
	free(r);
}

/* Fills what the rectangle does not cover with black. */
static void fill_black(const struct gn_resize_target *t, const struct gn_crop_params *v, uint32_t channels)
{
	size_t plane = (size_t)t->height * t->width;

	if (v->to_width == t->width && v->to_height == t->height)
		return;
	for (uint32_t c = 0; c < channels; c++)
		for (size_t i = 0; i < plane; i++)
			t->data[c * plane + i] = t->bias[c];
}

/* The crop parameters of a sample and the decoded pixels for them. */
struct drawn {
	struct gn_crop_params crop;
	struct gn_pixels pixels; /* the region of the scaled image; empty if the rectangle is empty */
	struct gn_region region;
	uint32_t denominator;
};

/* sample: the file's length, and its sides, 0 if they are not known. */
static enum gn_status draw(struct gn_sample_pipeline *r, const void *file, uint32_t epoch, uint64_t index,
			   const struct gn_sample *sample, struct drawn *out, struct gn_err *err)
{
	uint32_t width, height;
	enum gn_status status = gn_decoder_open(r->decoder, file, sample->length_bytes, &width, &height, err);

	if (status)
		return status;
	if (sample->width && (width != sample->width || height != sample->height))
		return gn_err_set(err, GN_ERR_DATA, "the JPEG is %ux%u and the shard says %ux%u", width, height,
				  sample->width, sample->height);
	gn_crop_params_draw(r->options, epoch, index, width, height, &out->crop);
	if (!out->crop.to_width || !out->crop.to_height)
		return GN_OK;
	/* evaluation, and training without augmentation, use all pixels, as torchvision does; else libjpeg's scaled decoding */
	gn_crop_params_decoding(&out->crop, r->options->training && r->options->augment != GN_AUGMENT_NONE ? 8 : 1, &out->denominator,
				&out->region);
	return gn_decoder_read(r->decoder, &out->region, out->denominator, r->options->channels, &out->pixels, err);
}

/* Converts the box from pixels of the image to pixels of the decoded region. */
static struct gn_crop crop_of(const struct drawn *d)
{
	const struct gn_crop_params *v = &d->crop;
	double scale = d->denominator;

	if (!v->to_width || !v->to_height)
		return (struct gn_crop){0};
	return (struct gn_crop){d->pixels.data, d->pixels.width, d->pixels.height,
				 v->x / scale - d->region.x, v->y / scale - d->region.y, v->width / scale, v->height / scale,
				 v->to_x, v->to_y, v->to_width, v->to_height, v->flip};
}

static enum gn_status resize(struct gn_sample_pipeline *r, const struct drawn *d, float *image, struct gn_err *err)
{
	struct gn_resize_target t = r->target;
	struct gn_crop p = crop_of(d);

	t.data = image;
	fill_black(&t, &d->crop, r->options->channels);
	if (!p.width)
		return GN_OK;
	t.to_x = p.to_x;
	t.to_y = p.to_y;
	t.to_width = p.to_width;
	t.to_height = p.to_height;
	t.flip = p.flip;
	return gn_resizer_run(r->resizer, &d->pixels, p.x, p.y, p.from_width, p.from_height, &t, err);
}

/* Bicubic values may lie outside 0..255. Limited as integers: comparisons of floats keep GCC from vector instructions. */
static inline uint8_t rounded(float v)
{
	const int level = (int)(v + 0.5f);

	return (uint8_t)(level < 0 ? 0 : level > 255 ? 255 : level);
}

GN_VECTOR static void round_grey(const float *restrict grey, size_t count, uint8_t *restrict out)
{
	for (size_t i = 0; i < count; i++)
		out[i] = rounded(grey[i]);
}

GN_VECTOR static void round_rgb(const float *restrict red, const float *restrict green, const float *restrict blue, size_t count,
				uint8_t *restrict out)
{
	for (size_t i = 0; i < count; i++) {
		out[3 * i] = rounded(red[i]);
		out[3 * i + 1] = rounded(green[i]);
		out[3 * i + 2] = rounded(blue[i]);
	}
}

/* The sample in r->planes as 8 bits. */
static void round_planes(const struct gn_sample_pipeline *r, int channels_last, uint8_t *out)
{
	const size_t plane = (size_t)r->target.height * r->target.width;

	if (channels_last && r->options->channels == 3)
		round_rgb(r->planes, r->planes + plane, r->planes + 2 * plane, plane, out);
	else
		round_grey(r->planes, r->options->channels * plane, out);
}

/* A finished sample as a crop. */
static struct gn_crop whole_crop(const struct gn_loader_options *o, const uint8_t *pixels)
{
	return (struct gn_crop){pixels, o->width, o->height, 0, 0, o->width, o->height, 0, 0, o->width, o->height, 0};
}

/* Passes the finished sample as a crop, for one that exceeds the space of a crop. */
static enum gn_status shrink(struct gn_sample_pipeline *r, const struct drawn *d, uint8_t *pixels, struct gn_crop *out,
			     struct gn_err *err)
{
	enum gn_status status = resize(r, d, r->planes, err);

	if (status)
		return status;
	round_planes(r, 1, pixels);
	*out = whole_crop(r->options, pixels);
	return GN_OK;
}

/* Resizes, augments as 8 bits, and normalises. */
static enum gn_status augment(struct gn_sample_pipeline *r, const struct drawn *d, uint32_t epoch, uint64_t index, void *image,
			      struct gn_crop *crop, struct gn_err *err)
{
	const struct gn_loader_options *o = r->options;
	const size_t plane = (size_t)o->height * o->width;
	struct gn_bitmap b = {r->bytes, r->bytes + plane * o->channels, o->width, o->height, o->channels};
	enum gn_status status = resize(r, d, r->planes, err);

	if (status)
		return status;
	round_planes(r, 1, b.pixels);
	gn_auto_augment_apply(&o->auto_augment, o->seed, epoch, index, &b);
	if (o->crops) {
		memcpy(image, b.pixels, 3 * plane);
		*crop = whole_crop(o, image);
		return GN_OK;
	}
	for (uint32_t c = 0; c < o->channels && o->type != GN_SAMPLE_U8; c++)
		for (size_t i = 0; i < plane; i++)
			((float *)image)[c * plane + i] = b.pixels[i * o->channels + c] * r->scale[c] + r->bias[c];
	for (uint32_t c = 0; c < o->channels && o->type == GN_SAMPLE_U8; c++)
		for (size_t i = 0; i < plane; i++)
			((uint8_t *)image)[o->channels_last ? i * o->channels + c : c * plane + i] = b.pixels[i * o->channels + c];
	return GN_OK;
}

static enum gn_status cut(struct gn_sample_pipeline *r, const struct drawn *d, uint8_t *pixels, struct gn_crop *out,
			  struct gn_err *err)
{
	struct gn_crop p = crop_of(d);
	size_t row = (size_t)p.width * 3;

	/* a GPU's filter is bilinear */
	if (r->options->interpolation != GN_BILINEAR || gn_crop_bytes(&p) > gn_loader_sample_bytes(r->options))
		return shrink(r, d, pixels, out, err);
	for (uint32_t y = 0; y < p.height; y++)
		memcpy(pixels + y * row, d->pixels.data + y * d->pixels.stride_bytes, row);
	p.pixels = pixels;
	*out = p;
	return GN_OK;
}

enum gn_status gn_sample_pipeline_run(struct gn_sample_pipeline *r, uint32_t epoch, uint64_t index, void *image,
				      struct gn_crop *crop, int32_t *label, struct gn_err *err)
{
	/* of which augmentation is drawn by index */
	const uint64_t stored = r->options->balance ? gn_balance_sample(r->options->balance, epoch, index) : index;
	const uint64_t began_ns = gn_clock_ns();
	enum gn_status status = gn_dataset_read(r->dataset, stored, r->file, err);
	struct gn_sample sample;
	struct drawn d = {.denominator = 1};
	char name[256];

	r->read_ns += gn_clock_ns() - began_ns;
	if (status)
		return status;
	gn_dataset_sample(r->dataset, stored, &sample);
	status = draw(r, r->file, epoch, index, &sample, &d, err);
	if (!status)
		status = r->bytes ? augment(r, &d, epoch, index, image, crop, err) :
			 r->options->crops ? cut(r, &d, image, crop, err) :
			 resize(r, &d, r->planes ? r->planes : image, err);
	if (!status && r->planes && !r->bytes && !r->options->crops)
		round_planes(r, r->options->channels_last, image);
	if (!status && r->options->erasing > 0)
		gn_random_erase(r->options->erasing, r->options->seed, epoch, index, r->options->channels, r->options->height,
				r->options->width, image);
	if (status) {
		gn_dataset_sample_name(r->dataset, stored, name, sizeof name);
		gn_err_prefix(err, "%s, shard %u, sample %u (%s)", gn_dataset_directory(r->dataset), sample.shard,
			      sample.row, name);
		return status;
	}
	*label = (int32_t)sample.label;
	return GN_OK;
}

enum gn_status gn_sample_pipeline_run_jpeg(struct gn_sample_pipeline *r, const void *jpeg, size_t len_bytes, float *image, struct gn_err *err)
{
	const struct gn_sample sample = {.length_bytes = (uint32_t)len_bytes};
	struct drawn d = {.denominator = 1};
	enum gn_status status = draw(r, jpeg, 0, 0, &sample, &d, err);

	return status ? status : resize(r, &d, image, err);
}

uint64_t gn_sample_pipeline_read_ns(const struct gn_sample_pipeline *r)
{
	return r->read_ns;
}
