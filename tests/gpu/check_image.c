#include "tests/gpu/bed.h"

#include <stdlib.h>

struct job {
	int n, h, w, out_h, out_w, out_channels;
};

/* The sample's formula from the images themselves, in double. */
static double pixel(const struct gn_cuda_image_args *a, const uint8_t *images, const struct gn_cuda_crop *crop, int n,
		    int oy, int ox, int c)
{
	int y = crop->y + oy, x = crop->x + (crop->flip ? a->out_w - 1 - ox : ox);
	double value = 0;

	if (c >= 3)
		return 0;
	if (y >= 0 && y < a->h && x >= 0 && x < a->w)
		value = images[(((size_t)n * a->h + y) * a->w + x) * 3 + c] / 255.0;
	return (value - (double)a->mean[c]) / (double)a->deviation[c];
}

static void expected(const struct gn_cuda_image_args *a, const uint8_t *images, const struct gn_cuda_crop *crops,
		     double *want)
{
	for (int n = 0; n < a->n; n++)
		for (int y = 0; y < a->out_h; y++)
			for (int x = 0; x < a->out_w; x++)
				for (int c = 0; c < a->out_channels; c++)
					*want++ = pixel(a, images, &crops[n], n, y, x, c);
}

static void check(struct bed *b, enum gn_cuda_type type, const struct job *j)
{
	size_t bytes = (size_t)j->n * j->h * j->w * 3, count = (size_t)j->n * j->out_h * j->out_w * j->out_channels;
	struct gn_cuda_image_args a = {type,
				       j->n,
				       j->h,
				       j->w,
				       j->out_h,
				       j->out_w,
				       j->out_channels,
				       {0.485f, 0.456f, 0.406f},
				       {0.229f, 0.224f, 0.225f},
				       NULL,
				       NULL,
				       NULL};
	uint8_t *images = malloc(bytes);
	struct gn_cuda_crop *crops = calloc(j->n, sizeof *crops);
	double *want = bed_doubles(count);
	struct bed_tensor *out;

	bed_begin(b);
	out = bed_output(b, type, count);
	if (!b->why[0] && images && crops) {
		for (size_t i = 0; i < bytes; i++)
			images[i] = (uint8_t)(bed_uniform(b) * 256);
		for (int i = 0; i < j->n; i++) /* some of them beyond an edge */
			crops[i] = (struct gn_cuda_crop){(int)(bed_uniform(b) * (j->w + 8)) - j->out_w / 2 - 4,
							 (int)(bed_uniform(b) * (j->h + 8)) - j->out_h / 2 - 4, i % 2};
		a.images = bed_bytes(b, images, bytes);
		a.crops = bed_bytes(b, crops, j->n * sizeof *crops);
		a.out = out->data;
		if (!b->why[0] && bed_ok(b, gn_cuda_crop_flip_normalise(b->stream, &a, &b->err), "crop")) {
			expected(&a, images, crops, want);
			bed_compare(b, out, want, bed_tolerance(type), "sample");
		}
	}
	bed_end(b, "crop, flip, normalise %s %dx%dx%d to %dx%dx%d", gn_cuda_type_name(type), j->n, j->h, j->w, j->out_h,
		j->out_w, j->out_channels);
	free(images);
	free(crops);
	free(want);
}

void check_image(struct bed *b)
{
	static const struct job jobs[] = {
		{4, 36, 40, 32, 32, 3}, {4, 40, 36, 32, 24, 4}, {3, 20, 20, 28, 31, 8}, {2, 1, 1, 5, 3, 5}};

	for (int type = GN_CUDA_F32; type <= GN_CUDA_F16; type++)
		for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
			check(b, type, &jobs[i]);
}
