#include "kernels/ref/compress.h"

#include <float.h>
#include <math.h>
#include <string.h>

static uint32_t magnitude(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof bits);
	return bits & 0x7fffffff;
}

/* The k-th largest magnitude, found bit by bit from the top: the largest number that at least k elements reach. */
static uint32_t threshold(const float *x, size_t count, size_t k)
{
	uint32_t found = 0;

	for (int bit = 30; bit >= 0; bit--) {
		uint32_t tried = found | (uint32_t)1 << bit;
		size_t reach = 0;

		for (size_t i = 0; i < count; i++)
			reach += magnitude(x[i]) >= tried;
		if (reach >= k)
			found = tried;
	}
	return found;
}

void gn_ref_top_k(const float *x, size_t count, size_t k, uint32_t *indices, float *values)
{
	uint32_t least = threshold(x, count, k);
	size_t above = 0, equal = 0, taken = 0;

	for (size_t i = 0; i < count; i++)
		above += magnitude(x[i]) > least;
	for (size_t i = 0; i < count; i++) {
		uint32_t m = magnitude(x[i]);

		if (m < least || (m == least && equal++ >= k - above))
			continue;
		indices[taken] = (uint32_t)i;
		values[taken++] = x[i];
	}
}

/* NaN when an element is not finite. */
static float largest(const float *x, size_t count)
{
	float most = 0;

	for (size_t i = 0; i < count; i++) {
		if (!isfinite(x[i]))
			return NAN;
		most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
	}
	return most;
}

void gn_ref_quantise(const float *x, size_t count, int8_t *to, float *scales)
{
	for (size_t begin = 0; begin < count; begin += GN_QUANTISE_GROUP) {
		size_t some = count - begin < GN_QUANTISE_GROUP ? count - begin : GN_QUANTISE_GROUP;
		float most = largest(x + begin, some);
		float scale = most < GN_QUANTISE_LEAST ? 0 : most / 127;

		for (size_t i = begin; i < begin + some; i++)
			to[i] = scale > 0 ? (int8_t)rintf(x[i] / scale) : 0;
		scales[begin / GN_QUANTISE_GROUP] = scale;
	}
}
