#include "kernels/ref/ref.h"
#include "tests/gpu/fixture.h"

#include <math.h>
#include <stdlib.h>

struct maps {
	struct gn_cuda_window w;
	size_t in, out;
	double *x, *y, *dy, *dx, *rows; /* planes of the oracle */
};

static struct gn_ref_window window(const struct gn_cuda_window *w)
{
	return (struct gn_ref_window){w->n, w->c, w->h, w->w, w->c, w->out_h, w->out_w, w->kernel, w->stride, w->pad, 0};
}

static void make(struct maps *m, const struct gn_cuda_window *w)
{
	m->w = *w;
	m->in = (size_t)w->n * w->c * w->h * w->w;
	m->out = (size_t)w->n * w->c * w->out_h * w->out_w;
	m->x = fixture_doubles(m->in);
	m->dx = fixture_doubles(m->in);
	m->y = fixture_doubles(m->out);
	m->dy = fixture_doubles(m->out);
	m->rows = fixture_doubles(m->in > m->out ? m->in : m->out);
}

static void release(struct maps *m)
{
	free(m->x);
	free(m->dx);
	free(m->y);
	free(m->dy);
	free(m->rows);
}

static void compare(struct fixture *b, struct maps *m, struct fixture_tensor *got, const double *planes, int is_output,
		    const char *what)
{
	size_t hw = is_output ? (size_t)m->w.out_h * m->w.out_w : (size_t)m->w.h * m->w.w;

	fixture_from_planes(planes, m->w.n, m->w.c, hw, m->rows);
	fixture_compare(b, got, m->rows, fixture_tolerance(got->type), what);
}

static void max_pool(struct fixture *b, enum gn_cuda_type type, const struct gn_cuda_window *w)
{
	struct gn_ref_window r = window(w);
	struct fixture_tensor *x, *y, *dy, *dx;
	struct maps m;
	int64_t *host_argmax;
	uint8_t *argmax;

	fixture_begin(b);
	make(&m, w);
	host_argmax = calloc(m.out, sizeof *host_argmax);
	x = fixture_input(b, type, m.in, 0, 1);
	y = fixture_output(b, type, m.out);
	dy = fixture_input(b, type, m.out, 0, 1);
	dx = fixture_output(b, type, m.in);
	argmax = fixture_bytes(b, NULL, m.out);
	if (!b->why[0] && host_argmax) {
		/* equal values: the first of them has to be the argmax */
		for (size_t i = 0; i < m.in; i++)
			x->host[i] = floor(x->host[i] * 2) / 2;
		fixture_write(b, x);
		fixture_to_planes(x->host, w->n, w->c, (size_t)w->h * w->w, m.x);
		fixture_to_planes(dy->host, w->n, w->c, (size_t)w->out_h * w->out_w, m.dy);
		gn_ref_max_pool_forward(&r, m.x, m.y, host_argmax);
		gn_ref_max_pool_backward(&r, m.dy, host_argmax, m.dx);
		if (fixture_ok(b, gn_cuda_max_pool(b->stream, type, w, x->data, y->data, argmax, &b->err), "forward") &&
		    fixture_ok(b, gn_cuda_max_pool_grad(b->stream, type, w, dy->data, argmax, dx->data, &b->err),
			   "backward")) {
			compare(b, &m, y, m.y, 1, "output");
			compare(b, &m, dx, m.dx, 0, "gradient");
		}
	}
	fixture_end(b, "max pool %s %dx%dx%dx%d to %dx%d, window %d stride %d pad %d", gn_cuda_type_name(type), w->n, w->h,
		w->w, w->c, w->out_h, w->out_w, w->kernel, w->stride, w->pad);
	free(host_argmax);
	release(&m);
}

static void average_pool(struct fixture *b, enum gn_cuda_type type, const struct gn_cuda_window *w)
{
	struct gn_ref_window r = window(w);
	struct fixture_tensor *x, *y, *dy, *dx;
	struct maps m;

	fixture_begin(b);
	make(&m, w);
	x = fixture_input(b, type, m.in, 0.5, 1);
	y = fixture_output(b, type, m.out);
	dy = fixture_input(b, type, m.out, 0, 1);
	dx = fixture_output(b, type, m.in);
	if (!b->why[0]) {
		fixture_to_planes(x->host, w->n, w->c, (size_t)w->h * w->w, m.x);
		fixture_to_planes(dy->host, w->n, w->c, (size_t)w->out_h * w->out_w, m.dy);
		gn_ref_adaptive_avg_pool_forward(&r, m.x, m.y);
		gn_ref_adaptive_avg_pool_backward(&r, m.dy, m.dx);
		if (fixture_ok(b, gn_cuda_average_pool(b->stream, type, w, x->data, y->data, &b->err), "forward") &&
		    fixture_ok(b, gn_cuda_average_pool_grad(b->stream, type, w, dy->data, dx->data, &b->err), "backward")) {
			compare(b, &m, y, m.y, 1, "output");
			compare(b, &m, dx, m.dx, 0, "gradient");
		}
	}
	fixture_end(b, "average pool %s %dx%dx%dx%d to %dx%d", gn_cuda_type_name(type), w->n, w->h, w->w, w->c, w->out_h,
		w->out_w);
	release(&m);
}

/* One NaN in a window comes out, whatever is beside it. */
static void nan_wins(struct fixture *b, enum gn_cuda_type type)
{
	struct gn_cuda_window w = {1, 16, 4, 4, 2, 2, 2, 2, 0};
	struct fixture_tensor *x, *y;
	uint8_t *argmax, won[64];

	fixture_begin(b);
	x = fixture_input(b, type, 256, 0, 1);
	y = fixture_output(b, type, 64);
	argmax = fixture_bytes(b, NULL, 64);
	if (!b->why[0]) {
		x->host[(1 * 4 + 2) * 16 + 5] = NAN; /* row 1, column 2, channel 5: place 2 of the window of output 1 */
		fixture_write(b, x);
		if (fixture_ok(b, gn_cuda_max_pool(b->stream, type, &w, x->data, y->data, argmax, &b->err), "forward")) {
			fixture_read(b, y, "output");
			fixture_fetch(b, won, argmax, sizeof won);
			for (int i = 0; i < 64; i++)
				if (isnan(y->host[i]) != (i == 16 + 5) || (i == 16 + 5 && won[i] != 2))
					fixture_fail(b, "output %d is %g, from place %d", i, y->host[i], won[i]);
		}
	}
	fixture_end(b, "max pool %s: NaN wins", gn_cuda_type_name(type));
}

static void refused(struct fixture *b)
{
	static const struct gn_cuda_window bad[] = {{1, 8, 4, 4, 2, 2, 16, 2, 0},
						    {1, 8, 4, 4, 2, 2, 2, 2, 2},
						    {1, 8, 4, 4, 3, 2, 2, 2, 0},
						    {70000, 8, 4, 4, 2, 2, 2, 2, 0},
						    {1, 8, 4, 4, 2, 2, 2, 0, 0}};

	fixture_begin(b);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (gn_cuda_max_pool(b->stream, GN_CUDA_F32, &bad[i], NULL, NULL, NULL, &b->err) != GN_ERR_USAGE)
			fixture_fail(b, "window %zu was accepted", i);
	fixture_end(b, "max pool refuses windows that cannot be");
}

void check_pool(struct fixture *b)
{
	static const struct gn_cuda_window max[] = {{2, 64, 28, 28, 14, 14, 3, 2, 1}, {3, 6, 13, 11, 6, 5, 2, 2, 0},
						    {1, 8, 7, 7, 7, 7, 3, 1, 1},      {2, 24, 11, 9, 4, 3, 5, 3, 2},
						    {1, 1, 1, 1, 1, 1, 1, 1, 0},      {1, 16, 15, 15, 1, 1, 15, 1, 0},
						    {2, 8, 5, 6, 2, 2, 2, 3, 0}};
	static const struct gn_cuda_window average[] = {{3, 2048, 7, 7, 1, 1, 0, 0, 0},
							{2, 6, 9, 9, 5, 5, 0, 0, 0},
							{1, 16, 3, 5, 6, 7, 0, 0, 0},
							{2, 512, 1, 1, 1, 1, 0, 0, 0},
							{4, 40, 8, 6, 2, 3, 0, 0, 0}};

	for (int type = GN_CUDA_F32; type <= GN_CUDA_F16; type++) {
		for (size_t i = 0; i < sizeof max / sizeof *max; i++)
			max_pool(b, type, &max[i]);
		for (size_t i = 0; i < sizeof average / sizeof *average; i++)
			average_pool(b, type, &average[i]);
		nan_wins(b, type);
	}
	refused(b);
}
