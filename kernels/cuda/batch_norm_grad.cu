/* With an addend, the gradient behind the relu is itself a result (dadded): the first half writes it, and the second half reads it
 * instead of dout, more_dout and y. Without an addend, the relu's mask is recomputed from x, rounded as in forward. */
#include "kernels/cuda/batch_norm.cuh"

using namespace gn;

/* How the relu's mask is known: there is none, recomputed from x, from the output. */
enum { NO_RELU, BY_X, BY_Y };
#define GN_BY_RELU(kernel, relu, y, more)                                                                              \
	(!(relu) ? (more) ? kernel<T, V, NO_RELU, 1> : kernel<T, V, NO_RELU, 0>                                        \
	 : (y)	 ? (more) ? kernel<T, V, BY_Y, 1> : kernel<T, V, BY_Y, 0>                                              \
		 : (more) ? kernel<T, V, BY_X, 1> : kernel<T, V, BY_X, 0>)

struct grad {
	int channels;
	const float *weight, *bias, *mean, *inverse;
	const double *sums;
	double rows;
};

/* The largest number that a conversion to T makes zero. */
template <class T> static __device__ inline float largest_zero()
{
	return 0;
}
template <> __device__ inline float largest_zero<bf16>()
{
	return 0x1p-134f;
}
template <> __device__ inline float largest_zero<f16>()
{
	return 0x1p-25f;
}

/* What a thread keeps of its channels: registers are what limits how many loads are in flight. */
template <int V> struct channel_norm {
	float mean[V], scale[V], bias[V];
};

template <int V> static __device__ inline void load_norm(const struct grad &g, int channel, channel_norm<V> *n)
{
#pragma unroll
	for (int k = 0; k < V; k++) {
		n->mean[k] = g.mean[channel + k];
		n->scale[k] = g.weight[channel + k] * g.inverse[channel + k];
		n->bias[k] = g.bias[channel + k];
	}
}

/* The loaded values of some rows of a thread. */
enum { IN_FLIGHT = 2 };
template <class T, int V> struct row_data {
	pack<T, V> x, y, dout, more;
};

template <class T, int V, int RELU, int MORE>
static __device__ inline void load_rows(size_t row, const struct gn_cuda_tile &t, const place &p, int channels, const T *x, const T *y,
					const T *dout, const T *more, row_data<T, V> (&r)[IN_FLIGHT])
{
#pragma unroll
	for (int i = 0; i < IN_FLIGHT; i++) {
		size_t at = (row + (size_t)i * t.row_lanes) * channels + p.channel;

		if (row + (size_t)i * t.row_lanes >= p.end)
			break;
		r[i].x = load<T, V>(x + at);
		r[i].dout = load<T, V>(dout + at);
		if (MORE)
			r[i].more = load<T, V>(more + at);
		if (RELU == BY_Y)
			r[i].y = load<T, V>(y + at);
	}
}

/* The gradient before the relu; centred: x - mean. */
template <class T, int V, int RELU, int MORE>
static __device__ inline float masked(const row_data<T, V> &r, int k, float centred, const channel_norm<V> &n)
{
	float d = value(r.dout, k) + (MORE ? value(r.more, k) : 0);

	if (RELU == BY_X)
		return centred * n.scale[k] + n.bias[k] <= largest_zero<T>() ? 0 : d;
	return RELU == BY_Y && value(r.y, k) <= 0 ? 0 : d;
}

template <class T, int V, int RELU, int MORE> static __global__ void __launch_bounds__(GN_CUDA_THREADS, RESIDENT)
	sums_kernel(struct gn_cuda_tile t, struct grad g, const T *x, const T *y, const T *dout, const T *more,
		    T *dadded, float *partial)
{
	place p = find_place<V>(t);
	float sum[V] = {}, dot[V] = {};
	channel_norm<V> n = {};

	if (p.active)
		load_norm<V>(g, p.channel, &n);
	for (size_t row = p.begin + p.row_lane; p.active && row < p.end; row += IN_FLIGHT * (size_t)t.row_lanes) {
		row_data<T, V> r[IN_FLIGHT];

		load_rows<T, V, RELU, MORE>(row, t, p, g.channels, x, y, dout, more, r);
#pragma unroll
		for (int i = 0; i < IN_FLIGHT; i++) {
			float d[V];

			if (row + (size_t)i * t.row_lanes >= p.end)
				break;
#pragma unroll
			for (int k = 0; k < V; k++) {
				float centred = value(r[i].x, k) - n.mean[k];

				d[k] = masked<T, V, RELU, MORE>(r[i], k, centred, n);
				if (RELU != BY_X && dadded)
					d[k] = rounded<T>(d[k]);
				sum[k] += d[k];
				dot[k] += d[k] * centred;
			}
			if (RELU != BY_X && dadded)
				store<T, V>(dadded + (row + (size_t)i * t.row_lanes) * g.channels + p.channel, d);
		}
	}
#pragma unroll
	for (int k = 0; k < V; k++)
		dot[k] *= p.active ? g.inverse[p.channel + k] : 0;
	write_partial<V>(t, p, g.channels, sum, dot, partial);
}

static __global__ void total_kernel(const float *partial, int chunks, int channels, double *sums, float *dweight,
				    float *dbias)
{
	int c = (int)blockIdx.x * 32 + threadIdx.x % 32;
	double sum, dot;

	total_chunks(partial, chunks, channels, c, &sum, &dot);
	if (threadIdx.x >= 32 || c >= channels)
		return;
	sums[c] = sum;
	sums[channels + c] = dot;
	dbias[c] = (float)sum;
	dweight[c] = (float)dot;
}

/* dx = scale (d - sum - normalised x * dot), sum and dot divided by the rows. */
template <class T, int V, int RELU, int MORE> static __global__ void __launch_bounds__(GN_CUDA_THREADS, RESIDENT)
	apply_kernel(struct gn_cuda_tile t, struct grad g, const T *x, const T *y, const T *dout, const T *more, T *dx)
{
	place p = find_place<V>(t);
	float constant[V], slope[V];
	channel_norm<V> n;

	if (!p.active)
		return;
	load_norm<V>(g, p.channel, &n);
#pragma unroll
	for (int k = 0; k < V; k++) {
		constant[k] = n.scale[k] * (float)(g.sums[p.channel + k] / g.rows);
		slope[k] = n.scale[k] * g.inverse[p.channel + k] * (float)(g.sums[g.channels + p.channel + k] / g.rows);
	}
	for (size_t row = p.begin + p.row_lane; row < p.end; row += IN_FLIGHT * (size_t)t.row_lanes) {
		row_data<T, V> r[IN_FLIGHT];

		load_rows<T, V, RELU, MORE>(row, t, p, g.channels, x, y, dout, more, r);
#pragma unroll
		for (int i = 0; i < IN_FLIGHT; i++) {
			float d[V];

			if (row + (size_t)i * t.row_lanes >= p.end)
				break;
#pragma unroll
			for (int k = 0; k < V; k++) {
				float centred = value(r[i].x, k) - n.mean[k];

				d[k] = n.scale[k] * masked<T, V, RELU, MORE>(r[i], k, centred, n) - constant[k] - centred * slope[k];
			}
			store<T, V>(dx + (row + (size_t)i * t.row_lanes) * g.channels + p.channel, d);
		}
	}
}

static struct grad grad_of(const struct gn_cuda_batch_norm *b, size_t total_rows)
{
	struct grad g = {b->channels, b->weight, b->bias, b->mean, b->inverse, b->sums, (double)total_rows};

	return g;
}

template <class T, int V> static enum gn_status grad_sums(struct gn_cuda_stream *s, const struct gn_cuda_batch_norm *b,
							  const struct gn_cuda_batch_norm_grad *g, struct gn_err *err)
{
	struct gn_cuda_tile t = reduction_tile(s, b->rows, b->channels / V);
	enum gn_status status = launch(
		s, "kernel batch_norm_grad_sums", err, dim3(t.groups, t.chunks), GN_CUDA_THREADS,
		GN_BY_RELU(sums_kernel, b->relu, g->y, g->more_dout), t, grad_of(b, b->rows), (const T *)g->x, (const T *)g->y,
		(const T *)g->dout, (const T *)g->more_dout, (T *)g->dadded, (float *)b->scratch);

	if (status)
		return status;
	return launch(s, "kernel batch_norm_grad_total", err, dim3((b->channels + 31) / 32), 32 * TOTAL_LANES,
		      total_kernel, (const float *)b->scratch, t.chunks, b->channels, b->sums, g->dweight, g->dbias);
}

template <class T, int V> static enum gn_status grad_apply(struct gn_cuda_stream *s, const struct gn_cuda_batch_norm *b,
							   const struct gn_cuda_batch_norm_grad *g, size_t total_rows,
							   struct gn_err *err)
{
	struct gn_cuda_tile t = apply_tile(s, b->rows, b->channels / V);
	const T *dout = (const T *)(g->dadded ? g->dadded : g->dout);
	const T *more = (const T *)(g->dadded ? NULL : g->more_dout);

	return launch(s, "kernel batch_norm_grad_apply", err, dim3(t.groups, t.chunks), GN_CUDA_THREADS,
		      GN_BY_RELU(apply_kernel, b->relu && !g->dadded, g->y, more), t, grad_of(b, total_rows), (const T *)g->x,
		      (const T *)g->y, dout, more, (T *)g->dx);
}

/* Both halves use the same partition: a thread reads what it wrote itself. */
static int is_wide(const struct gn_cuda_batch_norm *b, const struct gn_cuda_batch_norm_grad *g)
{
	return wide_channels(b->type, b->channels) && multiple_of_16(g->x) && multiple_of_16(g->y) &&
	       multiple_of_16(g->dout) && multiple_of_16(g->more_dout) && multiple_of_16(g->dx) &&
	       multiple_of_16(g->dadded);
}

static enum gn_status check(const struct gn_cuda_batch_norm *b, const struct gn_cuda_batch_norm_grad *g,
			    struct gn_err *err)
{
	if (b->rows < 2 || b->channels < 1)
		return gn_err_set(err, GN_ERR_USAGE, "batch norm: gradient over %zu rows of %d channels", b->rows,
				  b->channels);
	if (b->relu && g->dadded && !g->y)
		return gn_err_set(err, GN_ERR_USAGE,
				  "batch norm: the gradient of an addend with relu needs the output");
	return GN_OK;
}

enum gn_status gn_cuda_batch_norm_grad_sums(struct gn_cuda_stream *s, const struct gn_cuda_batch_norm *b,
					    const struct gn_cuda_batch_norm_grad *g, struct gn_err *err)
{
	enum gn_status status = check(b, g, err);

	if (status)
		return status;
	return GN_BY_TYPE(b->type, is_wide(b, g), grad_sums, s, b, g, err);
}

enum gn_status gn_cuda_batch_norm_grad_apply(struct gn_cuda_stream *s, const struct gn_cuda_batch_norm *b,
					     const struct gn_cuda_batch_norm_grad *g, size_t total_rows,
					     struct gn_err *err)
{
	enum gn_status status = check(b, g, err);

	if (status)
		return status;
	return GN_BY_TYPE(b->type, is_wide(b, g), grad_apply, s, b, g, total_rows, err);
}
