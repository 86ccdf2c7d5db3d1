/* The text of the loops, included by one small file for each set of instructions, which names the table GN_NORM_LOOPS.
 */
#include "kernels/host/batch_norm.h"

/* Four channels at a time in the compiler's own vectors, which become what the processor has. */
typedef float gn_f4 __attribute__((vector_size(16)));
typedef double gn_d4 __attribute__((vector_size(32)));
typedef long long gn_l4 __attribute__((vector_size(32)));
typedef int gn_i4 __attribute__((vector_size(16)));
/* as they lie in memory */
typedef float gn_f4_at __attribute__((vector_size(16), aligned(4), may_alias));
typedef double gn_d4_at __attribute__((vector_size(32), aligned(8), may_alias));

#define INLINE static inline __attribute__((always_inline))

INLINE void sums_of_4(const struct gn_norm_piece *p, const float *x, double *sum, double *square)
{
	gn_d4 s = {0}, q = {0};

	for (size_t i = 0; i < p->pixels; i++, x += p->stride) {
		gn_d4 v = __builtin_convertvector(*(const gn_f4_at *)x, gn_d4);

		s += v;
		q += v * v;
	}
	*(gn_d4_at *)sum = s;
	*(gn_d4_at *)square = q;
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

INLINE void normalise_4(const struct gn_norm_piece *p, const struct gn_norm_line *l, int relu, const float *x, float *y)
{
	const gn_d4 zero = {0}, scale = *(const gn_d4_at *)l->scale, shift = *(const gn_d4_at *)l->shift;

	for (size_t i = 0; i < p->pixels; i++, x += p->stride, y += p->stride) {
		gn_d4 v = __builtin_convertvector(*(const gn_f4_at *)x, gn_d4) * scale + shift;

		if (relu) /* all bits where v is below zero: a NaN stays */
			v = (gn_d4)((gn_l4)v & ~(gn_l4)(v < zero));
		*(gn_f4_at *)y = __builtin_convertvector(v, gn_f4);
	}
}

static void normalise_some(const struct gn_norm_piece *p, const struct gn_norm_line *l, const float *x, float *y)
{
	for (int k = 0; k < p->lanes && p->lanes % 4 == 0; k += 4) {
		const struct gn_norm_line here = {.scale = l->scale + k, .shift = l->shift + k};

		if (l->relu)
			normalise_4(p, &here, 1, x + k, y + k);
		else
			normalise_4(p, &here, 0, x + k, y + k);
	}
	for (int k = 0; k < p->lanes && p->lanes % 4; k++) {
		for (size_t i = 0; i < p->pixels; i++) {
			double v = x[i * p->stride + k] * l->scale[k] + l->shift[k];

			y[i * p->stride + k] = l->relu && v < 0 ? 0 : (float)v;
		}
	}
}

INLINE void normalise_add_4(const struct gn_norm_piece *p, const struct gn_norm_line *l, const float *x, const float *add,
			    float *y)
{
	const gn_d4 zero = {0}, scale = *(const gn_d4_at *)l->scale, shift = *(const gn_d4_at *)l->shift;

	for (size_t i = 0; i < p->pixels; i++, x += p->stride, add += p->stride, y += p->stride) {
		gn_d4 v = __builtin_convertvector(*(const gn_f4_at *)x, gn_d4) * scale + shift;

		v += __builtin_convertvector(*(const gn_f4_at *)add, gn_d4);
		v = (gn_d4)((gn_l4)v & ~(gn_l4)(v < zero)); /* as above */
		*(gn_f4_at *)y = __builtin_convertvector(v, gn_f4);
	}
}

static void normalise_add_some(const struct gn_norm_piece *p, const struct gn_norm_line *l, const float *x, const float *add,
			       float *y)
{
	for (int k = 0; k < p->lanes && p->lanes % 4 == 0; k += 4) {
		const struct gn_norm_line here = {.scale = l->scale + k, .shift = l->shift + k};

		normalise_add_4(p, &here, x + k, add + k, y + k);
	}
	for (int k = 0; k < p->lanes && p->lanes % 4; k++) {
		for (size_t i = 0; i < p->pixels; i++) {
			double v = x[i * p->stride + k] * l->scale[k] + l->shift[k] + add[i * p->stride + k];

			y[i * p->stride + k] = v < 0 ? 0 : (float)v;
		}
	}
}

INLINE void masked_sums_4(const struct gn_norm_piece *p, const struct gn_norm_line *l, const float *x, const float *y,
			  const float *dy, const float *more, float *masked, double *sum, double *dot)
{
	const gn_d4 mean = *(const gn_d4_at *)l->mean;
	const gn_f4 zero = {0}, one = {1, 1, 1, 1};
	gn_d4 s = {0}, t = {0};

	for (size_t i = 0; i < p->pixels; i++, x += p->stride, y += p->stride, dy += p->stride, masked += p->stride) {
		gn_f4 d = *(const gn_f4_at *)dy;
		gn_d4 wide;

		if (more) {
			d += *(const gn_f4_at *)more;
			more += p->stride;
		}
		d *= (gn_f4)((gn_i4)one & (gn_i4)(*(const gn_f4_at *)y > zero));
		*(gn_f4_at *)masked = d;
		wide = __builtin_convertvector(d, gn_d4);
		s += wide;
		t += wide * (__builtin_convertvector(*(const gn_f4_at *)x, gn_d4) - mean);
	}
	*(gn_d4_at *)sum = s;
	*(gn_d4_at *)dot = t;
}

static void masked_sums_some(const struct gn_norm_piece *p, const struct gn_norm_line *l, const float *x, const float *y,
			     const float *dy, const float *more, float *masked, double *sum, double *dot)
{
	for (int k = 0; k < p->lanes && p->lanes % 4 == 0; k += 4) {
		const struct gn_norm_line here = {.mean = l->mean + k};

		if (more)
			masked_sums_4(p, &here, x + k, y + k, dy + k, more + k, masked + k, sum + k, dot + k);
		else
			masked_sums_4(p, &here, x + k, y + k, dy + k, NULL, masked + k, sum + k, dot + k);
	}
	for (int k = 0; k < p->lanes && p->lanes % 4; k++) {
		sum[k] = dot[k] = 0;
		for (size_t i = 0; i < p->pixels; i++) {
			size_t at = i * p->stride + k;
			float d = y[at] > 0 ? (more ? dy[at] + more[at] : dy[at]) : 0;

			masked[at] = d;
			sum[k] += d;
			dot[k] += d * (x[at] - l->mean[k]);
		}
	}
}

/* Sums of dy and of dy * (x - mean), dy being 0 where the relu gave 0. */
INLINE void gradient_sums_4(const struct gn_norm_piece *p, const struct gn_norm_line *l, int relu, const float *x,
			    const float *dy, double *sum, double *dot)
{
	const gn_d4 mean = *(const gn_d4_at *)l->mean, scale = *(const gn_d4_at *)l->scale,
		    shift = *(const gn_d4_at *)l->shift;
	const gn_d4 zero = {0}, one = {1, 1, 1, 1};
	gn_d4 s = {0}, t = {0};

	for (size_t i = 0; i < p->pixels; i++, x += p->stride, dy += p->stride) {
		gn_d4 v = __builtin_convertvector(*(const gn_f4_at *)x, gn_d4);
		gn_d4 d = __builtin_convertvector(*(const gn_f4_at *)dy, gn_d4);

		if (relu)
			d *= (gn_d4)((gn_l4)one &
				     (gn_l4)(v * scale + shift > zero)); /* a mask on d itself ends GCC 12 */
		s += d;
		t += d * (v - mean);
	}
	*(gn_d4_at *)sum = s;
	*(gn_d4_at *)dot = t;
}

static void gradient_sums_some(const struct gn_norm_piece *p, const struct gn_norm_line *l, const float *x,
			       const float *dy, double *sum, double *dot)
{
	for (int k = 0; k < p->lanes && p->lanes % 4 == 0; k += 4) {
		const struct gn_norm_line here = {.mean = l->mean + k, .scale = l->scale + k, .shift = l->shift + k};

		if (l->relu)
			gradient_sums_4(p, &here, 1, x + k, dy + k, sum + k, dot + k);
		else
			gradient_sums_4(p, &here, 0, x + k, dy + k, sum + k, dot + k);
	}
	for (int k = 0; k < p->lanes && p->lanes % 4; k++) {
		sum[k] = dot[k] = 0;
		for (size_t i = 0; i < p->pixels; i++) {
			double v = x[i * p->stride + k], d = dy[i * p->stride + k];

			if (l->relu && !(v * l->scale[k] + l->shift[k] > 0))
				d = 0;
			sum[k] += d;
			dot[k] += d * (v - l->mean[k]);
		}
	}
}

/* dx = scale * dy - from_sum - from_dot * (x - mean) */
INLINE void gradient_4(const struct gn_norm_piece *p, const struct gn_norm_line *l, int relu, const float *x,
		       const float *dy, float *dx)
{
	const gn_d4 mean = *(const gn_d4_at *)l->mean, scale = *(const gn_d4_at *)l->scale,
		    shift = *(const gn_d4_at *)l->shift;
	const gn_d4 zero = {0}, one = {1, 1, 1, 1}, from_sum = *(const gn_d4_at *)l->from_sum,
		    from_dot = *(const gn_d4_at *)l->from_dot;

	for (size_t i = 0; i < p->pixels; i++, x += p->stride, dy += p->stride, dx += p->stride) {
		gn_d4 v = __builtin_convertvector(*(const gn_f4_at *)x, gn_d4);
		gn_d4 d = __builtin_convertvector(*(const gn_f4_at *)dy, gn_d4);

		if (relu)
			d *= (gn_d4)((gn_l4)one &
				     (gn_l4)(v * scale + shift > zero)); /* a mask on d itself ends GCC 12 */
		*(gn_f4_at *)dx = __builtin_convertvector(scale * d - from_sum - from_dot * (v - mean), gn_f4);
	}
}

static void gradient_some(const struct gn_norm_piece *p, const struct gn_norm_line *l, const float *x, const float *dy,
			  float *dx)
{
	for (int k = 0; k < p->lanes && p->lanes % 4 == 0; k += 4) {
		const struct gn_norm_line here = {l->mean + k,     l->scale + k,    l->shift + k,
						  l->from_sum + k, l->from_dot + k, 0};

		if (l->relu)
			gradient_4(p, &here, 1, x + k, dy + k, dx + k);
		else
			gradient_4(p, &here, 0, x + k, dy + k, dx + k);
	}
	for (int k = 0; k < p->lanes && p->lanes % 4; k++) {
		for (size_t i = 0; i < p->pixels; i++) {
			double v = x[i * p->stride + k], d = dy[i * p->stride + k];

			if (l->relu && !(v * l->scale[k] + l->shift[k] > 0))
				d = 0;
			dx[i * p->stride + k] = (float)(l->scale[k] * d - l->from_sum[k] -
							l->from_dot[k] * (v - l->mean[k]));
		}
	}
}

static void sums_some(const struct gn_norm_piece *p, const float *x, double *sum, double *square)
{
	for (int k = 0; k < p->lanes && p->lanes % 4 == 0; k += 4)
		sums_of_4(p, x + k, sum + k, square + k);
	if (p->lanes % 4)
		sums_of_any(p, x, sum, square);
}

static void sums(const struct gn_norm_piece *p, const void *x, double *sum, double *square)
{
	sums_some(p, x, sum, square);
}

static void normalise(const struct gn_norm_piece *p, const struct gn_norm_line *l, const void *x, void *y)
{
	normalise_some(p, l, x, y);
}

static void normalise_add(const struct gn_norm_piece *p, const struct gn_norm_line *l, const void *x, const void *add, void *y)
{
	normalise_add_some(p, l, x, add, y);
}

static void gradient_sums(const struct gn_norm_piece *p, const struct gn_norm_line *l, const void *x, const void *dy,
			  double *sum, double *dot)
{
	gradient_sums_some(p, l, x, dy, sum, dot);
}

static void masked_sums(const struct gn_norm_piece *p, const struct gn_norm_line *l, const void *x, const void *y,
			const void *dy, const void *more, void *d, double *sum, double *dot)
{
	masked_sums_some(p, l, x, y, dy, more, d, sum, dot);
}

static void gradient(const struct gn_norm_piece *p, const struct gn_norm_line *l, const void *x, const void *dy, void *dx)
{
	gradient_some(p, l, x, dy, dx);
}

const struct gn_norm_loops GN_NORM_LOOPS = {sums, normalise, normalise_add, gradient_sums, masked_sums, gradient};
