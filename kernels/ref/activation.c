#include "kernels/ref/ref.h"

#include <math.h>

#define INLINE static
#define REAL double
#define EXP exp
#define ERFC erfc
#include "kernels/activation_formulas.h"

void gn_ref_activation_forward(enum gn_activation kind, size_t count, const double *x, double *y)
{
#pragma omp parallel for schedule(static)
	for (size_t i = 0; i < count; i++)
		y[i] = value(kind, x[i]);
}

void gn_ref_activation_backward(enum gn_activation kind, size_t count, const double *x, const double *dy, double *dx)
{
#pragma omp parallel for schedule(static)
	for (size_t i = 0; i < count; i++)
		dx[i] = dy[i] * slope(kind, x[i]);
}

void gn_ref_scale_forward(size_t maps, size_t count, const double *x, const double *factors, double *y)
{
	for (size_t m = 0; m < maps; m++)
		for (size_t i = m * count; i < (m + 1) * count; i++)
			y[i] = factors[m] * x[i];
}

void gn_ref_scale_backward(size_t maps, size_t count, const double *x, const double *factors, const double *dy, double *dx,
			   double *dfactors)
{
	for (size_t m = 0; m < maps; m++) {
		double sum = 0;

		for (size_t i = m * count; dfactors && i < (m + 1) * count; i++)
			sum += dy[i] * x[i];
		if (dfactors)
			dfactors[m] = sum;
		for (size_t i = m * count; i < (m + 1) * count; i++)
			dx[i] = factors[m] * dy[i];
	}
}
