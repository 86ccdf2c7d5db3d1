/* Batch normalisation with optional addition and relu, on any layout.
 *
 * oneDNN's is not used because it sums in float; the error in the forward pass flips twice as many relu units (ResNet-18 and 50
 * then differ twice as much from double precision). Here statistics, normalisation and the backward formula use double and round
 * once. Memory bandwidth is the limit either way, and this reads the input once less: sums of x and x^2 in one pass are safe in
 * double, where the square of a float is exact. The partition depends only on the shape, so results do not depend on the number of
 * threads. No mask is stored: the relu's mask is derived from the value, or from the output if something was added. In that case
 * the first backward pass stores the masked gradient in din[1], which is its result, and the second pass reads it.
 */
#include "kernels/host/bf16.h"
#include "kernels/host/host.h"

#include <math.h>
#include <string.h>

/* Pixels per part. With 16 channels and three tensors a part is about 48 KB: the channels of a block are processed four at a time,
 * and later ones find the cache lines of the first. */
#define PART_PIXELS 256

struct norm {
	struct gn_op base;
	const struct gn_norm_loops *loops;
	size_t element_bytes;                            /* of all tensors */
	int lanes;                                       /* adjacent channels that are processed together */
	size_t groups;                                   /* groups of `lanes` channels */
	size_t parts, map;                               /* parts per image, pixels per image */
	size_t pixel_stride, group_stride, image_stride; /* in elements */
	/* by channel, padded to whole groups */
	double *mean, *inverse;                      /* workspace */
	double *scale, *shift, *from_sum, *from_dot; /* scratch */
	double *sums;                                /* scratch: [2][images * parts][channels] */
};

static struct norm *self(struct gn_op *op)
{
	return (struct norm *)op;
}

static size_t channels(const struct norm *n)
{
	return n->groups * n->lanes;
}

static struct gn_norm_piece piece_of(const struct norm *n, size_t image, size_t part, size_t group)
{
	size_t begin = part * PART_PIXELS, left = n->map - begin;

	return (struct gn_norm_piece){
		.offset = image * n->image_stride + group * n->group_stride + begin * n->pixel_stride,
		.pixels = left < PART_PIXELS ? left : PART_PIXELS,
		.stride = n->pixel_stride,
		.first = group * n->lanes,
		.lanes = n->lanes,
	};
}

static struct gn_norm_line line_of(const struct norm *n, size_t first)
{
	return (struct gn_norm_line){n->mean + first,     n->scale + first,    n->shift + first,
				     n->from_sum + first, n->from_dot + first, n->base.desc.relu};
}

/* Address of a piece of a tensor; NULL if there is no tensor. */
static const void *read_at(const struct norm *n, const struct gn_norm_piece *p, const void *tensor)
{
	return tensor ? (const char *)tensor + p->offset * n->element_bytes : NULL;
}

static void *write_at(const struct norm *n, const struct gn_norm_piece *p, void *tensor)
{
	return (char *)tensor + p->offset * n->element_bytes;
}

/* The two sums of a piece: of x and x^2 when dy is NULL. */
static void reduce_piece(const struct norm *n, const struct gn_norm_piece *p, const void *dy, double *a, double *b)
{
	const struct gn_op_buffers *m = &n->base.buffers;
	const void *x = read_at(n, p, m->in[0]);
	struct gn_norm_line l = line_of(n, p->first);

	if (!dy)
		n->loops->sums(p, x, a, b);
	else if (n->base.desc.add)
		n->loops->masked_sums(p, &l, x, read_at(n, p, m->out), read_at(n, p, dy), read_at(n, p, m->more_dout),
				      write_at(n, p, m->din[1]), a, b);
	else
		n->loops->gradient_sums(p, &l, x, read_at(n, p, dy), a, b);
}

/* The two sums for every channel of a group, over all images and parts in fixed order. */
static void add_pieces(struct norm *n, size_t group)
{
	size_t width = channels(n), rows = n->base.desc.in[0].n * n->parts, first = group * n->lanes;

	for (size_t c = first; c < first + n->lanes; c++)
		n->from_sum[c] = n->from_dot[c] = 0;
	for (size_t row = 0; row < rows; row++) {
		for (size_t c = first; c < first + n->lanes; c++) {
			n->from_sum[c] += n->sums[row * width + c];
			n->from_dot[c] += n->sums[(rows + row) * width + c];
		}
	}
}

/* The two sums of one part: of x and x^2 when dy is NULL. */
static void reduce_at(struct norm *n, const void *dy, size_t image, size_t group, size_t part)
{
	size_t width = channels(n), rows = n->base.desc.in[0].n * n->parts;
	struct gn_norm_piece p = piece_of(n, image, part, group);
	double *sums = n->sums + (image * n->parts + part) * width + p.first;

	reduce_piece(n, &p, dy, sums, sums + rows * width);
}

static void reduce(struct norm *n, const void *dy)
{
	size_t images = n->base.desc.in[0].n;

#pragma omp parallel for collapse(3) schedule(static)
	for (size_t image = 0; image < images; image++)
		for (size_t group = 0; group < n->groups; group++)
			for (size_t part = 0; part < n->parts; part++)
				reduce_at(n, dy, image, group, part);
	for (size_t group = 0; group < n->groups; group++)
		add_pieces(n, group);
}

/* Number of values per channel in the statistics, over all processes. */
static double value_count(const struct norm *n)
{
	int members = n->base.desc.members;

	return (double)n->base.desc.in[0].n * (double)n->map * (members > 1 ? members : 1);
}

/* End of the channels of a group, without padding. */
static size_t end_of(const struct norm *n, size_t group)
{
	size_t end = (group + 1) * n->lanes, all = (size_t)n->base.desc.in[0].c;

	return end < all ? end : all;
}

static void use_batch(struct norm *n, size_t group)
{
	const struct gn_op_buffers *b = &n->base.buffers;
	double count = value_count(n), m = n->base.desc.momentum;

	for (size_t c = group * n->lanes; c < end_of(n, group); c++) {
		double mean = n->from_sum[c] / count, var = n->from_dot[c] / count - mean * mean;

		var = var > 0 ? var : 0 * var; /* NaN stays NaN */
		n->mean[c] = mean;
		n->inverse[c] = 1 / sqrt(var + n->base.desc.eps);
		b->running_mean[c] = (float)((1 - m) * b->running_mean[c] + m * mean);
		b->running_var[c] = (float)((1 - m) * b->running_var[c] + m * var * count / (count - 1));
	}
}

static void use_running(struct norm *n, size_t group)
{
	for (size_t c = group * n->lanes; c < end_of(n, group); c++) {
		n->mean[c] = n->base.buffers.running_mean[c];
		n->inverse[c] = 1 / sqrt(n->base.buffers.running_var[c] + n->base.desc.eps);
	}
}

/* Sets scale and shift of y = scale * x + shift; zero for padding channels. */
static void set_line(struct norm *n, size_t group)
{
	memset(n->scale + group * n->lanes, 0, n->lanes * sizeof *n->scale);
	memset(n->shift + group * n->lanes, 0, n->lanes * sizeof *n->shift);
	for (size_t c = group * n->lanes; c < end_of(n, group); c++) {
		n->scale[c] = n->base.buffers.weight[c] * n->inverse[c];
		n->shift[c] = n->base.buffers.bias[c] - n->mean[c] * n->scale[c];
	}
}

static void normalise_at(const struct norm *n, size_t image, size_t group, size_t part)
{
	const struct gn_op_buffers *b = &n->base.buffers;
	struct gn_norm_piece p = piece_of(n, image, part, group);
	struct gn_norm_line l = line_of(n, p.first);

	n->loops->normalise(&p, &l, read_at(n, &p, b->in[0]), n->base.desc.add ? read_at(n, &p, b->in[1]) : NULL, write_at(n, &p, b->out));
}

static void normalise(const struct norm *n)
{
	size_t images = n->base.desc.in[0].n;

#pragma omp parallel for collapse(3) schedule(static)
	for (size_t image = 0; image < images; image++)
		for (size_t group = 0; group < n->groups; group++)
			for (size_t part = 0; part < n->parts; part++)
				normalise_at(n, image, group, part);
}

static enum gn_status forward_rest(struct gn_op *op, struct gn_err *err)
{
	struct norm *n = self(op);

	(void)err;
	for (size_t group = 0; group < n->groups; group++) {
		if (op->desc.training)
			use_batch(n, group);
		else
			use_running(n, group);
		set_line(n, group);
	}
	normalise(n);
	return GN_OK;
}

static enum gn_status forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	(void)step;
	if (op->desc.training)
		reduce(self(op), NULL);
	return op->info.sum_count ? GN_OK : forward_rest(op, err);
}

static enum gn_status recompute(struct gn_op *op, struct gn_err *err)
{
	struct norm *n = self(op);

	(void)err;
	for (size_t group = 0; group < n->groups; group++)
		set_line(n, group);
	normalise(n);
	return GN_OK;
}

/* Gradients of scale and shift are local to this process, as all parameter gradients. */
static void store_gradients(const struct norm *n, size_t group)
{
	for (size_t c = group * n->lanes; c < end_of(n, group); c++) {
		n->base.buffers.dbias[c] = (float)n->from_sum[c];
		n->base.buffers.dweight[c] = (float)(n->from_dot[c] * n->inverse[c]);
	}
}

static void scale_sums(struct norm *n, size_t group)
{
	double count = value_count(n);

	for (size_t c = group * n->lanes; c < end_of(n, group); c++) {
		n->from_sum[c] *= n->scale[c] / count;
		n->from_dot[c] *= n->scale[c] * n->inverse[c] * n->inverse[c] / count;
	}
}

static void gradient_at(const struct norm *n, size_t image, size_t group, size_t part)
{
	const struct gn_op_buffers *b = &n->base.buffers;
	struct gn_norm_piece p = piece_of(n, image, part, group);
	struct gn_norm_line l = line_of(n, p.first);
	const void *dy = n->base.desc.add ? b->din[1] : b->dout;

	l.relu &= !n->base.desc.add; /* already masked */
	n->loops->gradient(&p, &l, read_at(n, &p, b->in[0]), read_at(n, &p, dy), write_at(n, &p, b->din[0]));
}

static enum gn_status backward_rest(struct gn_op *op, struct gn_err *err)
{
	struct norm *n = self(op);
	size_t images = op->desc.in[0].n;

	(void)err;
	for (size_t group = 0; group < n->groups; group++)
		scale_sums(n, group);
#pragma omp parallel for collapse(3) schedule(static)
	for (size_t image = 0; image < images; image++)
		for (size_t group = 0; group < n->groups; group++)
			for (size_t part = 0; part < n->parts; part++)
				gradient_at(n, image, group, part);
	return GN_OK;
}

static enum gn_status backward(struct gn_op *op, struct gn_err *err)
{
	struct norm *n = self(op);

	for (size_t group = 0; group < n->groups; group++)
		set_line(n, group);
	reduce(n, op->buffers.dout);
	for (size_t group = 0; group < n->groups; group++)
		store_gradients(n, group);
	return op->info.sum_count ? GN_OK : backward_rest(op, err);
}

static enum gn_status bind(struct gn_op *op, struct gn_err *err)
{
	struct norm *n = self(op);
	size_t width = channels(n);

	(void)err;
	n->mean = op->buffers.workspace;
	n->inverse = n->mean + width;
	n->scale = op->buffers.scratch;
	n->shift = n->scale + width;
	n->from_sum = n->shift + width;
	n->from_dot = n->from_sum + width;
	n->sums = n->from_dot + width;
	op->sums = n->from_sum; /* and from_dot, its neighbour */
	return GN_OK;
}

static const struct gn_norm_loops *best_loops(void)
{
#if defined __x86_64__
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
		return &gn_norm_loops_avx512;
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return &gn_norm_loops_avx2;
#endif
	return &gn_norm_loops_plain;
}

static void describe(struct norm *n)
{
	const struct gn_layout *in = &n->base.desc.in[0];

	n->element_bytes = (size_t)in->element_bytes;
	n->loops = gn_layout_is_bf16(in) ? &gn_bf16_loops()->norm : best_loops();
	n->map = (size_t)in->h * in->w;
	n->parts = (n->map + PART_PIXELS - 1) / PART_PIXELS;
	n->lanes = in->block > 1 ? in->block : 1;
	if (in->block == 0 && in->c % 8 == 0)
		n->lanes = in->c % 16 ? 8 : 16;
	n->groups = ((size_t)in->c + n->lanes - 1) / n->lanes;
	n->pixel_stride = in->block ? (size_t)in->block : (size_t)in->c;
	n->group_stride = in->block ? n->map * in->block : (size_t)n->lanes;
	n->image_stride = gn_layout_elements(in) / in->n;
	n->base.info.workspace_bytes = 2 * channels(n) * sizeof(double);
	n->base.info.scratch_bytes = (4 + 2 * n->parts * in->n) * channels(n) * sizeof(double);
	n->base.info.in[1].block = in->block;
	n->base.info.in[1].element_bytes = in->element_bytes;
	n->base.info.sum_count = n->base.desc.training && n->base.desc.members > 1 ? 2 * channels(n) : 0;
	n->base.info.backward_reads_in = 1;
	n->base.info.backward_reads_out = n->base.desc.add;
	n->base.info.recomputes = !n->base.desc.add;
	n->base.info.second_gradient_in_place = n->base.desc.add;
	n->base.info.sums_gradients = n->base.desc.add;
}

enum gn_status gn_host_batch_norm_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	static const struct gn_op_class class = {.bind = bind, .forward = forward, .forward_rest = forward_rest,
						 .recompute = recompute, .backward = backward, .backward_rest = backward_rest};
	struct gn_op *op = gn_op_alloc(sizeof(struct norm), &class, base, err);

	if (!op)
		return GN_ERR_NO_MEMORY;
	describe(self(op));
	*out = op;
	return GN_OK;
}
