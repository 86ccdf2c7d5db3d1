/* A block per image. With z = logits - their maximum, the loss is log(sum of exp z) - (target . z). */
#include "kernels/cuda/launch.cuh"

using namespace gn;

static const int THREADS = 128;

struct loss_args {
	int batch, classes;
	const int32_t *labels, *pair_labels;
	const float *lambdas;
	float smoothing, grad_scale;
	float *rows; /* [batch] losses, [batch] 1 where correct */
};

static __device__ inline int count_labels(const struct loss_args &a, int *shared)
{
	int counted = 0;

	for (int n = threadIdx.x; n < a.batch; n += THREADS)
		counted += a.labels[n] >= 0;
	return block_sum<THREADS>(counted, shared);
}

static __device__ inline int is_bad(const struct loss_args &a, int n)
{
	return a.labels[n] >= 0 &&
	       (a.labels[n] >= a.classes || (a.pair_labels && (a.pair_labels[n] < 0 || a.pair_labels[n] >= a.classes)));
}

static __device__ inline float block_max(float x, float *shared)
{
	__syncthreads();
	shared[threadIdx.x] = x;
	for (int step = THREADS / 2; step > 0; step /= 2) {
		__syncthreads();
		/* as in the reference implementation: comparisons with NaN are false, so that NaN appears in the sum of
		 * exponentials */
		if (threadIdx.x < (unsigned)step && shared[threadIdx.x + step] > shared[threadIdx.x])
			shared[threadIdx.x] = shared[threadIdx.x + step];
	}
	__syncthreads();
	return shared[0];
}

/* sum: of exp(z - top), in all threads; all: of z - top, in thread 0. */
template <class T, int V> static __device__ inline void sum_row(const T *logits, int classes, float top, float *shared,
								float *sum, float *all)
{
	*sum = *all = 0;
	for (int k = threadIdx.x * V; k < classes; k += THREADS * V) {
		float z[V];

		load_floats<T, V>(logits + k, z);
#pragma unroll
		for (int j = 0; j < V; j++) {
			*sum += expf(z[j] - top);
			*all += z[j] - top;
		}
	}
	*sum = block_sum<THREADS>(*sum, shared);
	*all = block_sum<THREADS>(*all, shared);
}

template <class T, int V> static __device__ inline float top_of_row(const T *logits, int classes, float *shared)
{
	float top = -INFINITY;

	for (int k = threadIdx.x * V; k < classes; k += THREADS * V) {
		float z[V];

		load_floats<T, V>(logits + k, z);
#pragma unroll
		for (int j = 0; j < V; j++)
			top = z[j] > top ? z[j] : top;
	}
	return block_max(top, shared);
}

/* V adjacent classes, starting at a multiple of V. */
template <class T, int V> static __global__ void __launch_bounds__(THREADS)
	row_kernel(struct loss_args a, const T *logits, T *dlogits)
{
	__shared__ float shared[THREADS];
	__shared__ int shared_int[THREADS];
	int n = blockIdx.x, counted = count_labels(a, shared_int);
	float top, sum, all, lambda = a.pair_labels ? a.lambdas[n] : 1, factor = a.grad_scale / counted, even = a.smoothing / a.classes;
	float z[V];

	logits += (size_t)n * a.classes;
	dlogits += (size_t)n * a.classes;
	if (a.labels[n] < 0 || is_bad(a, n)) {
		float none[V] = {};

		for (int k = threadIdx.x * V; k < a.classes; k += THREADS * V)
			store<T, V>(dlogits + k, none);
		if (threadIdx.x == 0)
			a.rows[n] = a.rows[a.batch + n] = 0;
		return;
	}
	top = top_of_row<T, V>(logits, a.classes, shared);
	sum_row<T, V>(logits, a.classes, top, shared, &sum, &all);
	for (int k = threadIdx.x * V; k < a.classes; k += THREADS * V) {
		load_floats<T, V>(logits + k, z);
#pragma unroll
		for (int j = 0; j < V; j++) {
			float own = k + j == a.labels[n] ? lambda : 0, mixed = a.pair_labels && k + j == a.pair_labels[n] ? 1 - lambda : 0;
			float target = (own + mixed) * (1 - a.smoothing) + even;

			z[j] = (expf(z[j] - top) / sum - target) * factor;
		}
		store<T, V>(dlogits + k, z);
	}
	if (threadIdx.x == 0) {
		float own = widen(logits[a.labels[n]]) - top, mixed = a.pair_labels ? widen(logits[a.pair_labels[n]]) - top : own;

		int target = a.pair_labels && lambda < 0.5f ? a.pair_labels[n] : a.labels[n];

		/* the sum is not finite if a logit is NaN */
		a.rows[a.batch + n] = widen(logits[target]) >= top && isfinite(sum);
		/* even * all is NaN for even == 0 if a logit is minus infinity */
		a.rows[n] = logf(sum) - (1 - a.smoothing) * (lambda * own + (1 - lambda) * mixed) -
			    (even > 0 ? even * all : 0);
	}
}

static __global__ void __launch_bounds__(THREADS) sum_kernel(struct loss_args a, struct gn_loss *out, float *mean,
								       float *correct, double share)
{
	__shared__ double shared[THREADS];
	__shared__ int shared_int[THREADS];
	int counted = count_labels(a, shared_int), bad = 0;
	double sum = 0, hits = 0;

	for (int n = threadIdx.x; n < a.batch; n += THREADS) {
		sum += a.rows[n];
		hits += a.rows[a.batch + n];
		bad += is_bad(a, n);
	}
	sum = block_sum<THREADS>(sum, shared);
	hits = block_sum<THREADS>(hits, shared);
	bad = block_sum<THREADS>(bad, shared_int);
	if (threadIdx.x > 0)
		return;
	out->loss = counted ? sum / counted : 0;
	out->counted = counted;
	out->bad = bad;
	if (mean)
		*mean += (float)(out->loss * share);
	if (correct && counted)
		*correct += (float)(hits / counted * share);
}

template <class T, int V> static enum gn_status rows(struct gn_cuda_stream *s, const struct gn_cuda_loss_args *args,
						     const struct loss_args &a, struct gn_err *err)
{
	return launch(s, "kernel softmax_cross_entropy", err, dim3(a.batch), THREADS, row_kernel<T, V>, a,
		      (const T *)args->logits, (T *)args->dlogits);
}

enum gn_status gn_cuda_softmax_cross_entropy(struct gn_cuda_stream *s, const struct gn_cuda_loss_args *args,
					     struct gn_err *err)
{
	struct loss_args a = {args->batch,
			      args->classes,
			      args->labels,
			      args->pair_labels,
			      args->lambdas,
			      (float)args->smoothing,
			      (float)args->grad_scale,
			      args->rows};
	int is_wide = a.classes * gn_cuda_type_bytes(args->type) % 16 == 0 && multiple_of_16(args->logits) &&
		      multiple_of_16(args->dlogits);
	enum gn_status status;

	if (a.batch < 1 || a.classes < 1)
		return gn_err_set(err, GN_ERR_USAGE, "loss: %d images of %d classes", a.batch, a.classes);
	if (args->logits == args->dlogits)
		return gn_err_set(err, GN_ERR_USAGE, "loss: dlogits must not alias the logits");
	status = GN_BY_TYPE(args->type, is_wide, rows, s, args, a, err);
	if (status)
		return status;
	return launch(s, "kernel loss_sum", err, dim3(1), THREADS, sum_kernel, a, args->out, args->mean, args->correct,
		      args->share);
}
