/* Layer norm, and softmax of attention: 32 threads a row. */
#include "kernels/cuda/batch_norm.cuh"
#include "kernels/cuda/layers.h"

using namespace gn;

static const int LANES = 32, ROWS_OF_BLOCK = GN_CUDA_THREADS / LANES;

static inline unsigned row_blocks(const struct gn_cuda_stream *s, size_t rows)
{
	return blocks_for(s, rows * LANES);
}

/* The sum over the lanes of a row, or their largest, in all of them. All threads of a block must call it. */
template <int LARGEST> static __device__ inline float row_total(float x)
{
#pragma unroll
	for (int step = LANES / 2; step > 0; step /= 2) {
		float other = __shfl_xor_sync(0xffffffffu, x, step);

		x = LARGEST ? (other > x ? other : x) : x + other;
	}
	return x;
}

struct norm_rows {
	size_t rows;
	int channels;
	float eps;
	const float *weight, *bias;
	float *mean, *inverse;
};

/* The sum of (x - centre)^power over a row; nothing of rows behind the last. */
template <class T, int V, int SQUARES>
static __device__ inline float moment(const T *x, int channels, int active, float centre)
{
	float sum = 0;

	for (int c = threadIdx.x % LANES * V; active && c < channels; c += LANES * V) {
		float v[V];

		load_floats<T, V>(x + c, v);
#pragma unroll
		for (int k = 0; k < V; k++)
			sum += SQUARES ? (v[k] - centre) * (v[k] - centre) : v[k];
	}
	return row_total<0>(sum);
}

template <class T, int V> static __global__ void __launch_bounds__(GN_CUDA_THREADS) norm_kernel(struct norm_rows n, const T *x, T *y)
{
	int lane = threadIdx.x % LANES;

	for (size_t first = (size_t)blockIdx.x * ROWS_OF_BLOCK; first < n.rows; first += (size_t)gridDim.x * ROWS_OF_BLOCK) {
		size_t row = first + threadIdx.x / LANES;
		int active = row < n.rows;
		const T *from = x + row * n.channels;
		float mean = moment<T, V, 0>(from, n.channels, active, 0) / n.channels;
		float inverse = 1 / sqrtf(moment<T, V, 1>(from, n.channels, active, mean) / n.channels + n.eps);

		for (int c = lane * V; active && c < n.channels; c += LANES * V) {
			float v[V];

			load_floats<T, V>(from + c, v);
#pragma unroll
			for (int k = 0; k < V; k++)
				v[k] = (v[k] - mean) * inverse * n.weight[c + k] + n.bias[c + k];
			store<T, V>(y + row * n.channels + c, v);
		}
		if (active && lane == 0) {
			n.mean[row] = mean;
			n.inverse[row] = inverse;
		}
	}
}

/* See gn_ref_layer_norm_backward(). */
template <class T, int V>
static __global__ void __launch_bounds__(GN_CUDA_THREADS) norm_grad_kernel(struct norm_rows n, const T *x, const T *dy, T *dx)
{
	for (size_t first = (size_t)blockIdx.x * ROWS_OF_BLOCK; first < n.rows; first += (size_t)gridDim.x * ROWS_OF_BLOCK) {
		size_t row = first + threadIdx.x / LANES, at = row * n.channels;
		int active = row < n.rows, begin = threadIdx.x % LANES * V;
		float mean = active ? n.mean[row] : 0, inverse = active ? n.inverse[row] : 0, sum = 0, dot = 0, h[V], d[V];

		for (int c = begin; active && c < n.channels; c += LANES * V) {
			load_floats<T, V>(x + at + c, h);
			load_floats<T, V>(dy + at + c, d);
#pragma unroll
			for (int k = 0; k < V; k++) {
				sum += d[k] * n.weight[c + k];
				dot += d[k] * n.weight[c + k] * (h[k] - mean) * inverse;
			}
		}
		sum = row_total<0>(sum) / n.channels;
		dot = row_total<0>(dot) / n.channels;
		for (int c = begin; active && c < n.channels; c += LANES * V) {
			load_floats<T, V>(x + at + c, h);
			load_floats<T, V>(dy + at + c, d);
#pragma unroll
			for (int k = 0; k < V; k++)
				d[k] = inverse * (d[k] * n.weight[c + k] - sum - (h[k] - mean) * inverse * dot);
			store<T, V>(dx + at + c, d);
		}
	}
}

template <class T, int V> static __global__ void __launch_bounds__(GN_CUDA_THREADS)
	norm_sums_kernel(struct gn_cuda_tile t, struct norm_rows n, const T *x, const T *dy, float *partial)
{
	place p = find_place<V>(t);
	float sum[V] = {}, dot[V] = {};

	for (size_t row = p.begin + p.row_lane; p.active && row < p.end; row += t.row_lanes) {
		float h[V], d[V];

		load_floats<T, V>(x + row * n.channels + p.channel, h);
		load_floats<T, V>(dy + row * n.channels + p.channel, d);
#pragma unroll
		for (int k = 0; k < V; k++) {
			sum[k] += d[k];
			dot[k] += d[k] * (h[k] - n.mean[row]) * n.inverse[row];
		}
	}
	write_partial<V>(t, p, n.channels, sum, dot, partial);
}

static __global__ void norm_total_kernel(const float *partial, int chunks, int channels, float *dweight, float *dbias)
{
	int c = (int)blockIdx.x * 32 + threadIdx.x % 32;
	double sum, dot;

	total_chunks(partial, chunks, channels, c, &sum, &dot);
	if (threadIdx.x >= 32 || c >= channels)
		return;
	dbias[c] = (float)sum;
	dweight[c] = (float)dot;
}

static struct norm_rows norm_of(const struct gn_cuda_layer_norm *l)
{
	return norm_rows{l->rows, l->channels, (float)l->eps, l->weight, l->bias, l->mean, l->inverse};
}

template <class T, int V> static enum gn_status layer_norm(struct gn_cuda_stream *s, const struct gn_cuda_layer_norm *l, const void *x,
							   void *y, struct gn_err *err)
{
	return launch(s, "kernel layer_norm", err, dim3(row_blocks(s, l->rows)), GN_CUDA_THREADS, norm_kernel<T, V>, norm_of(l),
		      (const T *)x, (T *)y);
}

enum gn_status gn_cuda_layer_norm(struct gn_cuda_stream *s, const struct gn_cuda_layer_norm *l, const void *x, void *y, struct gn_err *err)
{
	return GN_BY_TYPE(l->type, wide_channels(l->type, l->channels) && multiple_of_16(x) && multiple_of_16(y), layer_norm, s, l, x, y,
			  err);
}

/* The sums first: dx may replace dy. */
template <class T, int V> static enum gn_status layer_norm_grad(struct gn_cuda_stream *s, const struct gn_cuda_layer_norm *l, const void *x,
								const void *dy, void *dx, float *dweight, float *dbias, struct gn_err *err)
{
	struct gn_cuda_tile t = reduction_tile(s, l->rows, l->channels / V);
	enum gn_status status = launch(s, "kernel layer_norm_sums", err, dim3(t.groups, t.chunks), GN_CUDA_THREADS, norm_sums_kernel<T, V>,
				       t, norm_of(l), (const T *)x, (const T *)dy, l->scratch);

	if (!status)
		status = launch(s, "kernel layer_norm_total", err, dim3((l->channels + 31) / 32), 32 * TOTAL_LANES, norm_total_kernel,
				(const float *)l->scratch, t.chunks, l->channels, dweight, dbias);
	if (!status && dx)
		status = launch(s, "kernel layer_norm_grad", err, dim3(row_blocks(s, l->rows)), GN_CUDA_THREADS, norm_grad_kernel<T, V>,
				norm_of(l), (const T *)x, (const T *)dy, (T *)dx);
	return status;
}

enum gn_status gn_cuda_layer_norm_grad(struct gn_cuda_stream *s, const struct gn_cuda_layer_norm *l, const void *x, const void *dy, void *dx,
				       float *dweight, float *dbias, struct gn_err *err)
{
	int is_wide = wide_channels(l->type, l->channels) && multiple_of_16(x) && multiple_of_16(dy) && multiple_of_16(dx);

	return GN_BY_TYPE(l->type, is_wide, layer_norm_grad, s, l, x, dy, dx, dweight, dbias, err);
}

/* No padding, as in all arguments of kernels: the emulation looks for addresses in every word. */
struct softmax {
	size_t rows;
	int count, stride;
	double factor;
};

template <class T> static __global__ void __launch_bounds__(GN_CUDA_THREADS) softmax_kernel(struct softmax m, const float *scores, T *p)
{
	int lane = threadIdx.x % LANES;

	for (size_t first = (size_t)blockIdx.x * ROWS_OF_BLOCK; first < m.rows; first += (size_t)gridDim.x * ROWS_OF_BLOCK) {
		size_t row = first + threadIdx.x / LANES;
		int count = row < m.rows ? m.count : 0;
		const float *from = scores + row * m.stride;
		T *to = p + row * m.stride;
		float factor = (float)m.factor, top = -INFINITY, sum = 0;

		for (int i = lane; i < count; i += LANES)
			top = from[i] > top ? from[i] : top;
		top = row_total<1>(top);
		for (int i = lane; i < count; i += LANES)
			sum += expf(factor * (from[i] - top));
		sum = row_total<0>(sum);
		for (int i = lane; i < count; i += LANES)
			narrow(expf(factor * (from[i] - top)) / sum, &to[i]);
	}
}

template <class T> static __global__ void __launch_bounds__(GN_CUDA_THREADS) softmax_grad_kernel(struct softmax m, const float *dp, T *p)
{
	int lane = threadIdx.x % LANES;

	for (size_t first = (size_t)blockIdx.x * ROWS_OF_BLOCK; first < m.rows; first += (size_t)gridDim.x * ROWS_OF_BLOCK) {
		size_t row = first + threadIdx.x / LANES;
		int count = row < m.rows ? m.count : 0;
		const float *from = dp + row * m.stride;
		T *to = p + row * m.stride;
		float factor = (float)m.factor, dot = 0;

		for (int i = lane; i < count; i += LANES)
			dot += widen(to[i]) * from[i];
		dot = row_total<0>(dot);
		for (int i = lane; i < count; i += LANES)
			narrow(factor * widen(to[i]) * (from[i] - dot), &to[i]);
	}
}

template <class T> static enum gn_status run_softmax(struct gn_cuda_stream *s, struct softmax m, int back, const float *from, void *p,
						     struct gn_err *err)
{
	return back ? launch(s, "kernel softmax_grad", err, dim3(row_blocks(s, m.rows)), GN_CUDA_THREADS, softmax_grad_kernel<T>, m, from,
			     (T *)p)
		    : launch(s, "kernel softmax", err, dim3(row_blocks(s, m.rows)), GN_CUDA_THREADS, softmax_kernel<T>, m, from, (T *)p);
}

static enum gn_status softmax_of_type(struct gn_cuda_stream *s, enum gn_cuda_type type, struct softmax m, int back, const float *from,
				      void *p, struct gn_err *err)
{
	return type == GN_CUDA_F32	? run_softmax<float>(s, m, back, from, p, err)
	       : type == GN_CUDA_BF16 ? run_softmax<bf16>(s, m, back, from, p, err)
				      : run_softmax<f16>(s, m, back, from, p, err);
}

enum gn_status gn_cuda_softmax(struct gn_cuda_stream *s, enum gn_cuda_type type, size_t rows, int count, int stride, double factor,
			       const float *scores, void *p, struct gn_err *err)
{
	return softmax_of_type(s, type, softmax{rows, count, stride, factor}, 0, scores, p, err);
}

enum gn_status gn_cuda_softmax_grad(struct gn_cuda_stream *s, enum gn_cuda_type type, size_t rows, int count, int stride, double factor,
				    const float *dp, void *p, struct gn_err *err)
{
	return softmax_of_type(s, type, softmax{rows, count, stride, factor}, 1, dp, p, err);
}
