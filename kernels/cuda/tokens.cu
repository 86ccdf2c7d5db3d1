/* Pixels as tokens: a token in front and positions; the first alone; channels of attention by heads. Each thread handles vectors of
 * channels. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/layers.h"

using namespace gn;

struct maps {
	int n, pixels, channels;
};

template <class T, int V>
static __global__ void tokens_kernel(struct maps m, const T *x, const float *token, const float *position, T *y)
{
	size_t vectors = (size_t)m.channels / V, tokens = (size_t)m.pixels + 1, count = m.n * tokens * vectors;

	for (size_t i = GRID_INDEX; i < count; i += GRID_STRIDE) {
		size_t row = i / vectors, c = i % vectors * V, at = row % tokens;
		float v[V], p[V];

		if (at)
			load_floats<T, V>(x + (row - row / tokens - 1) * m.channels + c, v);
#pragma unroll
		for (int k = 0; k < V; k++)
			p[k] = (at ? v[k] : token[c + k]) + position[at * m.channels + c + k];
		store<T, V>(y + i * V, p);
	}
}

template <class T, int V> static enum gn_status tokens(struct gn_cuda_stream *s, struct maps m, const void *x, const float *token,
						       const float *position, void *y, struct gn_err *err)
{
	return launch(s, "kernel tokens", err, dim3(blocks_for(s, (size_t)m.n * (m.pixels + 1) * m.channels / V)), GN_CUDA_THREADS,
		      tokens_kernel<T, V>, m, (const T *)x, token, position, (T *)y);
}

enum gn_status gn_cuda_tokens(struct gn_cuda_stream *s, enum gn_cuda_type type, int n, int pixels, int channels, const void *x,
			      const float *token, const float *position, void *y, struct gn_err *err)
{
	int is_wide = wide_channels(type, channels) && multiple_of_16(x) && multiple_of_16(y);

	return GN_BY_TYPE(type, is_wide, tokens, s, (maps{n, pixels, channels}), x, token, position, y, err);
}

/* A thread adds over all images. */
template <class T, int V>
static __global__ void tokens_grad_kernel(struct maps m, const T *dy, T *dx, float *dtoken, float *dposition)
{
	size_t row = m.channels, count = ((size_t)m.pixels + 1) * row / V;

	for (size_t i = GRID_INDEX; i < count; i += GRID_STRIDE) {
		size_t at = i * V, token = at / row;
		double sum[V] = {};

		for (int n = 0; n < m.n; n++) {
			float d[V];

			load_floats<T, V>(dy + (size_t)n * (m.pixels + 1) * row + at, d);
#pragma unroll
			for (int k = 0; k < V; k++)
				sum[k] += d[k];
			if (dx && token)
				store<T, V>(dx + (size_t)n * m.pixels * row + at - row, d);
		}
		for (int k = 0; k < V; k++) {
			dposition[at + k] = (float)sum[k];
			if (!token)
				dtoken[at + k] = (float)sum[k];
		}
	}
}

template <class T, int V> static enum gn_status tokens_grad(struct gn_cuda_stream *s, struct maps m, const void *dy, void *dx, float *dtoken,
							    float *dposition, struct gn_err *err)
{
	return launch(s, "kernel tokens_grad", err, dim3(blocks_for(s, ((size_t)m.pixels + 1) * m.channels / V)), GN_CUDA_THREADS,
		      tokens_grad_kernel<T, V>, m, (const T *)dy, (T *)dx, dtoken, dposition);
}

enum gn_status gn_cuda_tokens_grad(struct gn_cuda_stream *s, enum gn_cuda_type type, int n, int pixels, int channels, const void *dy,
				   void *dx, float *dtoken, float *dposition, struct gn_err *err)
{
	int is_wide = wide_channels(type, channels) && multiple_of_16(dy) && multiple_of_16(dx);

	return GN_BY_TYPE(type, is_wide, tokens_grad, s, (maps{n, pixels, channels}), dy, dx, dtoken, dposition, err);
}

/* Also back, when all pixels are written. */
template <class T, int V> static __global__ void first_kernel(struct maps m, int back, const T *from, T *to)
{
	size_t vectors = (size_t)m.channels / V, count = m.n * vectors * (back ? m.pixels : 1);

	for (size_t i = GRID_INDEX; i < count; i += GRID_STRIDE) {
		size_t row = i / vectors, c = i % vectors * V;
		float v[V] = {};

		if (!back)
			load_floats<T, V>(from + row * m.pixels * m.channels + c, v);
		else if (row % m.pixels == 0)
			load_floats<T, V>(from + row / m.pixels * m.channels + c, v);
		store<T, V>(to + i * V, v);
	}
}

template <class T, int V> static enum gn_status first(struct gn_cuda_stream *s, struct maps m, int back, const void *from, void *to,
						      struct gn_err *err)
{
	return launch(s, "kernel first_pixel", err, dim3(blocks_for(s, (size_t)m.n * m.channels * (back ? m.pixels : 1) / V)),
		      GN_CUDA_THREADS, first_kernel<T, V>, m, back, (const T *)from, (T *)to);
}

enum gn_status gn_cuda_first_pixel(struct gn_cuda_stream *s, enum gn_cuda_type type, int n, int pixels, int channels, int back,
				   const void *from, void *to, struct gn_err *err)
{
	int is_wide = wide_channels(type, channels) && multiple_of_16(from) && multiple_of_16(to);

	return GN_BY_TYPE(type, is_wide, first, s, (maps{n, pixels, channels}), back, from, to, err);
}

/* i counts vectors of [n][pixels][parts][heads][size]; returns the element of the parts [n][heads][pixels][size]. */
template <int V> static __device__ inline size_t place_by_head(const struct gn_cuda_heads &h, size_t i)
{
	size_t vectors = (size_t)h.size / V, c = i % vectors * V, head, part, pixel;

	i /= vectors;
	head = i % h.heads;
	i /= h.heads;
	part = i % h.parts;
	i /= h.parts;
	pixel = i % h.pixels;
	i /= h.pixels;
	return part * h.step + ((i * h.heads + head) * h.pixels + pixel) * h.size + c;
}

template <class T, int V> static __global__ void heads_kernel(struct gn_cuda_heads h, int back, const T *from, T *to)
{
	size_t count = (size_t)h.n * h.pixels * h.parts * h.heads * (h.size / V);

	for (size_t i = GRID_INDEX; i < count; i += GRID_STRIDE) {
		size_t at = place_by_head<V>(h, i);

		if (back)
			*reinterpret_cast<pack<T, V> *>(to + i * V) = load<T, V>(from + at);
		else
			*reinterpret_cast<pack<T, V> *>(to + at) = load<T, V>(from + i * V);
	}
}

template <class T, int V> static enum gn_status split(struct gn_cuda_stream *s, const struct gn_cuda_heads *h, int back, const void *from,
						      void *to, struct gn_err *err)
{
	return launch(s, "kernel split_heads", err, dim3(blocks_for(s, (size_t)h->n * h->pixels * h->parts * h->heads * h->size / V)),
		      GN_CUDA_THREADS, heads_kernel<T, V>, *h, back, (const T *)from, (T *)to);
}

enum gn_status gn_cuda_split_heads(struct gn_cuda_stream *s, const struct gn_cuda_heads *h, int back, const void *from, void *to,
				   struct gn_err *err)
{
	return GN_BY_TYPE(h->type, wide_channels(h->type, h->size) && multiple_of_16(from) && multiple_of_16(to), split, s, h, back, from,
			  to, err);
}
