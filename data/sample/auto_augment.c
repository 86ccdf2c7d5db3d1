#include "data/sample/auto_augment.h"

#include "src/base/philox.h"

#include <math.h>
#include <string.h>

/* --- the policies' ranges --- */

/* torch.linspace(from, to, bins)[bin], in its single precision. */
static double linspace(double from, double to, int bin, int bins)
{
	const float a = (float)from, b = (float)to, step = (b - a) / (float)(bins - 1);

	return bin < bins / 2 ? (double)(a + step * (float)bin) : (double)(b - step * (float)(bins - 1 - bin));
}

double gn_auto_augment_magnitude(enum gn_policy policy, enum gn_image_op op, int bin, uint32_t width, uint32_t height)
{
	const int is_wide = policy == GN_POLICY_TRIVIAL, bins = policy == GN_POLICY_IMAGENET ? 10 : GN_POLICY_BINS;
	double most = 0;

	if (op == GN_OP_SHEAR_X || op == GN_OP_SHEAR_Y)
		most = is_wide ? 0.99 : 0.3;
	else if (op == GN_OP_TRANSLATE_X || op == GN_OP_TRANSLATE_Y)
		most = is_wide ? 32 : 150.0 / 331.0 * (op == GN_OP_TRANSLATE_X ? width : height);
	else if (op == GN_OP_ROTATE)
		most = is_wide ? 135 : 30;
	else if (op >= GN_OP_BRIGHTNESS && op <= GN_OP_SHARPNESS)
		most = is_wide ? 0.99 : 0.9;
	else if (op == GN_OP_POSTERIZE)
		return 8 - rint(bin / ((bins - 1) / (is_wide ? 6.0 : 4.0)));
	else if (op == GN_OP_SOLARIZE)
		return linspace(255, 0, bin, bins);
	return linspace(0, most, bin, bins);
}

/* --- what is drawn --- */

static void apply(enum gn_policy policy, enum gn_image_op op, int bin, struct gn_rng *rng, struct gn_bitmap *b)
{
	double magnitude = gn_auto_augment_magnitude(policy, op, bin, b->width, b->height);

	if (gn_rng_below(rng, 2) && op <= GN_OP_SHARPNESS)
		magnitude = -magnitude;
	gn_image_op_apply(op, magnitude, b);
}

struct step {
	enum gn_image_op op;
	int tenths; /* of probability */
	int bin;
};

/* AutoAugmentPolicy.IMAGENET, as torchvision lists it. */
static const struct step imagenet[25][2] = {
	{{GN_OP_POSTERIZE, 4, 8}, {GN_OP_ROTATE, 6, 9}},
	{{GN_OP_SOLARIZE, 6, 5}, {GN_OP_AUTOCONTRAST, 6, 0}},
	{{GN_OP_EQUALIZE, 8, 0}, {GN_OP_EQUALIZE, 6, 0}},
	{{GN_OP_POSTERIZE, 6, 7}, {GN_OP_POSTERIZE, 6, 6}},
	{{GN_OP_EQUALIZE, 4, 0}, {GN_OP_SOLARIZE, 2, 4}},
	{{GN_OP_EQUALIZE, 4, 0}, {GN_OP_ROTATE, 8, 8}},
	{{GN_OP_SOLARIZE, 6, 3}, {GN_OP_EQUALIZE, 6, 0}},
	{{GN_OP_POSTERIZE, 8, 5}, {GN_OP_EQUALIZE, 10, 0}},
	{{GN_OP_ROTATE, 2, 3}, {GN_OP_SOLARIZE, 6, 8}},
	{{GN_OP_EQUALIZE, 6, 0}, {GN_OP_POSTERIZE, 4, 6}},
	{{GN_OP_ROTATE, 8, 8}, {GN_OP_COLOR, 4, 0}},
	{{GN_OP_ROTATE, 4, 9}, {GN_OP_EQUALIZE, 6, 0}},
	{{GN_OP_EQUALIZE, 0, 0}, {GN_OP_EQUALIZE, 8, 0}},
	{{GN_OP_INVERT, 6, 0}, {GN_OP_EQUALIZE, 10, 0}},
	{{GN_OP_COLOR, 6, 4}, {GN_OP_CONTRAST, 10, 8}},
	{{GN_OP_ROTATE, 8, 8}, {GN_OP_COLOR, 10, 2}},
	{{GN_OP_COLOR, 8, 8}, {GN_OP_SOLARIZE, 8, 7}},
	{{GN_OP_SHARPNESS, 4, 7}, {GN_OP_INVERT, 6, 0}},
	{{GN_OP_SHEAR_X, 6, 5}, {GN_OP_EQUALIZE, 10, 0}},
	{{GN_OP_COLOR, 4, 0}, {GN_OP_EQUALIZE, 6, 0}},
	{{GN_OP_EQUALIZE, 4, 0}, {GN_OP_SOLARIZE, 2, 4}},
	{{GN_OP_SOLARIZE, 6, 5}, {GN_OP_AUTOCONTRAST, 6, 0}},
	{{GN_OP_INVERT, 6, 0}, {GN_OP_EQUALIZE, 10, 0}},
	{{GN_OP_COLOR, 6, 4}, {GN_OP_CONTRAST, 10, 8}},
	{{GN_OP_EQUALIZE, 8, 0}, {GN_OP_EQUALIZE, 6, 0}},
};

static void auto_augment(struct gn_rng *rng, struct gn_bitmap *b)
{
	const struct step *steps = imagenet[gn_rng_below(rng, 25)];

	for (int i = 0; i < 2; i++)
		if (gn_rng_uniform(rng) * 10 < steps[i].tenths)
			apply(GN_POLICY_IMAGENET, steps[i].op, steps[i].bin, rng, b);
}

/* The four changes in random order, as ColorJitter. */
static void jitter(const double by[4], struct gn_rng *rng, struct gn_bitmap *b)
{
	enum gn_image_op order[4] = {GN_OP_BRIGHTNESS, GN_OP_CONTRAST, GN_OP_COLOR, GN_OP_HUE};
	double magnitude[GN_OP_COUNT] = {0};

	for (int i = 0; i < 4; i++) {
		double low = order[i] != GN_OP_HUE && by[i] > 1 ? -1 : -by[i];

		magnitude[order[i]] = low + (by[i] - low) * gn_rng_uniform(rng);
	}
	for (uint32_t left = 4; left > 0; left--) {
		uint32_t k = gn_rng_below(rng, left);

		if (magnitude[order[k]] != 0)
			gn_image_op_apply(order[k], magnitude[order[k]], b);
		order[k] = order[left - 1];
	}
}

static int jitters(const struct gn_auto_augment *a)
{
	return a->jitter[0] > 0 || a->jitter[1] > 0 || a->jitter[2] > 0 || a->jitter[3] > 0;
}

int gn_auto_augment_is_on(const struct gn_auto_augment *a)
{
	return a->policy != GN_POLICY_NONE || jitters(a);
}

void gn_auto_augment_apply(const struct gn_auto_augment *a, uint64_t seed, uint32_t epoch, uint64_t index, struct gn_bitmap *b)
{
	uint32_t ops = a->policy == GN_POLICY_RAND ? a->ops : a->policy == GN_POLICY_TRIVIAL;
	struct gn_rng rng;

	gn_rng_init(&rng, seed, GN_RNG_POLICY, epoch, (uint32_t)index);
	if (jitters(a))
		jitter(a->jitter, &rng, b);
	if (a->policy == GN_POLICY_IMAGENET)
		auto_augment(&rng, b);
	for (uint32_t i = 0; i < ops; i++) {
		enum gn_image_op op = (enum gn_image_op)gn_rng_below(&rng, GN_OP_OF_POLICIES);

		apply(a->policy, op, a->policy == GN_POLICY_RAND ? (int)a->magnitude : (int)gn_rng_below(&rng, GN_POLICY_BINS), &rng, b);
	}
}

void gn_random_erase(double p, uint64_t seed, uint32_t epoch, uint64_t index, uint32_t channels, uint32_t height, uint32_t width,
		     float *image)
{
	const double area = (double)height * width, log_ratio = log(3.3), log_least = log(0.3);
	struct gn_rng rng;

	gn_rng_init(&rng, seed, GN_RNG_ERASE, epoch, (uint32_t)index);
	if (!(gn_rng_uniform(&rng) < p))
		return;
	for (int i = 0; i < 10; i++) {
		double target = area * (0.02 + (0.33 - 0.02) * gn_rng_uniform(&rng));
		double ratio = exp(log_least + (log_ratio - log_least) * gn_rng_uniform(&rng));
		long h = lrint(sqrt(target * ratio)), w = lrint(sqrt(target / ratio));
		uint32_t top, left;

		if (h >= (long)height || w >= (long)width)
			continue;
		top = gn_rng_below(&rng, height - (uint32_t)h + 1);
		left = gn_rng_below(&rng, width - (uint32_t)w + 1);
		for (uint32_t c = 0; c < channels; c++)
			for (uint32_t y = top; y < top + (uint32_t)h; y++)
				memset(image + ((size_t)c * height + y) * width + left, 0, (size_t)w * sizeof *image);
		return;
	}
}
