#include "kernels/ref/ref.h"

#include <math.h>
#include <string.h>

static int64_t argmax_of(const struct gn_ref_window *s, const double *x, int64_t base, int oy, int ox)
{
	int64_t best = -1;

	for (int ky = 0; ky < s->kernel; ky++) {
		for (int kx = 0; kx < s->kernel; kx++) {
			int iy = oy * s->stride + ky - s->pad, ix = ox * s->stride + kx - s->pad;
			int64_t at = base + (int64_t)iy * s->w + ix;

			if (iy < 0 || iy >= s->h || ix < 0 || ix >= s->w)
				continue;
			/* NaN counts as the maximum, and the last one gets the gradient, as in PyTorch */
			if (best < 0 || x[at] > x[best] || isnan(x[at]))
				best = at;
		}
	}
	return best;
}

void gn_ref_max_pool_forward(const struct gn_ref_window *s, const double *x, double *y, int64_t *argmax)
{
	size_t out = 0;

	for (int64_t map = 0; map < (int64_t)s->n * s->c; map++) {
		for (int oy = 0; oy < s->out_h; oy++) {
			for (int ox = 0; ox < s->out_w; ox++, out++) {
				argmax[out] = argmax_of(s, x, map * s->h * s->w, oy, ox);
				y[out] = x[argmax[out]];
			}
		}
	}
}

void gn_ref_max_pool_backward(const struct gn_ref_window *s, const double *dy, const int64_t *argmax, double *dx)
{
	size_t count = (size_t)s->n * s->c * s->out_h * s->out_w;

	memset(dx, 0, (size_t)s->n * s->c * s->h * s->w * sizeof *dx);
	for (size_t i = 0; i < count; i++)
		dx[argmax[i]] += dy[i];
}

static int window_begin(int i, int in, int out)
{
	return (int)((int64_t)i * in / out);
}

static int window_end(int i, int in, int out)
{
	return (int)((((int64_t)i + 1) * in + out - 1) / out);
}

static double window_sum(const double *map, int w, int y0, int y1, int x0, int x1)
{
	double sum = 0;

	for (int y = y0; y < y1; y++)
		for (int x = x0; x < x1; x++)
			sum += map[(size_t)y * w + x];
	return sum;
}

void gn_ref_adaptive_avg_pool_forward(const struct gn_ref_window *s, const double *x, double *y)
{
	for (size_t map = 0; map < (size_t)s->n * s->c; map++, x += (size_t)s->h * s->w) {
		for (int oy = 0; oy < s->out_h; oy++) {
			for (int ox = 0; ox < s->out_w; ox++) {
				int y0 = window_begin(oy, s->h, s->out_h), y1 = window_end(oy, s->h, s->out_h);
				int x0 = window_begin(ox, s->w, s->out_w), x1 = window_end(ox, s->w, s->out_w);

				*y++ = window_sum(x, s->w, y0, y1, x0, x1) / ((double)(y1 - y0) * (x1 - x0));
			}
		}
	}
}

static void spread(double *map, int w, int y0, int y1, int x0, int x1, double value)
{
	for (int y = y0; y < y1; y++)
		for (int x = x0; x < x1; x++)
			map[(size_t)y * w + x] += value;
}

void gn_ref_adaptive_avg_pool_backward(const struct gn_ref_window *s, const double *dy, double *dx)
{
	memset(dx, 0, (size_t)s->n * s->c * s->h * s->w * sizeof *dx);
	for (size_t map = 0; map < (size_t)s->n * s->c; map++, dx += (size_t)s->h * s->w) {
		for (int oy = 0; oy < s->out_h; oy++) {
			for (int ox = 0; ox < s->out_w; ox++) {
				int y0 = window_begin(oy, s->h, s->out_h), y1 = window_end(oy, s->h, s->out_h);
				int x0 = window_begin(ox, s->w, s->out_w), x1 = window_end(ox, s->w, s->out_w);

				spread(dx, s->w, y0, y1, x0, x1, *dy++ / ((double)(y1 - y0) * (x1 - x0)));
			}
		}
	}
}
