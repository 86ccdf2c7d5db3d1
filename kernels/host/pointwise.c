/* Relu, and addition with or without relu: one pass over memory in any layout (zero padding stays zero). */
#include "kernels/host/bf16.h"
#include "kernels/host/host.h"

#include <string.h>

static void relu_forward(size_t count, const float *x, float *y)
{
	/* written so that NaN is kept */
#pragma omp parallel for simd schedule(static)
	for (size_t i = 0; i < count; i++)
		y[i] = x[i] < 0 ? 0 : x[i];
}

static void relu_backward(size_t count, const float *y, const float *dy, float *dx)
{
#pragma omp parallel for simd schedule(static)
	for (size_t i = 0; i < count; i++)
		dx[i] = y[i] > 0 ? dy[i] : 0;
}

static void add_forward(size_t count, const float *a, const float *b, float *y)
{
#pragma omp parallel for simd schedule(static)
	for (size_t i = 0; i < count; i++)
		y[i] = a[i] + b[i];
}

static void add_relu_forward(size_t count, const float *a, const float *b, float *y)
{
#pragma omp parallel for simd schedule(static)
	for (size_t i = 0; i < count; i++) {
		float sum = a[i] + b[i];

		y[i] = sum < 0 ? 0 : sum;
	}
}

static void copy_twice(size_t count, const float *dy, float *da, float *db)
{
#pragma omp parallel for simd schedule(static)
	for (size_t i = 0; i < count; i++) {
		float d = dy[i];

		da[i] = d;
		db[i] = d;
	}
}

static void add_relu_backward(size_t count, const float *y, const float *dy, float *da, float *db)
{
#pragma omp parallel for simd schedule(static)
	for (size_t i = 0; i < count; i++) {
		float d = y[i] > 0 ? dy[i] : 0;

		da[i] = d;
		db[i] = d;
	}
}

/* elements per chunk: several tensors of this size fit into a processor's private cache */
#define CHUNK 4096

static void forward_bf16(const struct gn_op *op, size_t count)
{
	const struct gn_bf16_loops *loops = gn_bf16_loops();
	const uint16_t *a = op->buffers.in[0], *b = op->buffers.in[1];
	uint16_t *y = op->buffers.out;

#pragma omp parallel for schedule(static)
	for (size_t i = 0; i < count; i += CHUNK) {
		size_t some = count - i < CHUNK ? count - i : CHUNK;

		if (op->desc.kind == GN_OP_RELU)
			loops->relu(some, a + i, y + i);
		else
			loops->add(some, a + i, b + i, op->desc.relu, y + i);
	}
}

static void backward_bf16(const struct gn_op *op, size_t count)
{
	const struct gn_bf16_loops *loops = gn_bf16_loops();
	const uint16_t *y = op->buffers.out, *dy = op->buffers.dout;
	uint16_t *da = op->buffers.din[0], *db = op->desc.kind == GN_OP_RELU ? NULL : op->buffers.din[1];
	int masked = op->desc.kind == GN_OP_RELU || op->desc.relu;

#pragma omp parallel for schedule(static)
	for (size_t i = 0; i < count; i += CHUNK) {
		size_t some = count - i < CHUNK ? count - i : CHUNK;

		if (masked) {
			loops->relu_gradient(some, y + i, dy + i, da + i, db ? db + i : NULL);
			continue;
		}
		memmove(da + i, dy + i, some * sizeof *da);
		memcpy(db + i, dy + i, some * sizeof *db);
	}
}

static enum gn_status forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	const struct gn_op_buffers *b = &op->buffers;
	size_t count = gn_layout_elements(&op->info.out);

	(void)step;
	(void)err;
	if (op->info.out.element_bytes == sizeof(uint16_t))
		forward_bf16(op, count);
	else if (op->desc.kind == GN_OP_RELU)
		relu_forward(count, b->in[0], b->out);
	else if (op->desc.relu)
		add_relu_forward(count, b->in[0], b->in[1], b->out);
	else
		add_forward(count, b->in[0], b->in[1], b->out);
	return GN_OK;
}

static enum gn_status backward(struct gn_op *op, struct gn_err *err)
{
	const struct gn_op_buffers *b = &op->buffers;
	size_t count = gn_layout_elements(&op->info.out);

	(void)err;
	if (op->info.out.element_bytes == sizeof(uint16_t))
		backward_bf16(op, count);
	else if (op->desc.kind == GN_OP_RELU)
		relu_backward(count, b->out, b->dout, b->din[0]);
	else if (op->desc.relu)
		add_relu_backward(count, b->out, b->dout, b->din[0], b->din[1]);
	else
		copy_twice(count, b->dout, b->din[0], b->din[1]);
	return GN_OK;
}

enum gn_status gn_host_pointwise_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	static const struct gn_op_class class = {.forward = forward, .backward = backward};
	struct gn_op *op = gn_op_alloc(sizeof *op, &class, base, err);

	if (!op)
		return GN_ERR_NO_MEMORY;
	/* both operands in the first one's layout and type */
	op->info.in[1].block = op->info.in[0].block;
	op->info.in[1].element_bytes = op->info.in[0].element_bytes;
	op->info.backward_reads_out = op->desc.kind == GN_OP_RELU || op->desc.relu;
	op->info.in_place = 1;
	*out = op;
	return GN_OK;
}
