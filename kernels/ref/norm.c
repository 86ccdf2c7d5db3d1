#include "kernels/ref/ref.h"

#include <math.h>
#include <string.h>

static double sum_of(int n, int c, int channel, size_t count, const double *x)
{
	double sum = 0;

	for (int image = 0; image < n; image++)
		for (size_t i = 0; i < count; i++)
			sum += x[((size_t)image * c + channel) * count + i];
	return sum;
}

void gn_ref_batch_norm_statistics(int n, int c, size_t count, const double *x, double *mean, double *var)
{
	double total = (double)n * count;

	for (int ch = 0; ch < c; ch++) {
		double sum = 0;

		mean[ch] = sum_of(n, c, ch, count, x) / total;
		for (int image = 0; image < n; image++) {
			for (size_t i = 0; i < count; i++) {
				double d = x[((size_t)image * c + ch) * count + i] - mean[ch];

				sum += d * d;
			}
		}
		var[ch] = sum / total;
	}
}

void gn_ref_batch_norm_forward(int n, int c, size_t count, const double *x, const double *mean, const double *var,
			       double eps, const double *weight, const double *bias, double *y)
{
	for (int image = 0; image < n; image++) {
		for (int ch = 0; ch < c; ch++) {
			size_t base = ((size_t)image * c + ch) * count;
			double scale = weight[ch] / sqrt(var[ch] + eps);

			for (size_t i = 0; i < count; i++)
				y[base + i] = (x[base + i] - mean[ch]) * scale + bias[ch];
		}
	}
}

void gn_ref_batch_norm_backward(int n, int c, size_t count, const double *x, const double *dy, const double *mean,
				const double *var, double eps, const double *weight, double *dx, double *dweight,
				double *dbias)
{
	double total = (double)n * count;

	for (int ch = 0; ch < c; ch++) {
		double inverse = 1 / sqrt(var[ch] + eps), dot = 0, sum = sum_of(n, c, ch, count, dy);

		for (int image = 0; image < n; image++) {
			size_t base = ((size_t)image * c + ch) * count;

			for (size_t i = 0; i < count; i++)
				dot += dy[base + i] * (x[base + i] - mean[ch]) * inverse;
		}
		dweight[ch] = dot;
		dbias[ch] = sum;
		for (int image = 0; image < n; image++) {
			size_t base = ((size_t)image * c + ch) * count;

			for (size_t i = 0; i < count; i++) {
				double normal = (x[base + i] - mean[ch]) * inverse;

				dx[base + i] = weight[ch] * inverse *
					       (dy[base + i] - sum / total - normal * dot / total);
			}
		}
	}
}

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
