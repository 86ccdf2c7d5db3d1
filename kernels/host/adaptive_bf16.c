/* Adaptive average pooling of maps of bfloat16, plain or blocked, into plain floats. Every pixel's gradient is made at once
 * from the windows that it lies in: adding to what is rounded already would lose more with each. */
#include "kernels/host/host.h"
#include "src/base/half.h"

enum { LANES_MAX = 16 };

/* From begin, before end. */
struct range {
	int begin, end;
};

/* Pixels of window i when a side is cut into so many windows; and also, with the sides swapped, windows that pixel i is in. */
static struct range range_of(int i, int side, int windows)
{
	return (struct range){(int)((int64_t)i * side / windows), (int)((((int64_t)i + 1) * side + windows - 1) / windows)};
}

static int length(struct range r)
{
	return r.end - r.begin;
}

/* Maps whose channels lie side by side. */
struct block {
	size_t first_map; /* of the plain tensor */
	int lanes, channels; /* the latter are filled up to the former */
};

static struct block block_of(const struct gn_layout *in, size_t at)
{
	int lanes = in->block > 1 ? in->block : 1;
	size_t blocks = ((size_t)in->c + lanes - 1) / lanes, first = at % blocks * lanes, left = (size_t)in->c - first;

	return (struct block){at / blocks * in->c + first, lanes, left < (size_t)lanes ? (int)left : lanes};
}

static void pool_block(const struct gn_layout *in, const struct gn_layout *out, const struct block *b, const uint16_t *x,
		       float *y)
{
	size_t map = (size_t)out->h * out->w;

	for (size_t i = 0; i < map; i++) {
		struct range rows = range_of((int)(i / out->w), in->h, out->h);
		struct range columns = range_of((int)(i % out->w), in->w, out->w);
		double area = (double)length(rows) * length(columns);
		float sums[LANES_MAX] = {0};

		for (int r = rows.begin; r < rows.end; r++) {
			const uint16_t *at = x + ((size_t)r * in->w + columns.begin) * b->lanes;

			for (int c = columns.begin; c < columns.end; c++, at += b->lanes)
				for (int k = 0; k < b->lanes; k++)
					sums[k] += gn_f32_of_bf16(at[k]);
		}
		for (int k = 0; k < b->channels; k++)
			y[(b->first_map + k) * map + i] = (float)(sums[k] / area);
	}
}

/* What a pixel gets from all windows that it is in. */
static void gather(const struct gn_layout *in, const struct gn_layout *out, const struct block *b, size_t pixel,
		   const float *dy, float *sums)
{
	size_t map = (size_t)out->h * out->w;
	struct range rows = range_of((int)(pixel / in->w), out->h, in->h);
	struct range columns = range_of((int)(pixel % in->w), out->w, in->w);

	for (int r = rows.begin; r < rows.end; r++) {
		for (int c = columns.begin; c < columns.end; c++) {
			float area = (float)length(range_of(r, in->h, out->h)) * (float)length(range_of(c, in->w, out->w));

			for (int k = 0; k < b->channels; k++)
				sums[k] += dy[(b->first_map + k) * map + (size_t)r * out->w + c] / area;
		}
	}
}

static void spread_block(const struct gn_layout *in, const struct gn_layout *out, const struct block *b, const float *dy,
			 uint16_t *dx)
{
	size_t map = (size_t)in->h * in->w;

	for (size_t i = 0; i < map; i++) {
		float sums[LANES_MAX] = {0};

		gather(in, out, b, i, dy, sums);
		for (int k = 0; k < b->lanes; k++)
			dx[i * b->lanes + k] = gn_bf16_of_f32(sums[k]);
	}
}

static size_t block_count(const struct gn_layout *in, size_t *block_elements)
{
	*block_elements = (size_t)in->h * in->w * (in->block > 1 ? in->block : 1);
	return gn_layout_elements(in) / *block_elements;
}

static enum gn_status forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	const struct gn_layout *in = &op->info.in[0], *out = &op->info.out;
	size_t each, count = block_count(in, &each);
	const uint16_t *x = op->buffers.in[0];

	(void)step;
	(void)err;
#pragma omp parallel for schedule(static)
	for (size_t i = 0; i < count; i++) {
		struct block b = block_of(in, i);

		pool_block(in, out, &b, x + i * each, op->buffers.out);
	}
	return GN_OK;
}

static enum gn_status backward(struct gn_op *op, struct gn_err *err)
{
	const struct gn_layout *in = &op->info.in[0], *out = &op->info.out;
	size_t each, count = block_count(in, &each);
	uint16_t *dx = op->buffers.din[0];

	(void)err;
#pragma omp parallel for schedule(static)
	for (size_t i = 0; i < count; i++) {
		struct block b = block_of(in, i);

		spread_block(in, out, &b, op->buffers.dout, dx + i * each);
	}
	return GN_OK;
}

enum gn_status gn_host_adaptive_bf16_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	static const struct gn_op_class class = {.forward = forward, .backward = backward};
	struct gn_op *op = gn_op_alloc(sizeof *op, &class, base, err);

	if (!op)
		return GN_ERR_NO_MEMORY;
	if (op->info.in[0].block > LANES_MAX || op->info.in[0].block == 0)
		op->info.in[0].block = 1;
	op->info.out.block = 1;
	op->info.out.element_bytes = sizeof(float);
	*out = op;
	return GN_OK;
}
