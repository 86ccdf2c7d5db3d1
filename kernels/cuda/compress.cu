/* Top-k by radix selection: histograms of the magnitudes' bits determine the k-th largest exactly; then each block counts the
 * elements it keeps and writes them behind those of the previous blocks. Counting uses integers, so that the order of blocks does
 * not matter. */
#include "kernels/cuda/launch.cuh"

using namespace gn;

static const int DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS, ROUNDS = 3; /* 33 bits for the 31 of a magnitude */
static const int STRETCHES_MAX = 1024;
static const int WIDE = 4; /* elements per thread: 16 bytes */

struct state {
	uint32_t prefix; /* known leading bits of the k-th largest magnitude */
	uint32_t wanted; /* still to select with that prefix; at the end: of those equal to it */
};

struct scratch {
	uint32_t *histogram; /* [DIGITS] */
	struct state *state;
	/* [STRETCHES_MAX]: number kept per stretch; later the stretch's first output index, and its first index among equals */
	uint32_t *above, *equal;
};

struct stretches {
	size_t count, each;
	int number;
};

static struct stretches stretches_of(size_t count)
{
	size_t each = (count + STRETCHES_MAX - 1) / STRETCHES_MAX;
	struct stretches t;

	each = (each + GN_CUDA_THREADS * WIDE - 1) / (GN_CUDA_THREADS * WIDE) * (GN_CUDA_THREADS * WIDE);
	t.count = count;
	t.each = each;
	t.number = (int)((count + each - 1) / each);
	return t;
}

static struct scratch scratch_of(void *memory)
{
	struct scratch m;

	m.histogram = (uint32_t *)memory;
	m.state = (struct state *)(m.histogram + DIGITS);
	m.above = (uint32_t *)(m.state + 2);
	m.equal = m.above + STRETCHES_MAX;
	return m;
}

size_t gn_cuda_top_k_scratch_bytes(void)
{
	return (DIGITS + 2 * STRETCHES_MAX) * sizeof(uint32_t) + 2 * sizeof(struct state);
}

static __device__ inline uint32_t magnitude(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof bits);
	return bits & 0x7fffffff;
}

static __device__ inline int shift_of(int round)
{
	return (ROUNDS - 1 - round) * DIGIT_BITS;
}

/* The bits of a magnitude that are known after `rounds` rounds. */
static __device__ inline uint32_t known(uint32_t magnitude, int rounds)
{
	return rounds ? magnitude >> shift_of(rounds - 1) << shift_of(rounds - 1) : 0;
}

static __global__ void begin_kernel(struct scratch m, uint32_t k)
{
	for (int i = threadIdx.x; i < DIGITS; i += blockDim.x)
		m.histogram[i] = 0;
	if (threadIdx.x == 0) {
		m.state->prefix = 0;
		m.state->wanted = k;
	}
}

/* Loads V adjacent elements, fewer at the end. Returns their number. */
template <int V> static __device__ inline int load_neighbours(const float *x, size_t at, size_t end, float (&v)[V])
{
	if (at + V <= end) {
		load_floats<float, V>(x + at, v);
		return V;
	}
#pragma unroll
	for (int k = 0; k < V; k++)
		v[k] = at + k < end ? x[at + k] : 0;
	return at < end ? (int)(end - at) : 0;
}

template <int V> static __global__ void __launch_bounds__(GN_CUDA_THREADS)
	histogram_kernel(struct scratch m, const float *x, size_t count, int round)
{
	__shared__ uint32_t own[DIGITS];
	size_t first = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * V, stride = (size_t)gridDim.x * blockDim.x * V;
	uint32_t prefix = m.state->prefix;
	float v[V];

	for (int i = threadIdx.x; i < DIGITS; i += blockDim.x)
		own[i] = 0;
	__syncthreads();
	for (size_t at = first; at < count; at += stride) {
		int there = load_neighbours<V>(x, at, count, v);

#pragma unroll
		for (int k = 0; k < V; k++)
			if (k < there && known(magnitude(v[k]), round) == prefix)
				atomicAdd(&own[magnitude(v[k]) >> shift_of(round) & (DIGITS - 1)], 1u);
	}
	__syncthreads();
	for (int i = threadIdx.x; i < DIGITS; i += blockDim.x)
		if (own[i])
			atomicAdd(&m.histogram[i], own[i]);
}

/* Exclusive prefix sum of own over the threads; *total: the sum over all. shared: 2 * GN_CUDA_THREADS elements. */
static __device__ inline uint32_t sum_before(uint32_t own, uint32_t *shared, uint32_t *total)
{
	int at = threadIdx.x, from = 0;

	__syncthreads();
	shared[at] = own;
	for (int step = 1; step < GN_CUDA_THREADS; step *= 2) {
		__syncthreads();
		shared[GN_CUDA_THREADS - from + at] = shared[from + at] + (at >= step ? shared[from + at - step] : 0);
		from = GN_CUDA_THREADS - from;
	}
	__syncthreads();
	*total = shared[from + GN_CUDA_THREADS - 1];
	return shared[from + at] - own;
}

/* Finds the digit at which the wanted number is reached, from the highest down, and clears the histogram for the next round. One
 * block; each thread has adjacent digits, the first thread the highest. */
static __global__ void __launch_bounds__(GN_CUDA_THREADS) choose_kernel(struct scratch m, int round)
{
	const int EACH = DIGITS / GN_CUDA_THREADS;
	__shared__ uint32_t sums[2 * GN_CUDA_THREADS];
	int digit = DIGITS - 1 - (int)threadIdx.x * EACH;
	uint32_t wanted = m.state->wanted, own = 0, before, all;

	for (int i = 0; i < EACH; i++)
		own += m.histogram[digit - i];
	before = sum_before(own, sums, &all);
	if (before < wanted && wanted <= before + own) {
		for (wanted -= before; m.histogram[digit] < wanted; digit--)
			wanted -= m.histogram[digit];
		m.state->prefix |= (uint32_t)digit << shift_of(round);
		m.state->wanted = wanted;
	}
	__syncthreads();
	for (int i = threadIdx.x; i < DIGITS; i += blockDim.x)
		m.histogram[i] = 0;
}

template <int V> static __global__ void __launch_bounds__(GN_CUDA_THREADS)
	count_kernel(struct scratch m, struct stretches t, const float *x)
{
	__shared__ uint32_t sums[GN_CUDA_THREADS];
	size_t begin = (size_t)blockIdx.x * t.each, end = begin + t.each < t.count ? begin + t.each : t.count;
	uint32_t least = m.state->prefix, above = 0, equal = 0;
	float v[V];

	for (size_t at = begin + threadIdx.x * V; at < end; at += GN_CUDA_THREADS * V) {
		int there = load_neighbours<V>(x, at, end, v);

#pragma unroll
		for (int k = 0; k < V; k++) {
			above += k < there && magnitude(v[k]) > least;
			equal += k < there && magnitude(v[k]) == least;
		}
	}
	above = block_sum<GN_CUDA_THREADS>(above, sums);
	equal = block_sum<GN_CUDA_THREADS>(equal, sums);
	if (threadIdx.x == 0) {
		m.above[blockIdx.x] = above;
		m.equal[blockIdx.x] = equal;
	}
}

/* Turns the counts per stretch into its first output index, and into the number of equals that it may still take. One block; each
 * thread has adjacent stretches. */
static __global__ void __launch_bounds__(GN_CUDA_THREADS) begin_stretches_kernel(struct scratch m, int number)
{
	const int EACH = STRETCHES_MAX / GN_CUDA_THREADS;
	__shared__ uint32_t sums[2 * GN_CUDA_THREADS];
	int first = (int)threadIdx.x * EACH, end = first + EACH < number ? first + EACH : number;
	uint32_t above = 0, equal = 0, wanted = m.state->wanted, at, left, taken, all;

	for (int i = first; i < end; i++) {
		above += m.above[i];
		equal += m.equal[i];
	}
	at = sum_before(above, sums, &all);
	taken = sum_before(equal, sums, &all);
	taken = taken < wanted ? taken : wanted;
	at += taken;
	left = wanted - taken;
	for (int i = first; i < end; i++) {
		above = m.above[i];
		equal = m.equal[i] < left ? m.equal[i] : left;
		m.above[i] = at;
		m.equal[i] = equal;
		at += above + equal;
		left -= equal;
	}
}

/* Selects among the thread's `there` elements: bit k for element k. Of those equal to `least` only as many as remain after the
 * `before` of preceding threads. */
template <int V> static __device__ inline uint32_t choose(const float (&v)[V], int there, uint32_t least, uint32_t before,
							  uint32_t left)
{
	uint32_t chosen = 0;

#pragma unroll
	for (int k = 0; k < V; k++) {
		uint32_t size = magnitude(v[k]), is_equal = k < there && size == least;

		chosen |= (uint32_t)(k < there && (size > least || (is_equal && before < left))) << k;
		before += is_equal;
	}
	return chosen;
}

template <int V> static __device__ inline void store_neighbours(float *to, size_t at, int there, const float (&v)[V])
{
	if (there == V) {
		store<float, V>(to + at, v);
		return;
	}
#pragma unroll
	for (int k = 0; k < V; k++)
		if (k < there)
			to[at + k] = v[k];
}

template <int V> static __global__ void __launch_bounds__(GN_CUDA_THREADS)
	keep_kernel(struct scratch m, struct stretches t, const float *x, uint32_t *indices, float *values, float *rest)
{
	__shared__ uint32_t sums[2 * GN_CUDA_THREADS];
	size_t begin = (size_t)blockIdx.x * t.each, end = begin + t.each < t.count ? begin + t.each : t.count;
	uint32_t least = m.state->prefix, at = m.above[blockIdx.x], left = m.equal[blockIdx.x];
	float v[V];

	for (size_t row = begin; row < end; row += GN_CUDA_THREADS * V) {
		size_t i = row + threadIdx.x * V;
		int there = load_neighbours<V>(x, i, end, v);
		uint32_t own = 0, equals, before, chosen, place, kept;

#pragma unroll
		for (int k = 0; k < V; k++)
			own += k < there && magnitude(v[k]) == least;
		before = sum_before(own, sums, &equals);
		chosen = choose<V>(v, there, least, before, left);
		own = 0;
#pragma unroll
		for (int k = 0; k < V; k++)
			own += chosen >> k & 1;
		place = at + sum_before(own, sums, &kept);
#pragma unroll
		for (int k = 0; k < V; k++)
			if (chosen >> k & 1) {
				indices[place] = (uint32_t)(i + k);
				values[place++] = v[k];
				v[k] = 0;
			}
		if (rest)
			store_neighbours<V>(rest, i, there, v);
		at += kept;
		left -= equals < left ? equals : left;
	}
}

template <int V> static enum gn_status top_k(struct gn_cuda_stream *s, const float *x, size_t count, size_t k, uint32_t *indices,
					     float *values, float *rest, struct scratch m, struct gn_err *err)
{
	struct stretches t = stretches_of(count);
	enum gn_status status = launch(s, "kernel top_k begin", err, dim3(1), GN_CUDA_THREADS, begin_kernel, m, (uint32_t)k);

	for (int round = 0; round < ROUNDS && !status; round++) {
		status = launch(s, "kernel top_k histogram", err, dim3(blocks_for(s, (count + V - 1) / V)), GN_CUDA_THREADS,
				histogram_kernel<V>, m, x, count, round);
		if (!status)
			status = launch(s, "kernel top_k choose", err, dim3(1), GN_CUDA_THREADS, choose_kernel, m, round);
	}
	if (!status)
		status = launch(s, "kernel top_k count", err, dim3(t.number), GN_CUDA_THREADS, count_kernel<V>, m, t, x);
	if (!status)
		status = launch(s, "kernel top_k stretches", err, dim3(1), GN_CUDA_THREADS, begin_stretches_kernel, m, t.number);
	if (status)
		return status;
	return launch(s, "kernel top_k keep", err, dim3(t.number), GN_CUDA_THREADS, keep_kernel<V>, m, t, x, indices, values,
		      rest);
}

enum gn_status gn_cuda_top_k(struct gn_cuda_stream *s, const float *x, size_t count, size_t k, uint32_t *indices,
			     float *values, float *rest, void *scratch, struct gn_err *err)
{
	if (k < 1 || k > count || count > INT32_MAX)
		return gn_err_set(err, GN_ERR_USAGE, "top-k: %zu of %zu", k, count);
	return multiple_of_16(x) && multiple_of_16(rest)
		       ? top_k<WIDE>(s, x, count, k, indices, values, rest, scratch_of(scratch), err)
		       : top_k<1>(s, x, count, k, indices, values, rest, scratch_of(scratch), err);
}

static __global__ void __launch_bounds__(GN_CUDA_THREADS)
	scatter_kernel(const uint32_t *indices, const float *values, size_t k, float *to)
{
	for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < k; i += (size_t)gridDim.x * blockDim.x)
		to[indices[i]] += values[i];
}

enum gn_status gn_cuda_scatter_add(struct gn_cuda_stream *s, const uint32_t *indices, const float *values, size_t k, float *to,
				   struct gn_err *err)
{
	return launch(s, "kernel scatter_add", err, dim3(blocks_for(s, k)), GN_CUDA_THREADS, scatter_kernel, indices, values, k,
		      to);
}
