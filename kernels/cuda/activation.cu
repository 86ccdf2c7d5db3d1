/* Activations, and scaling of whole maps. */
#include "kernels/cuda/batch_norm.cuh"
#include "kernels/cuda/layers.h"
#include "kernels/cuda/pointwise.cuh"

using namespace gn;

#define INLINE static __device__ inline
#define REAL float
#define EXP expf
#define ERFC erfcf
#include "kernels/activation_formulas.h"

struct activation {
	static const int INPUTS = 1;
	enum gn_activation kind;

	__device__ float operator()(float x, float, float) const
	{
		return value(kind, x);
	}
};

enum gn_status gn_cuda_activate(struct gn_cuda_stream *s, enum gn_cuda_type type, enum gn_activation kind, const void *x, void *y,
				size_t count, struct gn_err *err)
{
	return each(s, "kernel activation", type, activation{kind}, x, NULL, NULL, y, count, err);
}

struct activation_grad {
	static const int INPUTS = 3;
	enum gn_activation kind;

	__device__ float operator()(float x, float dy, float more) const
	{
		return (dy + more) * slope(kind, x);
	}
};

enum gn_status gn_cuda_activate_grad(struct gn_cuda_stream *s, enum gn_cuda_type type, enum gn_activation kind, const void *x,
				     const void *dy, const void *more, void *dx, size_t count, struct gn_err *err)
{
	return each(s, "kernel activation_grad", type, activation_grad{kind}, x, dy, more, dx, count, err);
}

struct factors {
	size_t rows, drops; /* drops: 0 or 1; no padding: see struct softmax */
	int pixels, channels;
	const void *by_map;
	const float *by_channel;
	struct gn_cuda_dropout by_image;
};

static __device__ inline float image_factor(const struct gn_cuda_dropout &d, uint64_t step, size_t image)
{
	uint32_t draw[4];

	philox((uint32_t)(image / 4), d.stream, (uint32_t)step, (uint32_t)(step >> 32) << 16 | d.purpose, d.seed, draw);
	return draw[image % 4] / 4294967296.0 < d.rate ? 0 : (float)(1 / (1 - d.rate));
}

template <class T, int V> static __global__ void scale_maps_kernel(struct factors f, const T *x, T *y)
{
	size_t vectors = (size_t)f.channels / V, count = f.rows * vectors;
	uint64_t step = f.drops ? *f.by_image.step : 0;

	for (size_t i = GRID_INDEX; i < count; i += GRID_STRIDE) {
		size_t image = i / vectors / f.pixels, channel = i % vectors * V;
		float v[V], by[V];

		load_floats<T, V>(x + i * V, v);
		if (f.by_map)
			load_floats<T, V>((const T *)f.by_map + image * f.channels + channel, by);
		else
			by[0] = f.drops ? image_factor(f.by_image, step, image) : 0;
#pragma unroll
		for (int k = 0; k < V; k++)
			v[k] *= f.by_map ? by[k] : f.drops ? by[0] : f.by_channel[channel + k];
		store<T, V>(y + i * V, v);
	}
}

template <class T, int V> static enum gn_status scale_maps(struct gn_cuda_stream *s, const struct factors *f, const void *x, void *y,
							   struct gn_err *err)
{
	return launch(s, "kernel scale_maps", err, dim3(blocks_for(s, f->rows * (size_t)f->channels / V)), GN_CUDA_THREADS,
		      scale_maps_kernel<T, V>, *f, (const T *)x, (T *)y);
}

enum gn_status gn_cuda_scale_maps(struct gn_cuda_stream *s, const struct gn_cuda_factors *f, const void *x, void *y, struct gn_err *err)
{
	struct factors given = {(size_t)f->n * f->pixels, f->by_image != NULL, f->pixels, f->channels, f->by_map, f->by_channel, {}};
	int is_wide = wide_channels(f->type, f->channels) && multiple_of_16(x) && multiple_of_16(y) && multiple_of_16(f->by_map);

	if (f->by_image)
		given.by_image = *f->by_image;
	return GN_BY_TYPE(f->type, is_wide, scale_maps, s, &given, x, y, err);
}

/* A block for a group of channels of an image. */
template <class T, int V> static __global__ void __launch_bounds__(GN_CUDA_THREADS)
	map_sums_kernel(struct gn_cuda_tile t, int channels, const T *x, const T *dy, float *sums)
{
	__shared__ float shared[V][GN_CUDA_THREADS];
	place p = find_place<V>(t);
	size_t first = (size_t)blockIdx.y * t.rows;
	float sum[V] = {};

	for (size_t row = p.row_lane; p.active && row < t.rows; row += t.row_lanes) {
		float a[V], b[V];

		load_floats<T, V>(x + (first + row) * channels + p.channel, a);
		load_floats<T, V>(dy + (first + row) * channels + p.channel, b);
#pragma unroll
		for (int k = 0; k < V; k++)
			sum[k] += a[k] * b[k];
	}
#pragma unroll
	for (int k = 0; k < V; k++)
		shared[k][threadIdx.x] = sum[k];
	for (int step = t.row_lanes / 2; step > 0; step /= 2) {
		__syncthreads();
		for (int k = 0; p.row_lane < step && k < V; k++)
			shared[k][threadIdx.x] += shared[k][threadIdx.x + step * t.lanes];
	}
	for (int k = 0; p.row_lane == 0 && p.active && k < V; k++)
		sums[(size_t)blockIdx.y * channels + p.channel + k] = shared[k][threadIdx.x];
}

static __global__ void add_images_kernel(const float *sums, int n, int channels, float *to)
{
	for (size_t c = GRID_INDEX; c < (size_t)channels; c += GRID_STRIDE) {
		double sum = 0;

		for (int i = 0; i < n; i++)
			sum += sums[(size_t)i * channels + c];
		to[c] = (float)sum;
	}
}

template <class T, int V> static enum gn_status map_sums(struct gn_cuda_stream *s, const struct gn_cuda_factors *f, const void *x,
							 const void *dy, float *sums, struct gn_err *err)
{
	struct gn_cuda_tile t = gn_cuda_tile_make((size_t)f->pixels, f->channels / V, 1);

	return launch(s, "kernel map_sums", err, dim3(t.groups, f->n), GN_CUDA_THREADS, map_sums_kernel<T, V>, t, f->channels,
		      (const T *)x, (const T *)dy, sums);
}

enum gn_status gn_cuda_scale_maps_sums(struct gn_cuda_stream *s, const struct gn_cuda_factors *f, const void *x, const void *dy, float *sums,
				       void *dby_map, float *dby_channel, struct gn_err *err)
{
	int is_wide = wide_channels(f->type, f->channels) && multiple_of_16(x) && multiple_of_16(dy);
	enum gn_status status = GN_BY_TYPE(f->type, is_wide, map_sums, s, f, x, dy, sums, err);

	if (!status && dby_map)
		status = gn_cuda_cast(s, GN_CUDA_F32, sums, f->type, dby_map, (size_t)f->n * f->channels, err);
	if (!status && dby_channel)
		status = launch(s, "kernel add_images", err, dim3(blocks_for(s, f->channels)), GN_CUDA_THREADS, add_images_kernel,
				(const float *)sums, f->n, f->channels, dby_channel);
	return status;
}
