/* Scaling of whole maps: by a second input, by a weight per channel, or by a random factor per image. Sums over a map are made of
 * parts of fixed size, in double. */
#include "kernels/host/host.h"
#include "kernels/host/layer.h"

#include <string.h>

/* pixels per part: the float sums of a part are exact enough */
#define PART_PIXELS 256
enum { LANES = 16 };

struct scale {
	struct gn_op base;
	int lanes;
	size_t groups, map, width; /* width: channels, padded to whole groups */
	size_t pixel_stride, group_stride, image_stride; /* elements */
	float *factors; /* workspace: [images][width] */
	double *sums;	/* scratch: the same of dy * x */
};

static struct scale *self(struct gn_op *op)
{
	return (struct scale *)op;
}

static enum gn_status bind(struct gn_op *op, struct gn_err *err)
{
	(void)err;
	self(op)->factors = op->buffers.workspace;
	self(op)->sums = op->buffers.scratch;
	return GN_OK;
}

static void set_factors(struct scale *s, uint64_t step)
{
	const struct gn_op_desc *d = &s->base.desc;
	const float *given = d->kind == GN_OP_SCALE ? s->base.buffers.in[1] : s->base.buffers.weight;
	float *images = s->factors + (size_t)d->in[0].n * s->width;

	if (d->kind == GN_OP_DROP_PATH)
		gn_drop_path_factors(d, step, images);
	for (int n = 0; n < d->in[0].n; n++)
		for (int c = 0; c < d->in[0].c; c++)
			s->factors[n * s->width + c] = d->kind == GN_OP_DROP_PATH ? images[n] :
						       d->kind == GN_OP_SCALE ? given[(size_t)n * d->in[0].c + c] : given[c];
}

/* A map's part from pixel `from` on; *at is where it begins. */
static struct gn_layer_piece piece_of(const struct scale *s, size_t image, size_t group, size_t from, size_t *at)
{
	size_t left = s->map - from;

	*at = (image * s->image_stride + group * s->group_stride + from * s->pixel_stride) * (size_t)s->base.info.out.element_bytes;
	return (struct gn_layer_piece){left < PART_PIXELS ? left : PART_PIXELS, s->pixel_stride, s->lanes,
				       gn_layout_is_bf16(&s->base.info.out)};
}

static void scale_map(const struct scale *s, size_t n, size_t g, const void *x, void *y)
{
	for (size_t from = 0; from < s->map; from += PART_PIXELS) {
		size_t at;
		struct gn_layer_piece p = piece_of(s, n, g, from, &at);

		gn_layer_loops()->scale(&p, (const char *)x + at, s->factors + n * s->width + g * s->lanes, (char *)y + at);
	}
}

static enum gn_status forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	struct scale *s = self(op);
	size_t images = (size_t)op->desc.in[0].n;

	(void)err;
	set_factors(s, step);
#pragma omp parallel for collapse(2) schedule(static)
	for (size_t n = 0; n < images; n++)
		for (size_t g = 0; g < s->groups; g++)
			scale_map(s, n, g, op->buffers.in[0], op->buffers.out);
	return GN_OK;
}

static void map_gradient(struct scale *s, size_t n, size_t g)
{
	const struct gn_layer_loops *loops = gn_layer_loops();
	const struct gn_op_buffers *b = &s->base.buffers;
	double *sums = s->sums + n * s->width + g * s->lanes;

	memset(sums, 0, s->lanes * sizeof *sums);
	for (size_t from = 0; from < s->map; from += PART_PIXELS) {
		float some[LANES];
		size_t at;
		struct gn_layer_piece p = piece_of(s, n, g, from, &at);

		loops->scale_gradient(&p, (const char *)b->in[0] + at, s->factors + n * s->width + g * s->lanes,
				      (const char *)b->dout + at, (char *)b->din[0] + at, some);
		for (int k = 0; k < s->lanes; k++)
			sums[k] += some[k];
	}
}

/* The gradient of a second input, or of the weight. */
static void store_sums(const struct scale *s)
{
	const struct gn_op_desc *d = &s->base.desc;
	float *din = s->base.buffers.din[1], *dweight = s->base.buffers.dweight;

	for (int c = 0; c < d->in[0].c; c++) {
		double sum = 0;

		for (int n = 0; n < d->in[0].n; n++) {
			sum += s->sums[n * s->width + c];
			if (d->kind == GN_OP_SCALE)
				din[(size_t)n * d->in[0].c + c] = (float)s->sums[n * s->width + c];
		}
		if (d->kind == GN_OP_CHANNEL_SCALE)
			dweight[c] = (float)sum;
	}
}

static enum gn_status backward(struct gn_op *op, struct gn_err *err)
{
	struct scale *s = self(op);
	int has_sums = op->desc.kind != GN_OP_DROP_PATH;
	size_t images = (size_t)op->desc.in[0].n;

	(void)err;
#pragma omp parallel for collapse(2) schedule(static)
	for (size_t n = 0; n < images; n++)
		for (size_t g = 0; g < s->groups; g++) {
			if (has_sums)
				map_gradient(s, n, g);
			else
				scale_map(s, n, g, op->buffers.dout, op->buffers.din[0]);
		}
	if (has_sums)
		store_sums(s);
	return GN_OK;
}

static void describe(struct scale *s)
{
	struct gn_layout *in = &s->base.info.in[0];
	struct gn_op_info *info = &s->base.info;
	size_t images;

	if (in->block == 0 && in->c % LANES)
		in->block = info->out.block = 1;
	images = (size_t)in->n;
	s->lanes = in->block == 0 ? LANES : in->block;
	s->map = (size_t)in->h * in->w;
	s->groups = ((size_t)in->c + s->lanes - 1) / s->lanes;
	s->width = s->groups * s->lanes;
	s->pixel_stride = in->block ? (size_t)in->block : (size_t)in->c;
	s->group_stride = in->block ? s->map * in->block : LANES;
	s->image_stride = gn_layout_elements(in) / images;
	info->workspace_bytes = images * (s->width + 1) * sizeof(float);
	info->scratch_bytes = s->base.desc.kind == GN_OP_DROP_PATH ? 0 : images * s->width * sizeof(double);
	info->in[1].block = 1;
	info->in[1].element_bytes = sizeof(float);
	info->backward_reads_in = s->base.desc.kind != GN_OP_DROP_PATH;
	info->in_place = 1;
}

enum gn_status gn_host_scale_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	static const struct gn_op_class class = {.bind = bind, .forward = forward, .backward = backward};
	struct gn_op *op = gn_op_alloc(sizeof(struct scale), &class, base, err);

	if (!op)
		return GN_ERR_NO_MEMORY;
	describe(self(op));
	*out = op;
	return GN_OK;
}
