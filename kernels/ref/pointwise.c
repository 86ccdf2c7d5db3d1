#include "kernels/ref/ref.h"
#include "src/base/philox.h"

#include <math.h>

void gn_ref_relu_forward(size_t count, const double *x, double *y)
{
	for (size_t i = 0; i < count; i++)
		y[i] = x[i] > 0 || isnan(x[i]) ? x[i] : 0;
}

void gn_ref_relu_backward(size_t count, const double *y, const double *dy, double *dx)
{
	for (size_t i = 0; i < count; i++)
		dx[i] = y[i] > 0 ? dy[i] : 0;
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
		y[i] = draw[(first + i) % 4] / 4294967296.0 < rate ? 0 : x[i] / (1 - rate);
	}
}
