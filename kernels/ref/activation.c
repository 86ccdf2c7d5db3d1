#include "kernels/ref/ref.h"

#include <math.h>

static double clamp(double x, double low, double high)
{
	return x < low ? low : x > high ? high : x;
}

static double sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

/* The normal distribution and its density. */
static double normal_below(double x)
{
	return 0.5 * erfc(-x * M_SQRT1_2);
}

static double normal_density(double x)
{
	return exp(-0.5 * x * x) * 0.5 * M_2_SQRTPI * M_SQRT1_2;
}

static double value(enum gn_activation kind, double x)
{
	switch (kind) {
	case GN_ACTIVATION_RELU6:
		return clamp(x, 0, 6);
	case GN_ACTIVATION_SILU:
		return x * sigmoid(x);
	case GN_ACTIVATION_HARD_SWISH:
		return x * clamp(x + 3, 0, 6) / 6;
	case GN_ACTIVATION_HARD_SIGMOID:
		return clamp(x + 3, 0, 6) / 6;
	case GN_ACTIVATION_SIGMOID:
		return sigmoid(x);
	case GN_ACTIVATION_GELU:
		return x * normal_below(x);
	}
	return x;
}

static double slope(enum gn_activation kind, double x)
{
	double s = sigmoid(x);

	switch (kind) {
	case GN_ACTIVATION_RELU6:
		return x > 0 && x < 6;
	case GN_ACTIVATION_SILU:
		return s * (1 + x * (1 - s));
	case GN_ACTIVATION_HARD_SWISH:
		return x <= -3 ? 0 : x < 3 ? x / 3 + 0.5 : 1;
	case GN_ACTIVATION_HARD_SIGMOID:
		return x > -3 && x < 3 ? 1.0 / 6 : 0;
	case GN_ACTIVATION_SIGMOID:
		return s * (1 - s);
	case GN_ACTIVATION_GELU:
		return normal_below(x) + x * normal_density(x);
	}
	return 1;
}

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
