/* Adaptive average pooling of float or bfloat16 tensors, plain or blocked, to plain floats (a linear layer follows), with PyTorch's
 * windows: floor(i in / out) to ceil((i + 1) in / out). Sums are double, rounded once. The gradient of a pixel is computed at once
 * from all its windows: adding to an already rounded value would lose precision with each window. */
#include "kernels/host/host.h"
#include "src/base/half.h"

enum { LANES_MAX = 16 };

/* begin inclusive, end exclusive */
struct range {
	int begin, end;
};

/* Pixels of window i when a side is divided into `windows` windows. With the two sides swapped: the windows that contain pixel
 * i. */
static struct range range_of(int i, int side, int windows)
{
	return (struct range){(int)((int64_t)i * side / windows), (int)((((int64_t)i + 1) * side + windows - 1) / windows)};
}

static int length(struct range r)
{
	return r.end - r.begin;
}

/* Feature maps whose channels are adjacent in memory. */
struct block {
	size_t first_map; /* of the plain tensor */
	size_t first;	  /* element of the blocked tensor */
	int lanes, channels; /* channels are padded to lanes */
};

static struct block block_of(const struct gn_layout *in, size_t i)
{
	size_t lanes = (size_t)in->block, blocks = ((size_t)in->c + lanes - 1) / lanes, channel = i % blocks * lanes;
	size_t left = (size_t)in->c - channel;

	return (struct block){i / blocks * in->c + channel, i * in->h * in->w * lanes, in->block,
			      left < lanes ? (int)left : in->block};
}

static size_t block_count(const struct gn_layout *in)
{
	return gn_layout_elements(in) / ((size_t)in->h * in->w * in->block);
}

/* Adds pixels `from` .. `to` of a row. */
static void add_row(const struct gn_layout *in, const void *x, size_t from, size_t to, double *sums)
{
	const uint16_t *half = x;
	const float *full = x;
	int lanes = in->block;

	for (; from < to; from += lanes) {
		if (gn_layout_is_bf16(in))
			for (int k = 0; k < lanes; k++)
				sums[k] += gn_f32_of_bf16(half[from + k]);
		else
			for (int k = 0; k < lanes; k++)
				sums[k] += full[from + k];
	}
}

static void pool_block(const struct gn_op *op, const struct block *b)
{
	const struct gn_layout *in = &op->info.in[0], *out = &op->info.out;
	size_t map = (size_t)out->h * out->w;
	float *y = op->buffers.out;

	for (size_t i = 0; i < map; i++) {
		struct range rows = range_of((int)(i / out->w), in->h, out->h);
		struct range columns = range_of((int)(i % out->w), in->w, out->w);
		double area = (double)length(rows) * length(columns), sums[LANES_MAX] = {0};

		for (int r = rows.begin; r < rows.end; r++) {
			size_t row = b->first + (size_t)r * in->w * b->lanes;

			add_row(in, op->buffers.in[0], row + (size_t)columns.begin * b->lanes, row + (size_t)columns.end * b->lanes,
				sums);
		}
		for (int k = 0; k < b->channels; k++)
			y[(b->first_map + k) * map + i] = (float)(sums[k] / area);
	}
}

/* Sums the gradient of a pixel over all windows that contain it. */
static void gather(const struct gn_op *op, const struct block *b, struct range rows, struct range columns, double *sums)
{
	const struct gn_layout *in = &op->info.in[0], *out = &op->info.out;
	const float *dy = op->buffers.dout;
	size_t map = (size_t)out->h * out->w;

	for (int r = rows.begin; r < rows.end; r++) {
		for (int c = columns.begin; c < columns.end; c++) {
			double share = 1.0 / ((double)length(range_of(r, in->h, out->h)) * length(range_of(c, in->w, out->w)));

			for (int k = 0; k < b->channels; k++)
				sums[k] += dy[(b->first_map + k) * map + (size_t)r * out->w + c] * share;
		}
	}
}

static void spread_block(const struct gn_op *op, const struct block *b)
{
	const struct gn_layout *in = &op->info.in[0], *out = &op->info.out;
	uint16_t *half = op->buffers.din[0];
	float *full = op->buffers.din[0];
	size_t at = b->first;

	for (int y = 0; y < in->h; y++) {
		struct range rows = range_of(y, out->h, in->h);

		for (int x = 0; x < in->w; x++, at += b->lanes) {
			double sums[LANES_MAX] = {0};

			gather(op, b, rows, range_of(x, out->w, in->w), sums);
			for (int k = 0; k < b->lanes; k++) {
				if (gn_layout_is_bf16(in))
					half[at + k] = gn_bf16_of_f32((float)sums[k]);
				else
					full[at + k] = (float)sums[k];
			}
		}
	}
}

static enum gn_status forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	size_t count = block_count(&op->info.in[0]);

	(void)step;
	(void)err;
#pragma omp parallel for schedule(static)
	for (size_t i = 0; i < count; i++) {
		struct block b = block_of(&op->info.in[0], i);

		pool_block(op, &b);
	}
	return GN_OK;
}

static enum gn_status backward(struct gn_op *op, struct gn_err *err)
{
	size_t count = block_count(&op->info.in[0]);

	(void)err;
#pragma omp parallel for schedule(static)
	for (size_t i = 0; i < count; i++) {
		struct block b = block_of(&op->info.in[0], i);

		spread_block(op, &b);
	}
	return GN_OK;
}

enum gn_status gn_host_adaptive_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err)
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
