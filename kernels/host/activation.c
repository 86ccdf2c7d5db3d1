/* Activations: one pass over memory in any layout. Those that are not 0 at 0 set the padding of blocked tensors back to it. */
#include "kernels/host/host.h"
#include "kernels/host/layer.h"

#include <string.h>

/* elements per chunk: several tensors of this size fit into a processor's private cache */
#define CHUNK 4096

static const void *part(const struct gn_op *op, const void *tensor, size_t at)
{
	return tensor ? (const char *)tensor + at * (size_t)op->info.out.element_bytes : NULL;
}

static void clear_padding(const struct gn_op *op)
{
	const struct gn_layout *l = &op->info.out;
	size_t block = l->block > 1 ? (size_t)l->block : 1, used = (size_t)l->c % block, bytes = (size_t)l->element_bytes;
	size_t map = (size_t)l->h * l->w, image = gn_layout_bytes(l) / (size_t)l->n;
	char *y = op->buffers.out;

	for (int n = 0; used && n < l->n; n++)
		for (size_t i = 0; i < map; i++)
			memset(y + (n + 1) * image - (map - i) * block * bytes + used * bytes, 0, (block - used) * bytes);
}

static enum gn_status forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	const struct gn_layer_loops *loops = gn_layer_loops();
	enum gn_activation kind = op->desc.activation;
	size_t count = gn_layout_elements(&op->info.out);
	int low = gn_layout_is_bf16(&op->info.out);

	(void)step;
	(void)err;
#pragma omp parallel for schedule(static)
	for (size_t i = 0; i < count; i += CHUNK)
		loops->forward(kind, low, count - i < CHUNK ? count - i : CHUNK, part(op, op->buffers.in[0], i),
			       (char *)op->buffers.out + i * (size_t)op->info.out.element_bytes);
	if (kind == GN_ACTIVATION_SIGMOID || kind == GN_ACTIVATION_HARD_SIGMOID)
		clear_padding(op);
	return GN_OK;
}

static enum gn_status backward(struct gn_op *op, struct gn_err *err)
{
	const struct gn_layer_loops *loops = gn_layer_loops();
	const struct gn_op_buffers *b = &op->buffers;
	const void *at = op->info.backward_reads_out ? b->out : b->in[0];
	size_t count = gn_layout_elements(&op->info.out);
	int low = gn_layout_is_bf16(&op->info.out);

	(void)err;
#pragma omp parallel for schedule(static)
	for (size_t i = 0; i < count; i += CHUNK)
		loops->backward(op->desc.activation, low, count - i < CHUNK ? count - i : CHUNK, part(op, at, i),
				part(op, b->dout, i), part(op, b->more_dout, i),
				(char *)b->din[0] + i * (size_t)op->info.out.element_bytes);
	return GN_OK;
}

enum gn_status gn_host_activation_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	static const struct gn_op_class class = {.forward = forward, .backward = backward};
	struct gn_op *op = gn_op_alloc(sizeof *op, &class, base, err);

	if (!op)
		return GN_ERR_NO_MEMORY;
	op->info.backward_reads_out = gn_layer_reads_out(op->desc.activation);
	op->info.backward_reads_in = !op->info.backward_reads_out;
	op->info.in_place = 1;
	op->info.sums_gradients = 1;
	*out = op;
	return GN_OK;
}
