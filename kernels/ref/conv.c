#include "kernels/ref/ref.h"

#include <string.h>

static size_t at(size_t a, size_t n_b, size_t b, size_t n_c, size_t c, size_t n_d, size_t d)
{
	return ((a * n_b + b) * n_c + c) * n_d + d;
}

/* The columns ox for which 0 <= ox * stride + k - pad < w. */
static void span(const struct gn_ref_window *s, int k, int *begin, int *end)
{
	int ox = 0;

	while (ox < s->out_w && ox * s->stride + k - s->pad < 0)
		ox++;
	*begin = ox;
	while (ox < s->out_w && ox * s->stride + k - s->pad < s->w)
		ox++;
	*end = ox;
}

/* Calls body for every (image, out channel, in channel, kernel row, kernel column, out row) whose input row exists. The three
 * passes differ only in body. */
struct row {
	size_t x, y, weight; /* offsets of x[0] in its row, of y[0] in its row, and of the weight */
	int begin, end, shift, stride;
};

/* Input channels of a group, and the first that an output channel reads. */
static int group_in(const struct gn_ref_window *s)
{
	return s->groups > 1 ? s->c / s->groups : s->c;
}

static int first_in(const struct gn_ref_window *s, int oc)
{
	return s->groups > 1 ? oc / (s->out_c / s->groups) * group_in(s) : 0;
}

typedef void row_fn(const struct row *r, const double *a, const double *b, double *out);

static void rows_of_map(const struct gn_ref_window *s, size_t n, size_t oc, size_t ic, row_fn *body, const double *a,
			const double *b, double *out)
{
	for (int ky = 0; ky < s->kernel; ky++) {
		for (int kx = 0; kx < s->kernel; kx++) {
			struct row r = {.shift = kx - s->pad, .stride = s->stride};

			r.weight = at(oc, group_in(s), ic - first_in(s, (int)oc), s->kernel, ky, s->kernel, kx);
			span(s, kx, &r.begin, &r.end);
			for (int oy = 0; oy < s->out_h; oy++) {
				int iy = oy * s->stride + ky - s->pad;

				if (iy < 0 || iy >= s->h)
					continue;
				r.x = at(n, s->c, ic, s->h, iy, s->w, 0);
				r.y = at(n, s->out_c, oc, s->out_h, oy, s->out_w, 0);
				body(&r, a, b, out);
			}
		}
	}
}

static void forward_row(const struct row *r, const double *x, const double *weight, double *y)
{
	double w = weight[r->weight];

	for (int ox = r->begin; ox < r->end; ox++)
		y[r->y + ox] += w * x[r->x + ox * r->stride + r->shift];
}

static void data_row(const struct row *r, const double *dy, const double *weight, double *dx)
{
	double w = weight[r->weight];

	for (int ox = r->begin; ox < r->end; ox++)
		dx[r->x + ox * r->stride + r->shift] += w * dy[r->y + ox];
}

static void weight_row(const struct row *r, const double *x, const double *dy, double *dweight)
{
	double sum = 0;

	for (int ox = r->begin; ox < r->end; ox++)
		sum += dy[r->y + ox] * x[r->x + ox * r->stride + r->shift];
	dweight[r->weight] += sum;
}

void gn_ref_conv_forward(const struct gn_ref_window *s, const double *x, const double *weight, const double *bias,
			 double *y)
{
	size_t map = (size_t)s->out_h * s->out_w;

#pragma omp parallel for collapse(2)
	for (int n = 0; n < s->n; n++) {
		for (int oc = 0; oc < s->out_c; oc++) {
			double *out = y + ((size_t)n * s->out_c + oc) * map;

			for (size_t i = 0; i < map; i++)
				out[i] = bias ? bias[oc] : 0;
			for (int ic = first_in(s, oc); ic < first_in(s, oc) + group_in(s); ic++)
				rows_of_map(s, n, oc, ic, forward_row, x, weight, y);
		}
	}
}

void gn_ref_conv_backward_data(const struct gn_ref_window *s, const double *dy, const double *weight, double *dx)
{
	size_t map = (size_t)s->h * s->w;

#pragma omp parallel for collapse(2)
	for (int n = 0; n < s->n; n++) {
		for (int ic = 0; ic < s->c; ic++) {
			memset(dx + ((size_t)n * s->c + ic) * map, 0, map * sizeof *dx);
			for (int oc = 0; oc < s->out_c; oc++)
				if (ic >= first_in(s, oc) && ic < first_in(s, oc) + group_in(s))
					rows_of_map(s, n, oc, ic, data_row, dy, weight, dx);
		}
	}
}

void gn_ref_conv_backward_weight(const struct gn_ref_window *s, const double *x, const double *dy, double *dweight,
				 double *dbias)
{
	size_t map = (size_t)s->out_h * s->out_w, area = (size_t)s->kernel * s->kernel;

#pragma omp parallel for
	for (int oc = 0; oc < s->out_c; oc++) {
		memset(dweight + (size_t)oc * group_in(s) * area, 0, group_in(s) * area * sizeof *dweight);
		for (int n = 0; n < s->n; n++)
			for (int ic = first_in(s, oc); ic < first_in(s, oc) + group_in(s); ic++)
				rows_of_map(s, n, oc, ic, weight_row, x, dy, dweight);
		if (!dbias)
			continue;
		dbias[oc] = 0;
		for (int n = 0; n < s->n; n++)
			for (size_t i = 0; i < map; i++)
				dbias[oc] += dy[((size_t)n * s->out_c + oc) * map + i];
	}
}
