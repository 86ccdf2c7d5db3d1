/* Source of the loops, included by one small file per instruction set, which defines the name of the table, GN_NORM_LOOPS.
 */
#include "kernels/host/norm_loops.h"

/* Compiler vectors of four channels, mapped to the processor's vectors. With sixteen channels four vectors are processed side by
 * side, so that additions do not wait for each other and each cache line is read once. */
typedef float gn_f4 __attribute__((vector_size(16)));
typedef double gn_d4 __attribute__((vector_size(32)));
typedef long long gn_l4 __attribute__((vector_size(32)));
typedef int gn_i4 __attribute__((vector_size(16)));
/* unaligned, in memory */
typedef float gn_f4_at __attribute__((vector_size(16), aligned(4), may_alias));
typedef double gn_d4_at __attribute__((vector_size(32), aligned(8), may_alias));

#define INLINE static inline __attribute__((always_inline))

enum { GN_WIDE = 4 };

#if defined GN_NORM_AVX /* GCC 12 takes four instructions for the first */
INLINE void widen(const float *at, gn_d4 *out)
{
	*out = (gn_d4)_mm256_cvtps_pd(_mm_loadu_ps(at));
}

INLINE void narrow(const gn_d4 *v, float *at)
{
	_mm_storeu_ps(at, _mm256_cvtpd_ps((__m256d)*v));
}
#else
INLINE void widen(const float *at, gn_d4 *out)
{
	*out = __builtin_convertvector(*(const gn_f4_at *)at, gn_d4);
}

INLINE void narrow(const gn_d4 *v, float *at)
{
	*(gn_f4_at *)at = __builtin_convertvector(*v, gn_f4);
}
#endif

INLINE void sums_of(int wide, const struct gn_norm_piece *p, const float *x, double *sum, double *square)
{
	gn_d4 s[GN_WIDE] = {{0}}, q[GN_WIDE] = {{0}};

	for (size_t i = 0; i < p->pixels; i++, x += p->stride) {
#pragma GCC unroll 4
		for (int w = 0; w < wide; w++) {
			gn_d4 v;

			widen(x + 4 * w, &v);
			s[w] += v;
			q[w] += v * v;
		}
	}
#pragma GCC unroll 4
	for (int w = 0; w < wide; w++) {
		((gn_d4_at *)sum)[w] = s[w];
		((gn_d4_at *)square)[w] = q[w];
	}
}

static void sums_of_any(const struct gn_norm_piece *p, const float *x, double *sum, double *square)
{
	for (int k = 0; k < p->lanes; k++) {
		double s = 0, q = 0;

		for (size_t i = 0; i < p->pixels; i++) {
			double v = x[i * p->stride + k];

			s += v;
			q += v * v;
		}
		sum[k] = s;
		square[k] = q;
	}
}

INLINE void normalise_of(int wide, const struct gn_norm_piece *p, const struct gn_norm_line *l, int relu, const float *x,
			 const float *add, float *y)
{
	const gn_d4 zero = {0};
	gn_d4 scale[GN_WIDE], shift[GN_WIDE];

#pragma GCC unroll 4
	for (int w = 0; w < wide; w++) {
		scale[w] = ((const gn_d4_at *)l->scale)[w];
		shift[w] = ((const gn_d4_at *)l->shift)[w];
	}
	for (size_t i = 0; i < p->pixels; i++, x += p->stride, y += p->stride) {
#pragma GCC unroll 4
		for (int w = 0; w < wide; w++) {
			gn_d4 v, more;

			widen(x + 4 * w, &v);
			v = v * scale[w] + shift[w];
			if (add) {
				widen(add + 4 * w, &more);
				v += more;
			}
			if (relu) /* all bits where v is below zero; NaN is kept */
				v = (gn_d4)((gn_l4)v & ~(gn_l4)(v < zero));
			narrow(&v, y + 4 * w);
		}
		if (add)
			add += p->stride;
	}
}

/* specialised for wide, relu and whether to add at compile time */
INLINE void normalise_by(int wide, const struct gn_norm_piece *p, const struct gn_norm_line *l, const float *x, const float *add, float *y)
{
	if (add)
		normalise_of(wide, p, l, 1, x, add, y);
	else if (l->relu)
		normalise_of(wide, p, l, 1, x, NULL, y);
	else
		normalise_of(wide, p, l, 0, x, NULL, y);
}

static void normalise(const struct gn_norm_piece *p, const struct gn_norm_line *l, const void *from, const void *added, void *to)
{
	const float *x = from, *add = added;
	float *y = to;

	if (p->lanes == 4 * GN_WIDE) {
		normalise_by(GN_WIDE, p, l, x, add, y);
		return;
	}
	for (int k = 0; k < p->lanes && p->lanes % 4 == 0; k += 4) {
		const struct gn_norm_line here = {.scale = l->scale + k, .shift = l->shift + k, .relu = l->relu};

		normalise_by(1, p, &here, x + k, add ? add + k : NULL, y + k);
	}
	for (int k = 0; k < p->lanes && p->lanes % 4; k++) {
		for (size_t i = 0; i < p->pixels; i++) {
			double v = x[i * p->stride + k] * l->scale[k] + l->shift[k];

			if (add)
				v += add[i * p->stride + k];
			y[i * p->stride + k] = (add || l->relu) && v < 0 ? 0 : (float)v;
		}
	}
}

INLINE void masked_sums_of(int wide, const struct gn_norm_piece *p, const struct gn_norm_line *l, const float *x,
			   const float *y, const float *dy, const float *more, float *masked, double *sum, double *dot)
{
	const gn_f4 zero = {0}, one = {1, 1, 1, 1};
	gn_d4 mean[GN_WIDE], s[GN_WIDE] = {{0}}, t[GN_WIDE] = {{0}};

#pragma GCC unroll 4
	for (int w = 0; w < wide; w++)
		mean[w] = ((const gn_d4_at *)l->mean)[w];
	for (size_t i = 0; i < p->pixels; i++, x += p->stride, y += p->stride, dy += p->stride, masked += p->stride) {
#pragma GCC unroll 4
		for (int w = 0; w < wide; w++) {
			gn_f4 d = ((const gn_f4_at *)dy)[w];
			gn_d4 v, wide_d;

			if (more)
				d += ((const gn_f4_at *)more)[w];
			d *= (gn_f4)((gn_i4)one & (gn_i4)(((const gn_f4_at *)y)[w] > zero));
			((gn_f4_at *)masked)[w] = d;
			widen((const float *)&d, &wide_d);
			widen(x + 4 * w, &v);
			s[w] += wide_d;
			t[w] += wide_d * (v - mean[w]);
		}
		if (more)
			more += p->stride;
	}
#pragma GCC unroll 4
	for (int w = 0; w < wide; w++) {
		((gn_d4_at *)sum)[w] = s[w];
		((gn_d4_at *)dot)[w] = t[w];
	}
}

/* specialised for wide and for `more` at compile time */
INLINE void masked_sums_by(int wide, const struct gn_norm_piece *p, const struct gn_norm_line *l, const float *x,
			   const float *y, const float *dy, const float *more, float *masked, double *sum, double *dot)
{
	if (more)
		masked_sums_of(wide, p, l, x, y, dy, more, masked, sum, dot);
	else
		masked_sums_of(wide, p, l, x, y, dy, NULL, masked, sum, dot);
}

static void masked_sums(const struct gn_norm_piece *p, const struct gn_norm_line *l, const void *in, const void *out,
			const void *dout, const void *more_dout, void *d_masked, double *sum, double *dot)
{
	const float *x = in, *y = out, *dy = dout, *more = more_dout;
	float *masked = d_masked;

	if (p->lanes == 4 * GN_WIDE) {
		masked_sums_by(GN_WIDE, p, l, x, y, dy, more, masked, sum, dot);
		return;
	}
	for (int k = 0; k < p->lanes && p->lanes % 4 == 0; k += 4) {
		const struct gn_norm_line here = {.mean = l->mean + k};

		masked_sums_by(1, p, &here, x + k, y + k, dy + k, more ? more + k : NULL, masked + k, sum + k, dot + k);
	}
	for (int k = 0; k < p->lanes && p->lanes % 4; k++) {
		sum[k] = dot[k] = 0;
		for (size_t i = 0; i < p->pixels; i++) {
			size_t at = i * p->stride + k;
			float d = y[at] <= 0 ? 0 : more ? dy[at] + more[at] : dy[at];

			masked[at] = d;
			sum[k] += d;
			dot[k] += d * (x[at] - l->mean[k]);
		}
	}
}

/* The output gradient, masked by the relu. */
INLINE void passed(int relu, const gn_d4 *v, const gn_d4 *scale, const gn_d4 *shift, const float *dy, gn_d4 *d)
{
	const gn_d4 zero = {0}, one = {1, 1, 1, 1};

	widen(dy, d);
	if (relu)
		*d *= (gn_d4)((gn_l4)one & ~(gn_l4)(*v * *scale + *shift <= zero)); /* GCC 12 crashes on a mask of d itself */
}

/* Sums of dy and of dy * (x - mean), with dy masked by the relu. */
INLINE void gradient_sums_of(int wide, const struct gn_norm_piece *p, const struct gn_norm_line *l, int relu, const float *x,
			     const float *dy, double *sum, double *dot)
{
	gn_d4 mean[GN_WIDE], scale[GN_WIDE], shift[GN_WIDE], s[GN_WIDE] = {{0}}, t[GN_WIDE] = {{0}};

#pragma GCC unroll 4
	for (int w = 0; w < wide; w++) {
		mean[w] = ((const gn_d4_at *)l->mean)[w];
		scale[w] = ((const gn_d4_at *)l->scale)[w];
		shift[w] = ((const gn_d4_at *)l->shift)[w];
	}
	for (size_t i = 0; i < p->pixels; i++, x += p->stride, dy += p->stride) {
#pragma GCC unroll 4
		for (int w = 0; w < wide; w++) {
			gn_d4 v, d;

			widen(x + 4 * w, &v);
			passed(relu, &v, &scale[w], &shift[w], dy + 4 * w, &d);
			s[w] += d;
			t[w] += d * (v - mean[w]);
		}
	}
#pragma GCC unroll 4
	for (int w = 0; w < wide; w++) {
		((gn_d4_at *)sum)[w] = s[w];
		((gn_d4_at *)dot)[w] = t[w];
	}
}

INLINE void gradient_sums_by(int wide, const struct gn_norm_piece *p, const struct gn_norm_line *l, const float *x,
			     const float *dy, double *sum, double *dot)
{
	if (l->relu)
		gradient_sums_of(wide, p, l, 1, x, dy, sum, dot);
	else
		gradient_sums_of(wide, p, l, 0, x, dy, sum, dot);
}

static void gradient_sums(const struct gn_norm_piece *p, const struct gn_norm_line *l, const void *in, const void *dout,
			  double *sum, double *dot)
{
	const float *x = in, *dy = dout;

	if (p->lanes == 4 * GN_WIDE) {
		gradient_sums_by(GN_WIDE, p, l, x, dy, sum, dot);
		return;
	}
	for (int k = 0; k < p->lanes && p->lanes % 4 == 0; k += 4) {
		const struct gn_norm_line here = {.mean = l->mean + k, .scale = l->scale + k, .shift = l->shift + k,
						  .relu = l->relu};

		gradient_sums_by(1, p, &here, x + k, dy + k, sum + k, dot + k);
	}
	for (int k = 0; k < p->lanes && p->lanes % 4; k++) {
		sum[k] = dot[k] = 0;
		for (size_t i = 0; i < p->pixels; i++) {
			double v = x[i * p->stride + k], d = dy[i * p->stride + k];

			if (l->relu && v * l->scale[k] + l->shift[k] <= 0)
				d = 0;
			sum[k] += d;
			dot[k] += d * (v - l->mean[k]);
		}
	}
}

/* dx = scale * dy - from_sum - from_dot * (x - mean) */
INLINE void gradient_of(int wide, const struct gn_norm_piece *p, const struct gn_norm_line *l, int relu, const float *x,
			const float *dy, float *dx)
{
	gn_d4 mean[GN_WIDE], scale[GN_WIDE], shift[GN_WIDE], from_sum[GN_WIDE], from_dot[GN_WIDE];

#pragma GCC unroll 4
	for (int w = 0; w < wide; w++) {
		mean[w] = ((const gn_d4_at *)l->mean)[w];
		scale[w] = ((const gn_d4_at *)l->scale)[w];
		shift[w] = ((const gn_d4_at *)l->shift)[w];
		from_sum[w] = ((const gn_d4_at *)l->from_sum)[w];
		from_dot[w] = ((const gn_d4_at *)l->from_dot)[w];
	}
	for (size_t i = 0; i < p->pixels; i++, x += p->stride, dy += p->stride, dx += p->stride) {
#pragma GCC unroll 4
		for (int w = 0; w < wide; w++) {
			gn_d4 v, d;

			widen(x + 4 * w, &v);
			passed(relu, &v, &scale[w], &shift[w], dy + 4 * w, &d);
			d = scale[w] * d - from_sum[w] - from_dot[w] * (v - mean[w]);
			narrow(&d, dx + 4 * w);
		}
	}
}

INLINE void gradient_by(int wide, const struct gn_norm_piece *p, const struct gn_norm_line *l, const float *x,
			const float *dy, float *dx)
{
	if (l->relu)
		gradient_of(wide, p, l, 1, x, dy, dx);
	else
		gradient_of(wide, p, l, 0, x, dy, dx);
}

static void gradient(const struct gn_norm_piece *p, const struct gn_norm_line *l, const void *in, const void *dout, void *din)
{
	const float *x = in, *dy = dout;
	float *dx = din;

	if (p->lanes == 4 * GN_WIDE) {
		gradient_by(GN_WIDE, p, l, x, dy, dx);
		return;
	}
	for (int k = 0; k < p->lanes && p->lanes % 4 == 0; k += 4) {
		const struct gn_norm_line here = {l->mean + k,     l->scale + k,    l->shift + k,
						  l->from_sum + k, l->from_dot + k, l->relu};

		gradient_by(1, p, &here, x + k, dy + k, dx + k);
	}
	for (int k = 0; k < p->lanes && p->lanes % 4; k++) {
		for (size_t i = 0; i < p->pixels; i++) {
			double v = x[i * p->stride + k], d = dy[i * p->stride + k];

			if (l->relu && v * l->scale[k] + l->shift[k] <= 0)
				d = 0;
			dx[i * p->stride + k] = (float)(l->scale[k] * d - l->from_sum[k] -
							l->from_dot[k] * (v - l->mean[k]));
		}
	}
}

static void sums(const struct gn_norm_piece *p, const void *in, double *sum, double *square)
{
	const float *x = in;

	if (p->lanes == 4 * GN_WIDE) {
		sums_of(GN_WIDE, p, x, sum, square);
		return;
	}
	for (int k = 0; k < p->lanes && p->lanes % 4 == 0; k += 4)
		sums_of(1, p, x + k, sum + k, square + k);
	if (p->lanes % 4)
		sums_of_any(p, x, sum, square);
}

const struct gn_norm_loops GN_NORM_LOOPS = {sums, normalise, gradient_sums, masked_sums, gradient};
