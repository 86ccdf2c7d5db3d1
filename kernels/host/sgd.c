#include "kernels/optim.h"

/* Scalars as floats: no conversions in the loops. */
struct scalars {
	float lr, momentum, decay, scale;
};

static void plain(struct scalars s, float *params, const float *grads, size_t count)
{
#pragma omp parallel for simd schedule(static)
	for (size_t i = 0; i < count; i++)
		params[i] -= s.lr * (s.scale * grads[i] + s.decay * params[i]);
}

static void heavy_ball(struct scalars s, float *params, const float *grads, float *buffer, size_t count)
{
#pragma omp parallel for simd schedule(static)
	for (size_t i = 0; i < count; i++) {
		float b = s.momentum * buffer[i] + (s.scale * grads[i] + s.decay * params[i]);

		buffer[i] = b;
		params[i] -= s.lr * b;
	}
}

static void nesterov(struct scalars s, float *params, const float *grads, float *buffer, size_t count)
{
#pragma omp parallel for simd schedule(static)
	for (size_t i = 0; i < count; i++) {
		float g = s.scale * grads[i] + s.decay * params[i], b = s.momentum * buffer[i] + g;

		buffer[i] = b;
		params[i] -= s.lr * (g + s.momentum * b);
	}
}

void gn_sgd_step(const struct gn_sgd *sgd, float *params, const float *grads, float *buffer, size_t count)
{
	struct scalars s = {(float)sgd->lr, (float)sgd->momentum, (float)sgd->weight_decay, (float)sgd->grad_scale};

	if (sgd->momentum == 0)
		plain(s, params, grads, count);
	else if (sgd->nesterov)
		nesterov(s, params, grads, buffer, count);
	else
		heavy_ball(s, params, grads, buffer, count);
}
