/* Elementwise kernels. Each thread processes vectors of 16 bytes, and the rest behind the last whole vector one by one. */
#ifndef GN_KERNELS_CUDA_POINTWISE_CUH
#define GN_KERNELS_CUDA_POINTWISE_CUH

#include "kernels/cuda/launch.cuh"

namespace gn
{

template <class F, class T, int V> static __global__ void each_kernel(F f, const T *a, const T *b, const T *c, T *to, size_t count)
{
	size_t whole = count / V;

	for (size_t i = GRID_INDEX; i < whole; i += GRID_STRIDE) {
		float x[V], y[V] = {}, z[V] = {};

		load_floats<T, V>(a + i * V, x);
		if (F::INPUTS > 1 && b)
			load_floats<T, V>(b + i * V, y);
		if (F::INPUTS > 2 && c)
			load_floats<T, V>(c + i * V, z);
#pragma unroll
		for (int k = 0; k < V; k++)
			x[k] = f(x[k], y[k], z[k]);
		store<T, V>(to + i * V, x);
	}
	for (size_t i = whole * V + GRID_INDEX; i < count; i += GRID_STRIDE)
		narrow(f(widen(a[i]), F::INPUTS > 1 && b ? widen(b[i]) : 0, F::INPUTS > 2 && c ? widen(c[i]) : 0), &to[i]);
}

template <class T, int V, class F> static enum gn_status launch_each(struct gn_cuda_stream *s, const char *name, F f, const void *a,
								     const void *b, const void *c, void *to, size_t count, struct gn_err *err)
{
	return launch(s, name, err, dim3(blocks_for(s, (count + V - 1) / V)), GN_CUDA_THREADS, each_kernel<F, T, V>, f, (const T *)a,
		      (const T *)b, (const T *)c, (T *)to, count);
}

/* to[i] = f(a[i], b[i], c[i]) of floats, of which f reads the first F::INPUTS. b and c may be NULL, which stands for zeros; to may be one
 * of them. No padding in F, as in all arguments of kernels. */
template <class F> static enum gn_status each(struct gn_cuda_stream *s, const char *name, enum gn_cuda_type type, F f, const void *a,
					      const void *b, const void *c, void *to, size_t count, struct gn_err *err)
{
	int aligned = multiple_of_16(a) && multiple_of_16(b) && multiple_of_16(c) && multiple_of_16(to);

	if (count == 0)
		return GN_OK;
	return GN_BY_TYPE(type, aligned, launch_each, s, name, f, a, b, c, to, count, err);
}

} // namespace gn
#endif
