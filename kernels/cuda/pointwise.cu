#include "kernels/cuda/pointwise.cuh"

using namespace gn;

#ifndef GN_CUDA_EMULATE
/* Probes whether this build has code for the device: its attributes are queried. */
static __global__ void probe(int32_t *out)
{
	*out = 1;
}

extern "C" enum gn_status gn_cuda_kernels_probe(int ordinal, struct gn_err *err)
{
	struct cudaFuncAttributes attributes;

	return gn_cuda_check(cudaFuncGetAttributes(&attributes, probe), "cudaFuncGetAttributes", ordinal, err);
}
#endif

template <class F, class T, int V> static __global__ void cast_kernel(const F *from, T *to, size_t count)
{
	size_t whole = count / V;

	for (size_t i = GRID_INDEX; i < whole; i += GRID_STRIDE) {
		float x[V];

		load_floats<F, V>(from + i * V, x);
		store<T, V>(to + i * V, x);
	}
	for (size_t i = whole * V + GRID_INDEX; i < count; i += GRID_STRIDE)
		narrow(widen(from[i]), &to[i]);
}

template <class F, class T>
static enum gn_status cast_to(struct gn_cuda_stream *s, const void *from, void *to, size_t count, struct gn_err *err)
{
	/* 8 floats take two accesses of 16 bytes; 4 elements of a smaller type are 8 bytes */
	int aligned = multiple_of_16(from) && multiple_of_16(to);
	auto kernel = aligned ? cast_kernel<F, T, 4> : cast_kernel<F, T, 1>;

	if (count == 0)
		return GN_OK;
	return launch(s, "kernel cast", err, dim3(blocks_for(s, (count + 3) / 4)), GN_CUDA_THREADS, kernel,
		      (const F *)from, (T *)to, count);
}

template <class F> static enum gn_status cast_from(struct gn_cuda_stream *s, const void *from,
						   enum gn_cuda_type to_type, void *to, size_t count,
						   struct gn_err *err)
{
	return to_type == GN_CUDA_F32	 ? cast_to<F, float>(s, from, to, count, err)
	       : to_type == GN_CUDA_BF16 ? cast_to<F, bf16>(s, from, to, count, err)
					 : cast_to<F, f16>(s, from, to, count, err);
}

enum gn_status gn_cuda_cast(struct gn_cuda_stream *s, enum gn_cuda_type from_type, const void *from,
			    enum gn_cuda_type to_type, void *to, size_t count, struct gn_err *err)
{
	return from_type == GN_CUDA_F32	   ? cast_from<float>(s, from, to_type, to, count, err)
	       : from_type == GN_CUDA_BF16 ? cast_from<bf16>(s, from, to_type, to, count, err)
					   : cast_from<f16>(s, from, to_type, to, count, err);
}

struct sum {
	static const int INPUTS = 2;
	int with_relu;

	__device__ float operator()(float a, float b, float) const
	{
		return with_relu ? relu(a + b) : a + b;
	}
};

enum gn_status gn_cuda_add(struct gn_cuda_stream *s, enum gn_cuda_type type, const void *a, const void *b, int relu,
			   void *to, size_t count, struct gn_err *err)
{
	return each(s, "kernel add", type, sum{relu}, a, b, NULL, to, count, err);
}

struct relu_grad {
	static const int INPUTS = 3;

	__device__ float operator()(float y, float dout, float more) const
	{
		return y <= 0 ? 0 : dout + more;
	}
};

enum gn_status gn_cuda_relu_grad(struct gn_cuda_stream *s, enum gn_cuda_type type, const void *y, const void *dout,
				 const void *more, void *din, size_t count, struct gn_err *err)
{
	return each(s, "kernel relu_grad", type, relu_grad{}, y, dout, more, din, count, err);
}

struct scaling {
	static const int INPUTS = 1;
	float factor;

	__device__ float operator()(float x, float, float) const
	{
		return x * factor;
	}
};

enum gn_status gn_cuda_scale(struct gn_cuda_stream *s, enum gn_cuda_type type, void *x, double factor, size_t count,
			     struct gn_err *err)
{
	return each(s, "kernel scale", type, scaling{(float)factor}, x, NULL, NULL, x, count, err);
}

template <int V> static __global__ void __launch_bounds__(GN_CUDA_THREADS)
	average_kernel(float *average, const float *x, size_t count, const float *decay, const int32_t *skip)
{
	const float d = *decay, rest = (float)(1 - (double)d);
	size_t whole = count / V;

	if (skip && *skip)
		return;
	for (size_t i = GRID_INDEX; i < whole; i += GRID_STRIDE) {
		float a[V], b[V];

		load_floats<float, V>(average + i * V, a);
		load_floats<float, V>(x + i * V, b);
#pragma unroll
		for (int k = 0; k < V; k++)
			a[k] = d * a[k] + rest * b[k];
		store<float, V>(average + i * V, a);
	}
	for (size_t i = whole * V + GRID_INDEX; i < count; i += GRID_STRIDE)
		average[i] = d * average[i] + rest * x[i];
}

enum gn_status gn_cuda_average(struct gn_cuda_stream *s, float *average, const float *x, size_t count, const float *decay,
			       const int32_t *skip, struct gn_err *err)
{
	int aligned = multiple_of_16(average) && multiple_of_16(x);

	return count == 0 ? GN_OK
			  : launch(s, "kernel average", err, dim3(blocks_for(s, count / 4 + 1)), GN_CUDA_THREADS,
				   aligned ? average_kernel<4> : average_kernel<1>, average, x, count, decay, skip);
}

struct put_words {
	uint32_t words[GN_CUDA_PUT_BYTES_MAX / 4];
};

static __global__ void put_kernel(struct put_words from, unsigned count, uint32_t *to)
{
	if (threadIdx.x < count)
		to[threadIdx.x] = from.words[threadIdx.x];
}

enum gn_status gn_cuda_put(struct gn_cuda_stream *s, void *to, const void *values, size_t bytes, struct gn_err *err)
{
	struct put_words from = {};

	if (bytes % 4 || bytes > sizeof from)
		return gn_err_set(err, GN_ERR_USAGE, "kernel put: %zu bytes", bytes);
	memcpy(&from, values, bytes);
	return launch(s, "kernel put", err, dim3(1), GN_CUDA_PUT_BYTES_MAX / 4, put_kernel, from, (unsigned)(bytes / 4), (uint32_t *)to);
}

/* A finite number times zero is zero; others give NaN. */
static __device__ inline int not_finite(float x)
{
	return x * 0.f != 0.f;
}

template <class T, int V> static __global__ void find_kernel(const T *x, size_t count, int32_t *found)
{
	size_t whole = count / V;
	int bad = 0;

	for (size_t i = GRID_INDEX; i < whole; i += GRID_STRIDE) {
		float v[V];

		load_floats<T, V>(x + i * V, v);
#pragma unroll
		for (int k = 0; k < V; k++)
			bad |= not_finite(v[k]);
	}
	for (size_t i = whole * V + GRID_INDEX; i < count; i += GRID_STRIDE)
		bad |= not_finite(widen(x[i]));
	if (bad)
		atomicOr(found, 1);
}

template <class T, int V>
static enum gn_status find(struct gn_cuda_stream *s, const void *x, size_t count, int32_t *found, struct gn_err *err)
{
	return launch(s, "kernel find_nonfinite", err, dim3(blocks_for(s, (count + V - 1) / V)), GN_CUDA_THREADS,
		      find_kernel<T, V>, (const T *)x, count, found);
}

enum gn_status gn_cuda_find_nonfinite(struct gn_cuda_stream *s, enum gn_cuda_type type, const void *x, size_t count,
				      int32_t *found, struct gn_err *err)
{
	if (count == 0)
		return GN_OK;
	return GN_BY_TYPE(type, multiple_of_16(x), find, s, x, count, found, err);
}
