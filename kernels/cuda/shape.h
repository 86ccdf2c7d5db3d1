/* Partition of tensors into blocks and threads: index arithmetic without memory accesses, for kernels and tests.
 *
 * Tensors are NHWC: rows of channels, one row per pixel of an image. Threads process vectors of channels where channels and
 * addresses allow, else single channels; below, "vectors" counts either per row.
 *
 * Compiled as C by the host's compiler and as CUDA by nvcc. Thread safety: pure functions.
 */
#ifndef GN_KERNELS_CUDA_SHAPE_H
#define GN_KERNELS_CUDA_SHAPE_H

#include "kernels/cuda/type.h"

#define GN_CUDA_THREADS 256 /* per block, unless a kernel says otherwise */

struct gn_cuda_tile {
	int vectors;   /* per row */
	int lanes;     /* a power of two, lanes * row_lanes == GN_CUDA_THREADS */
	int row_lanes; /* a power of two */
	int groups;    /* groups of lanes per row: gridDim.x */
	int chunks;    /* chunks of rows: gridDim.y */
	size_t rows, rows_per_chunk;
};

#define GN_CUDA_CHUNKS_MAX 1024

/* Aims at blocks_wanted blocks, none with fewer than row_lanes rows. rows and vectors are at least 1. */
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

struct gn_cuda_window {
	int n, c, h, w; /* input */
	int out_h, out_w;
	int kernel, stride, pad; /* max pooling */
};

/* The outputs first .. last whose windows contain input i; none if first > last. */
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

/* Adaptive pooling: output o of `out` averages inputs begin .. end - 1 of `in`. */
GN_HD int gn_cuda_adaptive_begin(int o, int in, int out)
{
	return (int)((int64_t)o * in / out);
}

GN_HD int gn_cuda_adaptive_end(int o, int in, int out)
{
	return (int)((((int64_t)o + 1) * in + out - 1) / out);
}

/* The first output whose window contains input i; the others follow, up to the last whose begin is at most i. */
GN_HD int gn_cuda_adaptive_first(int i, int in, int out)
{
	int o = (int)((int64_t)i * out / in);

	while (o > 0 && gn_cuda_adaptive_end(o - 1, in, out) > i)
		o--;
	return o;
}

/* The pixels of a row or column that contribute to one pixel of a sample, weighted by the triangle filter of
 * data/sample/resize.h. */
struct gn_cuda_taps {
	int first, count;
	float centre, slope; /* centre relative to the middle of the first pixel, in pixels; 1 / half width of the triangle */
};

/* Taps of output i of `outputs`, spaced evenly over [from, from + span) of `length` pixels. */
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

/* Not normalised by the sum of all weights, which is positive. */
GN_HD float gn_cuda_tap_weight(const struct gn_cuda_taps *t, int k)
{
	float weight = 1 - fabsf((float)k - t->centre) * t->slope;

	return t->count == 1 ? 1 : weight > 0 ? weight : 0;
}

#define GN_CUDA_CHUNK_ELEMENTS 8192 /* a multiple of the elements per thread, so that every chunk starts aligned */

GN_HD size_t gn_cuda_chunk_count(size_t elements)
{
	return (elements + GN_CUDA_CHUNK_ELEMENTS - 1) / GN_CUDA_CHUNK_ELEMENTS;
}

#endif
