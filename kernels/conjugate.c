/* Where a tensor passes between ranks that divide its channels, in plain C for the oracle's doubles and for floats: values are put together for
 * the exchange, which is the caller's, and taken from it.
 *
 * Of an image the channels of a slice are one piece of memory, in plain layouts and in blocks of channels that divide the slice; of a pixel
 * they are where channels are innermost. */
#include "kernels/backend.h"

#include <string.h>

struct pieces {
	size_t rows, bytes; /* of a slice: images or pixels, and what each has */
	size_t ranks, rank;
};

static struct pieces pieces_of(const struct gn_op *op)
{
	const struct gn_layout *l = &op->info.in[0];
	const struct gn_conjugate_desc *c = &op->desc.conjugate;
	size_t pixels = (size_t)l->h * (size_t)l->w, rows = (size_t)l->n * (l->block ? 1 : pixels);

	return (struct pieces){rows, gn_layout_bytes(l) / rows, (size_t)c->ranks, (size_t)c->rank};
}

/* Slice r of the whole tensor to or from one that has the slice alone. */
static void copy_slice(const struct pieces *p, size_t r, char *whole, char *slice, int to_whole)
{
#pragma omp parallel for schedule(static)
	for (size_t i = 0; i < p->rows; i++) {
		char *w = whole + (i * p->ranks + r) * p->bytes, *s = slice + i * p->bytes;

		memcpy(to_whole ? w : s, to_whole ? s : w, p->bytes);
	}
}

/* Blocks by rank to or from the whole tensor. */
static void copy_blocks(const struct pieces *p, char *whole, char *values, int to_whole)
{
	for (size_t r = 0; r < p->ranks; r++)
		copy_slice(p, r, whole, values + r * p->rows * p->bytes, to_whole);
}

static size_t channel_of(const struct gn_layout *l, size_t i)
{
	size_t pixels = (size_t)l->h * (size_t)l->w, c = (size_t)l->c, block = (size_t)l->block;

	if (l->block == 0)
		return i % c;
	return i / (pixels * block) % ((c + block - 1) / block) * block + i % block;
}

static void add_bias(const struct gn_layout *l, const float *bias, void *x)
{
	size_t count = gn_layout_elements(l);
	float *narrow = x;
	double *wide = x;

#pragma omp parallel for schedule(static)
	for (size_t i = 0; i < count; i++) {
		size_t c = channel_of(l, i);

		if (c < (size_t)l->c && l->element_bytes == sizeof(double))
			wide[i] += bias[c];
		else if (c < (size_t)l->c)
			narrow[i] += bias[c];
	}
}

/* sums: [channels], zeroed. */
static void sum_channels(const struct gn_layout *l, const void *x, double *sums)
{
	size_t count = gn_layout_elements(l);

	for (size_t i = 0; i < count; i++) {
		size_t c = channel_of(l, i);

		if (c < (size_t)l->c)
			sums[c] += l->element_bytes == sizeof(double) ? ((const double *)x)[i] : ((const float *)x)[i];
	}
}

static void copy_whole(const struct gn_op *op, const void *from, void *to)
{
	if (from != to)
		memcpy(to, from, gn_layout_bytes(&op->info.out));
}

static enum gn_status forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	const struct gn_op_buffers *b = &op->buffers;
	char *values = b->scratch;

	(void)step;
	(void)err;
	switch (op->desc.conjugate.kind) {
	case GN_CONJUGATE_COPY:
		copy_whole(op, b->in[0], b->out);
		break;
	case GN_CONJUGATE_REDUCE:
		copy_whole(op, b->in[0], values);
		break;
	case GN_CONJUGATE_GATHER:
	case GN_CONJUGATE_GATHER_REDUCE:
		memcpy(values + (size_t)op->desc.conjugate.rank * gn_layout_bytes(&op->info.in[0]), b->in[0], gn_layout_bytes(&op->info.in[0]));
		break;
	}
	return GN_OK;
}

static enum gn_status forward_rest(struct gn_op *op, struct gn_err *err)
{
	const struct gn_op_buffers *b = &op->buffers;
	const struct pieces p = pieces_of(op);

	(void)err;
	if (op->desc.conjugate.kind != GN_CONJUGATE_REDUCE) {
		copy_blocks(&p, b->out, b->scratch, 1);
		return GN_OK;
	}
	copy_whole(op, b->scratch, b->out);
	if (b->weight)
		add_bias(&op->info.out, b->weight, b->out);
	return GN_OK;
}

static void bias_gradient(struct gn_op *op)
{
	const struct gn_op_buffers *b = &op->buffers;
	size_t channels = (size_t)op->info.out.c;
	double *sums = b->scratch;

	memset(sums, 0, channels * sizeof *sums);
	sum_channels(&op->info.out, b->dout, sums);
	for (size_t c = 0; c < channels; c++)
		b->dweight[c] = (float)sums[c];
}

static enum gn_status backward(struct gn_op *op, struct gn_err *err)
{
	const struct gn_op_buffers *b = &op->buffers;
	const struct pieces p = pieces_of(op);

	(void)err;
	switch (op->desc.conjugate.kind) {
	case GN_CONJUGATE_COPY:
		copy_whole(op, b->dout, b->scratch);
		break;
	case GN_CONJUGATE_REDUCE:
		if (b->dweight)
			bias_gradient(op);
		copy_whole(op, b->dout, b->din[0]);
		break;
	case GN_CONJUGATE_GATHER:
		copy_slice(&p, p.rank, (char *)b->dout, b->din[0], 0);
		break;
	case GN_CONJUGATE_GATHER_REDUCE:
		copy_blocks(&p, (char *)b->dout, b->scratch, 0);
		break;
	}
	return GN_OK;
}

static enum gn_status backward_rest(struct gn_op *op, struct gn_err *err)
{
	const struct gn_op_buffers *b = &op->buffers;
	size_t bytes = gn_layout_bytes(&op->info.in[0]);

	(void)err;
	if (op->desc.conjugate.kind == GN_CONJUGATE_COPY)
		copy_whole(op, b->scratch, b->din[0]);
	else
		memcpy(b->din[0], (const char *)b->scratch + (size_t)op->desc.conjugate.rank * bytes, bytes);
	return GN_OK;
}

static void set_exchange(struct gn_op_info *info, enum gn_conjugate kind)
{
	int is_gather = kind >= GN_CONJUGATE_GATHER, width = info->out.element_bytes;
	size_t slice = gn_layout_elements(&info->in[0]), whole = gn_layout_elements(&info->out);

	if (is_gather)
		info->exchange[0] = (struct gn_op_exchange){GN_EXCHANGE_GATHER, slice, width};
	if (kind == GN_CONJUGATE_REDUCE)
		info->exchange[0] = (struct gn_op_exchange){GN_EXCHANGE_SUM, whole, width};
	if (kind == GN_CONJUGATE_COPY)
		info->exchange[1] = (struct gn_op_exchange){GN_EXCHANGE_SUM, whole, width};
	if (kind == GN_CONJUGATE_GATHER_REDUCE)
		info->exchange[1] = (struct gn_op_exchange){GN_EXCHANGE_SCATTER, slice, width};
	info->in_place = !is_gather;
	info->scratch_bytes = whole * (size_t)width;
	if (info->scratch_bytes < (size_t)info->out.c * sizeof(double))
		info->scratch_bytes = (size_t)info->out.c * sizeof(double); /* bias_gradient */
}

enum gn_status gn_conjugate_create(enum gn_backend backend, const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	static const struct gn_op_class class = {.forward = forward, .forward_rest = forward_rest, .backward = backward,
						 .backward_rest = backward_rest};
	const struct gn_layout *in = &base->desc.in[0];
	struct gn_op *op;
	int block = in->block > 1 && in->c % in->block ? 1 : in->block;

	if (backend == GN_BACKEND_CUDA)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "channels are divided among ranks in the host's memory only");
	op = gn_op_alloc(sizeof *op, &class, base, err);
	if (!op)
		return GN_ERR_NO_MEMORY;
	op->info.in[0].block = op->info.out.block = block;
	op->info.in[0].element_bytes = op->info.out.element_bytes = backend == GN_BACKEND_REF ? sizeof(double) : sizeof(float);
	set_exchange(&op->info, base->desc.conjugate.kind);
	*out = op;
	return GN_OK;
}
