#include "data/sample/augment.h"

#include "data/sample/resize.h"
#include "src/base/philox.h"

#include <math.h>

static const double area_min = 0.08, ratio_min = 3.0 / 4.0, ratio_max = 4.0 / 3.0;

/* the fallback of RandomResizedCrop: the largest centre crop within the ratio */
static struct gn_region centre_crop(uint32_t width, uint32_t height)
{
	struct gn_region r = {0, 0, width, height};
	double ratio = (double)width / height;

	if (ratio < ratio_min)
		r.height = (uint32_t)lrint(width / ratio_min);
	else if (ratio > ratio_max)
		r.width = (uint32_t)lrint(height * ratio_max);
	r.height = r.height < 1 ? 1 : r.height > height ? height : r.height;
	r.width = r.width < 1 ? 1 : r.width > width ? width : r.width;
	r.x = (width - r.width) / 2;
	r.y = (height - r.height) / 2;
	return r;
}

static struct gn_region random_crop(struct gn_rng *rng, uint32_t width, uint32_t height)
{
	double area = (double)width * height;

	for (int i = 0; i < 10; i++) {
		double target = area * (area_min + (1 - area_min) * gn_rng_uniform(rng));
		double ratio = exp(log(ratio_min) + (log(ratio_max) - log(ratio_min)) * gn_rng_uniform(rng));
		long w = lrint(sqrt(target * ratio)), h = lrint(sqrt(target / ratio));
		struct gn_region r;

		if (w < 1 || h < 1 || w > (long)width || h > (long)height)
			continue;
		r.width = (uint32_t)w;
		r.height = (uint32_t)h;
		r.y = gn_rng_below(rng, height - r.height + 1);
		r.x = gn_rng_below(rng, width - r.width + 1);
		return r;
	}
	return centre_crop(width, height);
}

static void draw_crop(const struct gn_loader_options *o, struct gn_rng *rng, uint32_t width, uint32_t height,
		      struct gn_crop_params *v)
{
	v->bounds = random_crop(rng, width, height);
	v->x = v->bounds.x;
	v->y = v->bounds.y;
	v->width = v->bounds.width;
	v->height = v->bounds.height;
	v->to_x = v->to_y = 0;
	v->to_width = o->width;
	v->to_height = o->height;
}

uint32_t gn_crop_resize(const struct gn_loader_options *o)
{
	uint32_t side = o->height > o->width ? o->height : o->width;

	if (o->resize_shorter)
		return o->resize_shorter;
	return o->augment == GN_AUGMENT_NONE && side >= 64 ? side * 8 / 7 : 0;
}

uint32_t gn_crop_resize_evaluation(int64_t side, int64_t resize_shorter)
{
	const struct gn_loader_options lo = {.augment = GN_AUGMENT_NONE, .height = (uint32_t)side, .width = (uint32_t)side,
					     .resize_shorter = (uint32_t)resize_shorter};

	return gn_crop_resize(&lo);
}

/* The length that the shorter side is resized to; see the header. */
static uint64_t fitted_shorter(const struct gn_loader_options *o, uint64_t shorter)
{
	uint64_t side = o->height > o->width ? o->height : o->width;
	uint64_t larger = side * 8 / 7, always = gn_crop_resize(o);

	if (always)
		return always;
	return shorter > larger || shorter * 4 < side * 3 ? larger : shorter;
}

/* One axis: the window of `size` pixels at the centre of `scaled` pixels, moved by shift, in pixels of the original `length`. May
 * lie outside the image. */
static void cut_axis(uint32_t length, uint64_t scaled, uint32_t size, int64_t shift, double *from, double *span,
		     uint32_t *to, uint32_t *count)
{
	int64_t room = (int64_t)scaled - (int64_t)size;
	/* as torchvision's center_crop: half rounded to even inside the image, rounded down for the black border */
	int64_t start = room >= 0 ? (int64_t)lrint((double)room / 2) : -(-room / 2);
	int64_t begin, end;

	start += shift;
	begin = start > 0 ? start : 0;
	end = start + (int64_t)size < (int64_t)scaled ? start + (int64_t)size : (int64_t)scaled;
	if (end <= begin) {
		*from = *span = 0;
		*to = *count = 0;
		return;
	}
	*from = (double)begin * length / (double)scaled;
	*span = (double)(end - begin) * length / (double)scaled;
	*to = (uint32_t)(begin - start);
	*count = (uint32_t)(end - begin);
}

static void draw_window(const struct gn_loader_options *o, int64_t shift_x, int64_t shift_y, uint32_t width,
			uint32_t height, struct gn_crop_params *v)
{
	uint64_t shorter = width < height ? width : height, longer = width < height ? height : width;
	uint64_t fitted = fitted_shorter(o, shorter);
	uint64_t scaled_longer = fitted * longer / shorter;
	uint64_t scaled_width = width <= height ? fitted : scaled_longer;
	uint64_t scaled_height = width <= height ? scaled_longer : fitted;

	v->bounds = (struct gn_region){0, 0, width, height};
	cut_axis(width, scaled_width, o->width, shift_x, &v->x, &v->width, &v->to_x, &v->to_width);
	cut_axis(height, scaled_height, o->height, shift_y, &v->y, &v->height, &v->to_y, &v->to_height);
}

void gn_crop_params_draw(const struct gn_loader_options *o, uint32_t epoch, uint64_t index, uint32_t width, uint32_t height,
		  struct gn_crop_params *out)
{
	struct gn_crop_params v = {0};
	int64_t shift_x = 0, shift_y = 0;
	struct gn_rng rng;
	uint32_t coin;

	/* datasets have fewer than 2^32 samples (gn_order_check) */
	gn_rng_init(&rng, o->seed, GN_RNG_AUGMENT, epoch, (uint32_t)index);
	coin = gn_rng_u32(&rng) >> 31;
	switch (o->augment) {
	case GN_AUGMENT_NONE:
		coin = 0;
		draw_window(o, 0, 0, width, height, &v);
		break;
	case GN_AUGMENT_CROP_FLIP:
		draw_crop(o, &rng, width, height, &v);
		break;
	case GN_AUGMENT_SHIFT:
		coin = 0;
		/* fall through */
	case GN_AUGMENT_SHIFT_FLIP:
		shift_y = (int64_t)gn_rng_below(&rng, 2 * o->pad + 1) - o->pad;
		shift_x = (int64_t)gn_rng_below(&rng, 2 * o->pad + 1) - o->pad;
		draw_window(o, shift_x, shift_y, width, height, &v);
		break;
	}
	v.flip = (int)coin;
	v.interpolation = o->interpolation;
	*out = v;
}

static void decoding_axis(double from, double span, uint32_t count, uint32_t bound, uint32_t bound_length,
			  uint32_t denominator, enum gn_interpolation interpolation, uint32_t *begin, uint32_t *length)
{
	double reach = gn_resize_reach(span / denominator, count, interpolation);
	/* in scaled pixels, with one pixel of margin against rounding */
	double low = floor(from / denominator - reach) - 1, high = ceil((from + span) / denominator + reach) + 1;
	double least = bound / denominator, most = (bound + bound_length + denominator - 1) / denominator;

	low = low > least ? low : least;
	high = high < most ? high : most;
	*begin = (uint32_t)low;
	*length = (uint32_t)(high - low);
}

void gn_crop_params_decoding(const struct gn_crop_params *v, uint32_t most, uint32_t *denominator, struct gn_region *out)
{
	uint32_t d = most;

	while (d > 1 && (v->width / d < v->to_width || v->height / d < v->to_height))
		d /= 2;
	decoding_axis(v->x, v->width, v->to_width, v->bounds.x, v->bounds.width, d, v->interpolation, &out->x, &out->width);
	decoding_axis(v->y, v->height, v->to_height, v->bounds.y, v->bounds.height, d, v->interpolation, &out->y,
		      &out->height);
	*denominator = d;
}
