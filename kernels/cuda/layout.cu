/* Operations around convolutions: reorders, biases, sums of channels, dropout. */
#include "kernels/cuda/launch.cuh"

using namespace gn;

/* Element i of `to` is read from the position of its image, channel and pixel in `from`. */
template <class F, class T>
static __global__ void reorder_kernel(const F *from, T *to, size_t count, int channels, int pixels, int to_inner)
{
	for (size_t i = GRID_INDEX; i < count; i += GRID_STRIDE) {
		int fast = to_inner ? channels : pixels, slow = to_inner ? pixels : channels;
		size_t line = i / fast, a = i % fast, b = line % slow, image = line / slow;

		narrow(widen(from[(image * fast + a) * slow + b]), &to[i]);
	}
}

template <class F, class T> static enum gn_status reorder_to(struct gn_cuda_stream *s, const struct gn_cuda_order *o,
							     const void *from, void *to, struct gn_err *err)
{
	size_t count = (size_t)o->n * o->channels * o->pixels;

	return launch(s, "kernel reorder", err, dim3(blocks_for(s, count)), GN_CUDA_THREADS, reorder_kernel<F, T>,
		      (const F *)from, (T *)to, count, o->channels, o->pixels, o->to_inner);
}

template <class F> static enum gn_status reorder_from(struct gn_cuda_stream *s, const struct gn_cuda_order *o,
						      const void *from, void *to, struct gn_err *err)
{
	return o->to_type == GN_CUDA_F32    ? reorder_to<F, float>(s, o, from, to, err)
	       : o->to_type == GN_CUDA_BF16 ? reorder_to<F, bf16>(s, o, from, to, err)
					    : reorder_to<F, f16>(s, o, from, to, err);
}

enum gn_status gn_cuda_reorder(struct gn_cuda_stream *s, const struct gn_cuda_order *o, const void *from, void *to,
			       struct gn_err *err)
{
	size_t count = (size_t)o->n * o->channels * o->pixels;

	if (count == 0)
		return GN_OK;
	/* with a single channel or pixel both orders are the same */
	if (o->channels == 1 || o->pixels == 1)
		return gn_cuda_cast(s, o->from_type, from, o->to_type, to, count, err);
	return o->from_type == GN_CUDA_F32    ? reorder_from<float>(s, o, from, to, err)
	       : o->from_type == GN_CUDA_BF16 ? reorder_from<bf16>(s, o, from, to, err)
					      : reorder_from<f16>(s, o, from, to, err);
}

template <class T, int V> static __global__ void bias_kernel(T *y, const float *bias, const T *added, int with_relu,
							     size_t vectors, int vectors_per_row)
{
	for (size_t i = GRID_INDEX; i < vectors; i += GRID_STRIDE) {
		size_t c = i % vectors_per_row * V;
		float x[V], more[V] = {};

		load_floats<T, V>(y + i * V, x);
		if (added)
			load_floats<T, V>(added + i * V, more);
#pragma unroll
		for (int k = 0; k < V; k++) {
			x[k] += (bias ? bias[c + k] : 0) + more[k];
			x[k] = with_relu ? relu(x[k]) : x[k];
		}
		store<T, V>(y + i * V, x);
	}
}

template <class T, int V>
static enum gn_status add_bias(struct gn_cuda_stream *s, const float *bias, const void *added, int relu, void *y,
			       size_t rows, int channels, struct gn_err *err)
{
	size_t vectors = rows * (channels / V);

	return launch(s, "kernel bias", err, dim3(blocks_for(s, vectors)), GN_CUDA_THREADS, bias_kernel<T, V>, (T *)y, bias,
		      (const T *)added, relu, vectors, channels / V);
}

enum gn_status gn_cuda_bias(struct gn_cuda_stream *s, enum gn_cuda_type type, const float *bias, const void *added,
			    int relu, void *y, size_t rows, int channels, struct gn_err *err)
{
	int vector = (int)(16 / gn_cuda_type_bytes(type));
	int is_wide = channels % vector == 0 && multiple_of_16(y) && multiple_of_16(added);

	if (rows == 0)
		return GN_OK;
	return GN_BY_TYPE(type, is_wide, add_bias, s, bias, added, relu, y, rows, channels, err);
}

template <class F, class T> static __global__ void convert_kernel(const F *from, T *to, int count)
{
	for (size_t i = GRID_INDEX; i < (size_t)count; i += GRID_STRIDE)
		to[i] = (T)from[i];
}

enum gn_status gn_cuda_sums_to_float(struct gn_cuda_stream *s, const double *from, float *to, int count,
				     struct gn_err *err)
{
	return launch(s, "kernel sums to float", err, dim3(blocks_for(s, count)), GN_CUDA_THREADS, convert_kernel<double, float>, from, to,
		      count);
}

enum gn_status gn_cuda_sums_to_double(struct gn_cuda_stream *s, const float *from, double *to, int count,
				      struct gn_err *err)
{
	return launch(s, "kernel sums to double", err, dim3(blocks_for(s, count)), GN_CUDA_THREADS, convert_kernel<float, double>, from,
		      to, count);
}

/* The factors 1 / (1 - rate) or 0 of V adjacent elements, starting at a multiple of four: one draw gives four. */
template <int V> static __device__ inline void masks(const struct gn_cuda_dropout &d, uint64_t step, size_t at, float (&to)[V])
{
	float scale = (float)(1 / (1 - d.rate));
	uint32_t low = (uint32_t)step, high = (uint32_t)(step >> 32) << 16 | d.purpose, draw[4];

#pragma unroll
	for (int k = 0; k < V; k++) {
		if (k % 4 == 0)
			philox((uint32_t)((at + k) / 4), d.stream, low, high, d.seed, draw);
		to[k] = draw[k % 4] / 4294967296.0 < d.rate ? 0 : scale;
	}
}

/* Dropped elements become NaN if they are not finite, as in PyTorch. The step is read from memory, so that a captured graph draws new
 * masks. */
template <class T> static __global__ void dropout_kernel(const T *x, T *y, size_t count, int is_wide, struct gn_cuda_dropout d)
{
	const int V = wide<T>::vector;
	uint64_t step = *d.step;
	float mask[V], v[V];

	for (size_t at = GRID_INDEX * V; at < count; at += GRID_STRIDE * V) {
		int whole = is_wide && at + V <= count;

		masks<V>(d, step, at, mask);
		if (whole)
			load_floats<T, V>(x + at, v);
#pragma unroll
		for (int k = 0; k < V; k++) {
			if (!whole)
				v[k] = at + k < count ? widen(x[at + k]) : 0;
			v[k] *= mask[k];
			if (!whole && at + k < count)
				narrow(v[k], &y[at + k]);
		}
		if (whole)
			store<T, V>(y + at, v);
	}
}

template <class T> static enum gn_status drop(struct gn_cuda_stream *s, const struct gn_cuda_dropout *d, const void *x,
					      void *y, size_t count, struct gn_err *err)
{
	int is_wide = multiple_of_16(x) && multiple_of_16(y);

	return launch(s, "kernel dropout", err, dim3(blocks_for(s, (count + wide<T>::vector - 1) / wide<T>::vector)),
		      GN_CUDA_THREADS, dropout_kernel<T>, (const T *)x, (T *)y, count, is_wide, *d);
}

enum gn_status gn_cuda_drop(struct gn_cuda_stream *s, enum gn_cuda_type type, const struct gn_cuda_dropout *d,
			    const void *x, void *y, size_t count, struct gn_err *err)
{
	if (count == 0)
		return GN_OK;
	return type == GN_CUDA_F32    ? drop<float>(s, d, x, y, count, err)
	       : type == GN_CUDA_BF16 ? drop<bf16>(s, d, x, y, count, err)
				      : drop<f16>(s, d, x, y, count, err);
}

/* one draw gives four numbers */
template <class T> static __global__ void randomise_kernel(T *x, size_t count, uint64_t seed)
{
	uint32_t draw[4];

	for (size_t i = GRID_INDEX; 4 * i < count; i += GRID_STRIDE) {
		philox((uint32_t)i, 0, 0, 0, seed, draw);
		for (size_t k = 0; k < 4 && 4 * i + k < count; k++)
			narrow((float)(int32_t)draw[k] / 2147483648.f, &x[4 * i + k]);
	}
}

template <class T> static enum gn_status randomise(struct gn_cuda_stream *s, void *x, size_t count, uint64_t seed, struct gn_err *err)
{
	return launch(s, "kernel random numbers", err, dim3(blocks_for(s, (count + 3) / 4)), GN_CUDA_THREADS, randomise_kernel<T>, (T *)x,
		      count, seed);
}

enum gn_status gn_cuda_randomise(struct gn_cuda_stream *s, enum gn_cuda_type type, void *x, size_t count, uint64_t seed,
				 struct gn_err *err)
{
	if (count == 0)
		return GN_OK;
	return type == GN_CUDA_F32    ? randomise<float>(s, x, count, seed, err)
	       : type == GN_CUDA_BF16 ? randomise<bf16>(s, x, count, seed, err)
				      : randomise<f16>(s, x, count, seed, err);
}
