#include "kernels/ref/ref.h"

#include <string.h>

void gn_ref_linear_forward(int n, size_t in, int out, const double *x, const double *weight, const double *bias,
			   double *y)
{
#pragma omp parallel for collapse(2)
	for (int image = 0; image < n; image++) {
		for (int o = 0; o < out; o++) {
			double sum = bias ? bias[o] : 0;

			for (size_t i = 0; i < in; i++)
				sum += x[image * in + i] * weight[o * in + i];
			y[(size_t)image * out + o] = sum;
		}
	}
}

void gn_ref_linear_backward(int n, size_t in, int out, const double *x, const double *dy, const double *weight,
			    double *dx, double *dweight, double *dbias)
{
	if (dx)
		memset(dx, 0, n * in * sizeof *dx);
	for (int image = 0; dx && image < n; image++)
		for (int o = 0; o < out; o++)
			for (size_t i = 0; i < in; i++)
				dx[image * in + i] += dy[(size_t)image * out + o] * weight[o * in + i];
#pragma omp parallel for
	for (int o = 0; o < out; o++) {
		memset(dweight + o * in, 0, in * sizeof *dweight);
		if (dbias)
			dbias[o] = 0;
		for (int image = 0; image < n; image++) {
			double d = dy[(size_t)image * out + o];

			for (size_t i = 0; i < in; i++)
				dweight[o * in + i] += d * x[image * in + i];
			if (dbias)
				dbias[o] += d;
		}
	}
}
