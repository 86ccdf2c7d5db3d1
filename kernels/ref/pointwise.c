#include "kernels/ref/ref.h"
#include "src/base/philox.h"

#include <math.h>

#define INLINE static
#define REAL double
#define EXP exp
#define ERFC erfc
#include "kernels/activation_formulas.h"

void gn_ref_relu_forward(size_t count, const double *x, double *y)
{
	for (size_t i = 0; i < count; i++)
		y[i] = x[i] > 0 || isnan(x[i]) ? x[i] : 0;
}

void gn_ref_relu_backward(size_t count, const double *y, const double *dy, double *dx)
{
	for (size_t i = 0; i < count; i++)
		dx[i] = y[i] <= 0 ? 0 : dy[i];
}

void gn_ref_add_forward(size_t count, const double *a, const double *b, double *y)
{
	for (size_t i = 0; i < count; i++)
		y[i] = a[i] + b[i];
}

void gn_ref_dropout(size_t first, size_t count, const double *x, double rate, uint64_t seed, uint32_t stream, uint64_t step,
		    double *y)
{
	uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
	uint32_t high = (uint32_t)(step >> 32) << 16 | GN_RNG_DROPOUT;

	for (size_t i = 0; i < count; i++) {
		uint32_t counter[4] = {(uint32_t)((first + i) / 4), stream, (uint32_t)step, high}, draw[4];

		gn_philox(counter, key, draw);
		y[i] = draw[(first + i) % 4] / 4294967296.0 < rate ? 0 * x[i] : x[i] / (1 - rate);
	}
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
