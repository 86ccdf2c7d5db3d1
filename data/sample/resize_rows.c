#include "data/sample/resize_internal.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

int gn_resize_has_vectors(void)
{
	return __builtin_cpu_supports("avx2") != 0;
}

__attribute__((target("avx2"))) void gn_resize_mix_rows(float *out, size_t n, const uint8_t *src, size_t stride_bytes,
							const float *weights, uint32_t rows)
{
	for (size_t i = 0; i < n; i += gn_resize_chunk) {
		const uint8_t *p = src + i;
		__m256 low = _mm256_setzero_ps(), high = low;

		for (uint32_t k = 0; k < rows; k++, p += stride_bytes) {
			__m128i bytes = _mm_loadu_si128((const void *)p);
			__m256 weight = _mm256_broadcast_ss(&weights[k]);

			low = _mm256_add_ps(low, _mm256_mul_ps(weight, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes))));
			high = _mm256_add_ps(high, _mm256_mul_ps(weight, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(
									 _mm_srli_si128(bytes, 8)))));
		}
		_mm256_storeu_ps(out + i, low);
		_mm256_storeu_ps(out + i + 8, high);
	}
}

/* Outputs 2p and 2p + 1: a pixel each, with an unused fourth lane. */
__attribute__((target("avx2"))) static inline __m256 two(const struct gn_resize_wide *a, const float *row, uint32_t p)
{
	const float *weights = a->wide + (size_t)8 * p * a->taps;
	const float *left = row + (size_t)a->spans[2 * p].first * 3;
	const float *right = row + (size_t)a->spans[2 * p + 1 < a->outputs ? 2 * p + 1 : 2 * p].first * 3;
	__m256 sum = _mm256_setzero_ps();

	for (uint32_t k = 0; k < a->taps; k++, weights += 8, left += 3, right += 3) {
		__m256 pixels = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(left)), _mm_loadu_ps(right), 1);

		sum = _mm256_add_ps(sum, _mm256_mul_ps(_mm256_loadu_ps(weights), pixels));
	}
	return sum;
}

__attribute__((target("avx2"))) void gn_resize_mix_columns(const struct gn_resize_wide *a, const float *row,
							   const struct gn_resize_target *t, float *to)
{
	const __m256 scale = _mm256_setr_ps(t->scale[0], t->scale[1], t->scale[2], 0, t->scale[0], t->scale[1], t->scale[2], 0);
	const __m256 bias = _mm256_setr_ps(t->bias[0], t->bias[1], t->bias[2], 0, t->bias[0], t->bias[1], t->bias[2], 0);
	size_t plane = (size_t)t->height * t->width;

	for (uint32_t i = 0; i < a->outputs; i += 4) {
		__m256 first = _mm256_add_ps(_mm256_mul_ps(two(a, row, i / 2), scale), bias), second = first, red_green, blue;
		float planes[3][4];

		if (i + 2 < a->outputs)
			second = _mm256_add_ps(_mm256_mul_ps(two(a, row, i / 2 + 1), scale), bias);
		/* r0 r2 g0 g2 | r1 r3 g1 g3 and b0 b2 . . | b1 b3 . . */
		red_green = _mm256_unpacklo_ps(first, second);
		blue = _mm256_unpackhi_ps(first, second);
		_mm_storeu_ps(planes[0], _mm_unpacklo_ps(_mm256_castps256_ps128(red_green), _mm256_extractf128_ps(red_green, 1)));
		_mm_storeu_ps(planes[1], _mm_unpackhi_ps(_mm256_castps256_ps128(red_green), _mm256_extractf128_ps(red_green, 1)));
		_mm_storeu_ps(planes[2], _mm_unpacklo_ps(_mm256_castps256_ps128(blue), _mm256_extractf128_ps(blue, 1)));
		if (i + 4 <= a->outputs) {
			for (size_t c = 0; c < 3; c++)
				memcpy(to + c * plane + i, planes[c], sizeof planes[c]);
			continue;
		}
		for (size_t c = 0; c < 3; c++)
			memcpy(to + c * plane + i, planes[c], (a->outputs - i) * sizeof(float));
	}
}

#else

int gn_resize_has_vectors(void)
{
	return 0;
}

/* Never called on other processors. */
void gn_resize_mix_rows(float *out, size_t n, const uint8_t *src, size_t stride_bytes, const float *weights, uint32_t rows)
{
	(void)out, (void)n, (void)src, (void)stride_bytes, (void)weights, (void)rows;
}

void gn_resize_mix_columns(const struct gn_resize_wide *a, const float *row, const struct gn_resize_target *t, float *to)
{
	(void)a, (void)row, (void)t, (void)to;
}

#endif
