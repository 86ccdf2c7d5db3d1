/* The masks of the reference implementation, four numbers per Philox block. As in PyTorch, what is not finite becomes NaN where it is
 * dropped. Backward draws the mask again instead of storing it. */
#include "kernels/host/host.h"
#include "src/base/philox.h"

#include <string.h>

struct dropout {
	struct gn_op base;
	uint64_t step;
};

/* Elements [begin, end) of the whole tensor, of which x and y have the part that starts at begin. */
static void apply_range(const struct dropout *d, size_t begin, size_t end, const float *x, float *y)
{
	const struct gn_op_desc *desc = &d->base.desc;
	uint32_t key[2] = {(uint32_t)desc->seed, (uint32_t)(desc->seed >> 32)};
	uint32_t high = (uint32_t)(d->step >> 32) << 16 | GN_RNG_DROPOUT;
	float scale = (float)(1 / (1 - desc->rate));

#pragma omp parallel for schedule(static)
	for (size_t block = begin / 4; block < (end + 3) / 4; block++) {
		uint32_t counter[4] = {(uint32_t)block, desc->stream, (uint32_t)d->step, high}, draw[4];
		size_t i = 4 * block < begin ? begin : 4 * block;

		gn_philox(counter, key, draw);
		for (; i < 4 * block + 4 && i < end; i++)
			y[i - begin] = draw[i % 4] / 4294967296.0 < desc->rate ? 0 * x[i - begin] : x[i - begin] * scale;
	}
}

static void apply(const struct dropout *d, const float *x, float *y)
{
	const struct gn_op_desc *desc = &d->base.desc;
	size_t count = gn_layout_elements(&d->base.info.out), images = (size_t)d->base.info.out.n, part = count / images;

	if (!desc->slice_of)
		apply_range(d, 0, count, x, y);
	for (size_t n = 0; desc->slice_of && n < images; n++) {
		size_t begin = n * desc->slice_of + desc->slice_begin;

		apply_range(d, begin, begin + part, x + n * part, y + n * part);
	}
}

static enum gn_status forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	struct dropout *d = (struct dropout *)op;

	(void)err;
	d->step = step;
	if (op->desc.training)
		apply(d, op->buffers.in[0], op->buffers.out);
	else if (op->buffers.out != op->buffers.in[0])
		memcpy(op->buffers.out, op->buffers.in[0], gn_layout_bytes(&op->info.out));
	return GN_OK;
}

static enum gn_status backward(struct gn_op *op, struct gn_err *err)
{
	(void)err;
	apply((struct dropout *)op, op->buffers.dout, op->buffers.din[0]);
	return GN_OK;
}

enum gn_status gn_host_dropout_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	static const struct gn_op_class class = {.forward = forward, .backward = backward};
	struct gn_op *op = gn_op_alloc(sizeof(struct dropout), &class, base, err);

	if (!op)
		return GN_ERR_NO_MEMORY;
	op->info.in[0].block = op->info.out.block = 1;
	op->info.in[0].element_bytes = op->info.out.element_bytes = sizeof(float);
	op->info.in_place = 1;
	*out = op;
	return GN_OK;
}
