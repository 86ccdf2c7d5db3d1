#include "kernels/ref/ref.h"
#include "tests/gpu/fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EPS 1e-5
#define MOMENTUM 0.1

struct shape {
	int n, side, c;
};

struct option {
	int relu, added, more, no_y;
	double mean; /* of x, in deviations */
};

struct norm_case {
	struct shape s;
	size_t hw, rows, count;
	struct gn_cuda_batch_norm norm;
	struct fixture_tensor *x, *added, *y, *weight, *bias, *running_mean, *running_var, *mean, *inverse;
	double *planes, *ref_mean, *ref_var, *out; /* of the oracle; out in planes */
};

static int make(struct fixture *b, enum gn_cuda_type type, const struct shape *s, const struct option *o, struct norm_case *f)
{
	enum gn_cuda_type f32 = GN_CUDA_F32;

	memset(f, 0, sizeof *f);
	f->s = *s;
	f->hw = (size_t)s->side * s->side;
	f->rows = s->n * f->hw;
	f->count = f->rows * s->c;
	f->x = fixture_input(b, type, f->count, 0.5 + o->mean, 1);
	f->added = o->added ? fixture_input(b, type, f->count, 0, 1) : NULL;
	f->y = fixture_output(b, type, f->count);
	f->weight = fixture_input(b, f32, s->c, 1, 0.3);
	f->bias = fixture_input(b, f32, s->c, 0, 0.3);
	f->running_mean = fixture_input(b, f32, s->c, 0, 1);
	f->running_var = fixture_input(b, f32, s->c, 4, 0.5);
	f->mean = fixture_output(b, f32, s->c);
	f->inverse = fixture_output(b, f32, s->c);
	if (b->why[0])
		return 0;
	f->norm = (struct gn_cuda_batch_norm){
		type,
		f->rows,
		s->c,
		o->relu,
		EPS,
		MOMENTUM,
		f->weight->data,
		f->bias->data,
		f->running_mean->data,
		f->running_var->data,
		f->mean->data,
		f->inverse->data,
		fixture_bytes(b, NULL, 2 * (size_t)s->c * sizeof(double)),
		fixture_bytes(b, NULL, gn_cuda_batch_norm_scratch_bytes(b->stream, f->rows, s->c))};
	f->planes = fixture_doubles(f->count);
	f->out = fixture_doubles(f->count);
	f->ref_mean = fixture_doubles(s->c);
	f->ref_var = fixture_doubles(s->c);
	fixture_to_planes(f->x->host, s->n, s->c, f->hw, f->planes);
	gn_ref_batch_norm_statistics(s->n, s->c, f->hw, f->planes, f->ref_mean, f->ref_var);
	return !b->why[0];
}

static void release(struct norm_case *f)
{
	free(f->planes);
	free(f->out);
	free(f->ref_mean);
	free(f->ref_var);
}

/* The oracle's output from mean and variance, in planes, and compared. */
static void check_output(struct fixture *b, struct norm_case *f, const double *mean, const double *var, const char *what)
{
	double *more = fixture_doubles(f->count), *rows = fixture_doubles(f->count);

	gn_ref_batch_norm_forward(f->s.n, f->s.c, f->hw, f->planes, mean, var, EPS, f->weight->host, f->bias->host,
				  f->out);
	if (f->added) {
		fixture_to_planes(f->added->host, f->s.n, f->s.c, f->hw, more);
		gn_ref_add_forward(f->count, f->out, more, f->out);
	}
	if (f->norm.relu)
		gn_ref_relu_forward(f->count, f->out, f->out);
	fixture_from_planes(f->out, f->s.n, f->s.c, f->hw, rows);
	fixture_compare(b, f->y, rows, fixture_tolerance(f->norm.type), what);
	free(more);
	free(rows);
}

static void check_statistics(struct fixture *b, struct norm_case *f, const double *old_mean, const double *old_var)
{
	double total = (double)f->rows, *want = fixture_doubles(f->s.c);

	fixture_compare(b, f->mean, f->ref_mean, 1e-5, "mean");
	for (int c = 0; c < f->s.c; c++)
		want[c] = 1 / sqrt(f->ref_var[c] + EPS);
	fixture_compare(b, f->inverse, want, 1e-5, "inverse");
	for (int c = 0; c < f->s.c; c++)
		want[c] = (1 - MOMENTUM) * old_mean[c] + MOMENTUM * f->ref_mean[c];
	fixture_compare(b, f->running_mean, want, 1e-5, "running mean");
	for (int c = 0; c < f->s.c; c++)
		want[c] = (1 - MOMENTUM) * old_var[c] + MOMENTUM * f->ref_var[c] * total / (total - 1);
	fixture_compare(b, f->running_var, want, 1e-5, "running variance");
	free(want);
}

static void forward(struct fixture *b, enum gn_cuda_type type, const struct shape *s, const struct option *o, int in_group)
{
	double *old_mean = fixture_doubles(s->c), *old_var = fixture_doubles(s->c);
	struct norm_case f;

	fixture_begin(b);
	if (make(b, type, s, o, &f)) {
		memcpy(old_mean, f.running_mean->host, s->c * sizeof(double));
		memcpy(old_var, f.running_var->host, s->c * sizeof(double));
		if (fixture_ok(b,
			   gn_cuda_batch_norm_statistics(b->stream, &f.norm, f.x->data, in_group ? 0 : f.rows, &b->err),
			   "statistics") &&
		    (!in_group ||
		     fixture_ok(b, gn_cuda_batch_norm_finish(b->stream, &f.norm, f.rows, &b->err), "finish")) &&
		    fixture_ok(b,
			   gn_cuda_batch_norm_apply(b->stream, &f.norm, f.x->data, f.added ? f.added->data : NULL,
						    f.y->data, &b->err),
			   "apply")) {
			check_statistics(b, &f, old_mean, old_var);
			check_output(b, &f, f.ref_mean, f.ref_var, "output");
		}
		release(&f);
	}
	fixture_end(b, "batch norm forward %s %dx%dx%dx%d%s%s%s%s", gn_cuda_type_name(type), s->n, s->side, s->side, s->c,
		o->added ? " + added" : "", o->relu ? " + relu" : "", o->mean != 0 ? ", large mean" : "",
		in_group ? ", in two halves" : "");
	free(old_mean);
	free(old_var);
}

static void evaluate(struct fixture *b, enum gn_cuda_type type, const struct shape *s)
{
	struct option o = {.relu = 1};
	struct norm_case f;

	fixture_begin(b);
	if (make(b, type, s, &o, &f)) {
		if (fixture_ok(b, gn_cuda_batch_norm_running(b->stream, &f.norm, &b->err), "running") &&
		    fixture_ok(b, gn_cuda_batch_norm_apply(b->stream, &f.norm, f.x->data, NULL, f.y->data, &b->err),
			   "apply"))
			check_output(b, &f, f.running_mean->host, f.running_var->host, "output");
		release(&f);
	}
	fixture_end(b, "batch norm in evaluation %s %dx%dx%dx%d", gn_cuda_type_name(type), s->n, s->side, s->side, s->c);
}

/* The oracle's gradient behind the ReLU of what forward gave, in planes. What the ReLU lets pass is decided by the
 * output as it was stored: another rounding at 0 would be another function. */
static void reference_gradient(struct norm_case *f, const struct fixture_tensor *dout, const struct fixture_tensor *more,
			       double *out)
{
	double *rows = fixture_doubles(f->count);

	for (size_t i = 0; i < f->count; i++) {
		rows[i] = dout->host[i] + (more ? more->host[i] : 0);
		if (f->norm.relu && !(f->y->host[i] > 0))
			rows[i] = 0;
	}
	fixture_to_planes(rows, f->s.n, f->s.c, f->hw, out);
	free(rows);
}

/* The error of a sum of that many numbers of size one is of the size of their root, also where the sum happens to be small:
 * by how much more than its share of the largest sum that is. */
static double room(const double *sums, int count, double terms)
{
	double largest = 0;

	for (int i = 0; i < count; i++)
		largest = fmax(largest, fabs(sums[i]));
	return fmax(1, sqrt(terms) / largest);
}

static void compare_gradients(struct fixture *b, struct norm_case *f, const double *dy, struct fixture_tensor *dx,
			      struct fixture_tensor *dadded, struct fixture_tensor *dweight, struct fixture_tensor *dbias)
{
	double *planes = fixture_doubles(f->count), *rows = fixture_doubles(f->count), *dw = fixture_doubles(f->s.c),
	       *db = fixture_doubles(f->s.c), tolerance = fixture_tolerance(f->norm.type);
	double terms = (double)f->s.n * (double)f->hw;
	/* where a gradient is written and read between, it was rounded twice; sums of n numbers, half of them negative,
	 * lose about as many bits as their root says */
	double sums = f->norm.type == GN_CUDA_F32 ? 2e-5 : dadded ? 8 * tolerance : 2e-5;

	gn_ref_batch_norm_backward(f->s.n, f->s.c, f->hw, f->planes, dy, f->ref_mean, f->ref_var, EPS, f->weight->host,
				   planes, dw, db);
	fixture_from_planes(planes, f->s.n, f->s.c, f->hw, rows);
	fixture_compare(b, dx, rows, (dadded ? 2 : 1) * tolerance * (f->norm.type == GN_CUDA_F32 ? 4 : 1), "dx");
	fixture_compare(b, dweight, dw, sums * room(dw, f->s.c, terms), "dweight");
	fixture_compare(b, dbias, db, sums * room(db, f->s.c, terms), "dbias");
	if (dadded) {
		fixture_from_planes(dy, f->s.n, f->s.c, f->hw, rows);
		fixture_compare(b, dadded, rows, tolerance, "dadded");
	}
	free(planes);
	free(rows);
	free(dw);
	free(db);
}

static void run_backward(struct fixture *b, struct norm_case *f, const struct option *o)
{
	enum gn_cuda_type type = f->norm.type;
	struct fixture_tensor *dout = fixture_input(b, type, f->count, 0.1, 1);
	struct fixture_tensor *more = o->more ? fixture_input(b, type, f->count, 0, 1) : NULL;
	struct fixture_tensor *dx = fixture_output(b, type, f->count),
			  *dadded = o->added ? fixture_output(b, type, f->count) : NULL;
	struct fixture_tensor *dweight = fixture_output(b, GN_CUDA_F32, f->s.c), *dbias = fixture_output(b, GN_CUDA_F32, f->s.c);
	struct gn_cuda_batch_norm_grad g;
	double *dy;

	if (b->why[0])
		return;
	g = (struct gn_cuda_batch_norm_grad){
		f->x->data, o->no_y ? NULL : f->y->data,  dout->data,	 more ? more->data : NULL,
		dx->data,   dadded ? dadded->data : NULL, dweight->data, dbias->data};
	if (!fixture_ok(b, gn_cuda_batch_norm_grad_sums(b->stream, &f->norm, &g, &b->err), "grad sums") ||
	    !fixture_ok(b, gn_cuda_batch_norm_grad_apply(b->stream, &f->norm, &g, f->rows, &b->err), "grad apply"))
		return;
	dy = fixture_doubles(f->count);
	reference_gradient(f, dout, more, dy);
	compare_gradients(b, f, dy, dx, dadded, dweight, dbias);
	free(dy);
}

static void backward(struct fixture *b, enum gn_cuda_type type, const struct shape *s, const struct option *o)
{
	struct norm_case f;

	fixture_begin(b);
	if (make(b, type, s, o, &f)) {
		if (fixture_ok(b, gn_cuda_batch_norm_statistics(b->stream, &f.norm, f.x->data, f.rows, &b->err),
			   "statistics") &&
		    fixture_ok(b,
			   gn_cuda_batch_norm_apply(b->stream, &f.norm, f.x->data, f.added ? f.added->data : NULL,
						    f.y->data, &b->err),
			   "apply")) {
			fixture_read(b, f.y, "output");
			run_backward(b, &f, o);
		}
		release(&f);
	}
	fixture_end(b, "batch norm backward %s %dx%dx%dx%d%s%s%s%s", gn_cuda_type_name(type), s->n, s->side, s->side, s->c,
		o->added ? " + added" : "", o->relu ? " + relu" : "", o->more ? ", two gradients" : "",
		o->no_y ? ", no output" : "");
}

static void refused(struct fixture *b)
{
	struct gn_cuda_batch_norm norm = {.type = GN_CUDA_F32, .rows = 1, .channels = 8};

	fixture_begin(b);
	if (gn_cuda_batch_norm_statistics(b->stream, &norm, NULL, 1, &b->err) != GN_ERR_USAGE)
		fixture_fail(b, "a single row was accepted");
	fixture_end(b, "batch norm refuses statistics of one value");
}

void check_batch_norm(struct fixture *b)
{
	static const struct shape shapes[] = {{2, 28, 64}, {4, 7, 256}, {1, 7, 2048}, {3, 5, 6},
					      {9, 1, 24},  {1, 31, 40}, {1, 9, 1}};
	static const struct option options[] = {
		{0, 0, 0, 0, 0}, {1, 0, 0, 0, 0}, {1, 1, 0, 0, 0}, {1, 1, 1, 0, 0},
		{1, 0, 0, 1, 0}, {1, 0, 1, 1, 0}, {0, 0, 1, 0, 0},
	};
	static const struct option large_mean = {.mean = 100};

	for (int type = GN_CUDA_F32; type <= GN_CUDA_F16; type++) {
		for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
			for (size_t k = 0; k < sizeof options / sizeof *options; k++) {
				if (!options[k].more && !options[k].no_y)
					forward(b, type, &shapes[i], &options[k], k == 1);
				backward(b, type, &shapes[i], &options[k]);
			}
		}
		evaluate(b, type, &shapes[0]);
		evaluate(b, type, &shapes[3]);
	}
	forward(b, GN_CUDA_F32, &shapes[0], &large_mean, 0);
	refused(b);
}
