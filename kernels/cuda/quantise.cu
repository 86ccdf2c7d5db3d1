/* A block processes one group at a time, each thread four adjacent elements. */
#include "kernels/cuda/launch.cuh"

using namespace gn;

static const int EACH = GN_QUANTISE_GROUP / GN_CUDA_THREADS;
static_assert(EACH == 4, "a thread's part is a word of bytes");

/* Stores four bytes at once, the first one lowest. */
static __device__ inline void store_bytes(int8_t *to, const float (&whole)[EACH])
{
	uint32_t word = 0;

#pragma unroll
	for (int k = 0; k < EACH; k++)
		word |= (uint32_t)(uint8_t)(int8_t)whole[k] << 8 * k;
	*reinterpret_cast<uint32_t *>(to) = word;
}

static __device__ inline float byte_of(uint32_t word, int k)
{
	return (int8_t)(uint8_t)(word >> 8 * k);
}

/* Loads a thread's part of a group, padded with zeros, which do not change the scale. */
static __device__ inline void load_part(const float *x, size_t at, size_t count, int is_wide, float (&v)[EACH])
{
	if (is_wide && at + EACH <= count) {
		load_floats<float, EACH>(x + at, v);
		return;
	}
#pragma unroll
	for (int k = 0; k < EACH; k++)
		v[k] = at + k < count ? x[at + k] : 0;
}

/* The maximum over a block, in all threads; NaN if an element is NaN. */
static __device__ inline float block_largest(float x, float *shared)
{
	__syncthreads();
	shared[threadIdx.x] = x;
	for (int step = GN_CUDA_THREADS / 2; step > 0; step /= 2) {
		__syncthreads();
		if (threadIdx.x < (unsigned)step) {
			float a = shared[threadIdx.x], b = shared[threadIdx.x + step];

			shared[threadIdx.x] = a != a || a > b ? a : b;
		}
	}
	__syncthreads();
	return shared[0];
}

/* max(most, |x|); non-finite numbers become NaN, which persists. */
static __device__ inline float larger(float most, float x)
{
	float size = x - x == 0 ? fabsf(x) : NAN;

	return most != most || most > size ? most : size;
}

/* Stores the quantised values of a thread's part, and the remainders. */
static __device__ inline void store_part(const float (&whole)[EACH], const float (&v)[EACH], float scale, size_t at, size_t count,
					 int is_wide, int8_t *to, float *rest)
{
	float left[EACH];

#pragma unroll
	for (int k = 0; k < EACH; k++)
		left[k] = v[k] - whole[k] * scale;
	if (is_wide && at + EACH <= count) {
		store_bytes(to + at, whole);
		if (rest)
			store<float, EACH>(rest + at, left);
		return;
	}
#pragma unroll
	for (int k = 0; k < EACH; k++) {
		if (at + k < count)
			to[at + k] = (int8_t)whole[k];
		if (at + k < count && rest)
			rest[at + k] = left[k];
	}
}

static __global__ void __launch_bounds__(GN_CUDA_THREADS)
	quantise_kernel(const float *x, size_t count, int is_wide, int8_t *to, float *scales, float *rest)
{
	__shared__ float shared[GN_CUDA_THREADS];

	for (size_t group = blockIdx.x; group * GN_QUANTISE_GROUP < count; group += gridDim.x) {
		size_t at = group * GN_QUANTISE_GROUP + (size_t)threadIdx.x * EACH;
		float v[EACH], whole[EACH], most = 0, scale;

		load_part(x, at, count, is_wide, v);
#pragma unroll
		for (int k = 0; k < EACH; k++)
			most = larger(most, v[k]);
		most = block_largest(most, shared);
		scale = most < GN_QUANTISE_LEAST ? 0 : most / 127;
		if (threadIdx.x == 0)
			scales[group] = scale;
#pragma unroll
		for (int k = 0; k < EACH; k++)
			whole[k] = scale > 0 ? rintf(v[k] / scale) : 0;
		store_part(whole, v, scale, at, count, is_wide, to, rest);
	}
}

enum gn_status gn_cuda_quantise(struct gn_cuda_stream *s, const float *x, size_t count, int8_t *to, float *scales, float *rest,
				struct gn_err *err)
{
	if (count < 1)
		return gn_err_set(err, GN_ERR_USAGE, "quantise: no elements");
	return launch(s, "kernel quantise", err, dim3(blocks_for(s, GN_QUANTISE_GROUPS(count) * GN_CUDA_THREADS)),
		      GN_CUDA_THREADS, quantise_kernel, x, count,
		      multiple_of_16(x) && multiple_of_16(to) && multiple_of_16(rest), to, scales, rest);
}

static __global__ void __launch_bounds__(GN_CUDA_THREADS)
	widen_kernel(const int8_t *from, const float *scales, size_t count, int is_wide, int adds, float *to)
{
	size_t whole = is_wide ? count / EACH : 0, stride = (size_t)gridDim.x * blockDim.x;
	size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

	/* adjacent elements are in one group */
	for (size_t i = first; i < whole; i += stride) {
		uint32_t word = *reinterpret_cast<const uint32_t *>(from + i * EACH);
		float scale = scales[i * EACH / GN_QUANTISE_GROUP], sum[EACH] = {0};

		if (adds)
			load_floats<float, EACH>(to + i * EACH, sum);
#pragma unroll
		for (int k = 0; k < EACH; k++)
			sum[k] += byte_of(word, k) * scale;
		store<float, EACH>(to + i * EACH, sum);
	}
	for (size_t i = whole * EACH + first; i < count; i += stride)
		to[i] = (adds ? to[i] : 0) + from[i] * scales[i / GN_QUANTISE_GROUP];
}

enum gn_status gn_cuda_dequantise(struct gn_cuda_stream *s, const int8_t *from, const float *scales, size_t count, int adds,
				  float *to, struct gn_err *err)
{
	if (count < 1)
		return gn_err_set(err, GN_ERR_USAGE, "dequantise: no elements");
	return launch(s, "kernel dequantise", err, dim3(blocks_for(s, count / EACH + 1)), GN_CUDA_THREADS,
		      widen_kernel, from, scales, count, multiple_of_16(from) && multiple_of_16(to), adds, to);
}
