/* Relu, and addition with or without relu: one pass over memory in any layout (zero padding stays zero). As in PyTorch, NaN is kept
 * forward, and lets the gradient pass. */
#include "kernels/host/bf16.h"
#include "kernels/host/host.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* elements per chunk: several tensors of this size fit into a processor's private cache */
#define CHUNK 4096

/* Inlined where relu and adds, whether there is a b, are known: with them the loop is one of vectors. */
INLINE void add_floats(int relu, int adds, size_t count, const float *a, const float *b, float *y)
{
#pragma omp simd
	for (size_t i = 0; i < count; i++) {
		float v = adds ? a[i] + b[i] : a[i];

		y[i] = relu && 0 > v ? 0 : v;
	}
}

/* The same for whether there is a db. */
INLINE void pass_floats(int relu, int adds, size_t count, const float *y, const float *dy, float *da, float *db)
{
#pragma omp simd
	for (size_t i = 0; i < count; i++) {
		float d = dy[i];

		d = relu && y[i] <= 0 ? 0 : d;
		da[i] = d;
		if (adds)
			db[i] = d;
	}
}

static void forward_some(const struct gn_op *op, size_t at, size_t count)
{
	const struct gn_op_buffers *b = &op->buffers;
	const int is_relu = op->desc.kind == GN_OP_RELU;

	if (gn_layout_is_bf16(&op->info.out) && is_relu)
		gn_bf16_loops()->relu(count, (const uint16_t *)b->in[0] + at, (uint16_t *)b->out + at);
	else if (gn_layout_is_bf16(&op->info.out))
		gn_bf16_loops()->add(count, (const uint16_t *)b->in[0] + at, (const uint16_t *)b->in[1] + at, op->desc.relu, (uint16_t *)b->out + at);
	else if (is_relu)
		add_floats(1, 0, count, (const float *)b->in[0] + at, NULL, (float *)b->out + at);
	else if (op->desc.relu)
		add_floats(1, 1, count, (const float *)b->in[0] + at, (const float *)b->in[1] + at, (float *)b->out + at);
	else
		add_floats(0, 1, count, (const float *)b->in[0] + at, (const float *)b->in[1] + at, (float *)b->out + at);
}

static void backward_bf16(const struct gn_op *op, size_t at, size_t count)
{
	const uint16_t *y = op->buffers.out, *dy = op->buffers.dout;
	uint16_t *da = op->buffers.din[0], *db = op->desc.kind == GN_OP_RELU ? NULL : op->buffers.din[1];

	if (op->desc.kind == GN_OP_RELU || op->desc.relu) {
		gn_bf16_loops()->relu_gradient(count, y + at, dy + at, da + at, db ? db + at : NULL);
		return;
	}
	memmove(da + at, dy + at, count * sizeof *da);
	memcpy(db + at, dy + at, count * sizeof *db);
}

static void backward_some(const struct gn_op *op, size_t at, size_t count)
{
	const struct gn_op_buffers *b = &op->buffers;
	const float *y = (const float *)b->out + at, *dy = (const float *)b->dout + at;
	float *da = (float *)b->din[0] + at;

	if (gn_layout_is_bf16(&op->info.out))
		backward_bf16(op, at, count);
	else if (op->desc.kind == GN_OP_RELU)
		pass_floats(1, 0, count, y, dy, da, NULL);
	else if (op->desc.relu)
		pass_floats(1, 1, count, y, dy, da, (float *)b->din[1] + at);
	else
		pass_floats(0, 1, count, y, dy, da, (float *)b->din[1] + at);
}

static void run(const struct gn_op *op, void (*some)(const struct gn_op *op, size_t at, size_t count))
{
	size_t count = gn_layout_elements(&op->info.out);

#pragma omp parallel for schedule(static)
	for (size_t i = 0; i < count; i += CHUNK)
		some(op, i, count - i < CHUNK ? count - i : CHUNK);
}

static enum gn_status forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	(void)step;
	(void)err;
	run(op, forward_some);
	return GN_OK;
}

static enum gn_status backward(struct gn_op *op, struct gn_err *err)
{
	(void)err;
	run(op, backward_some);
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
