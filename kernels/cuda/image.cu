/* A thread computes one pixel of a sample. Adjacent threads read adjacent bytes of the same rows, in either direction. */
#include "kernels/cuda/launch.cuh"

using namespace gn;

struct target {
	int h, w, channels;
	float scale[3], bias[3];
};

struct colour {
	float v[3];
};

static __device__ struct colour resized(const struct gn_crop &p, unsigned x, unsigned y)
{
	struct gn_cuda_taps across = gn_cuda_taps_of(p.x, p.from_width, p.to_width, x, p.width);
	struct gn_cuda_taps down = gn_cuda_taps_of(p.y, p.from_height, p.to_height, y, p.height);
	struct colour sum = {{0, 0, 0}};
	float total = 0;

	for (int j = 0; j < down.count; j++) {
		const uint8_t *row = p.pixels + ((size_t)(down.first + j) * p.width + across.first) * 3;
		float weight = gn_cuda_tap_weight(&down, j);

		for (int i = 0; i < across.count; i++, row += 3) {
			float w = weight * gn_cuda_tap_weight(&across, i);

			total += w;
#pragma unroll
			for (int c = 0; c < 3; c++)
				sum.v[c] += w * row[c];
		}
	}
#pragma unroll
	for (int c = 0; c < 3; c++)
		sum.v[c] /= total;
	return sum;
}

template <class T, int V> static __global__ void __launch_bounds__(GN_CUDA_THREADS)
	sample_kernel(struct target t, const struct gn_crop *crops, T *out)
{
	int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), n = blockIdx.y;
	const struct gn_crop p = crops[n];
	struct colour pixel = {{0, 0, 0}};
	unsigned x, y;
	float v[V];

	if (i >= t.h * t.w)
		return;
	/* outside the rectangle it wraps to a large value */
	x = (unsigned)(p.flip ? t.w - 1 - i % t.w : i % t.w) - p.to_x;
	y = (unsigned)(i / t.w) - p.to_y;
	if (x < p.to_width && y < p.to_height)
		pixel = resized(p, x, y);
	out += ((size_t)n * t.h * t.w + i) * t.channels;
	for (int c = 0; c < t.channels; c += V) {
#pragma unroll
		for (int k = 0; k < V; k++) {
			int at = c + k;

			v[k] = 0;
			if (at < 3)
				v[k] = (at == 0 ? pixel.v[0] : at == 1 ? pixel.v[1] : pixel.v[2]) * t.scale[at] + t.bias[at];
		}
		store<T, V>(out + c, v);
	}
}

template <class T, int V> static enum gn_status sample(struct gn_cuda_stream *s, const struct gn_cuda_image_args *a,
						       const struct target &t, struct gn_err *err)
{
	dim3 grid((unsigned)((t.h * t.w + GN_CUDA_THREADS - 1) / GN_CUDA_THREADS), a->n);

	return launch(s, "kernel crop_resize_normalise", err, grid, GN_CUDA_THREADS, sample_kernel<T, V>, t, a->crops,
		      (T *)a->out);
}

enum gn_status gn_cuda_crop_resize_normalise(struct gn_cuda_stream *s, const struct gn_cuda_image_args *a, struct gn_err *err)
{
	struct target t = {a->h, a->w, a->channels, {}, {}};
	int is_wide = a->channels % (a->type == GN_CUDA_F32 ? 4 : 8) == 0 && multiple_of_16(a->out);

	if (a->n < 1 || a->n > 65535 || a->h < 1 || a->w < 1 || a->channels < 3 || (double)a->h * a->w > 1 << 30)
		return gn_err_set(err, GN_ERR_USAGE, "samples: %d of %dx%d with %d channels", a->n, a->h, a->w, a->channels);
	for (int c = 0; c < 3; c++) {
		if (!(a->deviation[c] > 0))
			return gn_err_set(err, GN_ERR_USAGE, "samples: a deviation of %g", (double)a->deviation[c]);
		t.scale[c] = 1 / (255 * a->deviation[c]);
		t.bias[c] = -a->mean[c] / a->deviation[c];
	}
	return GN_BY_TYPE(a->type, is_wide, sample, s, a, t, err);
}
