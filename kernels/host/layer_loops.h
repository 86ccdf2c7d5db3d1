/* Source of the loops, included by one small file per instruction set, which defines the name of the table, GN_LAYER_LOOPS. Loops are
 * over floats in memory or in buffers that fit into the first cache, and written so that compilers make vectors of them. */
#include "kernels/host/layer.h"

#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { GN_BUFFER = 512, GN_WIDE = 16 };

INLINE void widen(size_t count, const uint16_t *from, float *to)
{
#pragma omp simd
	for (size_t i = 0; i < count; i++)
		to[i] = gn_f32_of_bf16(from[i]);
}

INLINE void narrow(size_t count, const float *from, uint16_t *to)
{
#pragma omp simd
	for (size_t i = 0; i < count; i++)
		to[i] = gn_bf16_of_f32(from[i]);
}

/* --- activations --- */

/* 2^n e^r with r in +-ln 2 / 2, by its series up to r^7; within two units of the last place. Infinite from 88.4 on, 0
 * below -87. */
INLINE float exp_of(float x)
{
	const float shifter = 12582912; /* 1.5 * 2^23: adding it rounds to a whole number */
	float low = x < -87 ? -87 : x, z = low > 89 ? 89 : low;
	float n = (z * 1.44269504f + shifter) - shifter, r = (z - n * 0.693359375f) + n * 2.12194440e-4f, p = 1.9875691500e-4f;

	p = p * r + 1.3981999507e-3f;
	p = p * r + 8.3334519073e-3f;
	p = p * r + 4.1665795894e-2f;
	p = p * r + 1.6666665459e-1f;
	p = p * r + 5.0000001201e-1f;
	p = (p * r * r + r + 1) * gn_f32_of_bits((uint32_t)((int32_t)n + 127) << 23);
	return x < -87 ? 0 : p;
}

INLINE float sigmoid(float x)
{
	return 1 / (1 + exp_of(-x));
}

INLINE float clamp6(float x)
{
	float low = x < 0 ? 0 : x; /* NaN is kept */

	return low > 6 ? 6 : low;
}

/* Abramowitz and Stegun 7.1.26 for the normal distribution; density: of it, times sqrt(2 pi). */
INLINE float normal_below(float x, float density)
{
	float z = fabsf(x) * 0.70710678f, t = 1 / (1 + 0.3275911f * z), p = 1.061405429f;
	float tail;

	p = p * t - 1.453152027f;
	p = p * t + 1.421413741f;
	p = p * t - 0.284496736f;
	p = p * t + 0.254829592f;
	tail = 0.5f * p * t * density;
	return x < 0 ? tail : 1 - tail;
}

INLINE float value(enum gn_activation kind, float x)
{
	switch (kind) {
	case GN_ACTIVATION_RELU6:
		return clamp6(x);
	case GN_ACTIVATION_SILU:
		return x * sigmoid(x);
	case GN_ACTIVATION_HARD_SWISH:
		return x * clamp6(x + 3) * (1.0f / 6);
	case GN_ACTIVATION_HARD_SIGMOID:
		return clamp6(x + 3) * (1.0f / 6);
	case GN_ACTIVATION_SIGMOID:
		return sigmoid(x);
	case GN_ACTIVATION_GELU:
		return x * normal_below(x, exp_of(-0.5f * x * x));
	}
	return x;
}

/* at: the output where gn_layer_reads_out(). */
INLINE float slope(enum gn_activation kind, float at)
{
	float s, density;

	switch (kind) {
	case GN_ACTIVATION_RELU6:
		return (at <= 0 ? 0 : 1.0f) * (at >= 6 ? 0 : 1.0f);
	case GN_ACTIVATION_SILU:
		s = sigmoid(at);
		return s * (1 + at * (1 - s));
	case GN_ACTIVATION_HARD_SWISH:
		s = at < 3 ? at * (1.0f / 3) + 0.5f : 1;
		return at <= -3 ? 0 : s;
	case GN_ACTIVATION_HARD_SIGMOID:
		return (at > 0 ? 1.0f / 6 : 0) * (at < 1 ? 1.0f : 0);
	case GN_ACTIVATION_SIGMOID:
		return at * (1 - at);
	case GN_ACTIVATION_GELU:
		density = exp_of(-0.5f * at * at);
		return normal_below(at, density) + at * density * 0.39894228f;
	}
	return 1;
}

INLINE void values(enum gn_activation kind, size_t count, const float *x, float *y)
{
#pragma omp simd
	for (size_t i = 0; i < count; i++)
		y[i] = value(kind, x[i]);
}

INLINE void slopes(enum gn_activation kind, size_t count, const float *at, const float *dy, float *dx)
{
#pragma omp simd
	for (size_t i = 0; i < count; i++)
		dx[i] = dy[i] * slope(kind, at[i]);
}

static void values_of(enum gn_activation kind, size_t count, const float *x, float *y)
{
	switch (kind) {
	case GN_ACTIVATION_RELU6:
		values(GN_ACTIVATION_RELU6, count, x, y);
		break;
	case GN_ACTIVATION_SILU:
		values(GN_ACTIVATION_SILU, count, x, y);
		break;
	case GN_ACTIVATION_HARD_SWISH:
		values(GN_ACTIVATION_HARD_SWISH, count, x, y);
		break;
	case GN_ACTIVATION_HARD_SIGMOID:
		values(GN_ACTIVATION_HARD_SIGMOID, count, x, y);
		break;
	case GN_ACTIVATION_SIGMOID:
		values(GN_ACTIVATION_SIGMOID, count, x, y);
		break;
	case GN_ACTIVATION_GELU:
		values(GN_ACTIVATION_GELU, count, x, y);
		break;
	}
}

static void slopes_of(enum gn_activation kind, size_t count, const float *at, const float *dy, float *dx)
{
	switch (kind) {
	case GN_ACTIVATION_RELU6:
		slopes(GN_ACTIVATION_RELU6, count, at, dy, dx);
		break;
	case GN_ACTIVATION_SILU:
		slopes(GN_ACTIVATION_SILU, count, at, dy, dx);
		break;
	case GN_ACTIVATION_HARD_SWISH:
		slopes(GN_ACTIVATION_HARD_SWISH, count, at, dy, dx);
		break;
	case GN_ACTIVATION_HARD_SIGMOID:
		slopes(GN_ACTIVATION_HARD_SIGMOID, count, at, dy, dx);
		break;
	case GN_ACTIVATION_SIGMOID:
		slopes(GN_ACTIVATION_SIGMOID, count, at, dy, dx);
		break;
	case GN_ACTIVATION_GELU:
		slopes(GN_ACTIVATION_GELU, count, at, dy, dx);
		break;
	}
}

static void forward(enum gn_activation kind, int is_bf16, size_t count, const void *x, void *y)
{
	float buffer[GN_BUFFER];

	if (!is_bf16) {
		values_of(kind, count, x, y);
		return;
	}
	for (size_t i = 0; i < count; i += GN_BUFFER) {
		size_t some = count - i < GN_BUFFER ? count - i : GN_BUFFER;

		widen(some, (const uint16_t *)x + i, buffer);
		values_of(kind, some, buffer, buffer);
		narrow(some, buffer, (uint16_t *)y + i);
	}
}

/* Floats of a part of a tensor: where they are, or widened in buffer. */
INLINE const float *floats(int is_bf16, size_t count, const void *tensor, size_t at, float *buffer)
{
	if (!is_bf16)
		return (const float *)tensor + at;
	widen(count, (const uint16_t *)tensor + at, buffer);
	return buffer;
}

static void backward(enum gn_activation kind, int is_bf16, size_t count, const void *at, const void *dy, const void *more, void *dx)
{
	float a[GN_BUFFER], d[GN_BUFFER], m[GN_BUFFER];

	if (!is_bf16 && !more) {
		slopes_of(kind, count, at, dy, dx);
		return;
	}
	for (size_t i = 0; i < count; i += GN_BUFFER) {
		size_t some = count - i < GN_BUFFER ? count - i : GN_BUFFER;
		const float *from = floats(is_bf16, some, at, i, a), *gradient = floats(is_bf16, some, dy, i, d);

		if (more) {
			const float *other = floats(is_bf16, some, more, i, m);

#pragma omp simd
			for (size_t k = 0; k < some; k++)
				d[k] = gradient[k] + other[k];
			gradient = d;
		}
		slopes_of(kind, some, from, gradient, is_bf16 ? d : (float *)dx + i);
		if (is_bf16)
			narrow(some, d, (uint16_t *)dx + i);
	}
}

/* --- scaling --- */

/* specialised for lanes and is_bf16 at compile time */
INLINE void scale_lanes(int lanes, int is_bf16, size_t pixels, size_t stride, const void *x, const float *factors, void *y)
{
	for (size_t i = 0; i < pixels; i++)
#pragma omp simd
		for (int k = 0; k < lanes; k++)
			gn_layer_store(is_bf16, y, i * stride + k, gn_layer_load(is_bf16, x, i * stride + k) * factors[k]);
}

/* One channel, pixels side by side. */
INLINE void scale_map(int is_bf16, size_t pixels, const void *x, float factor, void *y)
{
#pragma omp simd
	for (size_t i = 0; i < pixels; i++)
		gn_layer_store(is_bf16, y, i, gn_layer_load(is_bf16, x, i) * factor);
}

INLINE void scale_by(int is_bf16, const struct gn_layer_piece *p, const void *x, const float *factors, void *y)
{
	if (p->lanes == GN_WIDE)
		scale_lanes(GN_WIDE, is_bf16, p->pixels, p->stride, x, factors, y);
	else if (p->lanes == 1 && p->stride == 1)
		scale_map(is_bf16, p->pixels, x, *factors, y);
	else
		scale_lanes(p->lanes, is_bf16, p->pixels, p->stride, x, factors, y);
}

static void scale(const struct gn_layer_piece *p, const void *x, const float *factors, void *y)
{
	if (p->is_bf16)
		scale_by(1, p, x, factors, y);
	else
		scale_by(0, p, x, factors, y);
}

INLINE void gradient_lanes(int lanes, int is_bf16, size_t pixels, size_t stride, const void *x, const float *factors, const void *dy,
			   void *dx, float *sums)
{
	float s[GN_WIDE] = {0};

	for (size_t i = 0; i < pixels; i++)
#pragma omp simd
		for (int k = 0; k < lanes; k++) {
			float d = gn_layer_load(is_bf16, dy, i * stride + k);

			s[k] += d * gn_layer_load(is_bf16, x, i * stride + k);
			gn_layer_store(is_bf16, dx, i * stride + k, d * factors[k]);
		}
	for (int k = 0; k < lanes; k++)
		sums[k] = s[k];
}

INLINE void gradient_map(int is_bf16, size_t pixels, const void *x, float factor, const void *dy, void *dx, float *sum)
{
	float s = 0;

#pragma omp simd reduction(+ : s)
	for (size_t i = 0; i < pixels; i++) {
		float d = gn_layer_load(is_bf16, dy, i);

		s += d * gn_layer_load(is_bf16, x, i);
		gn_layer_store(is_bf16, dx, i, d * factor);
	}
	*sum = s;
}

INLINE void gradient_by(int is_bf16, const struct gn_layer_piece *p, const void *x, const float *factors, const void *dy, void *dx,
			float *sums)
{
	if (p->lanes == GN_WIDE)
		gradient_lanes(GN_WIDE, is_bf16, p->pixels, p->stride, x, factors, dy, dx, sums);
	else if (p->lanes == 1 && p->stride == 1)
		gradient_map(is_bf16, p->pixels, x, *factors, dy, dx, sums);
	else
		gradient_lanes(p->lanes, is_bf16, p->pixels, p->stride, x, factors, dy, dx, sums);
}

static void scale_gradient(const struct gn_layer_piece *p, const void *x, const float *factors, const void *dy, void *dx, float *sums)
{
	if (p->is_bf16)
		gradient_by(1, p, x, factors, dy, dx, sums);
	else
		gradient_by(0, p, x, factors, dy, dx, sums);
}

/* --- layer norm --- */

static size_t padded(const struct gn_layer_rows *r)
{
	return ((size_t)r->channels + r->lanes - 1) / r->lanes * r->lanes;
}

/* Rows of pixels, first to first + count - 1, into a buffer with the channels of each side by side; or back. */
static void gather(const struct gn_layer_rows *r, size_t first, size_t count, const void *x, float *rows)
{
	size_t width = padded(r), lanes = r->lanes;

	for (size_t g = 0; g < width / lanes; g++)
		for (size_t i = 0; i < count; i++) {
			size_t at = (first + i) * r->stride + g * r->group_stride;
			float *to = rows + i * width + g * lanes;

			if (r->is_bf16)
				widen(lanes, (const uint16_t *)x + at, to);
			else
				memcpy(to, (const float *)x + at, lanes * sizeof *to);
		}
}

static void scatter(const struct gn_layer_rows *r, size_t first, size_t count, const float *rows, void *y)
{
	size_t width = padded(r), lanes = r->lanes;

	for (size_t g = 0; g < width / lanes; g++)
		for (size_t i = 0; i < count; i++) {
			size_t at = (first + i) * r->stride + g * r->group_stride;
			const float *from = rows + i * width + g * lanes;

			if (r->is_bf16)
				narrow(lanes, from, (uint16_t *)y + at);
			else
				memcpy((float *)y + at, from, lanes * sizeof *from);
		}
}

static void statistics(const struct gn_layer_rows *r, const float *x, float *mean, float *inverse)
{
	float sum = 0, square = 0, m;
	int c = r->channels;

#pragma omp simd reduction(+ : sum)
	for (int k = 0; k < c; k++)
		sum += x[k];
	m = sum / (float)c;
#pragma omp simd reduction(+ : square)
	for (int k = 0; k < c; k++)
		square += (x[k] - m) * (x[k] - m);
	*mean = m;
	*inverse = 1 / sqrtf(square / (float)c + (float)r->eps);
}

static void norm(const struct gn_layer_rows *r, const void *x, void *y, float *buffer)
{
	size_t width = padded(r);

	for (size_t first = 0; first < r->pixels; first += GN_LAYER_TILE) {
		size_t count = r->pixels - first < GN_LAYER_TILE ? r->pixels - first : GN_LAYER_TILE;

		gather(r, first, count, x, buffer);
		for (size_t i = 0; i < count; i++) {
			float *row = buffer + i * width, mean, inverse;

			statistics(r, row, &mean, &inverse);
#pragma omp simd
			for (int k = 0; k < r->channels; k++)
				row[k] = (row[k] - mean) * inverse * r->weight[k] + r->bias[k];
			for (size_t k = r->channels; k < width; k++)
				row[k] = 0;
		}
		scatter(r, first, count, buffer, y);
	}
}

/* See gn_ref_layer_norm_backward(). d becomes dx. */
static void row_gradient(const struct gn_layer_rows *r, const float *x, float *d, float *dweight, float *dbias)
{
	float mean, inverse, sum = 0, dot = 0;
	int c = r->channels;

	statistics(r, x, &mean, &inverse);
#pragma omp simd reduction(+ : sum, dot)
	for (int k = 0; k < c; k++) {
		float h = (x[k] - mean) * inverse, g = d[k] * r->weight[k];

		dweight[k] += d[k] * h;
		dbias[k] += d[k];
		sum += g;
		dot += g * h;
	}
	sum /= (float)c;
	dot /= (float)c;
#pragma omp simd
	for (int k = 0; k < c; k++)
		d[k] = inverse * (d[k] * r->weight[k] - sum - (x[k] - mean) * inverse * dot);
}

static void norm_gradient(const struct gn_layer_rows *r, const void *x, const void *dy, void *dx, float *dweight, float *dbias,
			  float *buffer)
{
	size_t width = padded(r);
	float *d = buffer + GN_LAYER_TILE * width;

	for (size_t first = 0; first < r->pixels; first += GN_LAYER_TILE) {
		size_t count = r->pixels - first < GN_LAYER_TILE ? r->pixels - first : GN_LAYER_TILE;

		gather(r, first, count, x, buffer);
		gather(r, first, count, dy, d);
		for (size_t i = 0; i < count; i++)
			row_gradient(r, buffer + i * width, d + i * width, dweight, dbias);
		scatter(r, first, count, d, dx);
	}
}

#include "kernels/host/pool_loops.h"

/* --- softmax --- */

static void softmax(size_t count, float factor, float *x)
{
	float most = x[0], sum = 0;

#pragma omp simd reduction(max : most)
	for (size_t i = 0; i < count; i++)
		most = x[i] > most ? x[i] : most;
#pragma omp simd reduction(+ : sum)
	for (size_t i = 0; i < count; i++) {
		x[i] = exp_of(factor * (x[i] - most));
		sum += x[i];
	}
	sum = 1 / sum;
#pragma omp simd
	for (size_t i = 0; i < count; i++)
		x[i] *= sum;
}

static void softmax_gradient(size_t count, float factor, const float *y, float *d)
{
	float dot = 0;

#pragma omp simd reduction(+ : dot)
	for (size_t i = 0; i < count; i++)
		dot += y[i] * d[i];
#pragma omp simd
	for (size_t i = 0; i < count; i++)
		d[i] = factor * y[i] * (d[i] - dot);
}

const struct gn_layer_loops GN_LAYER_LOOPS = {forward, backward, scale, scale_gradient, norm, norm_gradient, max_pool, max_pool_gradient,
	softmax, softmax_gradient};
