#include "tests/gpu/ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

float *ops_floats(size_t count)
{
	float *x = calloc(count + 1, sizeof *x);

	if (!x)
		abort();
	return x;
}

struct gn_op_desc ops_plain_desc(const struct ops_case *c, int element_bytes)
{
	struct gn_op_desc d = c->desc;

	d.training = !c->inference;
	d.needs_din = !c->inference;
	for (int i = 0; i < 2; i++) {
		d.in[i].block = 1;
		d.in[i].element_bytes = element_bytes;
	}
	return d;
}

struct ops_sizes ops_sizes_of(struct fixture *b, const struct ops_case *c)
{
	struct gn_op_desc d = ops_plain_desc(c, 8);
	struct ops_sizes s = {0};
	struct gn_op *op;

	d.weight.order = GN_WEIGHT_PLAIN;
	if (!fixture_ok(b, gn_op_create(GN_BACKEND_REF, &d, &op, &b->err), "the oracle's operator"))
		return s;
	s.in[0] = gn_op_info(op)->in[0];
	s.in[1] = d.kind == GN_OP_CONV ? gn_op_info(op)->out : d.kind == GN_OP_SCALE ? gn_op_info(op)->in[1] : s.in[0];
	s.out = gn_op_info(op)->out;
	gn_op_destroy(op);
	for (int i = 0; i < 2; i++)
		s.x[i] = i == 0 || d.add || d.kind == GN_OP_ADD || d.kind == GN_OP_SCALE ? gn_layout_elements(&s.in[i]) : 0;
	s.y = gn_layout_elements(&s.out);
	s.channels = (size_t)s.in[0].c;
	if (d.kind == GN_OP_CONV)
		s.weight = (size_t)d.channels_out * s.channels / (size_t)(d.groups > 1 ? d.groups : 1) * (size_t)d.kernel * (size_t)d.kernel;
	if (d.kind == GN_OP_LINEAR)
		s.weight = (size_t)d.channels_out * s.x[0] / (size_t)s.in[0].n;
	if (d.kind == GN_OP_BATCH_NORM || d.kind == GN_OP_LAYER_NORM)
		s.weight = s.bias = s.channels;
	if (d.kind == GN_OP_CHANNEL_SCALE || d.kind == GN_OP_TOKENS)
		s.weight = s.channels;
	if (d.kind == GN_OP_TOKENS)
		s.bias = gn_layout_elements(&s.out) / (size_t)s.out.n;
	if (d.bias)
		s.bias = (size_t)d.channels_out;
	if (d.statistics)
		s.sums = 2 * (size_t)s.out.c;
	return s;
}

float *ops_draw(struct fixture *b, enum gn_cuda_type type, size_t count, double mean, double deviation)
{
	float *x = ops_floats(count);
	uint32_t raw;

	for (size_t i = 0; i < count; i++) {
		gn_cuda_set_value(type, &raw, 0, (float)(mean + deviation * fixture_normal(b)));
		x[i] = gn_cuda_value(type, &raw, 0);
	}
	return x;
}

void ops_fill(struct fixture *b, enum gn_cuda_type type, const struct ops_case *c, const struct ops_sizes *s, struct ops_numbers *n)
{
	int norm = c->desc.kind == GN_OP_BATCH_NORM || c->desc.kind == GN_OP_LAYER_NORM;
	double scale = norm || !c->desc.channels_out ? 1 : 1 / sqrt((double)s->weight / (double)c->desc.channels_out);

	n->x[0] = ops_draw(b, type, s->x[0], 0.25, 1);
	n->x[1] = ops_draw(b, type, s->x[1], 0, 1);
	n->dy = ops_draw(b, type, s->y, 0, 1);
	n->weight = ops_draw(b, type, s->weight, norm, norm ? 0.25 : scale);
	n->bias = ops_draw(b, type, s->bias, 0, 0.5);
	n->mean = ops_draw(b, GN_CUDA_F32, s->channels, 0, 0.5);
	n->var = ops_draw(b, GN_CUDA_F32, s->channels, 2, 0.2);
}

void ops_sum_channels(const struct gn_layout *l, const float *x, float *sums)
{
	size_t pixels = (size_t)l->h * (size_t)l->w;

	for (int c = 0; c < l->c; c++) {
		double sum = 0, squares = 0;

		for (int n = 0; n < l->n; n++) {
			for (size_t p = 0; p < pixels; p++) {
				double v = x[((size_t)n * (size_t)l->c + (size_t)c) * pixels + p];

				sum += v;
				squares += v * v;
			}
		}
		sums[c] = (float)sum;
		sums[l->c + c] = (float)squares;
	}
}

void ops_make_results(const struct ops_sizes *s, struct ops_numbers *n)
{
	n->y = ops_floats(s->y);
	n->dx[0] = ops_floats(s->x[0]);
	n->dx[1] = ops_floats(s->x[1]);
	n->dweight = ops_floats(s->weight);
	n->dbias = ops_floats(s->bias);
	n->new_mean = ops_floats(s->channels);
	n->new_var = ops_floats(s->channels);
	n->sums = ops_floats(s->sums);
	memcpy(n->new_mean, n->mean, s->channels * sizeof *n->mean);
	memcpy(n->new_var, n->var, s->channels * sizeof *n->var);
}

void ops_free_results(struct ops_numbers *n)
{
	float *all[] = {n->y, n->dx[0], n->dx[1], n->dweight, n->dbias, n->new_mean, n->new_var, n->sums};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i]);
}

static void *doubles_of(const float *x, size_t count)
{
	double *d = fixture_doubles(count);

	for (size_t i = 0; i < count; i++)
		d[i] = x[i];
	return d;
}

static void to_floats(const double *from, size_t count, float *to)
{
	for (size_t i = 0; i < count; i++)
		to[i] = (float)from[i];
}

void ops_run_oracle(struct fixture *b, const struct ops_case *c, const struct ops_sizes *s, struct ops_numbers *n)
{
	struct gn_op_desc d = ops_plain_desc(c, 8);
	struct gn_op_buffers v = {.weight = n->weight, .bias = n->bias, .dweight = n->dweight, .dbias = n->dbias,
				  .running_mean = n->new_mean, .running_var = n->new_var};
	double *x[2] = {doubles_of(n->x[0], s->x[0]), doubles_of(n->x[1], s->x[1])}, *dy = doubles_of(n->dy, s->y);
	double *y = fixture_doubles(s->y), *dx[2] = {fixture_doubles(s->x[0]), fixture_doubles(s->x[1])};
	struct gn_op *op;

	d.weight.order = GN_WEIGHT_PLAIN;
	if (fixture_ok(b, gn_op_create(GN_BACKEND_REF, &d, &op, &b->err), "the oracle's operator")) {
		v.in[0] = x[0];
		v.in[1] = x[1];
		v.out = y;
		v.dout = dy;
		v.din[0] = dx[0];
		v.din[1] = dx[1];
		v.workspace = calloc(1, gn_op_info(op)->workspace_bytes + 1);
		v.scratch = calloc(1, gn_op_info(op)->scratch_bytes + 1);
		fixture_ok(b, gn_op_bind(op, &v, &b->err), "the oracle");
		fixture_ok(b, gn_op_forward(op, OPS_STEP, &b->err), "the oracle, forward");
		if (!c->inference)
			fixture_ok(b, gn_op_backward(op, &b->err), "the oracle, backward");
		to_floats(y, s->y, n->y);
		if (s->sums)
			ops_sum_channels(&s->out, d.kind == GN_OP_CONV ? n->y : n->x[0], n->sums);
		for (int i = 0; i < 2; i++)
			to_floats(dx[i], s->x[i], n->dx[i]);
		free(v.workspace);
		free(v.scratch);
		gn_op_destroy(op);
	}
	for (int i = 0; i < 2; i++) {
		free(x[i]);
		free(dx[i]);
	}
	free(y);
	free(dy);
}

double ops_worst[3];

void ops_compare(struct fixture *b, enum gn_cuda_type type, const char *what, const float *got, const float *want, size_t count,
		    double factor)
{
	static const double tolerances[] = {1e-5, 8e-3, 1e-3};
	double off = 0, size = 0, allowed = tolerances[type] * factor;

	for (size_t i = 0; i < count; i++) {
		if (!isfinite(want[i]) && (isnan(want[i]) ? !isnan(got[i]) : isfinite(got[i])))
			fixture_fail(b, "%s: element %zu is %g, not %g", what, i, (double)got[i], (double)want[i]);
		if (!isfinite(want[i]))
			continue;
		off += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
		size += (double)want[i] * want[i];
	}
	off = count ? sqrt(off) / (sqrt(size) + 1e-30) : 0;
	if (off > ops_worst[type])
		ops_worst[type] = off;
	if (!(off <= allowed))
		fixture_fail(b, "%s: relative error %.2e (allowed %.0e)", what, off, allowed);
}
