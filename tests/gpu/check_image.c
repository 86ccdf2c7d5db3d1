#include "data/sample/resize.h"
#include "tests/gpu/fixture.h"

#include <stdlib.h>
#include <string.h>

struct job {
	int n, h, w, channels;
	struct gn_crop crop; /* of each, but for its pixels */
};

/* What the host's own way makes of a crop; samples there are planes. */
static enum gn_status expected(const struct job *j, const struct gn_cuda_image_args *a, const struct gn_crop *crops,
			       double *want, struct gn_err *err)
{
	size_t plane = (size_t)j->h * j->w;
	float *planes = calloc(3 * plane, sizeof *planes);
	struct gn_resizer *r = NULL;
	enum gn_status status = planes ? gn_resizer_create(&r, err) : GN_ERR_NO_MEMORY;

	for (int n = 0; n < j->n && !status; n++) {
		const struct gn_crop *p = &crops[n];
		struct gn_pixels src = {p->pixels, (size_t)p->width * 3, p->width, p->height, 3};
		struct gn_resize_target t = {.data = planes, .height = j->h, .width = j->w, .to_x = p->to_x, .to_y = p->to_y,
					     .to_width = p->to_width, .to_height = p->to_height, .flip = p->flip,
					     .scale = {1, 1, 1}};

		memset(planes, 0, 3 * plane * sizeof *planes);
		if (p->to_width && p->to_height)
			status = gn_resizer_run(r, &src, p->x, p->y, p->from_width, p->from_height, &t, err);
		for (size_t i = 0; i < plane; i++)
			for (int c = 0; c < j->channels; c++)
				*want++ = c > 2 ? 0 : ((double)planes[c * plane + i] / 255 - (double)a->mean[c]) /
						       (double)a->deviation[c];
	}
	gn_resizer_destroy(r);
	free(planes);
	return status;
}

/* Copies of the job's crop with other pixels and every second one mirrored; onto the device, and to there. */
static int give_crops(struct fixture *b, const struct job *j, struct gn_crop *crops, struct gn_cuda_image_args *a)
{
	struct gn_crop *there = calloc(j->n, sizeof *there);
	size_t bytes = gn_crop_bytes(&j->crop);

	for (int n = 0; n < j->n && there; n++) {
		uint8_t *pixels = malloc(bytes + 16);

		crops[n] = there[n] = j->crop;
		crops[n].flip = there[n].flip = n % 2;
		crops[n].pixels = pixels;
		for (size_t i = 0; i < bytes && pixels; i++)
			pixels[i] = (uint8_t)(fixture_uniform(b) * 256);
		there[n].pixels = pixels && bytes ? fixture_bytes(b, pixels, bytes) : NULL;
	}
	a->crops = there ? fixture_bytes(b, there, j->n * sizeof *there) : NULL;
	free(there);
	return a->crops && !b->why[0];
}

static void check(struct fixture *b, enum gn_cuda_type type, const struct job *j)
{
	size_t count = (size_t)j->n * j->h * j->w * j->channels;
	struct gn_cuda_image_args a = {.type = type, .n = j->n, .h = j->h, .w = j->w, .channels = j->channels,
				       .mean = {0.485f, 0.456f, 0.406f}, .deviation = {0.229f, 0.224f, 0.225f}};
	struct gn_crop *crops = calloc(j->n, sizeof *crops);
	double *want = fixture_doubles(count);
	struct fixture_tensor *out;

	fixture_begin(b);
	out = fixture_output(b, type, count);
	if (!b->why[0] && crops && give_crops(b, j, crops, &a)) {
		a.out = out->data;
		if (fixture_ok(b, gn_cuda_crop_resize_normalise(b->stream, &a, &b->err), "crop, resize, normalise") &&
		    fixture_ok(b, expected(j, &a, crops, want, &b->err), "the host's way"))
			/* the host's are sums of floats, too */
			fixture_compare(b, out, want, (type == GN_CUDA_F32 ? 2 : 1) * fixture_tolerance(type), "sample");
	}
	fixture_end(b, "crop, resize, normalise %s %dx%ux%u to %dx%dx%d", gn_cuda_type_name(type), j->n, j->crop.height, j->crop.width,
		j->h, j->w, j->channels);
	for (int n = 0; n < j->n && crops; n++)
		free((void *)(uintptr_t)crops[n].pixels);
	free(crops);
	free(want);
}

void check_image(struct fixture *b)
{
	static const struct job jobs[] = {
		/* pixels as they are, scaled down by a fraction and by much, scaled up, one way each */
		{3, 32, 32, 3, {NULL, 32, 32, 0, 0, 32, 32, 0, 0, 32, 32, 0}},
		{3, 32, 24, 4, {NULL, 50, 41, 3.25, 2.5, 41.5, 36, 0, 0, 24, 32, 0}},
		{2, 9, 7, 8, {NULL, 90, 111, 0, 0, 90, 111, 0, 0, 7, 9, 0}},
		{2, 40, 33, 5, {NULL, 13, 9, 0.75, 0, 11.25, 9, 0, 0, 33, 40, 0}},
		{2, 16, 64, 3, {NULL, 21, 60, 0, 5, 21, 50, 0, 0, 64, 16, 0}},
		/* a rectangle with black around it, moved to an edge; none at all; a box that reaches out of its crop */
		{4, 28, 31, 8, {NULL, 20, 20, 0, 0, 20, 20, 5, 3, 20, 20, 0}},
		{2, 12, 12, 3, {NULL, 8, 8, 2, 1, 5, 7, 7, 0, 5, 7, 0}},
		{2, 6, 5, 4, {NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
		{2, 14, 14, 3, {NULL, 10, 10, -2.5, -1, 14, 13, 0, 0, 14, 14, 0}},
		{1, 5, 3, 5, {NULL, 1, 1, 0, 0, 1, 1, 0, 0, 3, 5, 0}}};

	for (int type = GN_CUDA_F32; type <= GN_CUDA_F16; type++)
		for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
			check(b, type, &jobs[i]);
}
