/* Sums that are equal for any number of threads: split by size only, added in fixed order. */
#include "kernels/host/sums.h"

double gn_sum_squares(const float *x, size_t count)
{
	struct gn_pieces pieces = gn_pieces_of(count);
	double sums[GN_PIECES_MAX], sum = 0;

#pragma omp parallel for schedule(static) if (pieces.count > 4)
	for (size_t i = 0; i < pieces.count; i++) {
		size_t end = gn_piece_end(&pieces, i);
		double part = 0;

#pragma omp simd reduction(+ : part)
		for (size_t k = i * pieces.each; k < end; k++)
			part += (double)x[k] * x[k];
		sums[i] = part;
	}
	for (size_t i = 0; i < pieces.count; i++)
		sum += sums[i];
	return sum;
}

void gn_average_step(float *average, const float *values, size_t count, double decay)
{
	const float d = (float)decay, rest = (float)(1 - decay);

#pragma omp parallel for simd schedule(static) if (count > 1 << 14)
	for (size_t i = 0; i < count; i++)
		average[i] = d * average[i] + rest * values[i];
}
