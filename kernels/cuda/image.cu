/* A thread makes one pixel of a sample. Neighbouring threads read neighbouring bytes of a row, in either direction. */
#include "kernels/cuda/launch.cuh"

using namespace gn;

struct target {
	int h, w, out_h, out_w, out_channels;
	float scale[3], bias[3];
};

template <class T, int V> static __global__ void __launch_bounds__(GN_CUDA_THREADS)
	crop_kernel(struct target t, const uint8_t *images, const struct gn_cuda_crop *crops, T *out)
{
	int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), n = blockIdx.y;
	struct gn_cuda_crop crop = crops ? crops[n] : gn_cuda_crop{0, 0, 0};
	int x, y, inside;
	float v[V];

	if (i >= t.out_h * t.out_w)
		return;
	x = gn_cuda_crop_column(i % t.out_w, t.out_w, crop.x, crop.flip);
	y = crop.y + i / t.out_w;
	inside = x >= 0 && x < t.w && y >= 0 && y < t.h;
	images += inside ? (((size_t)n * t.h + y) * t.w + x) * 3 : 0;
	out += ((size_t)n * t.out_h * t.out_w + i) * t.out_channels;
	for (int c = 0; c < t.out_channels; c += V) {
#pragma unroll
		for (int k = 0; k < V; k++) {
			v[k] = 0;
			if (c + k < 3)
				v[k] = (inside ? images[c + k] : 0) * t.scale[c + k] + t.bias[c + k];
		}
		store<T, V>(out + c, v);
	}
}

template <class T, int V> static enum gn_status crop(struct gn_cuda_stream *s, const struct gn_cuda_image_args *a,
						     const struct target &t, struct gn_err *err)
{
	dim3 grid((unsigned)((t.out_h * t.out_w + GN_CUDA_THREADS - 1) / GN_CUDA_THREADS), a->n);

	return launch(s, "kernel crop_flip_normalise", err, grid, GN_CUDA_THREADS, crop_kernel<T, V>, t, a->images,
		      a->crops, (T *)a->out);
}

enum gn_status gn_cuda_crop_flip_normalise(struct gn_cuda_stream *s, const struct gn_cuda_image_args *a,
					   struct gn_err *err)
{
	struct target t = {a->h, a->w, a->out_h, a->out_w, a->out_channels, {}, {}};
	int is_wide = a->out_channels % (a->type == GN_CUDA_F32 ? 4 : 8) == 0 && multiple_of_16(a->out);

	if (a->n < 1 || a->n > 65535 || a->h < 1 || a->w < 1 || a->out_h < 1 || a->out_w < 1 || a->out_channels < 3 ||
	    (double)a->out_h * a->out_w > 1 << 30)
		return gn_err_set(err, GN_ERR_USAGE, "crop: %d images of %dx%d, to %dx%d with %d channels", a->n, a->h,
				  a->w, a->out_h, a->out_w, a->out_channels);
	for (int c = 0; c < 3; c++) {
		if (!(a->deviation[c] > 0))
			return gn_err_set(err, GN_ERR_USAGE, "crop: a deviation of %g", (double)a->deviation[c]);
		t.scale[c] = 1 / (255 * a->deviation[c]);
		t.bias[c] = -a->mean[c] / a->deviation[c];
	}
	return GN_BY_TYPE(a->type, is_wide, crop, s, a, t, err);
}
