#include "kernels/ref/ref.h"

#include <math.h>
#include <string.h>

/* Mean and 1 / deviation over the channels of a pixel; channels are stride values apart. */
static void statistics(int c, size_t stride, const double *x, double eps, double *mean, double *inverse)
{
	double sum = 0, square = 0;

	for (int k = 0; k < c; k++)
		sum += x[k * stride];
	*mean = sum / c;
	for (int k = 0; k < c; k++)
		square += (x[k * stride] - *mean) * (x[k * stride] - *mean);
	*inverse = 1 / sqrt(square / c + eps);
}

void gn_ref_layer_norm_forward(int n, int c, size_t count, const double *x, double eps, const double *weight, const double *bias,
			       double *y)
{
	for (size_t pixel = 0; pixel < (size_t)n * count; pixel++) {
		size_t at = pixel / count * c * count + pixel % count;
		double mean, inverse;

		statistics(c, count, x + at, eps, &mean, &inverse);
		for (int k = 0; k < c; k++)
			y[at + k * count] = (x[at + k * count] - mean) * inverse * weight[k] + bias[k];
	}
}

/* With h = (x - mean) * inverse and g = dy * weight: dx = inverse * (g - mean(g) - h * mean(g h)). */
void gn_ref_layer_norm_backward(int n, int c, size_t count, const double *x, const double *dy, double eps, const double *weight,
				double *dx, double *dweight, double *dbias)
{
	memset(dweight, 0, c * sizeof *dweight);
	memset(dbias, 0, c * sizeof *dbias);
	for (size_t pixel = 0; pixel < (size_t)n * count; pixel++) {
		size_t at = pixel / count * c * count + pixel % count;
		double mean, inverse, sum = 0, dot = 0;

		statistics(c, count, x + at, eps, &mean, &inverse);
		for (int k = 0; k < c; k++) {
			double h = (x[at + k * count] - mean) * inverse, d = dy[at + k * count];

			dweight[k] += d * h;
			dbias[k] += d;
			sum += d * weight[k];
			dot += d * weight[k] * h;
		}
		for (int k = 0; k < c; k++) {
			double h = (x[at + k * count] - mean) * inverse;

			dx[at + k * count] = inverse * (dy[at + k * count] * weight[k] - sum / c - h * dot / c);
		}
	}
}
