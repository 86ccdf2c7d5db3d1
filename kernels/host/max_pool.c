/* Max pooling in any layout. oneDNN's drops NaN. */
#include "kernels/host/host.h"
#include "kernels/host/layer.h"

/* Adjacent channels of an image: those of a block, or at most 16 of a pixel. */
enum { LANES_MAX = 16 };

struct maps {
	size_t count;
	struct gn_layer_pool pool;
};

static struct maps maps_of(const struct gn_op *op)
{
	const struct gn_op_desc *d = &op->desc;
	const struct gn_layout *in = &op->info.in[0], *out = &op->info.out;
	int lanes = in->block ? in->block : LANES_MAX;
	size_t blocks = ((size_t)in->c + lanes - 1) / lanes;

	return (struct maps){(size_t)in->n * blocks,
			     {in->h, in->w, out->h, out->w, d->kernel, d->stride, d->pad, lanes, gn_layout_is_bf16(in),
			      in->block ? (size_t)lanes : (size_t)in->c}};
}

/* The first element of map i of a tensor of so many pixels an image; *pool gets its lanes. */
static size_t first_of(const struct gn_layout *in, size_t i, size_t pixels, struct gn_layer_pool *pool)
{
	size_t blocks = ((size_t)in->c + LANES_MAX - 1) / LANES_MAX, channel = i % blocks * LANES_MAX;

	if (in->block)
		return i * pixels * pool->lanes;
	pool->lanes = in->c - (int)channel < LANES_MAX ? in->c - (int)channel : LANES_MAX;
	return i / blocks * pixels * in->c + channel;
}

static enum gn_status forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	const struct maps m = maps_of(op);
	const struct gn_layout *in = &op->info.in[0];
	const size_t bytes = (size_t)in->element_bytes;

	(void)step;
	(void)err;
#pragma omp parallel for schedule(static)
	for (size_t i = 0; i < m.count; i++) {
		struct gn_layer_pool p = m.pool;
		size_t from = first_of(in, i, (size_t)p.h * p.w, &p), to = first_of(in, i, (size_t)p.out_h * p.out_w, &p);

		gn_layer_loops()->max_pool(&p, (const char *)op->buffers.in[0] + from * bytes, (char *)op->buffers.out + to * bytes,
					   (uint8_t *)op->buffers.workspace + to);
	}
	return GN_OK;
}

static enum gn_status backward(struct gn_op *op, struct gn_err *err)
{
	const struct maps m = maps_of(op);
	const struct gn_layout *in = &op->info.in[0];
	const size_t bytes = (size_t)in->element_bytes;

	(void)err;
#pragma omp parallel for schedule(static)
	for (size_t i = 0; i < m.count; i++) {
		struct gn_layer_pool p = m.pool;
		size_t to = first_of(in, i, (size_t)p.h * p.w, &p), from = first_of(in, i, (size_t)p.out_h * p.out_w, &p);

		gn_layer_loops()->max_pool_gradient(&p, (uint8_t *)op->buffers.workspace + from,
						    (const char *)op->buffers.dout + from * bytes,
						    (char *)op->buffers.din[0] + to * bytes);
	}
	return GN_OK;
}

enum gn_status gn_host_max_pool_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	static const struct gn_op_class class = {.forward = forward, .backward = backward};
	struct gn_op *op;

	if (base->desc.kernel > 16)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "max pooling over %d pixels: at most 16", base->desc.kernel);
	op = gn_op_alloc(sizeof *op, &class, base, err);
	if (!op)
		return GN_ERR_NO_MEMORY;
	op->info.workspace_bytes = gn_layout_elements(&op->info.out);
	*out = op;
	return GN_OK;
}
