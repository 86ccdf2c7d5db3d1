/* With an addend, the gradient behind the relu is itself a result (dadded): the first half writes it, and the second half reads it
 * instead of dout, more_dout and y. Without an addend, the relu's mask is recomputed from x, rounded as in forward. */
#include "kernels/cuda/batch_norm.cuh"

using namespace gn;

struct grad {
	int channels, mask; /* mask: apply the relu's mask to the gradient */
	const float *weight, *bias, *mean, *inverse;
	const double *sums;
	double rows;
};

template <int V> struct channel_norm {
	float mean[V], inverse[V], scale[V], bias[V];
};

template <int V> static __device__ inline channel_norm<V> load_norm(const struct grad &g, int channel)
{
	channel_norm<V> n;

#pragma unroll
	for (int k = 0; k < V; k++) {
		n.mean[k] = g.mean[channel + k];
		n.inverse[k] = g.inverse[channel + k];
		n.scale[k] = g.weight[channel + k] * n.inverse[k];
		n.bias[k] = g.bias[channel + k];
	}
	return n;
}

/* The loaded values of one row. */
template <class T, int V> struct row_data {
	pack<T, V> x, y, dout, more;
};

template <class T, int V> static __device__ inline void
load_row(size_t at, const struct grad &g, const T *x, const T *y, const T *dout, const T *more, row_data<T, V> *r)
{
	r->x = load<T, V>(x + at);
	r->dout = load<T, V>(dout + at);
	if (more)
		r->more = load<T, V>(more + at);
	if (g.mask && y)
		r->y = load<T, V>(y + at);
}

/* The gradient before the relu. */
template <class T, int V> static __device__ inline float masked(const row_data<T, V> &r, int k, const struct grad &g,
								const channel_norm<V> &n, int has_y, int has_more)
{
	float d = widen(r.dout.v[k]), out;

	if (has_more)
		d += widen(r.more.v[k]);
	if (!g.mask)
		return d;
	out = has_y ? widen(r.y.v[k]) : rounded<T>((widen(r.x.v[k]) - n.mean[k]) * n.scale[k] + n.bias[k]);
	return out > 0 ? d : 0;
}

/* Loads up to two rows of this thread: two loads in flight hide latency. */
template <class T, int V> static __device__ inline void
load_two_rows(size_t row, const struct gn_cuda_tile &t, const place &p, const struct grad &g, const T *x, const T *y,
	      const T *dout, const T *more, row_data<T, V> r[2])
{
#pragma unroll
	for (int i = 0; i < 2; i++)
		if (row + (size_t)i * t.row_lanes < p.end)
			load_row<T, V>((row + (size_t)i * t.row_lanes) * g.channels + p.channel, g, x, y, dout, more, &r[i]);
}

template <class T, int V> static __global__ void __launch_bounds__(GN_CUDA_THREADS)
	sums_kernel(struct gn_cuda_tile t, struct grad g, const T *x, const T *y, const T *dout, const T *more,
		    T *dadded, float *partial)
{
	place p = find_place<V>(t);
	float sum[V] = {}, dot[V] = {};
	channel_norm<V> n = {};

	if (p.active)
		n = load_norm<V>(g, p.channel);
	for (size_t row = p.begin + p.row_lane; p.active && row < p.end; row += 2 * (size_t)t.row_lanes) {
		row_data<T, V> r[2];

		load_two_rows<T, V>(row, t, p, g, x, y, dout, more, r);
#pragma unroll
		for (int i = 0; i < 2; i++) {
			float d[V];

			if (row + (size_t)i * t.row_lanes >= p.end)
				break;
#pragma unroll
			for (int k = 0; k < V; k++) {
				d[k] = masked<T, V>(r[i], k, g, n, y != NULL, more != NULL);
				if (dadded)
					d[k] = rounded<T>(d[k]);
				sum[k] += d[k];
				dot[k] += d[k] * ((widen(r[i].x.v[k]) - n.mean[k]) * n.inverse[k]);
			}
			if (dadded)
				store<T, V>(dadded + (row + (size_t)i * t.row_lanes) * g.channels + p.channel, d);
		}
	}
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

template <class T, int V> static __global__ void __launch_bounds__(GN_CUDA_THREADS)
	apply_kernel(struct gn_cuda_tile t, struct grad g, const T *x, const T *y, const T *dout, const T *more, T *dx)
{
	place p = find_place<V>(t);
	float sum[V], dot[V];
	channel_norm<V> n;

	if (!p.active)
		return;
	n = load_norm<V>(g, p.channel);
#pragma unroll
	for (int k = 0; k < V; k++) {
		sum[k] = (float)(g.sums[p.channel + k] / g.rows);
		dot[k] = (float)(g.sums[g.channels + p.channel + k] / g.rows);
	}
	for (size_t row = p.begin + p.row_lane; row < p.end; row += 2 * (size_t)t.row_lanes) {
		row_data<T, V> r[2];

		load_two_rows<T, V>(row, t, p, g, x, y, dout, more, r);
#pragma unroll
		for (int i = 0; i < 2; i++) {
			float d[V];

			if (row + (size_t)i * t.row_lanes >= p.end)
				break;
#pragma unroll
			for (int k = 0; k < V; k++) {
				float normal = (widen(r[i].x.v[k]) - n.mean[k]) * n.inverse[k];

				d[k] = masked<T, V>(r[i], k, g, n, y != NULL, more != NULL);
				d[k] = n.scale[k] * (d[k] - sum[k] - normal * dot[k]);
			}
			store<T, V>(dx + (row + (size_t)i * t.row_lanes) * g.channels + p.channel, d);
		}
	}
}

static struct grad grad_of(const struct gn_cuda_batch_norm *b, int mask, size_t total_rows)
{
	struct grad g = {b->channels, mask, b->weight, b->bias, b->mean, b->inverse, b->sums, (double)total_rows};

	return g;
}

template <class T, int V> static enum gn_status grad_sums(struct gn_cuda_stream *s, const struct gn_cuda_batch_norm *b,
							  const struct gn_cuda_batch_norm_grad *g, struct gn_err *err)
{
	struct gn_cuda_tile t = gn_cuda_tile_make(b->rows, b->channels / V, multiprocessors(s) * 4);
	enum gn_status status =
		launch(s, "kernel batch_norm_grad_sums", err, dim3(t.groups, t.chunks), GN_CUDA_THREADS,
		       sums_kernel<T, V>, t, grad_of(b, b->relu, b->rows), (const T *)g->x, (const T *)g->y,
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
		      apply_kernel<T, V>, t, grad_of(b, b->relu && !g->dadded, total_rows), (const T *)g->x,
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
