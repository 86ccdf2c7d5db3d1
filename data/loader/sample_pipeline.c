#include "data/loader/sample_pipeline.h"

#include "data/sample/augment.h"
#include "data/sample/balance.h"
#include "data/sample/resize.h"
#include "src/base/alloc.h"
#include "src/base/vector.h"

#include <stdlib.h>
#include <string.h>

struct gn_sample_pipeline {
	const struct gn_dataset *dataset;
	const struct gn_loader_options *options;
	struct gn_decoder *decoder;
	struct gn_resizer *resizer;
	void *file;
	float *planes; /* with crops: buffer for samples that are resized on the host */
	struct gn_resize_target target; /* without the rectangle, which depends on the crop parameters */
};

enum gn_status gn_sample_pipeline_create(const struct gn_dataset *dataset, const struct gn_loader_options *options,
				  struct gn_sample_pipeline **out, struct gn_err *err)
{
	struct gn_sample_pipeline *r = calloc(1, sizeof *r);
	enum gn_status status;

	if (!r)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a sample pipeline");
	r->dataset = dataset;
	r->options = options;
	r->target.height = options->height;
	r->target.width = options->width;
	for (uint32_t c = 0; c < options->channels; c++) {
		r->target.scale[c] = options->crops ? 1 : 1 / (255 * options->deviation[c]);
		r->target.bias[c] = options->crops ? 0 : -options->mean[c] / options->deviation[c];
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
	if (!status && options->crops) {
		r->planes = gn_alloc_aligned((size_t)options->channels * options->height * options->width * sizeof(float));
		if (!r->planes)
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
	/* evaluation uses all pixels, as torchvision does; training uses libjpeg's scaled decoding */
	gn_crop_params_decoding(&out->crop, r->options->training ? 8 : 1, &out->denominator, &out->region);
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

/* Values are in 0..255, up to rounding. */
GN_VECTOR static void round_rgb(const float *restrict red, const float *restrict green, const float *restrict blue, size_t count,
				uint8_t *restrict out)
{
	for (size_t i = 0; i < count; i++) {
		out[3 * i] = (uint8_t)(int)(red[i] + 0.5f);
		out[3 * i + 1] = (uint8_t)(int)(green[i] + 0.5f);
		out[3 * i + 2] = (uint8_t)(int)(blue[i] + 0.5f);
	}
}

/* Passes the finished sample as a crop, for one that exceeds the space of a crop. */
static enum gn_status shrink(struct gn_sample_pipeline *r, const struct drawn *d, uint8_t *pixels, struct gn_crop *out,
			     struct gn_err *err)
{
	uint32_t height = r->target.height, width = r->target.width;
	size_t plane = (size_t)height * width;
	enum gn_status status = resize(r, d, r->planes, err);

	if (status)
		return status;
	round_rgb(r->planes, r->planes + plane, r->planes + 2 * plane, plane, pixels);
	*out = (struct gn_crop){pixels, width, height, 0, 0, width, height, 0, 0, width, height, 0};
	return GN_OK;
}

static enum gn_status cut(struct gn_sample_pipeline *r, const struct drawn *d, uint8_t *pixels, struct gn_crop *out,
			  struct gn_err *err)
{
	struct gn_crop p = crop_of(d);
	size_t row = (size_t)p.width * 3;

	if (gn_crop_bytes(&p) > gn_loader_sample_bytes(r->options))
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
	enum gn_status status = gn_dataset_read(r->dataset, stored, r->file, err);
	struct gn_sample sample;
	struct drawn d = {.denominator = 1};
	char name[256];

	if (status)
		return status;
	gn_dataset_sample(r->dataset, stored, &sample);
	status = draw(r, r->file, epoch, index, &sample, &d, err);
	if (!status)
		status = r->options->crops ? cut(r, &d, image, crop, err) : resize(r, &d, image, err);
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
