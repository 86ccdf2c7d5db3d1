/* Shared by forward and backward of batch normalisation: partition and final sums of their reductions. */
#ifndef GN_KERNELS_CUDA_BATCH_NORM_CUH
#define GN_KERNELS_CUDA_BATCH_NORM_CUH

#include "kernels/cuda/launch.cuh"

namespace gn
{

/* rows in flight per thread */
static const int ROWS = 4;

/* Blocks that a multiprocessor runs at once, which the kernels' launch bounds guarantee: grids are multiples of them, since a last
 * round of few blocks takes as long as a full one. */
static const int RESIDENT = 3;

/* Tile of a reduction: enough blocks to hide latency, few enough that adding their partial sums is cheap. */
static inline struct gn_cuda_tile reduction_tile(const struct gn_cuda_stream *s, size_t rows, int vectors)
{
	return gn_cuda_tile_make(rows, vectors, multiprocessors(s) * RESIDENT);
}

static inline struct gn_cuda_tile apply_tile(const struct gn_cuda_stream *s, size_t rows, int vectors)
{
	return gn_cuda_tile_make(rows, vectors, multiprocessors(s) * RESIDENT * 4);
}

/* Position of a thread in a tile. */
struct place {
	int lane, row_lane, channel;
	int active; /* the thread's channels exist */
	size_t begin, end;
};

template <int V> static __device__ inline place find_place(const struct gn_cuda_tile &t)
{
	place p;
	int vector;

	p.lane = threadIdx.x % t.lanes;
	p.row_lane = threadIdx.x / t.lanes;
	vector = (int)blockIdx.x * t.lanes + p.lane;
	p.channel = vector * V;
	p.active = vector < t.vectors;
	p.begin = (size_t)blockIdx.y * t.rows_per_chunk;
	p.end = p.begin + t.rows_per_chunk < t.rows ? p.begin + t.rows_per_chunk : t.rows;
	return p;
}

/* Adds a and b over all threads with the same lane and writes the sums to partial[2][chunks][channels]. */
template <int V> static __device__ inline void write_partial(const struct gn_cuda_tile &t, const place &p, int channels,
							     const float (&a)[V], const float (&b)[V], float *partial)
{
	__shared__ float shared[2 * V][GN_CUDA_THREADS];
	int at = threadIdx.x;

#pragma unroll
	for (int k = 0; k < V; k++) {
		shared[k][at] = a[k];
		shared[V + k][at] = b[k];
	}
	for (int step = t.row_lanes / 2; step > 0; step /= 2) {
		__syncthreads();
		if (p.row_lane < step) {
#pragma unroll
			for (int k = 0; k < 2 * V; k++)
				shared[k][at] += shared[k][at + step * t.lanes];
		}
	}
	if (p.row_lane > 0 || !p.active)
		return;
#pragma unroll
	for (int k = 0; k < V; k++) {
		partial[(size_t)blockIdx.y * channels + p.channel + k] = shared[k][at];
		partial[((size_t)t.chunks + blockIdx.y) * channels + p.channel + k] = shared[V + k][at];
	}
}

/* blocks of 32 channels by TOTAL_LANES lanes of chunks */
static const int TOTAL_LANES = 16;

/* Totals over all chunks of one channel, in double; valid where threadIdx.y is 0. */
static __device__ inline void total_chunks(const float *partial, int chunks, int channels, int channel, double *a,
					   double *b)
{
	__shared__ double shared[2][TOTAL_LANES][32];
	int lane = threadIdx.x % 32, part = threadIdx.x / 32;
	double first = 0, second = 0;

	for (int chunk = part; channel < channels && chunk < chunks; chunk += TOTAL_LANES) {
		first += partial[(size_t)chunk * channels + channel];
		second += partial[((size_t)chunks + chunk) * channels + channel];
	}
	shared[0][part][lane] = first;
	shared[1][part][lane] = second;
	for (int step = TOTAL_LANES / 2; step > 0; step /= 2) {
		__syncthreads();
		if (part < step) {
			shared[0][part][lane] += shared[0][part + step][lane];
			shared[1][part][lane] += shared[1][part + step][lane];
		}
	}
	*a = shared[0][part][lane];
	*b = shared[1][part][lane];
}

} // namespace gn
#endif
