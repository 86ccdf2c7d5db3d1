/* Tensors are divided into chunks, one block each. The tables of tensors and chunks are on the device, created once, since neither
 * changes during training. The numbers of a step are on the device, too, written by a kernel of one thread: a captured graph stays
 * valid, and nothing waits for a copy. */
#include "kernels/cuda/launch.cuh"

#include <stdlib.h>

using namespace gn;

struct tensor {
	float *params, *slot0, *slot1;
	const void *grads;
	void *copy;
	size_t count;
	uint32_t first_chunk, chunks;
	float weight_decay, lr_scale;
	int adapt, aligned;
};

struct numbers {
	float lr, grad_scale;
	float first, second; /* LAMB: 1 - beta^step of both moments */
};

/* The rule as arguments of kernels. */
struct rule {
	enum gn_optim_kind kind;
	float momentum, beta2, eps, trust, own1, own2; /* own: 1 - momentum, 1 - beta2, rounded once */
	int nesterov;
};

/* Device addresses. */
struct tables {
	const struct tensor *tensors;
	const uint32_t *tensor_of; /* [chunks] */
	struct numbers *numbers;
	double *partial; /* [chunks][2] */
	float *ratios;	 /* [tensors] */
	const int32_t *skip;
};

struct gn_cuda_optim {
	struct rule rule;
	double momentum, beta2;
	enum gn_cuda_type type;
	uint32_t tensors, chunks;
	struct gn_cuda_arena *arena;
	struct tables tables;
};

static const int VALUES = 4; /* elements per thread and access */

/* Loads V values of a chunk from element i. which: bit 0 gradients, bits 1 and 2 the slots. */
template <class T, int V> static __device__ inline void
read_values(const struct tensor &t, size_t i, int which, float (&p)[V], float (&g)[V], float (&a)[V], float (&b)[V])
{
	load_floats<float, V>(t.params + i, p);
	if (which & 1)
		load_floats<T, V>((const T *)t.grads + i, g);
	if (which & 2)
		load_floats<float, V>(t.slot0 + i, a);
	if (which & 4)
		load_floats<float, V>(t.slot1 + i, b);
}

static __device__ inline float lamb_direction(const struct rule &r, const struct numbers &n, float decay, float p,
					      float a, float b)
{
	return a / n.first / (sqrtf(b / n.second) + r.eps) + decay * p;
}

/* First launch of LARS and LAMB: norms, and for LAMB the new moments. */
template <class T, int V> static __device__ inline void
measure(const struct rule &r, const struct numbers &n, const struct tensor &t, size_t i, float *first, float *second)
{
	float p[V], g[V] = {}, a[V] = {}, b[V] = {};

	read_values<T, V>(t, i, r.kind == GN_OPTIM_LAMB ? 7 : 1, p, g, a, b);
#pragma unroll
	for (int k = 0; k < V; k++) {
		float d = g[k];

		if (r.kind == GN_OPTIM_LAMB) {
			float scaled = n.grad_scale * g[k];

			a[k] = r.momentum * a[k] + r.own1 * scaled;
			b[k] = r.beta2 * b[k] + r.own2 * scaled * scaled;
			d = lamb_direction(r, n, t.weight_decay, p[k], a[k], b[k]);
		}
		*first += p[k] * p[k];
		*second += d * d;
	}
	if (r.kind == GN_OPTIM_LAMB) {
		store<float, V>(t.slot0 + i, a);
		store<float, V>(t.slot1 + i, b);
	}
}

/* A chunk's elements: vectors where all addresses of the tensor are aligned, else single elements. */
static __device__ inline void chunk_range(const struct tensor &t, size_t *begin, size_t *end, size_t *whole)
{
	*begin = (size_t)(blockIdx.x - t.first_chunk) * GN_CUDA_CHUNK_ELEMENTS;
	*end = *begin + GN_CUDA_CHUNK_ELEMENTS < t.count ? *begin + GN_CUDA_CHUNK_ELEMENTS : t.count;
	*whole = t.aligned ? *begin + (*end - *begin) / VALUES * VALUES : *begin;
}

template <class T> static __global__ void __launch_bounds__(GN_CUDA_THREADS)
	measure_kernel(struct rule r, struct tables d)
{
	__shared__ double shared[GN_CUDA_THREADS];
	const struct tensor t = d.tensors[d.tensor_of[blockIdx.x]];
	const struct numbers n = *d.numbers;
	float first = 0, second = 0;
	size_t begin, end, whole;
	double p_sum, d_sum;

	if (d.skip && *d.skip)
		return;
	chunk_range(t, &begin, &end, &whole);
	for (size_t i = begin + (size_t)threadIdx.x * VALUES; i < whole; i += (size_t)GN_CUDA_THREADS * VALUES)
		measure<T, VALUES>(r, n, t, i, &first, &second);
	for (size_t i = whole + threadIdx.x; i < end; i += GN_CUDA_THREADS)
		measure<T, 1>(r, n, t, i, &first, &second);
	p_sum = block_sum<GN_CUDA_THREADS>((double)first, shared);
	d_sum = block_sum<GN_CUDA_THREADS>((double)second, shared);
	if (threadIdx.x == 0) {
		d.partial[2 * (size_t)blockIdx.x] = p_sum;
		d.partial[2 * (size_t)blockIdx.x + 1] = d_sum;
	}
}

/* Second launch: one block per tensor. */
static __global__ void __launch_bounds__(GN_CUDA_THREADS) ratio_kernel(struct rule r, struct tables d)
{
	__shared__ double shared[GN_CUDA_THREADS];
	const struct tensor t = d.tensors[blockIdx.x];
	double p = 0, other = 0, ratio = 1;

	if (d.skip && *d.skip)
		return;
	for (uint32_t i = threadIdx.x; i < t.chunks; i += GN_CUDA_THREADS) {
		p += d.partial[2 * (size_t)(t.first_chunk + i)];
		other += d.partial[2 * (size_t)(t.first_chunk + i) + 1];
	}
	p = sqrt(block_sum<GN_CUDA_THREADS>(p, shared));
	other = sqrt(block_sum<GN_CUDA_THREADS>(other, shared));
	if (r.kind == GN_OPTIM_LARS)
		other *= d.numbers->grad_scale;
	if (t.adapt && p > 0 && other > 0)
		ratio = r.kind == GN_OPTIM_LAMB ? p / other
						: r.trust * p / (other + (double)t.weight_decay * p + r.eps);
	if (threadIdx.x == 0)
		d.ratios[blockIdx.x] = (float)ratio;
}

/* Last launch: parameters, their copies, and for SGD and LARS the momentum. */
template <class T, int V> static __device__ inline void update(const struct rule &r, const struct numbers &n,
							       const struct tensor &t, float ratio, size_t i)
{
	const float lr = n.lr * t.lr_scale;
	float p[V], g[V] = {}, a[V] = {}, b[V] = {};

	read_values<T, V>(t, i,
			  r.kind == GN_OPTIM_LAMB		      ? 6
			  : r.kind == GN_OPTIM_SGD && r.momentum == 0 ? 1
								      : 3,
			  p, g, a, b);
#pragma unroll
	for (int k = 0; k < V; k++) {
		if (r.kind == GN_OPTIM_LAMB) {
			p[k] -= lr * ratio * lamb_direction(r, n, t.weight_decay, p[k], a[k], b[k]);
		} else if (r.kind == GN_OPTIM_LARS) {
			float d = ratio * lr * (n.grad_scale * g[k] + t.weight_decay * p[k]);

			a[k] = r.momentum * a[k] + d;
			p[k] -= r.nesterov ? r.momentum * a[k] + d : a[k];
		} else {
			float d = n.grad_scale * g[k] + t.weight_decay * p[k];

			if (r.momentum != 0) {
				a[k] = r.momentum * a[k] + d;
				d = r.nesterov ? d + r.momentum * a[k] : a[k];
			}
			p[k] -= lr * d;
		}
	}
	store<float, V>(t.params + i, p);
	if (r.kind == GN_OPTIM_LARS || (r.kind == GN_OPTIM_SGD && r.momentum != 0))
		store<float, V>(t.slot0 + i, a);
	if (t.copy)
		store<T, V>((T *)t.copy + i, p);
}

template <class T> static __global__ void __launch_bounds__(GN_CUDA_THREADS)
	update_kernel(struct rule r, struct tables d)
{
	const uint32_t which = d.tensor_of[blockIdx.x];
	const struct tensor t = d.tensors[which];
	const struct numbers n = *d.numbers;
	float ratio = r.kind == GN_OPTIM_SGD ? 1 : d.ratios[which];
	size_t begin, end, whole;

	if (d.skip && *d.skip)
		return;
	chunk_range(t, &begin, &end, &whole);
	for (size_t i = begin + (size_t)threadIdx.x * VALUES; i < whole; i += (size_t)GN_CUDA_THREADS * VALUES)
		update<T, VALUES>(r, n, t, ratio, i);
	for (size_t i = whole + threadIdx.x; i < end; i += GN_CUDA_THREADS)
		update<T, 1>(r, n, t, ratio, i);
}

/* A tensor's entry in the device table. */
static struct tensor describe(const struct gn_cuda_optim_tensor *from, size_t type_bytes, uint32_t first_chunk)
{
	struct tensor t = {from->params,
			   from->slots[0],
			   from->slots[1],
			   from->grads,
			   from->copy,
			   from->count,
			   first_chunk,
			   (uint32_t)gn_cuda_chunk_count(from->count),
			   (float)from->weight_decay,
			   (float)from->lr_scale,
			   from->adapt,
			   0};
	uintptr_t small = VALUES * type_bytes - 1;

	t.aligned = multiple_of_16(t.params) && multiple_of_16(t.slot0) && multiple_of_16(t.slot1) &&
		    !((uintptr_t)t.grads & small) && !((uintptr_t)t.copy & small);
	return t;
}

static enum gn_status take(struct gn_cuda_optim *o, const struct gn_cuda_stream *s, struct gn_err *err)
{
	size_t align = GN_CUDA_ALIGN_BYTES, tensors = (size_t)o->tensors, chunks = (size_t)o->chunks;
	size_t bytes = tensors * (sizeof(struct tensor) + sizeof(float)) +
		       chunks * (sizeof(uint32_t) + 2 * sizeof(double)) + sizeof(struct numbers) + 5 * align;
	enum gn_status status = gn_cuda_arena_create(gn_cuda_stream_device(s), bytes, &o->arena, err);

	if (status)
		return status;
	o->tables.tensors = (const struct tensor *)gn_cuda_arena_take(o->arena, tensors * sizeof(struct tensor));
	o->tables.tensor_of = (const uint32_t *)gn_cuda_arena_take(o->arena, chunks * sizeof(uint32_t));
	o->tables.numbers = (struct numbers *)gn_cuda_arena_take(o->arena, sizeof(struct numbers));
	o->tables.partial = (double *)gn_cuda_arena_take(o->arena, chunks * 2 * sizeof(double));
	o->tables.ratios = (float *)gn_cuda_arena_take(o->arena, tensors * sizeof(float));
	return GN_OK;
}

static enum gn_status upload(struct gn_cuda_optim *o, struct gn_cuda_stream *s,
			     const struct gn_cuda_optim_tensor *tensors, struct gn_err *err)
{
	struct tensor *table = (struct tensor *)calloc(o->tensors, sizeof *table);
	uint32_t *tensor_of = (uint32_t *)calloc(o->chunks, sizeof *tensor_of), chunk = 0;
	enum gn_status status = GN_OK;

	if (!table || !tensor_of) {
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "optimizer: no memory for the table of %u tensors",
				    o->tensors);
		goto out;
	}
	for (uint32_t i = 0; i < o->tensors; i++) {
		table[i] = describe(&tensors[i], gn_cuda_type_bytes(o->type), chunk);
		for (uint32_t k = 0; k < table[i].chunks; k++)
			tensor_of[chunk++] = i;
	}
	status = gn_cuda_copy(s, (void *)o->tables.tensors, table, o->tensors * sizeof *table, err);
	if (!status)
		status = gn_cuda_copy(s, (void *)o->tables.tensor_of, tensor_of, o->chunks * sizeof *tensor_of, err);
	/* the copies read host memory that is freed below */
	if (!status)
		status = gn_cuda_stream_wait(s, err);
out:
	free(table);
	free(tensor_of);
	return status;
}

enum gn_status gn_cuda_optim_create(struct gn_cuda_stream *s, const struct gn_optim *rule, enum gn_cuda_type type,
				    const struct gn_cuda_optim_tensor *tensors, size_t count,
				    struct gn_cuda_optim **out, struct gn_err *err)
{
	struct gn_cuda_optim *o;
	enum gn_status status;
	size_t chunks = 0;

	for (size_t i = 0; i < count; i++)
		chunks += gn_cuda_chunk_count(tensors[i].count);
	if (count == 0 || chunks == 0 || chunks > INT32_MAX)
		return gn_err_set(err, GN_ERR_USAGE, "optimizer: %zu tensors in %zu pieces", count, chunks);
	if (!(o = (struct gn_cuda_optim *)calloc(1, sizeof *o)))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "optimizer: no memory");
	o->rule.kind = rule->kind;
	o->rule.momentum = (float)rule->momentum;
	o->rule.beta2 = (float)rule->beta2;
	o->rule.eps = (float)rule->eps;
	o->rule.trust = (float)rule->trust;
	o->rule.own1 = (float)(1 - rule->momentum);
	o->rule.own2 = (float)(1 - rule->beta2);
	o->rule.nesterov = rule->nesterov;
	o->momentum = rule->momentum;
	o->beta2 = rule->beta2;
	o->type = type;
	o->tensors = (uint32_t)count;
	o->chunks = (uint32_t)chunks;
	if ((status = take(o, s, err)) || (status = upload(o, s, tensors, err)))
		gn_cuda_optim_destroy(o);
	else
		*out = o;
	return status;
}

void gn_cuda_optim_destroy(struct gn_cuda_optim *o)
{
	if (!o)
		return;
	gn_cuda_arena_destroy(o->arena);
	free(o);
}

enum gn_status gn_cuda_optim_set(struct gn_cuda_optim *o, struct gn_cuda_stream *s, const struct gn_optim_update *u,
				 struct gn_err *err)
{
	struct numbers n = {(float)u->lr, (float)u->grad_scale, (float)(1 - pow(o->momentum, (double)u->step)),
			    (float)(1 - pow(o->beta2, (double)u->step))};

	return gn_cuda_put(s, o->tables.numbers, &n, sizeof n, err);
}

static __global__ void clip_kernel(struct numbers *n, const double *squares, int count, const double *more, int more_count,
				   double limit)
{
	double sum = 0, norm;

	for (int i = 0; i < count; i++)
		sum += squares[i];
	for (int i = 0; i < more_count; i++)
		sum += more[i];
	norm = fabs((double)n->grad_scale) * sqrt(sum);
	if (norm > limit)
		n->grad_scale = (float)(n->grad_scale * (limit / (norm + 1e-6)));
}

enum gn_status gn_cuda_optim_clip(struct gn_cuda_optim *o, struct gn_cuda_stream *s, const double *squares, int count,
				  const double *more, int more_count, double limit, struct gn_err *err)
{
	return launch(s, "kernel optim_clip", err, dim3(1), 1, clip_kernel, o->tables.numbers, squares, count, more, more_count,
		      limit);
}

template <class T> static enum gn_status step(struct gn_cuda_optim *o, struct gn_cuda_stream *s, const struct tables &d,
					      struct gn_err *err)
{
	enum gn_status status = GN_OK;

	if (o->rule.kind != GN_OPTIM_SGD) {
		status = launch(s, "kernel optim_measure", err, dim3(o->chunks), GN_CUDA_THREADS, measure_kernel<T>,
				o->rule, d);
		if (!status)
			status = launch(s, "kernel optim_ratio", err, dim3(o->tensors), GN_CUDA_THREADS, ratio_kernel,
					o->rule, d);
	}
	if (status)
		return status;
	return launch(s, "kernel optim_update", err, dim3(o->chunks), GN_CUDA_THREADS, update_kernel<T>, o->rule, d);
}

enum gn_status gn_cuda_optim_step(struct gn_cuda_optim *o, struct gn_cuda_stream *s, const int32_t *skip,
				  struct gn_err *err)
{
	struct tables d = o->tables;

	d.skip = skip;
	return o->type == GN_CUDA_F32	 ? step<float>(o, s, d, err)
	       : o->type == GN_CUDA_BF16 ? step<bf16>(o, s, d, err)
					 : step<f16>(o, s, d, err);
}
