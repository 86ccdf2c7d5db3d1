/* Layer norm over the channels of each pixel, in any layout. Gradients of parameters are sums over parts of fixed size, added in
 * double in fixed order. */
#include "kernels/host/host.h"
#include "kernels/host/layer.h"

#define PART_PIXELS 256

struct layer_norm {
	struct gn_op base;
	struct gn_layer_rows rows; /* of a part: pixels vary */
	size_t map, parts, width, image_stride;
	float *sums; /* scratch: [images * parts][2][width] */
};

static struct layer_norm *self(struct gn_op *op)
{
	return (struct layer_norm *)op;
}

static enum gn_status bind(struct gn_op *op, struct gn_err *err)
{
	(void)err;
	self(op)->rows.weight = op->buffers.weight;
	self(op)->rows.bias = op->buffers.bias;
	self(op)->sums = op->buffers.scratch;
	return GN_OK;
}

static struct gn_layer_rows rows_of(const struct layer_norm *n, size_t part, size_t *at)
{
	struct gn_layer_rows r = n->rows;
	size_t begin = part % n->parts * PART_PIXELS, left = n->map - begin;

	r.pixels = left < PART_PIXELS ? left : PART_PIXELS;
	*at = (part / n->parts * n->image_stride + begin * r.stride) * (size_t)n->base.info.out.element_bytes;
	return r;
}

static enum gn_status forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	const struct layer_norm *n = self(op);
	const struct gn_layer_loops *loops = gn_layer_loops();
	size_t count = (size_t)op->desc.in[0].n * n->parts;

	(void)step;
	(void)err;
#pragma omp parallel for schedule(static)
	for (size_t part = 0; part < count; part++) {
		float buffer[GN_LAYER_TILE * GN_LAYER_CHANNELS_MAX];
		size_t at;
		struct gn_layer_rows r = rows_of(n, part, &at);

		loops->norm(&r, (const char *)op->buffers.in[0] + at, (char *)op->buffers.out + at, buffer);
	}
	return GN_OK;
}

static void add_parts(const struct layer_norm *n, size_t count)
{
	for (int c = 0; c < n->rows.channels; c++) {
		double weight = 0, bias = 0;

		for (size_t part = 0; part < count; part++) {
			weight += n->sums[2 * part * n->width + c];
			bias += n->sums[(2 * part + 1) * n->width + c];
		}
		n->base.buffers.dweight[c] = (float)weight;
		n->base.buffers.dbias[c] = (float)bias;
	}
}

static enum gn_status backward(struct gn_op *op, struct gn_err *err)
{
	const struct layer_norm *n = self(op);
	const struct gn_layer_loops *loops = gn_layer_loops();
	size_t count = (size_t)op->desc.in[0].n * n->parts;

	(void)err;
#pragma omp parallel for schedule(static)
	for (size_t part = 0; part < count; part++) {
		float buffer[2 * GN_LAYER_TILE * GN_LAYER_CHANNELS_MAX], *sums = n->sums + 2 * part * n->width;
		size_t at;
		struct gn_layer_rows r = rows_of(n, part, &at);

		for (size_t k = 0; k < 2 * n->width; k++)
			sums[k] = 0;
		loops->norm_gradient(&r, (const char *)op->buffers.in[0] + at, (const char *)op->buffers.dout + at,
				     (char *)op->buffers.din[0] + at, sums, sums + n->width, buffer);
	}
	add_parts(n, count);
	return GN_OK;
}

static void describe(struct layer_norm *n)
{
	const struct gn_layout *in = &n->base.info.in[0];
	struct gn_layer_rows *r = &n->rows;

	n->map = (size_t)in->h * in->w;
	n->parts = (n->map + PART_PIXELS - 1) / PART_PIXELS;
	n->image_stride = gn_layout_elements(in) / (size_t)in->n;
	r->lanes = in->block ? in->block : in->c;
	r->stride = in->block ? (size_t)in->block : (size_t)in->c;
	r->group_stride = in->block ? n->map * in->block : (size_t)in->c;
	r->channels = in->c;
	r->is_bf16 = gn_layout_is_bf16(in);
	r->eps = n->base.desc.eps;
	n->width = ((size_t)in->c + r->lanes - 1) / r->lanes * r->lanes;
	n->base.info.scratch_bytes = 2 * (size_t)in->n * n->parts * n->width * sizeof(float);
	n->base.info.backward_reads_in = 1;
	n->base.info.in_place = 1;
}

enum gn_status gn_host_layer_norm_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	static const struct gn_op_class class = {.bind = bind, .forward = forward, .backward = backward};
	struct gn_op *op;

	if (base->desc.in[0].c > GN_LAYER_CHANNELS_MAX - 16)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "layer norm of %d channels: at most %d", base->desc.in[0].c,
				  GN_LAYER_CHANNELS_MAX - 16);
	op = gn_op_alloc(sizeof(struct layer_norm), &class, base, err);
	if (!op)
		return GN_ERR_NO_MEMORY;
	describe(self(op));
	*out = op;
	return GN_OK;
}
