#include "data/sample/resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* values per step of the vertical pass: a constant, so that the compiler can vectorise */
enum { chunk = 16 };

/* An output is the sum of weights[k] * source[first + k], k < count. */
struct span {
	uint32_t first, count;
};

/* Weights for pairs of outputs, all with the same number of taps (padded with weights of 0): those of tap k of outputs 2p and 2p +
 * 1 are in wide[8 * (p * taps + k)], repeated four times each. */
struct wide {
	const struct span *spans;
	const float *wide;
	uint32_t taps, outputs;
};

struct axis {
	struct span *spans;
	float *weights; /* `most` per output */
	float *wide;	/* as in struct wide; NULL without the vector path */
	uint32_t most;
	uint32_t taps; /* largest count of an output */
	size_t spans_held, weights_held, wide_held;
};

struct gn_resizer {
	struct axis across, down;
	float *row;   /* one row between the two passes */
	float *mixed; /* one finished row, channels interleaved by four */
	size_t row_held, mixed_held;
	int vectors;
};

/* The two passes over one row, with vectors of eight floats. They multiply and add separately and in the order of the plain loops below:
 * samples are bitwise equal on all machines. */
#if defined(__x86_64__)

#include <immintrin.h>

static int has_vectors(void)
{
	return __builtin_cpu_supports("avx2") != 0;
}

/* out[i] = sum over rows of weight * pixel, i < n. Reads and writes up to chunk-1 values past n. */
__attribute__((target("avx2"))) static void mix_rows_by_vectors(float *out, size_t n, const uint8_t *src, size_t stride_bytes,
								const float *weights, uint32_t rows)
{
	for (size_t i = 0; i < n; i += chunk) {
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
__attribute__((target("avx2"))) static inline __m256 two(const struct wide *a, const float *row, uint32_t p)
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

/* Three interleaved channels to planes. row must be readable for all taps and one more vector. */
__attribute__((target("avx2"))) static void mix_columns_by_vectors(const struct wide *a, const float *row,
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

static int has_vectors(void)
{
	return 0;
}

/* Never called on other processors. */
static void mix_rows_by_vectors(float *out, size_t n, const uint8_t *src, size_t stride_bytes, const float *weights, uint32_t rows)
{
	(void)out, (void)n, (void)src, (void)stride_bytes, (void)weights, (void)rows;
}

static void mix_columns_by_vectors(const struct wide *a, const float *row, const struct gn_resize_target *t, float *to)
{
	(void)a, (void)row, (void)t, (void)to;
}

#endif

enum gn_status gn_resizer_create(struct gn_resizer **out, struct gn_err *err)
{
	struct gn_resizer *r = calloc(1, sizeof *r);

	if (!r)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for resizing");
	r->vectors = has_vectors();
	*out = r;
	return GN_OK;
}

void gn_resizer_be_plain(struct gn_resizer *r)
{
	r->vectors = 0;
}

static void axis_release(struct axis *a)
{
	free(a->spans);
	free(a->weights);
	free(a->wide);
}

void gn_resizer_destroy(struct gn_resizer *r)
{
	if (!r)
		return;
	axis_release(&r->across);
	axis_release(&r->down);
	free(r->row);
	free(r->mixed);
	free(r);
}

double gn_resize_reach(double length, uint32_t count, enum gn_interpolation interpolation)
{
	double scale = length / count, radius = interpolation == GN_BICUBIC ? 2 : 1; /* of the filter where one source pixel is one sample */

	return radius * (scale > 1 ? scale : 1);
}

/* At x, in units of the filter's radius. */
static double filter(enum gn_interpolation interpolation, double x)
{
	const double a = -0.5, t = 2 * fabs(x);

	if (interpolation == GN_BILINEAR)
		return fmax(0, 1 - fabs(x));
	if (t < 1)
		return ((a + 2) * t - (a + 3)) * t * t + 1;
	return t < 2 ? (((t - 5) * t + 8) * t - 4) * a : 0;
}

/* Returns memory for count elements: old if it is large enough, else a new block; NULL, with *held 0, when out of memory. */
static void *hold(void *old, size_t *held, size_t count, size_t size)
{
	void *p;

	if (*held >= count)
		return old;
	free(old);
	p = calloc(count, size);
	*held = p ? count : 0;
	return p;
}

static int axis_reserve(struct axis *a, uint32_t outputs, uint32_t most)
{
	a->spans = hold(a->spans, &a->spans_held, outputs, sizeof *a->spans);
	a->weights = hold(a->weights, &a->weights_held, (size_t)outputs * most, sizeof *a->weights);
	a->most = most;
	a->taps = 1;
	return a->spans && a->weights ? 0 : -1;
}

/* Trims taps of weight zero at both ends (at scale 1 one pixel remains) and scales the rest to sum 1. */
static void axis_finish(struct axis *a, uint32_t output, const double *raw, uint32_t first, uint32_t count)
{
	double sum = 0;

	for (; count > 1 && !(fabs(raw[count - 1]) > 0); count--)
		;
	for (; count > 1 && !(fabs(raw[0]) > 0); raw++, first++, count--)
		;
	for (uint32_t k = 0; k < count; k++)
		sum += raw[k];
	a->spans[output] = (struct span){first, count};
	a->taps = count > a->taps ? count : a->taps;
	for (uint32_t k = 0; k < count; k++)
		a->weights[(size_t)output * a->most + k] = (float)(sum > 0 ? raw[k] / sum : 1.0 / count);
}

/* Weights from source pixels 0 .. length-1 to `outputs` samples, evenly over [from, from + span), in reverse order when
 * mirrored. */
static int axis_weigh(struct axis *a, uint32_t length, double from, double span, uint32_t outputs, int mirrored,
		      enum gn_interpolation interpolation)
{
	double scale = span / outputs, reach = gn_resize_reach(span, outputs, interpolation);
	uint32_t most = (uint32_t)(2 * reach) + 3;
	double *raw;

	if (axis_reserve(a, outputs, most))
		return -1;
	raw = calloc(most, sizeof *raw);
	if (!raw)
		return -1;
	for (uint32_t i = 0; i < outputs; i++) {
		double centre = from + (i + 0.5) * scale;
		double low = floor(centre - reach + 0.5), high = floor(centre + reach + 0.5);
		uint32_t first = low <= 0 ? 0 : low >= length ? length - 1 : (uint32_t)low;
		uint32_t end = high <= first + 1.0 ? first + 1 : high > length ? length : (uint32_t)high;

		for (uint32_t k = 0; k < end - first; k++)
			raw[k] = filter(interpolation, (first + k + 0.5 - centre) / reach);
		axis_finish(a, mirrored ? outputs - 1 - i : i, raw, first, end - first);
	}
	free(raw);
	return 0;
}

/* Arranges the weights for the vector path: pairs of outputs, all with the same number of taps. */
static int axis_widen(struct axis *a, uint32_t outputs)
{
	uint32_t pairs = (outputs + 1) / 2;

	a->wide = hold(a->wide, &a->wide_held, (size_t)8 * pairs * a->taps, sizeof *a->wide);
	if (!a->wide)
		return -1;
	for (uint32_t i = 0; i < 2 * pairs; i++) {
		uint32_t from = i < outputs ? i : i - 1;
		float *wide = a->wide + (size_t)8 * (i / 2) * a->taps + 4 * (i % 2);

		for (uint32_t k = 0; k < a->taps; k++)
			for (int lane = 0; lane < 4; lane++)
				wide[8 * k + (uint32_t)lane] = k < a->spans[from].count ? a->weights[(size_t)from * a->most + k] : 0;
	}
	return 0;
}

/* out[i] = sum over rows of weight * pixel. Reads and writes up to chunk-1 values past n. */
static void mix_rows(float *out, size_t n, const uint8_t *src, size_t stride_bytes, const float *weights, uint32_t rows)
{
	for (size_t i = 0; i < n; i += chunk) {
		float sum[chunk] = {0};

		for (uint32_t k = 0; k < rows; k++) {
			const uint8_t *p = src + k * stride_bytes + i;

			for (int j = 0; j < chunk; j++)
				sum[j] += weights[k] * (float)p[j];
		}
		memcpy(out + i, sum, sizeof sum);
	}
}

/* Three interleaved channels at once with an unused fourth lane: a pixel is one vector. Sums go to `mixed` as whole vectors and
 * from there to the planes. */
static void mix_columns_rgb(const struct axis *a, const float *row, uint32_t outputs, const struct gn_resize_target *t,
			    float *mixed, float *to)
{
	const float scale[4] = {t->scale[0], t->scale[1], t->scale[2], 0};
	const float bias[4] = {t->bias[0], t->bias[1], t->bias[2], 0};
	size_t plane = (size_t)t->height * t->width;

	for (uint32_t i = 0; i < outputs; i++) {
		const float *p = row + (size_t)a->spans[i].first * 3;
		const float *weights = a->weights + (size_t)i * a->most;
		float sum[4] = {0};

		for (uint32_t k = 0; k < a->spans[i].count; k++, p += 3)
			for (int c = 0; c < 4; c++)
				sum[c] += weights[k] * p[c];
		for (int c = 0; c < 4; c++)
			mixed[(size_t)i * 4 + (size_t)c] = sum[c] * scale[c] + bias[c];
	}
	for (uint32_t i = 0; i < outputs; i++)
		for (size_t c = 0; c < 3; c++)
			to[c * plane + i] = mixed[(size_t)i * 4 + c];
}

static void mix_columns_grey(const struct axis *a, const float *row, uint32_t outputs, const struct gn_resize_target *t,
			     float *to)
{
	for (uint32_t i = 0; i < outputs; i++) {
		const float *p = row + a->spans[i].first;
		const float *weights = a->weights + (size_t)i * a->most;
		float sum = 0;

		for (uint32_t k = 0; k < a->spans[i].count; k++)
			sum += weights[k] * p[k];
		to[i] = sum * t->scale[0] + t->bias[0];
	}
}

enum gn_status gn_resizer_run(struct gn_resizer *r, const struct gn_pixels *src, double x, double y, double width,
			      double height, const struct gn_resize_target *t, struct gn_err *err)
{
	size_t n = (size_t)src->width * src->channels;
	uint32_t column = t->flip ? t->width - t->to_x - t->to_width : t->to_x;

	int vectors = r->vectors && src->channels == 3;

	if (axis_weigh(&r->across, src->width, x, width, t->to_width, t->flip, t->interpolation) ||
	    axis_weigh(&r->down, src->height, y, height, t->to_height, 0, t->interpolation) ||
	    (vectors && axis_widen(&r->across, t->to_width)))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to resize %ux%u pixels", src->width, src->height);
	/* taps of weight 0 may lie behind the last pixel */
	r->row = hold(r->row, &r->row_held, n + (size_t)r->across.taps * src->channels + chunk, sizeof *r->row);
	r->mixed = hold(r->mixed, &r->mixed_held, (size_t)t->to_width * 4, sizeof *r->mixed);
	if (!r->row || !r->mixed)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to resize %ux%u pixels", src->width, src->height);
	for (uint32_t i = 0; i < t->to_height; i++) {
		const struct wide wide = {r->across.spans, r->across.wide, r->across.taps, t->to_width};
		float *to = t->data + (size_t)(t->to_y + i) * t->width + column;

		(r->vectors ? mix_rows_by_vectors : mix_rows)(r->row, n, src->data + r->down.spans[i].first * src->stride_bytes,
								      src->stride_bytes, r->down.weights + (size_t)i * r->down.most,
								      r->down.spans[i].count);
		if (vectors)
			mix_columns_by_vectors(&wide, r->row, t, to);
		else if (src->channels == 3)
			mix_columns_rgb(&r->across, r->row, t->to_width, t, r->mixed, to);
		else
			mix_columns_grey(&r->across, r->row, t->to_width, t, to);
	}
	return GN_OK;
}
