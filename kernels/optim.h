/* Optimizer updates on flat memory. Stochastic gradient descent with momentum, as torch.optim.SGD does it (dampening
 * 0).
 *
 * Call it once for each range that has its own weight decay. Momentum buffers start as zeros, which makes the first
 * step torch's: buffer = gradient. Thread safety: ranges that do not overlap may be updated by different threads.
 */
#ifndef GN_KERNELS_OPTIM_H
#define GN_KERNELS_OPTIM_H

#include <stddef.h>

struct gn_sgd {
	double lr;
	double momentum; /* 0: the buffer is neither read nor written and may be NULL */
	int nesterov;
	double weight_decay;
	double grad_scale; /* gradients are multiplied by it first: 1, or 1 / ranks where they come as sums */
};

/* With g = grad_scale * grad + weight_decay * p: buffer = momentum * buffer + g; p -= lr * buffer, or with Nesterov
 * p -= lr * (g + momentum * buffer). count elements, in float. */
void gn_sgd_step(const struct gn_sgd *sgd, float *params, const float *grads, float *buffer, size_t count);
/* The oracle: every element in double. */
void gn_ref_sgd_step(const struct gn_sgd *sgd, double *params, const double *grads, double *buffer, size_t count);

#endif
