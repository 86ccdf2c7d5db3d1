#include "data/sample/mixup.h"

#include "src/base/philox.h"

#include <math.h>
#include <string.h>

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

/* From Beta(alpha, alpha). */
static double beta_draw(struct gn_rng *r, double alpha)
{
	double a = log_gamma_draw(r, alpha), b = log_gamma_draw(r, alpha);

	return 1 / (1 + exp(b - a));
}

double gn_mixup_lambda(uint64_t seed, double alpha, uint32_t epoch, uint64_t index)
{
	struct gn_rng r;

	gn_rng_init(&r, seed, GN_RNG_MIXUP, epoch, (uint32_t)index);
	return beta_draw(&r, alpha);
}

uint64_t gn_mixup_pair(const struct gn_order *order, uint64_t position)
{
	uint64_t pair = position ^ 1;

	return pair < order->count ? pair : position;
}

/* One side of the box. */
static void cut_axis(struct gn_rng *r, double half_share, uint32_t side, uint32_t *from, uint32_t *to)
{
	uint32_t centre = gn_rng_below(r, side), half = (uint32_t)(half_share * side);

	*from = centre > half ? centre - half : 0;
	*to = centre + half < side ? centre + half : side;
}

void gn_mix_draw(const struct gn_loader_options *o, uint32_t epoch, uint64_t index, struct gn_mix *out)
{
	struct gn_mix m = {.is_cut = o->cutmix > 0};
	double half_share;
	struct gn_rng r;

	gn_rng_init(&r, o->seed, GN_RNG_CUTMIX, epoch, (uint32_t)index);
	if (m.is_cut && o->mixup > 0)
		m.is_cut = (int)gn_rng_below(&r, 2);
	if (m.is_cut) {
		half_share = 0.5 * sqrt(1 - beta_draw(&r, o->cutmix));
		cut_axis(&r, half_share, o->width, &m.left, &m.right);
		cut_axis(&r, half_share, o->height, &m.top, &m.bottom);
		m.lambda = 1 - (double)(m.right - m.left) * (m.bottom - m.top) / ((double)o->width * o->height);
	} else {
		m.lambda = gn_mixup_lambda(o->seed, o->mixup, epoch, index);
	}
	*out = m;
}

void gn_mix_apply(const struct gn_mix *m, const struct gn_loader_options *o, float *image, const float *pair)
{
	const float own = (float)m->lambda, rest = (float)(1 - m->lambda);
	const size_t count = (size_t)o->channels * o->height * o->width;

	for (size_t i = 0; i < count && !m->is_cut; i++)
		image[i] = own * image[i] + rest * pair[i];
	for (uint32_t row = 0; row < o->channels * o->height && m->is_cut; row++)
		if (row % o->height >= m->top && row % o->height < m->bottom)
			memcpy(image + (size_t)row * o->width + m->left, pair + (size_t)row * o->width + m->left,
			       (m->right - m->left) * sizeof *image);
}
