/* Runs CUDA kernels on the host's processor: tests of indices, bounds and arithmetic without a GPU.
 *
 * Compiled with GN_CUDA_EMULATE, a .cu file of kernels/cuda is plain C++: the threads of a block are fibres that switch at
 * barriers, blocks run one after the other, and device memory is host memory (under AddressSanitizer every access is checked).
 * Concurrency of real hardware is not emulated; but cuda:0 runs a block's threads first to last and cuda:1 last to first, so that
 * a missing barrier changes a result on one of them.
 */
#ifndef GN_TESTS_GPU_EMULATE_H
#define GN_TESTS_GPU_EMULATE_H

#include "src/device/cuda.h"
#include "tests/gpu/emulate_queue.h"

#include <math.h>
#include <stdint.h>

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __launch_bounds__(...)

struct dim3 {
	unsigned x, y, z;
	dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
	{
	}
};

extern dim3 gridDim, blockDim, blockIdx, threadIdx;

/* Every thread of a block must call it equally often; otherwise the process ends. */
void gn_emulate_barrier(void);
/* Enqueues a kernel. */
enum gn_status gn_emulate(const struct gn_cuda_stream *s, dim3 grid, unsigned threads, const std::function<void()> &kernel,
			  const char *name, struct gn_err *err);

/* Checks all arguments of a kernel. */
template <class... A> static enum gn_status gn_emulate_look_at(const struct gn_cuda_stream *s, const char *name, struct gn_err *err,
							       const A &...given)
{
	enum gn_status status = GN_OK;

	((status = status ? status : gn_emulate_look(s, &given, sizeof given, name, err)), ...);
	return status;
}

namespace gn
{

/* In place of that of kernels/cuda/launch.cuh. */
template <class... P, class... A> static enum gn_status launch(struct gn_cuda_stream *s, const char *name, struct gn_err *err, dim3 grid,
							       unsigned threads, void (*kernel)(P...), A... args)
{
	enum gn_status status = gn_emulate_look_at(s, name, err, P(args)...);

	if (status)
		return status;
	return gn_emulate(
		s, grid, threads, [=]() { kernel(P(args)...); }, name, err);
}

} // namespace gn

static inline void __syncthreads(void)
{
	gn_emulate_barrier();
}

/* Every thread of the block must call it, not only those of a warp. */
static inline float __shfl_xor_sync(unsigned, float x, int lanes)
{
	static float given[1024];
	float other;

	given[threadIdx.x] = x;
	__syncthreads();
	other = given[threadIdx.x ^ lanes];
	__syncthreads();
	return other;
}

static inline int atomicOr(int *to, int bits)
{
	int before = *to;

	*to |= bits;
	return before;
}

static inline unsigned atomicAdd(unsigned *to, unsigned x)
{
	unsigned before = *to;

	*to += x;
	return before;
}

#endif
