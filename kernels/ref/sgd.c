#include "kernels/optim.h"

void gn_ref_sgd_step(const struct gn_sgd *sgd, double *params, const double *grads, double *buffer, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		double g = sgd->grad_scale * grads[i] + sgd->weight_decay * params[i];

		if (sgd->momentum != 0) {
			buffer[i] = sgd->momentum * buffer[i] + g;
			g = sgd->nesterov ? g + sgd->momentum * buffer[i] : buffer[i];
		}
		params[i] -= sgd->lr * g;
	}
}
