/* Pixels as a sequence of tokens, NHWC: a token of parameters in front and a sum with positions; and the first token alone. */
#include "kernels/host/host.h"
#include "kernels/host/layer.h"

#include <string.h>

static enum gn_status tokens_forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	const struct gn_op_buffers *b = &op->buffers;
	size_t c = (size_t)op->info.out.c, count = (size_t)op->info.out.h, rows = (size_t)op->info.out.n * count;
	int low = gn_layout_is_bf16(&op->info.out);

	(void)step;
	(void)err;
#pragma omp parallel for schedule(static)
	for (size_t row = 0; row < rows; row++) {
		size_t image = row / count, i = row % count;

		for (size_t k = 0; k < c; k++)
			gn_layer_store(low, b->out, row * c + k, (i ? gn_layer_load(low, b->in[0], (row - image - 1) * c + k) : b->weight[k]) +
								 b->bias[i * c + k]);
	}
	return GN_OK;
}

static enum gn_status tokens_backward(struct gn_op *op, struct gn_err *err)
{
	const struct gn_op_buffers *b = &op->buffers;
	size_t c = (size_t)op->info.out.c, count = (size_t)op->info.out.h, images = (size_t)op->info.out.n;
	size_t row_bytes = c * (size_t)op->info.out.element_bytes;
	int low = gn_layout_is_bf16(&op->info.out);

	(void)err;
#pragma omp parallel for schedule(static)
	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; k < c; k++) {
			double sum = 0;

			for (size_t n = 0; n < images; n++)
				sum += gn_layer_load(low, b->dout, (n * count + i) * c + k);
			b->dbias[i * c + k] = (float)sum;
		}
	memcpy(b->dweight, b->dbias, c * sizeof(float));
	for (size_t n = 0; b->din[0] && n < images; n++)
		memcpy((char *)b->din[0] + n * (count - 1) * row_bytes, (const char *)b->dout + (n * count + 1) * row_bytes, (count - 1) * row_bytes);
	return GN_OK;
}

static enum gn_status first_forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	size_t image = gn_layout_bytes(&op->info.in[0]) / (size_t)op->info.out.n, row = gn_layout_bytes(&op->info.out) / (size_t)op->info.out.n;

	(void)step;
	(void)err;
	for (size_t n = 0; n < (size_t)op->info.out.n; n++)
		memcpy((char *)op->buffers.out + n * row, (const char *)op->buffers.in[0] + n * image, row);
	return GN_OK;
}

static enum gn_status first_backward(struct gn_op *op, struct gn_err *err)
{
	size_t image = gn_layout_bytes(&op->info.in[0]) / (size_t)op->info.out.n, row = gn_layout_bytes(&op->info.out) / (size_t)op->info.out.n;

	(void)err;
	memset(op->buffers.din[0], 0, gn_layout_bytes(&op->info.in[0]));
	for (size_t n = 0; n < (size_t)op->info.out.n; n++)
		memcpy((char *)op->buffers.din[0] + n * image, (const char *)op->buffers.dout + n * row, row);
	return GN_OK;
}

enum gn_status gn_host_tokens_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	static const struct gn_op_class tokens = {.forward = tokens_forward, .backward = tokens_backward};
	static const struct gn_op_class first = {.forward = first_forward, .backward = first_backward};
	struct gn_op *op = gn_op_alloc(sizeof *op, base->desc.kind == GN_OP_TOKENS ? &tokens : &first, base, err);

	if (!op)
		return GN_ERR_NO_MEMORY;
	op->info.in[0].block = op->info.out.block = 0;
	*out = op;
	return GN_OK;
}
