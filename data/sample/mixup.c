#include "data/sample/mixup.h"

#include "src/base/philox.h"

#include <math.h>

/* Logarithm of a number drawn from Gamma(alpha, 1), alpha > 0: Marsaglia and Tsang 2000, "A simple method for generating gamma
 * variables", with their step for alpha below 1, which does not underflow in logarithms. */
static double log_gamma_draw(struct gn_rng *r, double alpha)
{
	double small = alpha < 1 ? log(1 - gn_rng_uniform(r)) / alpha : 0;
	double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / sqrt(9 * d);

	for (;;) {
		double x = gn_rng_normal(r), v = 1 + c * x;

		if (v <= 0)
			continue;
		v = v * v * v;
		if (log(1 - gn_rng_uniform(r)) < x * x / 2 + d - d * v + d * log(v))
			return log(d * v) + small;
	}
}

double gn_mixup_lambda(uint64_t seed, double alpha, uint32_t epoch, uint64_t index)
{
	struct gn_rng r;
	double a, b;

	gn_rng_init(&r, seed, GN_RNG_MIXUP, epoch, (uint32_t)index);
	a = log_gamma_draw(&r, alpha);
	b = log_gamma_draw(&r, alpha);
	return 1 / (1 + exp(b - a));
}

uint64_t gn_mixup_pair(const struct gn_order *order, uint64_t position)
{
	uint64_t pair = position ^ 1;

	return pair < order->count ? pair : position;
}

void gn_mixup_blend(float *image, const float *pair, size_t count, double lambda)
{
	const float s = (float)lambda, rest = (float)(1 - lambda);

	for (size_t i = 0; i < count; i++)
		image[i] = s * image[i] + rest * pair[i];
}

void gn_mixup_blend_pair(float *a, float *b, size_t count, double lambda_a, double lambda_b)
{
	const float sa = (float)lambda_a, rest_a = (float)(1 - lambda_a), sb = (float)lambda_b, rest_b = (float)(1 - lambda_b);

	for (size_t i = 0; i < count; i++) {
		float x = a[i], y = b[i];

		a[i] = sa * x + rest_a * y;
		b[i] = sb * y + rest_b * x;
	}
}
