/* Source of the loops, included by one small file per instruction set, which defines the name of the table, GN_BF16_LOOPS. */
#include "kernels/host/bf16.h"
#include "src/base/half.h"

/* Compiler vectors of sixteen channels, mapped to the processor's vectors. Never passed by value: the calling convention depends on
 * the instruction set. */
typedef float gn_f16x __attribute__((vector_size(64)));
typedef uint32_t gn_u16x __attribute__((vector_size(64)));
typedef int32_t gn_i16x __attribute__((vector_size(64)));
typedef uint16_t gn_h16x __attribute__((vector_size(32)));
/* unaligned, in memory */
typedef float gn_f16x_at __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t gn_u16x_at __attribute__((vector_size(64), aligned(2), may_alias));
typedef uint16_t gn_h16x_at __attribute__((vector_size(32), aligned(2), may_alias));

#define INLINE static inline __attribute__((always_inline))

enum { GN_LANES = 16 };

INLINE void widen(const uint16_t *at, gn_f16x *out)
{
	*out = (gn_f16x)(__builtin_convertvector(*(const gn_h16x_at *)at, gn_u16x) << 16);
}

#if defined GN_BF16_NATIVE
INLINE void narrow(const gn_f16x *x, uint16_t *at)
{
	*(gn_h16x_at *)at = (gn_h16x)_mm512_cvtneps_pbh((__m512)*x);
}
#else
INLINE void narrow(const gn_f16x *x, uint16_t *at)
{
	gn_u16x bits = (gn_u16x)*x, is_nan = (gn_u16x)((bits & 0x7fffffffu) > 0x7f800000u);
	gn_u16x rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16, kept = bits >> 16 | 0x40u;

	*(gn_h16x_at *)at = __builtin_convertvector((rounded & ~is_nan) | (kept & is_nan), gn_h16x);
}
#endif

/* 0 where y is at most 0, else 1, as a factor: GCC 12 crashes on a mask of the other factor. */
INLINE void passed(const gn_f16x *y, gn_f16x *out)
{
	const gn_f16x zero = {0}, one = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

	*out = (gn_f16x)((gn_i16x)one & ~(gn_i16x)(*y <= zero));
}

/* max(0, v); NaN is kept. */
INLINE void rectify(gn_f16x *v)
{
	const gn_f16x zero = {0};

	*v = (gn_f16x)((gn_i16x)*v & ~(gn_i16x)(*v < zero));
}

/* 16 factors, one per channel. */
INLINE void factors(const double *from, gn_f16x *out)
{
	for (int k = 0; k < GN_LANES; k++)
		(*out)[k] = (float)from[k];
}

INLINE void keep(const gn_f16x *a, const gn_f16x *b, double *out)
{
	for (int k = 0; k < GN_LANES; k++)
		out[k] = (double)(*a)[k] + (double)(*b)[k];
}

/* Even and odd pixels are summed separately, because an addition waits for the previous one. */
static void sums_of_16(const struct gn_norm_piece *p, const uint16_t *x, double *sum, double *square)
{
	gn_f16x s[2] = {{0}, {0}}, q[2] = {{0}, {0}}, v;
	size_t i = 0;

	for (; i + 2 <= p->pixels; i += 2) {
		for (int k = 0; k < 2; k++, x += p->stride) {
			widen(x, &v);
			s[k] += v;
			q[k] += v * v;
		}
	}
	if (i < p->pixels) {
		widen(x, &v);
		s[0] += v;
		q[0] += v * v;
	}
	keep(&s[0], &s[1], sum);
	keep(&q[0], &q[1], square);
}

static void sums_of_any(const struct gn_norm_piece *p, const uint16_t *x, double *sum, double *square)
{
	for (int k = 0; k < p->lanes; k++) {
		double s = 0, q = 0;

		for (size_t i = 0; i < p->pixels; i++) {
			double v = gn_f32_of_bf16(x[i * p->stride + k]);

			s += v;
			q += v * v;
		}
		sum[k] = s;
		square[k] = q;
	}
}

static void norm_sums(const struct gn_norm_piece *p, const void *x, double *sum, double *square)
{
	(p->lanes == GN_LANES ? sums_of_16 : sums_of_any)(p, x, sum, square);
}

INLINE void normalise_16(const struct gn_norm_piece *p, const struct gn_norm_line *l, int relu, const uint16_t *x,
			 const uint16_t *add, uint16_t *y)
{
	gn_f16x scale, shift, v, more;

	factors(l->scale, &scale);
	factors(l->shift, &shift);
	for (size_t i = 0; i < p->pixels; i++, x += p->stride, y += p->stride) {
		widen(x, &v);
		v = v * scale + shift;
		if (add) {
			widen(add, &more);
			v += more;
			add += p->stride;
		}
		if (relu)
			rectify(&v);
		narrow(&v, y);
	}
}

static void normalise_any(const struct gn_norm_piece *p, const struct gn_norm_line *l, int relu, const uint16_t *x,
			  const uint16_t *add, uint16_t *y)
{
	for (int k = 0; k < p->lanes; k++) {
		for (size_t i = 0; i < p->pixels; i++) {
			size_t at = i * p->stride + k;
			float v = gn_f32_of_bf16(x[at]) * (float)l->scale[k] + (float)l->shift[k];

			v += add ? gn_f32_of_bf16(add[at]) : 0;
			y[at] = gn_bf16_of_f32(relu && v < 0 ? 0 : v);
		}
	}
}

static void norm_normalise(const struct gn_norm_piece *p, const struct gn_norm_line *l, const void *x, const void *add, void *y)
{
	if (p->lanes != GN_LANES)
		normalise_any(p, l, add || l->relu, x, add, y);
	else if (add)
		normalise_16(p, l, 1, x, add, y);
	else if (l->relu)
		normalise_16(p, l, 1, x, NULL, y);
	else
		normalise_16(p, l, 0, x, NULL, y);
}

/* The output gradient masked by the relu, derived from the relu's input. */
INLINE void gradient_at(const gn_f16x *v, const gn_f16x *scale, const gn_f16x *shift, int relu, const uint16_t *dy,
			gn_f16x *d)
{
	gn_f16x y, mask;

	widen(dy, d);
	if (relu) {
		y = *v * *scale + *shift;
		passed(&y, &mask);
		*d *= mask;
	}
}

INLINE void gradient_sums_16(const struct gn_norm_piece *p, const struct gn_norm_line *l, int relu, const uint16_t *x,
			     const uint16_t *dy, double *sum, double *dot)
{
	gn_f16x mean, scale, shift, s[2] = {{0}, {0}}, t[2] = {{0}, {0}}, v, d;
	size_t i = 0;

	factors(l->mean, &mean);
	factors(l->scale, &scale);
	factors(l->shift, &shift);
	for (; i + 2 <= p->pixels; i += 2) {
		for (int k = 0; k < 2; k++, x += p->stride, dy += p->stride) {
			widen(x, &v);
			gradient_at(&v, &scale, &shift, relu, dy, &d);
			s[k] += d;
			t[k] += d * (v - mean);
		}
	}
	if (i < p->pixels) {
		widen(x, &v);
		gradient_at(&v, &scale, &shift, relu, dy, &d);
		s[0] += d;
		t[0] += d * (v - mean);
	}
	keep(&s[0], &s[1], sum);
	keep(&t[0], &t[1], dot);
}

static void gradient_sums_any(const struct gn_norm_piece *p, const struct gn_norm_line *l, const uint16_t *x,
			      const uint16_t *dy, double *sum, double *dot)
{
	for (int k = 0; k < p->lanes; k++) {
		sum[k] = dot[k] = 0;
		for (size_t i = 0; i < p->pixels; i++) {
			float v = gn_f32_of_bf16(x[i * p->stride + k]), d = gn_f32_of_bf16(dy[i * p->stride + k]);

			if (l->relu && v * (float)l->scale[k] + (float)l->shift[k] <= 0)
				d = 0;
			sum[k] += d;
			dot[k] += d * (v - l->mean[k]);
		}
	}
}

static void norm_gradient_sums(const struct gn_norm_piece *p, const struct gn_norm_line *l, const void *x, const void *dy,
			       double *sum, double *dot)
{
	if (p->lanes != GN_LANES)
		gradient_sums_any(p, l, x, dy, sum, dot);
	else if (l->relu)
		gradient_sums_16(p, l, 1, x, dy, sum, dot);
	else
		gradient_sums_16(p, l, 0, x, dy, sum, dot);
}

INLINE void masked_sums_16(const struct gn_norm_piece *p, const struct gn_norm_line *l, const uint16_t *x, const uint16_t *y,
			   const uint16_t *dy, const uint16_t *more, uint16_t *masked, double *sum, double *dot)
{
	gn_f16x mean, s = {0}, t = {0}, none = {0}, v, d, mask;

	factors(l->mean, &mean);
	for (size_t i = 0; i < p->pixels; i++, x += p->stride, y += p->stride, dy += p->stride, masked += p->stride) {
		widen(dy, &d);
		if (more) {
			widen(more, &v);
			d += v;
			more += p->stride;
		}
		widen(y, &v);
		passed(&v, &mask);
		d *= mask;
		narrow(&d, masked);
		widen(x, &v);
		s += d;
		t += d * (v - mean);
	}
	keep(&s, &none, sum);
	keep(&t, &none, dot);
}

static void masked_sums_any(const struct gn_norm_piece *p, const struct gn_norm_line *l, const uint16_t *x, const uint16_t *y,
			    const uint16_t *dy, const uint16_t *more, uint16_t *masked, double *sum, double *dot)
{
	for (int k = 0; k < p->lanes; k++) {
		sum[k] = dot[k] = 0;
		for (size_t i = 0; i < p->pixels; i++) {
			size_t at = i * p->stride + k;
			float d = gn_f32_of_bf16(dy[at]) + (more ? gn_f32_of_bf16(more[at]) : 0);

			if (gn_f32_of_bf16(y[at]) <= 0)
				d = 0;
			masked[at] = gn_bf16_of_f32(d);
			sum[k] += d;
			dot[k] += d * (gn_f32_of_bf16(x[at]) - l->mean[k]);
		}
	}
}

static void norm_masked_sums(const struct gn_norm_piece *p, const struct gn_norm_line *l, const void *x, const void *y,
			     const void *dy, const void *more, void *masked, double *sum, double *dot)
{
	if (p->lanes != GN_LANES)
		masked_sums_any(p, l, x, y, dy, more, masked, sum, dot);
	else if (more)
		masked_sums_16(p, l, x, y, dy, more, masked, sum, dot);
	else
		masked_sums_16(p, l, x, y, dy, NULL, masked, sum, dot);
}

/* dx = scale * d - from_sum - from_dot * (x - mean), with the terms that do not depend on the pixel combined */
INLINE void gradient_16(const struct gn_norm_piece *p, const struct gn_norm_line *l, int relu, const uint16_t *x,
			const uint16_t *dy, uint16_t *dx)
{
	gn_f16x mean, scale, shift, from_sum, from_dot, v, d;

	factors(l->mean, &mean);
	factors(l->scale, &scale);
	factors(l->shift, &shift);
	factors(l->from_sum, &from_sum);
	factors(l->from_dot, &from_dot);
	for (size_t i = 0; i < p->pixels; i++, x += p->stride, dy += p->stride, dx += p->stride) {
		widen(x, &v);
		gradient_at(&v, &scale, &shift, relu, dy, &d);
		d = scale * d - from_sum - from_dot * (v - mean);
		narrow(&d, dx);
	}
}

static void gradient_any(const struct gn_norm_piece *p, const struct gn_norm_line *l, const uint16_t *x, const uint16_t *dy,
			 uint16_t *dx)
{
	for (int k = 0; k < p->lanes; k++) {
		for (size_t i = 0; i < p->pixels; i++) {
			size_t at = i * p->stride + k;
			float v = gn_f32_of_bf16(x[at]), d = gn_f32_of_bf16(dy[at]);

			if (l->relu && v * (float)l->scale[k] + (float)l->shift[k] <= 0)
				d = 0;
			dx[at] = gn_bf16_of_f32((float)(l->scale[k] * d - l->from_sum[k] -
							l->from_dot[k] * (v - l->mean[k])));
		}
	}
}

static void norm_gradient(const struct gn_norm_piece *p, const struct gn_norm_line *l, const void *x, const void *dy, void *dx)
{
	if (p->lanes != GN_LANES)
		gradient_any(p, l, x, dy, dx);
	else if (l->relu)
		gradient_16(p, l, 1, x, dy, dx);
	else
		gradient_16(p, l, 0, x, dy, dx);
}

/* On the bits: values with a sign, up to infinity, become zero. */
static void relu(size_t count, const uint16_t *x, uint16_t *y)
{
#pragma omp simd
	for (size_t i = 0; i < count; i++)
		y[i] = x[i] > 0x8000u && x[i] <= 0xff80u ? 0 : x[i];
}

static void relu_gradient(size_t count, const uint16_t *y, const uint16_t *dy, uint16_t *dx, uint16_t *twin)
{
#pragma omp simd
	for (size_t i = 0; i < count; i++) {
		uint16_t d = (y[i] > 0 && y[i] < 0x8000u) || y[i] > 0xff80u ? dy[i] : 0;

		dx[i] = d;
		if (twin)
			twin[i] = d;
	}
}

static void add(size_t count, const uint16_t *a, const uint16_t *b, int with_relu, uint16_t *y)
{
	gn_f16x v, w;
	size_t i = 0;

	for (; i + GN_LANES <= count; i += GN_LANES) {
		widen(a + i, &v);
		widen(b + i, &w);
		v += w;
		if (with_relu)
			rectify(&v);
		narrow(&v, y + i);
	}
	for (; i < count; i++) {
		float sum = gn_f32_of_bf16(a[i]) + gn_f32_of_bf16(b[i]);

		y[i] = gn_bf16_of_f32(with_relu && sum < 0 ? 0 : sum);
	}
}

static void pair_rows(size_t rows, const float *from, uint16_t *to)
{
	const float zeros[GN_LANES] = {0};

	for (size_t r = 0; r < rows; r += 2, from += 2 * GN_LANES, to += 2 * GN_LANES) {
		gn_f16x even = *(const gn_f16x_at *)from;
		gn_f16x odd = *(const gn_f16x_at *)(r + 1 < rows ? from + GN_LANES : zeros);
		gn_h16x low, high;

		narrow(&even, (uint16_t *)&low);
		narrow(&odd, (uint16_t *)&high);
		*(gn_u16x_at *)to = __builtin_convertvector(low, gn_u16x) | __builtin_convertvector(high, gn_u16x) << 16;
	}
}

static void pair_columns(const float *from, uint16_t *to)
{
	uint32_t pairs[GN_LANES][GN_LANES / 2], *out = (uint32_t *)(void *)to;

	for (int i = 0; i < GN_LANES; i++) {
		gn_f16x row = *(const gn_f16x_at *)(from + i * GN_LANES);

		narrow(&row, (uint16_t *)pairs[i]);
	}
	for (int p = 0; p < GN_LANES / 2; p++)
		for (int i = 0; i < GN_LANES; i++)
			out[p * GN_LANES + i] = pairs[i][p];
}

const struct gn_bf16_loops GN_BF16_LOOPS = {
	.norm = {norm_sums, norm_normalise, norm_gradient_sums, norm_masked_sums, norm_gradient},
	.relu = relu,
	.relu_gradient = relu_gradient,
	.add = add,
	.pair_rows = pair_rows,
	.pair_columns = pair_columns,
};
