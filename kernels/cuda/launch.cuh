/* Shared by all kernels: vector types, block reductions, and launches with error checks.
 *
 * With GN_CUDA_EMULATE and tests/gpu/emulate.h before it, the same kernels are compiled for the host's processor.
 */
#ifndef GN_KERNELS_CUDA_LAUNCH_CUH
#define GN_KERNELS_CUDA_LAUNCH_CUH

#ifndef GN_CUDA_EMULATE
#include "src/device/cuda_native.h"
#endif
#include "kernels/cuda/kernels.h"

/* For loops over a grid: the first index of a thread, and the distance to its next one. */
#define GRID_INDEX ((size_t)blockIdx.x * blockDim.x + threadIdx.x)
#define GRID_STRIDE ((size_t)gridDim.x * blockDim.x)

namespace gn
{

struct bf16 {
	uint16_t bits;
};

struct f16 {
	uint16_t bits;
};

static __host__ __device__ inline float widen(float x)
{
	return x;
}

static __host__ __device__ inline float widen(bf16 x)
{
	return gn_bf16_widen(x.bits);
}

static __host__ __device__ inline float widen(f16 x)
{
	return gn_f16_widen(x.bits);
}

static __host__ __device__ inline void narrow(float x, float *to)
{
	*to = x;
}

static __host__ __device__ inline void narrow(float x, bf16 *to)
{
	to->bits = gn_bf16_narrow(x);
}

static __host__ __device__ inline void narrow(float x, f16 *to)
{
	to->bits = gn_f16_narrow(x);
}

/* x after a conversion to T and back. */
template <class T> static __host__ __device__ inline float rounded(float x)
{
	T stored;

	narrow(x, &stored);
	return widen(stored);
}

/* V adjacent elements, loaded and stored by one instruction. Eight of 16 bits stay in pairs: one by one they would take twice the
 * registers. */
template <class T, int V> struct alignas(sizeof(T) * V) pack {
	T v[V];
};
template <> struct alignas(16) pack<bf16, 8> {
	uint32_t pairs[4];
};
template <> struct alignas(16) pack<f16, 8> {
	uint32_t pairs[4];
};

template <class T, int V> static __device__ inline pack<T, V> load(const T *from)
{
	return *reinterpret_cast<const pack<T, V> *>(from);
}

/* Element k as a float. */
template <class T, int V> static __device__ inline float value(const pack<T, V> &p, int k)
{
	if constexpr (sizeof(T) == 2 && V == 8)
		return widen(T{(uint16_t)(p.pairs[k / 2] >> k % 2 * 16)});
	else
		return widen(p.v[k]);
}

template <class T, int V> static __device__ inline void store(T *to, const float (&x)[V])
{
	pack<T, V> p = {};

#pragma unroll
	for (int k = 0; k < V; k++) {
		if constexpr (sizeof(T) == 2 && V == 8) {
			T one;

			narrow(x[k], &one);
			p.pairs[k / 2] |= (uint32_t)one.bits << k % 2 * 16;
		} else {
			narrow(x[k], &p.v[k]);
		}
	}
	*reinterpret_cast<pack<T, V> *>(to) = p;
}

template <class T, int V> static __device__ inline void load_floats(const T *from, float (&x)[V])
{
	pack<T, V> p = load<T, V>(from);

#pragma unroll
	for (int k = 0; k < V; k++)
		x[k] = value(p, k);
}

static __device__ inline float relu(float x)
{
	return x > 0 || x != x ? x : 0;
}

/* The sum over a block of N threads (a power of two), in thread 0; shared has N elements. All threads must call it. */
template <int N, class S> static __device__ inline S block_sum(S x, S *shared)
{
	__syncthreads();
	shared[threadIdx.x] = x;
	for (int step = N / 2; step > 0; step /= 2) {
		__syncthreads();
		if (threadIdx.x < (unsigned)step)
			shared[threadIdx.x] += shared[threadIdx.x + step];
	}
	__syncthreads();
	return shared[0];
}

/* as in src/base/philox.h */
static __device__ inline void philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint64_t seed, uint32_t (&out)[4])
{
	uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

	for (int round = 0; round < 10; round++) {
		uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;

		c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
		c1 = (uint32_t)p1;
		c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
		c3 = (uint32_t)p0;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	out[0] = c0;
	out[1] = c1;
	out[2] = c2;
	out[3] = c3;
}

static inline int multiple_of_16(const void *p)
{
	return (uintptr_t)p % 16 == 0;
}

template <class T> struct wide {
	static const int vector = 16 / sizeof(T);
};

/* The number of blocks for `threads` threads, limited to what keeps the device busy; kernels use grid-stride loops. */
static inline unsigned blocks_for(const struct gn_cuda_stream *s, size_t threads)
{
	size_t blocks = (threads + GN_CUDA_THREADS - 1) / GN_CUDA_THREADS;
	size_t most = (size_t)gn_cuda_device_info(gn_cuda_stream_device(s))->multiprocessors * 32;

	return (unsigned)(blocks > most ? most : blocks ? blocks : 1);
}

static inline int multiprocessors(const struct gn_cuda_stream *s)
{
	return gn_cuda_device_info(gn_cuda_stream_device(s))->multiprocessors;
}

/* Whether the channels are whole vectors, as GN_BY_TYPE has them. */
static inline int wide_channels(enum gn_cuda_type type, int channels)
{
	return channels % (type == GN_CUDA_F32 ? 4 : 8) == 0;
}

#ifndef GN_CUDA_EMULATE
/* name: for errors, such as "kernel batch_norm_sums". */
template <class... P, class... A> static enum gn_status launch(struct gn_cuda_stream *s, const char *name,
							       struct gn_err *err, dim3 grid, unsigned threads,
							       void (*kernel)(P...), A... args)
{
	int ordinal = s->device->info.ordinal;
	enum gn_status status = gn_cuda_check(cudaSetDevice(ordinal), "cudaSetDevice", ordinal, err);

	if (status)
		return status;
	kernel<<<grid, threads, 0, s->native>>>(P(args)...);
	return gn_cuda_check(cudaGetLastError(), name, ordinal, err);
}
#endif

} // namespace gn

/* Calls function<T, V>(...) for the type, with vectors if `is_wide`, else with single elements. */
#define GN_BY_TYPE(type, is_wide, function, ...)                                                                       \
	((type) == GN_CUDA_F32 ? ((is_wide) ? function<float, 4>(__VA_ARGS__) : function<float, 1>(__VA_ARGS__))       \
	 : (type) == GN_CUDA_BF16                                                                                      \
		 ? ((is_wide) ? function<gn::bf16, 8>(__VA_ARGS__) : function<gn::bf16, 1>(__VA_ARGS__))               \
		 : ((is_wide) ? function<gn::f16, 8>(__VA_ARGS__) : function<gn::f16, 1>(__VA_ARGS__)))

#endif
