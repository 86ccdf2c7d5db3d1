/* The formulas of kernels/optim.h in double: what its optimizers and those of kernels/cuda/ are compared with. */
#ifndef GN_TESTS_KERNELS_REF_OPTIM_H
#define GN_TESTS_KERNELS_REF_OPTIM_H

#include "kernels/optim.h"

/* struct gn_optim_tensor in double. */
struct gn_ref_optim_tensor {
	double *params;
	const double *grads;
	double *slots[GN_OPTIM_SLOTS_MAX];
	size_t count;
	double weight_decay;
	int adapt;
	double lr_scale;
};

void gn_ref_optim_step(const struct gn_optim *o, const struct gn_optim_update *u, const struct gn_ref_optim_tensor *t);

static inline double gn_ref_sum_squares(const float *x, size_t count)
{
	double sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += (double)x[i] * x[i];
	return sum;
}

#endif
