/* How work on tensors is cut into blocks and threads: index arithmetic without any memory, for kernels and for tests.
 *
 * Tensors lie channels innermost (NHWC), so a tensor is rows of channels, a row one pixel of one image. Threads take
 * whole vectors of channels where channels and addresses allow, else single ones; below, "vectors" counts either per
 * row.
 *
 * Compiled as C by the host's compiler and as CUDA by nvcc. Thread safety: pure functions.
 */
#ifndef GN_KERNELS_CUDA_SHAPE_H
#define GN_KERNELS_CUDA_SHAPE_H

#include "kernels/cuda/type.h"

#define GN_CUDA_THREADS 256 /* in every block, except where a kernel says otherwise */

/* --- Rows of channels: a block takes `lanes` neighbouring vectors in `rows_per_chunk` rows, row_lanes rows at a time
 * --- */

struct gn_cuda_tile {
	int vectors;   /* in a row */
	int lanes;     /* a power of two, lanes * row_lanes == GN_CUDA_THREADS */
	int row_lanes; /* a power of two */
	int groups;    /* of lanes, to cover a row: gridDim.x */
	int chunks;    /* of rows: gridDim.y */
	size_t rows, rows_per_chunk;
};

#define GN_CUDA_CHUNKS_MAX 1024

/* About blocks_wanted blocks in all, none with less than row_lanes rows. rows and vectors are at least 1. */
GN_HD struct gn_cuda_tile gn_cuda_tile_make(size_t rows, int vectors, int blocks_wanted)
{
	struct gn_cuda_tile t;
	size_t steps, chunks;

	t.vectors = vectors;
	t.lanes = 1;
	while (t.lanes < vectors && t.lanes < 32)
		t.lanes *= 2;
	t.row_lanes = GN_CUDA_THREADS / t.lanes;
	t.groups = (vectors + t.lanes - 1) / t.lanes;
	t.rows = rows;
	steps = (rows + t.row_lanes - 1) / t.row_lanes;
	chunks = blocks_wanted > t.groups ? (size_t)(blocks_wanted / t.groups) : 1;
	if (chunks > GN_CUDA_CHUNKS_MAX)
		chunks = GN_CUDA_CHUNKS_MAX;
	if (chunks > steps)
		chunks = steps;
	t.rows_per_chunk = (steps + chunks - 1) / chunks * t.row_lanes;
	t.chunks = (int)((rows + t.rows_per_chunk - 1) / t.rows_per_chunk);
	return t;
}

/* --- Pooling --- */

struct gn_cuda_window {
	int n, c, h, w; /* input */
	int out_h, out_w;
	int kernel, stride, pad; /* max pooling */
};

/* The outputs first .. last whose windows hold input i; none when first > last. */
GN_HD int gn_cuda_pool_first(int i, int kernel, int stride, int pad)
{
	int above = i + pad - kernel + 1;

	return above <= 0 ? 0 : (above + stride - 1) / stride;
}

GN_HD int gn_cuda_pool_last(int i, int stride, int pad, int out)
{
	int last = (i + pad) / stride;

	return last < out ? last : out - 1;
}

/* Adaptive pooling: output o of `out` averages the inputs begin .. end - 1 of `in`. */
GN_HD int gn_cuda_adaptive_begin(int o, int in, int out)
{
	return (int)((int64_t)o * in / out);
}

GN_HD int gn_cuda_adaptive_end(int o, int in, int out)
{
	return (int)((((int64_t)o + 1) * in + out - 1) / out);
}

/* The first output that holds input i; those that do follow each other, up to the last whose begin is not beyond i. */
GN_HD int gn_cuda_adaptive_first(int i, int in, int out)
{
	int o = (int)((int64_t)i * out / in);

	while (o > 0 && gn_cuda_adaptive_end(o - 1, in, out) > i)
		o--;
	return o;
}

/* --- Images --- */

/* The pixels of a row or column that make one of a sample, weighted by a triangle: as data/sample/resize.h says. */
struct gn_cuda_taps {
	int first, count;
	float centre, slope; /* from the first one's middle, in pixels; 1 / the triangle's half */
};

/* Output i of `outputs` that lie evenly over [from, from + span) of `length` pixels. */
GN_HD struct gn_cuda_taps gn_cuda_taps_of(double from, double span, unsigned outputs, unsigned i, unsigned length)
{
	double scale = span / outputs, reach = scale > 1 ? scale : 1, centre = from + (i + 0.5) * scale;
	double low = floor(centre - reach + 0.5), high = floor(centre + reach + 0.5);
	struct gn_cuda_taps t;

	t.first = low <= 0 ? 0 : low >= length ? (int)length - 1 : (int)low;
	t.count = (high <= t.first + 1.0 ? t.first + 1 : high > length ? (int)length : (int)high) - t.first;
	t.centre = (float)(centre - t.first - 0.5);
	t.slope = (float)(1 / reach);
	return t;
}

/* Not divided by the sum of all; that is above 0. */
GN_HD float gn_cuda_tap_weight(const struct gn_cuda_taps *t, int k)
{
	float weight = 1 - fabsf((float)k - t->centre) * t->slope;

	return t->count == 1 ? 1 : weight > 0 ? weight : 0;
}

/* --- Many tensors in one launch --- */

#define GN_CUDA_CHUNK_ELEMENTS 8192 /* a multiple of what threads take at once, so that every chunk begins aligned */

GN_HD size_t gn_cuda_chunk_count(size_t elements)
{
	return (elements + GN_CUDA_CHUNK_ELEMENTS - 1) / GN_CUDA_CHUNK_ELEMENTS;
}

#endif
