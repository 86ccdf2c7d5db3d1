/* Adaptive average pooling of plain or blocked maps into plain ones (a linear layer follows), windows as torch cuts them:
 * floor(i in / out) to ceil((i + 1) in / out). */
#include "kernels/host/host.h"

#include <string.h>

struct window {
	int y0, y1, x0, x1;
};

static struct window window_of(const struct gn_layout *in, const struct gn_layout *out, int oy, int ox)
{
	return (struct window){
		(int)((int64_t)oy * in->h / out->h), (int)((((int64_t)oy + 1) * in->h + out->h - 1) / out->h),
		(int)((int64_t)ox * in->w / out->w), (int)((((int64_t)ox + 1) * in->w + out->w - 1) / out->w)};
}

static float mean_of(const float *map, int w, const struct window *v)
{
	float total = 0;

	for (int y = v->y0; y < v->y1; y++) {
		const float *row = map + (size_t)y * w;
		float sum = 0;

#pragma omp simd reduction(+ : sum)
		for (int x = v->x0; x < v->x1; x++)
			sum += row[x];
		total += sum;
	}
	return total / ((float)(v->y1 - v->y0) * (float)(v->x1 - v->x0));
}

static void spread(float *map, int w, const struct window *v, float value)
{
	float share = value / ((float)(v->y1 - v->y0) * (float)(v->x1 - v->x0));

	for (int y = v->y0; y < v->y1; y++) {
		float *row = map + (size_t)y * w;

#pragma omp simd
		for (int x = v->x0; x < v->x1; x++)
			row[x] += share;
	}
}

enum { LANES_MAX = 16 };

/* Sums of a window for the channels of a block, in double: rounded once. */
static void sums_of_block(const float *map, int w, int lanes, const struct window *v, double *sums)
{
	for (int k = 0; k < lanes; k++)
		sums[k] = 0;
	for (int y = v->y0; y < v->y1; y++) {
		for (int x = v->x0; x < v->x1; x++) {
			const float *at = map + ((size_t)y * w + x) * lanes;

#pragma omp simd
			for (int k = 0; k < lanes; k++)
				sums[k] += at[k];
		}
	}
}

static void spread_block(float *map, int w, int lanes, const struct window *v, const float *values)
{
	for (int y = v->y0; y < v->y1; y++) {
		for (int x = v->x0; x < v->x1; x++) {
			float *at = map + ((size_t)y * w + x) * lanes;

#pragma omp simd
			for (int k = 0; k < lanes; k++)
				at[k] += values[k];
		}
	}
}

static double area_of(const struct window *v)
{
	return (double)(v->y1 - v->y0) * (double)(v->x1 - v->x0);
}

/* Block number `at` of all images' blocks: where its first channel's map is in a plain tensor, and how many channels it has. */
static int place_block(const struct gn_layout *in, size_t at, size_t *first_map)
{
	size_t blocks = ((size_t)in->c + in->block - 1) / in->block, first = at % blocks * in->block;
	size_t left = (size_t)in->c - first;

	*first_map = at / blocks * in->c + first;
	return left < (size_t)in->block ? (int)left : in->block;
}

static void forward_blocks(const struct gn_op *op)
{
	const struct gn_layout *in = &op->info.in[0], *out = &op->info.out;
	size_t in_map = (size_t)in->h * in->w * in->block, out_map = (size_t)out->h * out->w;
	size_t blocks = gn_layout_elements(in) / in_map;
	const float *x = op->buffers.in[0];
	float *y = op->buffers.out;

#pragma omp parallel for schedule(static)
	for (size_t at = 0; at < blocks; at++) {
		size_t first;
		int channels = place_block(in, at, &first);

		for (size_t i = 0; i < out_map; i++) {
			struct window v = window_of(in, out, (int)(i / out->w), (int)(i % out->w));
			double sums[LANES_MAX], area = area_of(&v);

			sums_of_block(x + at * in_map, in->w, in->block, &v, sums);
			for (int k = 0; k < channels; k++)
				y[(first + k) * out_map + i] = (float)(sums[k] / area);
		}
	}
}

static void backward_blocks(const struct gn_op *op)
{
	const struct gn_layout *in = &op->info.in[0], *out = &op->info.out;
	size_t in_map = (size_t)in->h * in->w * in->block, out_map = (size_t)out->h * out->w;
	size_t blocks = gn_layout_elements(in) / in_map;
	const float *dy = op->buffers.dout;
	float *dx = op->buffers.din[0];

#pragma omp parallel for schedule(static)
	for (size_t at = 0; at < blocks; at++) {
		size_t first;
		int channels = place_block(in, at, &first);

		memset(dx + at * in_map, 0, in_map * sizeof *dx);
		for (size_t i = 0; i < out_map; i++) {
			struct window v = window_of(in, out, (int)(i / out->w), (int)(i % out->w));
			float values[LANES_MAX] = {0};
			double area = area_of(&v);

			for (int k = 0; k < channels; k++)
				values[k] = (float)(dy[(first + k) * out_map + i] / area);
			spread_block(dx + at * in_map, in->w, in->block, &v, values);
		}
	}
}

static enum gn_status forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	const struct gn_layout *in = &op->info.in[0], *out = &op->info.out;
	size_t in_map = (size_t)in->h * in->w, out_map = (size_t)out->h * out->w;
	const float *x = op->buffers.in[0];
	float *y = op->buffers.out;

	(void)step;
	(void)err;
	if (in->block > 1) {
		forward_blocks(op);
		return GN_OK;
	}
#pragma omp parallel for schedule(static)
	for (size_t map = 0; map < (size_t)in->n * in->c; map++) {
		for (size_t i = 0; i < out_map; i++) {
			struct window v = window_of(in, out, (int)(i / out->w), (int)(i % out->w));

			y[map * out_map + i] = mean_of(x + map * in_map, in->w, &v);
		}
	}
	return GN_OK;
}

static enum gn_status backward(struct gn_op *op, struct gn_err *err)
{
	const struct gn_layout *in = &op->info.in[0], *out = &op->info.out;
	size_t in_map = (size_t)in->h * in->w, out_map = (size_t)out->h * out->w;
	const float *dy = op->buffers.dout;
	float *dx = op->buffers.din[0];

	(void)err;
	if (in->block > 1) {
		backward_blocks(op);
		return GN_OK;
	}
#pragma omp parallel for schedule(static)
	for (size_t map = 0; map < (size_t)in->n * in->c; map++) {
		memset(dx + map * in_map, 0, in_map * sizeof *dx);
		for (size_t i = 0; i < out_map; i++) {
			struct window v = window_of(in, out, (int)(i / out->w), (int)(i % out->w));

			spread(dx + map * in_map, in->w, &v, dy[map * out_map + i]);
		}
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
	*out = op;
	return GN_OK;
}
