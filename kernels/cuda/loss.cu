/* A block takes one image. With z = logits - their maximum, the loss is log(sum of exp z) - (target . z). */
#include "kernels/cuda/launch.cuh"

using namespace gn;

static const int THREADS = 128;

struct loss_args {
	int batch, classes;
	const int32_t *labels, *mates;
	const float *shares;
	float smoothing, grad_scale;
	float *rows;
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
	       (a.labels[n] >= a.classes || (a.mates && (a.mates[n] < 0 || a.mates[n] >= a.classes)));
}

static __device__ inline float block_max(float x, float *shared)
{
	__syncthreads();
	shared[threadIdx.x] = x;
	for (int step = THREADS / 2; step > 0; step /= 2) {
		__syncthreads();
		/* as the oracle: a NaN is never more, and so comes out of the sum of exponentials */
		if (threadIdx.x < (unsigned)step && shared[threadIdx.x + step] > shared[threadIdx.x])
			shared[threadIdx.x] = shared[threadIdx.x + step];
	}
	__syncthreads();
	return shared[0];
}

template <class T> static __global__ void __launch_bounds__(THREADS)
	row_kernel(struct loss_args a, const T *logits, T *dlogits)
{
	__shared__ float shared[THREADS];
	__shared__ int shared_int[THREADS];
	int n = blockIdx.x, counted = count_labels(a, shared_int);
	float top = -INFINITY, sum = 0, all = 0, share = a.mates ? a.shares[n] : 1, factor,
	      even = a.smoothing / a.classes;

	logits += (size_t)n * a.classes;
	dlogits += (size_t)n * a.classes;
	if (a.labels[n] < 0 || is_bad(a, n)) {
		for (int k = threadIdx.x; k < a.classes; k += THREADS)
			narrow(0, &dlogits[k]);
		if (threadIdx.x == 0)
			a.rows[n] = 0;
		return;
	}
	for (int k = threadIdx.x; k < a.classes; k += THREADS)
		top = widen(logits[k]) > top ? widen(logits[k]) : top;
	top = block_max(top, shared);
	for (int k = threadIdx.x; k < a.classes; k += THREADS) {
		sum += expf(widen(logits[k]) - top);
		all += widen(logits[k]) - top;
	}
	sum = block_sum<THREADS>(sum, shared);
	all = block_sum<THREADS>(all, shared);
	factor = a.grad_scale / counted;
	for (int k = threadIdx.x; k < a.classes; k += THREADS) {
		float own = k == a.labels[n] ? share : 0, mixed = a.mates && k == a.mates[n] ? 1 - share : 0;
		float target = (own + mixed) * (1 - a.smoothing) + even;

		narrow((expf(widen(logits[k]) - top) / sum - target) * factor, &dlogits[k]);
	}
	if (threadIdx.x == 0) {
		float own = widen(logits[a.labels[n]]) - top, mixed = a.mates ? widen(logits[a.mates[n]]) - top : own;

		/* not even * all where even is 0: logits may be minus infinity */
		a.rows[n] = logf(sum) - (1 - a.smoothing) * (share * own + (1 - share) * mixed) -
			    (even > 0 ? even * all : 0);
	}
}

static __global__ void __launch_bounds__(THREADS) sum_kernel(struct loss_args a, struct gn_cuda_loss *out)
{
	__shared__ double shared[THREADS];
	__shared__ int shared_int[THREADS];
	int counted = count_labels(a, shared_int), bad = 0;
	double sum = 0;

	for (int n = threadIdx.x; n < a.batch; n += THREADS) {
		sum += a.rows[n];
		bad += is_bad(a, n);
	}
	sum = block_sum<THREADS>(sum, shared);
	bad = block_sum<THREADS>(bad, shared_int);
	if (threadIdx.x > 0)
		return;
	out->loss = counted ? sum / counted : 0;
	out->counted = counted;
	out->bad = bad;
}

template <class T> static enum gn_status rows(struct gn_cuda_stream *s, const struct gn_cuda_loss_args *args,
					      const struct loss_args &a, struct gn_err *err)
{
	return launch(s, "kernel softmax_cross_entropy", err, dim3(a.batch), THREADS, row_kernel<T>, a,
		      (const T *)args->logits, (T *)args->dlogits);
}

enum gn_status gn_cuda_softmax_cross_entropy(struct gn_cuda_stream *s, const struct gn_cuda_loss_args *args,
					     struct gn_err *err)
{
	struct loss_args a = {args->batch,
			      args->classes,
			      args->labels,
			      args->mates,
			      args->shares,
			      (float)args->smoothing,
			      (float)args->grad_scale,
			      args->rows};
	enum gn_status status;

	if (a.batch < 1 || a.classes < 1)
		return gn_err_set(err, GN_ERR_USAGE, "loss: %d images of %d classes", a.batch, a.classes);
	if (args->logits == args->dlogits)
		return gn_err_set(err, GN_ERR_USAGE, "loss: its gradient may not take the place of the logits");
	status = args->type == GN_CUDA_F32    ? rows<float>(s, args, a, err)
		 : args->type == GN_CUDA_BF16 ? rows<bf16>(s, args, a, err)
					      : rows<f16>(s, args, a, err);
	if (status)
		return status;
	return launch(s, "kernel loss_sum", err, dim3(1), THREADS, sum_kernel, a, args->out);
}
