/* A thread computes one vector of channels of one output. Gradients are gathered: a thread per input visits the windows that
 * contain it, so that there are no atomic additions and nothing to zero. Images are the grid's second dimension: indices within one
 * fit into 32 bits. */
#include "kernels/cuda/launch.cuh"

using namespace gn;

struct at {
	int x, y, channel;
};

/* Position of index i in a map of `width` columns of `vectors`. */
template <int V> static __device__ inline struct at find(unsigned i, unsigned width, unsigned vectors)
{
	struct at a;
	unsigned pixel = i / vectors;

	a.channel = (int)(i % vectors) * V;
	a.x = (int)(pixel % width);
	a.y = (int)(pixel / width);
	return a;
}

/* Pixels of a window are visited in squares of SIDE, of a larger one in parts of its rows: of equal ones the first wins. The windows of
 * an input are in squares of 2. All loads of a square are in flight together. */
enum { SIDE = 3 };

/* Whether the window of output `a` has that row and column, and both are in the map. */
static __device__ inline int is_within(const struct gn_cuda_window &w, const struct at &a, int ky, int kx)
{
	int y = a.y * w.stride + ky - w.pad, x = a.x * w.stride + kx - w.pad;

	return ky < w.kernel && kx < w.kernel && y >= 0 && y < w.h && x >= 0 && x < w.w;
}

template <class T, int V> static __global__ void __launch_bounds__(GN_CUDA_THREADS)
	max_kernel(struct gn_cuda_window w, const T *x, T *y, uint8_t *argmax)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x, vectors = w.c / V, count = vectors * w.out_h * w.out_w;
	size_t out = (size_t)blockIdx.y * count * V + (size_t)i * V;
	float best[V] = {};
	pack<uint8_t, V> where = {};
	const int rows = w.kernel <= SIDE ? SIDE : 1;
	int any = 0;
	struct at a;

	if (i >= count)
		return;
	a = find<V>(i, w.out_w, vectors);
	x += (size_t)blockIdx.y * w.h * w.w * w.c + a.channel;
	for (int ky = 0; ky < w.kernel; ky += rows) {
		for (int kx = 0; kx < w.kernel; kx += SIDE) {
			pack<T, V> v[SIDE * SIDE];

#pragma unroll
			for (int j = 0; j < SIDE * SIDE; j++)
				if (j / SIDE < rows && is_within(w, a, ky + j / SIDE, kx + j % SIDE))
					v[j] = load<T, V>(x + ((size_t)(a.y * w.stride + ky + j / SIDE - w.pad) * w.w +
							       (a.x * w.stride + kx + j % SIDE - w.pad)) * w.c);
#pragma unroll
			for (int j = 0; j < SIDE * SIDE; j++) {
				if (j / SIDE >= rows || !is_within(w, a, ky + j / SIDE, kx + j % SIDE))
					continue;
#pragma unroll
				for (int k = 0; k < V; k++) {
					float one = value(v[j], k);

					if (any && !(one > best[k] || one != one))
						continue;
					best[k] = one;
					where.v[k] = (uint8_t)((ky + j / SIDE) * w.kernel + kx + j % SIDE);
				}
				any = 1;
			}
		}
	}
	store<T, V>(y + out, best);
	*reinterpret_cast<pack<uint8_t, V> *>(argmax + out) = where;
}

template <class T, int V> static __global__ void __launch_bounds__(GN_CUDA_THREADS)
	max_grad_kernel(struct gn_cuda_window w, const T *dy, const uint8_t *argmax, T *dx)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x, vectors = w.c / V, count = vectors * w.h * w.w;
	size_t outputs = (size_t)blockIdx.y * w.out_h * w.out_w;
	float sum[V] = {};
	int last_y, last_x;
	struct at a;

	if (i >= count)
		return;
	a = find<V>(i, w.w, vectors);
	last_y = gn_cuda_pool_last(a.y, w.stride, w.pad, w.out_h);
	last_x = gn_cuda_pool_last(a.x, w.stride, w.pad, w.out_w);
	for (int oy = gn_cuda_pool_first(a.y, w.kernel, w.stride, w.pad); oy <= last_y; oy += 2) {
		for (int ox = gn_cuda_pool_first(a.x, w.kernel, w.stride, w.pad); ox <= last_x; ox += 2) {
			pack<uint8_t, V> won[4];
			pack<T, V> d[4];

#pragma unroll
			for (int j = 0; j < 4; j++) {
				size_t from = (outputs + (size_t)(oy + j / 2) * w.out_w + ox + j % 2) * w.c + a.channel;

				if (oy + j / 2 > last_y || ox + j % 2 > last_x)
					continue;
				won[j] = load<uint8_t, V>(argmax + from);
				d[j] = load<T, V>(dy + from);
			}
#pragma unroll
			for (int j = 0; j < 4; j++) {
				int own = (a.y + w.pad - (oy + j / 2) * w.stride) * w.kernel + a.x + w.pad - (ox + j % 2) * w.stride;

				if (oy + j / 2 > last_y || ox + j % 2 > last_x)
					continue;
#pragma unroll
				for (int k = 0; k < V; k++)
					sum[k] += won[j].v[k] == own ? value(d[j], k) : 0;
			}
		}
	}
	store<T, V>(dx + (size_t)blockIdx.y * count * V + (size_t)i * V, sum);
}

template <class T, int V> static __global__ void __launch_bounds__(GN_CUDA_THREADS)
	average_kernel(struct gn_cuda_window w, const T *x, T *y)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x, vectors = w.c / V, count = vectors * w.out_h * w.out_w;
	int y0, y1, x0, x1;
	float sum[V] = {}, pixels;
	struct at a;

	if (i >= count)
		return;
	a = find<V>(i, w.out_w, vectors);
	y0 = gn_cuda_adaptive_begin(a.y, w.h, w.out_h);
	y1 = gn_cuda_adaptive_end(a.y, w.h, w.out_h);
	x0 = gn_cuda_adaptive_begin(a.x, w.w, w.out_w);
	x1 = gn_cuda_adaptive_end(a.x, w.w, w.out_w);
	x += (size_t)blockIdx.y * w.h * w.w * w.c + a.channel;
	for (int iy = y0; iy < y1; iy++) {
		for (int ix = x0; ix < x1; ix++) {
			float v[V];

			load_floats<T, V>(x + ((size_t)iy * w.w + ix) * w.c, v);
#pragma unroll
			for (int k = 0; k < V; k++)
				sum[k] += v[k];
		}
	}
	pixels = (float)(y1 - y0) * (float)(x1 - x0);
#pragma unroll
	for (int k = 0; k < V; k++)
		sum[k] /= pixels;
	store<T, V>(y + (size_t)blockIdx.y * count * V + (size_t)i * V, sum);
}

template <class T, int V> static __global__ void __launch_bounds__(GN_CUDA_THREADS)
	average_grad_kernel(struct gn_cuda_window w, const T *dy, T *dx)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x, vectors = w.c / V, count = vectors * w.h * w.w;
	float sum[V] = {};
	struct at a;

	if (i >= count)
		return;
	a = find<V>(i, w.w, vectors);
	dy += (size_t)blockIdx.y * w.out_h * w.out_w * w.c + a.channel;
	for (int oy = gn_cuda_adaptive_first(a.y, w.h, w.out_h);
	     oy < w.out_h && gn_cuda_adaptive_begin(oy, w.h, w.out_h) <= a.y; oy++) {
		int rows = gn_cuda_adaptive_end(oy, w.h, w.out_h) - gn_cuda_adaptive_begin(oy, w.h, w.out_h);

		for (int ox = gn_cuda_adaptive_first(a.x, w.w, w.out_w);
		     ox < w.out_w && gn_cuda_adaptive_begin(ox, w.w, w.out_w) <= a.x; ox++) {
			int columns = gn_cuda_adaptive_end(ox, w.w, w.out_w) - gn_cuda_adaptive_begin(ox, w.w, w.out_w);
			float d[V];

			load_floats<T, V>(dy + ((size_t)oy * w.out_w + ox) * w.c, d);
#pragma unroll
			for (int k = 0; k < V; k++)
				sum[k] += d[k] / ((float)rows * (float)columns);
		}
	}
	store<T, V>(dx + (size_t)blockIdx.y * count * V + (size_t)i * V, sum);
}

/* One thread per vector of the map, one row of blocks per image. */
static dim3 grid_of(const struct gn_cuda_window *w, int height, int width, int vector)
{
	size_t threads = (size_t)height * width * (w->c / vector);

	return dim3((unsigned)((threads + GN_CUDA_THREADS - 1) / GN_CUDA_THREADS), w->n);
}

template <class T, int V> static enum gn_status max_pool(struct gn_cuda_stream *s, const struct gn_cuda_window *w,
							 const void *x, void *y, uint8_t *argmax, struct gn_err *err)
{
	return launch(s, "kernel max_pool", err, grid_of(w, w->out_h, w->out_w, V), GN_CUDA_THREADS, max_kernel<T, V>,
		      *w, (const T *)x, (T *)y, argmax);
}

template <class T, int V> static enum gn_status max_pool_grad(struct gn_cuda_stream *s, const struct gn_cuda_window *w,
							      const void *dy, const uint8_t *argmax, void *dx,
							      struct gn_err *err)
{
	return launch(s, "kernel max_pool_grad", err, grid_of(w, w->h, w->w, V), GN_CUDA_THREADS, max_grad_kernel<T, V>,
		      *w, (const T *)dy, argmax, (T *)dx);
}

template <class T, int V> static enum gn_status average_pool(struct gn_cuda_stream *s, const struct gn_cuda_window *w,
							     const void *x, void *y, struct gn_err *err)
{
	return launch(s, "kernel average_pool", err, grid_of(w, w->out_h, w->out_w, V), GN_CUDA_THREADS,
		      average_kernel<T, V>, *w, (const T *)x, (T *)y);
}

template <class T, int V> static enum gn_status average_pool_grad(struct gn_cuda_stream *s,
								  const struct gn_cuda_window *w, const void *dy,
								  void *dx, struct gn_err *err)
{
	return launch(s, "kernel average_pool_grad", err, grid_of(w, w->h, w->w, V), GN_CUDA_THREADS,
		      average_grad_kernel<T, V>, *w, (const T *)dy, (T *)dx);
}

/* An image has fewer than 2^31 elements; the second grid dimension is limited to 65535. */
static enum gn_status check(const struct gn_cuda_window *w, struct gn_err *err)
{
	double in = (double)w->c * w->h * w->w, out = (double)w->c * w->out_h * w->out_w;

	if (w->n < 1 || w->c < 1 || w->h < 1 || w->w < 1 || w->out_h < 1 || w->out_w < 1 || w->n > 65535 ||
	    in > INT32_MAX || out > INT32_MAX)
		return gn_err_set(err, GN_ERR_USAGE, "pooling: %d images of %dx%d with %d channels, to %dx%d", w->n,
				  w->h, w->w, w->c, w->out_h, w->out_w);
	return GN_OK;
}

static int fits(int in, int out, const struct gn_cuda_window *w)
{
	return w->kernel >= 1 && w->kernel <= 15 && w->stride >= 1 && w->pad >= 0 && w->pad <= w->kernel / 2 &&
	       in + 2 * w->pad >= w->kernel && out == (in + 2 * w->pad - w->kernel) / w->stride + 1;
}

static enum gn_status check_max(const struct gn_cuda_window *w, struct gn_err *err)
{
	if (!fits(w->h, w->out_h, w) || !fits(w->w, w->out_w, w))
		return gn_err_set(err, GN_ERR_USAGE,
				  "max pooling: %dx%d to %dx%d by windows of %d, stride %d, padding %d", w->h, w->w,
				  w->out_h, w->out_w, w->kernel, w->stride, w->pad);
	return check(w, err);
}

enum gn_status gn_cuda_max_pool(struct gn_cuda_stream *s, enum gn_cuda_type type, const struct gn_cuda_window *w,
				const void *x, void *y, uint8_t *argmax, struct gn_err *err)
{
	int is_wide = wide_channels(type, w->c) && multiple_of_16(x) && multiple_of_16(y) && multiple_of_16(argmax);
	enum gn_status status = check_max(w, err);

	return status ? status : GN_BY_TYPE(type, is_wide, max_pool, s, w, x, y, argmax, err);
}

enum gn_status gn_cuda_max_pool_grad(struct gn_cuda_stream *s, enum gn_cuda_type type, const struct gn_cuda_window *w,
				     const void *dy, const uint8_t *argmax, void *dx, struct gn_err *err)
{
	int is_wide = wide_channels(type, w->c) && multiple_of_16(dy) && multiple_of_16(dx) && multiple_of_16(argmax);
	enum gn_status status = check_max(w, err);

	return status ? status : GN_BY_TYPE(type, is_wide, max_pool_grad, s, w, dy, argmax, dx, err);
}

enum gn_status gn_cuda_average_pool(struct gn_cuda_stream *s, enum gn_cuda_type type, const struct gn_cuda_window *w,
				    const void *x, void *y, struct gn_err *err)
{
	int is_wide = wide_channels(type, w->c) && multiple_of_16(x) && multiple_of_16(y);
	enum gn_status status = check(w, err);

	return status ? status : GN_BY_TYPE(type, is_wide, average_pool, s, w, x, y, err);
}

enum gn_status gn_cuda_average_pool_grad(struct gn_cuda_stream *s, enum gn_cuda_type type,
					 const struct gn_cuda_window *w, const void *dy, void *dx, struct gn_err *err)
{
	int is_wide = wide_channels(type, w->c) && multiple_of_16(dy) && multiple_of_16(dx);
	enum gn_status status = check(w, err);

	return status ? status : GN_BY_TYPE(type, is_wide, average_pool_grad, s, w, dy, dx, err);
}
