#include "data/render.h"

#include "data/augment.h"
#include "data/resize.h"
#include "src/base/arena.h"
#include "src/base/vector.h"

#include <stdlib.h>

struct gn_renderer {
	const struct gn_dataset *dataset;
	const struct gn_loader_options *options;
	struct gn_decoder *decoder;
	struct gn_resizer *resizer;
	void *file;
	float *planes; /* with bytes: the sample before it is rounded */
	struct gn_resize_target target; /* all but what a view decides */
};

enum gn_status gn_renderer_create(const struct gn_dataset *dataset, const struct gn_loader_options *options,
				  struct gn_renderer **out, struct gn_err *err)
{
	struct gn_renderer *r = calloc(1, sizeof *r);
	enum gn_status status;

	if (!r)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a renderer");
	r->dataset = dataset;
	r->options = options;
	r->target.height = options->height;
	r->target.width = options->width;
	for (uint32_t c = 0; c < options->channels; c++) {
		r->target.scale[c] = options->bytes ? 1 : 1 / (255 * options->deviation[c]);
		r->target.bias[c] = options->bytes ? 0 : -options->mean[c] / options->deviation[c];
	}
	status = gn_decoder_create(&r->decoder, err);
	if (!status)
		status = gn_resizer_create(&r->resizer, err);
	if (!status) {
		r->file = malloc((size_t)gn_dataset_max_length(dataset) + 1);
		if (!r->file)
			status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a JPEG file of %u bytes",
					    gn_dataset_max_length(dataset));
	}
	if (!status && options->bytes) {
		r->planes = gn_alloc_aligned((size_t)options->channels * options->height * options->width * sizeof(float));
		if (!r->planes)
			status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a sample");
	}
	if (status)
		gn_renderer_destroy(r);
	else
		*out = r;
	return status;
}

void gn_renderer_destroy(struct gn_renderer *r)
{
	if (!r)
		return;
	gn_decoder_destroy(r->decoder);
	gn_resizer_destroy(r->resizer);
	free(r->planes);
	free(r->file);
	free(r);
}

/* What the view's box leaves free is black, and so is everything under a box that fills it all. */
static void fill_black(const struct gn_resize_target *t, const struct gn_view *v, uint32_t channels)
{
	size_t plane = (size_t)t->height * t->width;

	if (v->to_width == t->width && v->to_height == t->height)
		return;
	for (uint32_t c = 0; c < channels; c++)
		for (size_t i = 0; i < plane; i++)
			t->data[c * plane + i] = t->bias[c];
}

static enum gn_status draw(struct gn_renderer *r, uint32_t epoch, uint64_t index, const struct gn_sample *sample,
			   float *image, struct gn_err *err)
{
	uint32_t width, height, denominator, channels = r->options->channels;
	struct gn_resize_target t = r->target;
	struct gn_region region;
	struct gn_pixels pixels;
	enum gn_status status;
	struct gn_view v;
	double d;

	status = gn_decoder_open(r->decoder, r->file, sample->length_bytes, &width, &height, err);
	if (status)
		return status;
	if (width != sample->width || height != sample->height)
		return gn_err_set(err, GN_ERR_DATA, "the JPEG is %ux%u and the shard says %ux%u", width, height,
				  sample->width, sample->height);
	gn_view_draw(r->options, epoch, index, width, height, &v);
	t.data = image;
	fill_black(&t, &v, channels);
	if (!v.to_width || !v.to_height)
		return GN_OK;
	gn_view_decoding(&v, &denominator, &region);
	status = gn_decoder_read(r->decoder, &region, denominator, channels, &pixels, err);
	if (status)
		return status;
	t.to_x = v.to_x;
	t.to_y = v.to_y;
	t.to_width = v.to_width;
	t.to_height = v.to_height;
	t.flip = v.flip;
	d = denominator;
	return gn_resizer_run(r->resizer, &pixels, v.x / d - region.x, v.y / d - region.y, v.width / d, v.height / d,
			      &t, err);
}

/* Values are 0 to 255, but for what float adds. */
GN_VECTOR static void round_rgb(const float *restrict red, const float *restrict green, const float *restrict blue, size_t count,
				uint8_t *restrict out)
{
	for (size_t i = 0; i < count; i++) {
		out[3 * i] = (uint8_t)(int)(red[i] + 0.5f);
		out[3 * i + 1] = (uint8_t)(int)(green[i] + 0.5f);
		out[3 * i + 2] = (uint8_t)(int)(blue[i] + 0.5f);
	}
}

GN_VECTOR static void round_grey(const float *restrict grey, size_t count, uint8_t *restrict out)
{
	for (size_t i = 0; i < count; i++)
		out[i] = (uint8_t)(int)(grey[i] + 0.5f);
}

static void round_to_bytes(const struct gn_renderer *r, uint8_t *out)
{
	size_t plane = (size_t)r->target.height * r->target.width;

	if (r->options->channels == 3)
		round_rgb(r->planes, r->planes + plane, r->planes + 2 * plane, plane, out);
	else
		round_grey(r->planes, plane, out);
}

enum gn_status gn_renderer_run(struct gn_renderer *r, uint32_t epoch, uint64_t index, void *image, int32_t *label,
			       struct gn_err *err)
{
	enum gn_status status = gn_dataset_read(r->dataset, index, r->file, err);
	struct gn_sample sample;
	char name[256];

	if (status)
		return status;
	gn_dataset_sample(r->dataset, index, &sample);
	status = draw(r, epoch, index, &sample, r->planes ? r->planes : image, err);
	if (status) {
		gn_dataset_sample_name(r->dataset, index, name, sizeof name);
		gn_err_prefix(err, "%s, shard %u, sample %u (%s)", gn_dataset_directory(r->dataset), sample.shard,
			      sample.row, name);
		return status;
	}
	if (r->planes)
		round_to_bytes(r, image);
	*label = (int32_t)sample.label;
	return GN_OK;
}
