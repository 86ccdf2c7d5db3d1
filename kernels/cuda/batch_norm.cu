/* Sums are of x minus its first row: squares would cancel where the mean of a channel is large compared with its deviation. */
#include "kernels/cuda/batch_norm.cuh"

using namespace gn;

template <class T, int V> static __global__ void __launch_bounds__(GN_CUDA_THREADS, RESIDENT)
	statistics_kernel(struct gn_cuda_tile t, int channels, const T *x, float *partial)
{
	place p = find_place<V>(t);
	float sum[V] = {}, squares[V] = {}, shift[V] = {};

	if (p.active)
		load_floats<T, V>(x + p.channel, shift);
	for (size_t row = p.begin + p.row_lane; p.active && row < p.end; row += (size_t)ROWS * t.row_lanes) {
		pack<T, V> v[ROWS];

#pragma unroll
		for (int i = 0; i < ROWS; i++)
			if (row + (size_t)i * t.row_lanes < p.end)
				v[i] = load<T, V>(x + (row + (size_t)i * t.row_lanes) * channels + p.channel);
#pragma unroll
		for (int i = 0; i < ROWS; i++) {
			if (row + (size_t)i * t.row_lanes >= p.end)
				break;
#pragma unroll
			for (int k = 0; k < V; k++) {
				float d = value(v[i], k) - shift[k];

				sum[k] += d;
				squares[k] += d * d;
			}
		}
	}
	write_partial<V>(t, p, channels, sum, squares, partial);
}

struct finish {
	int channels;
	double rows, eps, momentum;
	double *sums;
	float *mean, *inverse, *running_mean, *running_var;
};

static __device__ inline void finish_channel(const struct finish &f, int c, double mean, double var)
{
	double unbiased = var * f.rows / (f.rows - 1);

	f.mean[c] = (float)mean;
	f.inverse[c] = (float)(1 / sqrt(var + f.eps));
	if (f.running_mean)
		f.running_mean[c] = (float)((1 - f.momentum) * f.running_mean[c] + f.momentum * mean);
	if (f.running_var)
		f.running_var[c] = (float)((1 - f.momentum) * f.running_var[c] + f.momentum * unbiased);
}

template <class T>
static __global__ void total_kernel(const float *partial, int chunks, double own_rows, const T *x, struct finish f)
{
	int c = (int)blockIdx.x * 32 + threadIdx.x % 32;
	double sum, squares, mean, deviations;

	total_chunks(partial, chunks, f.channels, c, &sum, &squares);
	if (threadIdx.x >= 32 || c >= f.channels)
		return;
	mean = widen(x[c]) + sum / own_rows;
	deviations = squares - sum * sum / own_rows;
	/* rounding can make it negative; NaN is kept */
	deviations = deviations < 0 ? 0 : deviations;
	f.sums[c] = mean * own_rows;
	f.sums[f.channels + c] = deviations + mean * mean * own_rows;
	if (f.rows > 0)
		finish_channel(f, c, mean, deviations / f.rows);
}

static __global__ void finish_kernel(struct finish f)
{
	int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
	double mean, var;

	if (c >= f.channels)
		return;
	mean = f.sums[c] / f.rows;
	var = f.sums[f.channels + c] / f.rows - mean * mean;
	finish_channel(f, c, mean, var < 0 ? 0 : var);
}

static __global__ void running_kernel(struct finish f)
{
	int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);

	if (c >= f.channels)
		return;
	f.mean[c] = f.running_mean[c];
	f.inverse[c] = (float)(1 / sqrt(f.running_var[c] + f.eps));
}

static struct finish finish_of(const struct gn_cuda_batch_norm *b, size_t total_rows)
{
	struct finish f = {b->channels, (double)total_rows, b->eps,	     b->momentum,   b->sums,
			   b->mean,	b->inverse,	    b->running_mean, b->running_var};

	return f;
}

size_t gn_cuda_batch_norm_scratch_bytes(const struct gn_cuda_stream *s, size_t rows, int channels)
{
	/* the number of chunks depends on the vectors per row, which depend on the type */
	int chunks = reduction_tile(s, rows, channels).chunks;

	for (int vector = 4; vector <= 8; vector *= 2) {
		int more = channels % vector ? 0 : reduction_tile(s, rows, channels / vector).chunks;

		chunks = more > chunks ? more : chunks;
	}
	return 2 * sizeof(float) * (size_t)chunks * (size_t)channels;
}

template <class T, int V> static enum gn_status statistics(struct gn_cuda_stream *s, const struct gn_cuda_batch_norm *b,
							   const void *x, size_t total_rows, struct gn_err *err)
{
	struct gn_cuda_tile t = reduction_tile(s, b->rows, b->channels / V);
	enum gn_status status =
		launch(s, "kernel batch_norm_statistics", err, dim3(t.groups, t.chunks), GN_CUDA_THREADS,
		       statistics_kernel<T, V>, t, b->channels, (const T *)x, (float *)b->scratch);

	if (status)
		return status;
	return launch(s, "kernel batch_norm_total", err, dim3((b->channels + 31) / 32), 32 * TOTAL_LANES,
		      total_kernel<T>, (const float *)b->scratch, t.chunks, (double)b->rows, (const T *)x,
		      finish_of(b, total_rows));
}

enum gn_status gn_cuda_batch_norm_statistics(struct gn_cuda_stream *s, const struct gn_cuda_batch_norm *b,
					     const void *x, size_t total_rows, struct gn_err *err)
{
	if (b->rows < 1 || b->channels < 1 || total_rows == 1 || (total_rows && total_rows != b->rows))
		return gn_err_set(err, GN_ERR_USAGE, "batch norm: statistics over %zu rows of %d channels, %zu in all",
				  b->rows, b->channels, total_rows);
	return GN_BY_TYPE(b->type, wide_channels(b->type, b->channels) && multiple_of_16(x), statistics, s, b, x,
			  total_rows, err);
}

enum gn_status gn_cuda_batch_norm_finish(struct gn_cuda_stream *s, const struct gn_cuda_batch_norm *b,
					 size_t total_rows, struct gn_err *err)
{
	if (total_rows < 2)
		return gn_err_set(err, GN_ERR_USAGE, "batch norm: statistics over %zu values", total_rows);
	return launch(s, "kernel batch_norm_finish", err, dim3((b->channels + 255) / 256), 256, finish_kernel,
		      finish_of(b, total_rows));
}

enum gn_status gn_cuda_batch_norm_running(struct gn_cuda_stream *s, const struct gn_cuda_batch_norm *b,
					  struct gn_err *err)
{
	return launch(s, "kernel batch_norm_running", err, dim3((b->channels + 255) / 256), 256, running_kernel,
		      finish_of(b, 0));
}

struct apply {
	int channels, with_relu;
	const float *weight, *bias, *mean, *inverse;
};

template <class T, int V> static __global__ void __launch_bounds__(GN_CUDA_THREADS, RESIDENT)
	apply_kernel(struct gn_cuda_tile t, struct apply a, const T *x, const T *added, T *y)
{
	place p = find_place<V>(t);
	float mean[V], scale[V], bias[V];

	if (!p.active)
		return;
#pragma unroll
	for (int k = 0; k < V; k++) {
		mean[k] = a.mean[p.channel + k];
		scale[k] = a.weight[p.channel + k] * a.inverse[p.channel + k];
		bias[k] = a.bias[p.channel + k];
	}
	for (size_t row = p.begin + p.row_lane; row < p.end; row += (size_t)ROWS * t.row_lanes) {
		pack<T, V> v[ROWS], w[ROWS];

#pragma unroll
		for (int i = 0; i < ROWS; i++) {
			size_t at = (row + (size_t)i * t.row_lanes) * a.channels + p.channel;

			if (row + (size_t)i * t.row_lanes >= p.end)
				break;
			v[i] = load<T, V>(x + at);
			if (added)
				w[i] = load<T, V>(added + at);
		}
#pragma unroll
		for (int i = 0; i < ROWS; i++) {
			size_t at = (row + (size_t)i * t.row_lanes) * a.channels + p.channel;
			float out[V];

			if (row + (size_t)i * t.row_lanes >= p.end)
				break;
#pragma unroll
			for (int k = 0; k < V; k++) {
				out[k] = (value(v[i], k) - mean[k]) * scale[k] + bias[k];
				if (added)
					out[k] += value(w[i], k);
				if (a.with_relu)
					out[k] = relu(out[k]);
			}
			store<T, V>(y + at, out);
		}
	}
}

template <class T, int V> static enum gn_status apply_to(struct gn_cuda_stream *s, const struct gn_cuda_batch_norm *b,
							 const void *x, const void *added, void *y, struct gn_err *err)
{
	struct gn_cuda_tile t = apply_tile(s, b->rows, b->channels / V);
	struct apply a = {b->channels, b->relu, b->weight, b->bias, b->mean, b->inverse};

	return launch(s, "kernel batch_norm_apply", err, dim3(t.groups, t.chunks), GN_CUDA_THREADS, apply_kernel<T, V>,
		      t, a, (const T *)x, (const T *)added, (T *)y);
}

enum gn_status gn_cuda_batch_norm_apply(struct gn_cuda_stream *s, const struct gn_cuda_batch_norm *b, const void *x,
					const void *added, void *y, struct gn_err *err)
{
	int is_wide =
		wide_channels(b->type, b->channels) && multiple_of_16(x) && multiple_of_16(added) && multiple_of_16(y);

	if (b->rows < 1 || b->channels < 1)
		return gn_err_set(err, GN_ERR_USAGE, "batch norm: %zu rows of %d channels", b->rows, b->channels);
	return GN_BY_TYPE(b->type, is_wide, apply_to, s, b, x, added, y, err);
}

template <class T> static __global__ void affine_kernel(struct apply a, T *scale, T *shift)
{
	int c = (int)(blockIdx.x * blockDim.x + threadIdx.x);
	float factor[1], rest[1];

	if (c >= a.channels)
		return;
	factor[0] = a.weight[c] * a.inverse[c];
	rest[0] = a.bias[c] - a.mean[c] * factor[0];
	store<T, 1>(scale + c, factor);
	store<T, 1>(shift + c, rest);
}

template <class T, int V> static enum gn_status affine(struct gn_cuda_stream *s, const struct gn_cuda_batch_norm *b,
						       void *scale, void *shift, struct gn_err *err)
{
	struct apply a = {b->channels, 0, b->weight, b->bias, b->mean, b->inverse};

	return launch(s, "kernel batch_norm_affine", err, dim3((b->channels + 255) / 256), 256, affine_kernel<T>, a,
		      (T *)scale, (T *)shift);
}

enum gn_status gn_cuda_batch_norm_affine(struct gn_cuda_stream *s, const struct gn_cuda_batch_norm *b, void *scale,
					 void *shift, struct gn_err *err)
{
	return GN_BY_TYPE(b->type, 0, affine, s, b, scale, shift, err);
}
