/* A batch norm with relu and the convolution that alone reads it, linked: what both give against the oracle's two operators. Where
 * the batch norm defers, what lies between them is filled with NaN, and has to stay that. */
#include "tests/gpu/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pair {
	const char *name;
	int n, c, side, out_c, kernel, stride, pad, statistics;
};

static const struct pair pairs[] = {
	{"1x1", 4, 16, 8, 32, 1, 1, 0, 1},
	{"3x3", 3, 24, 9, 16, 3, 1, 1, 1},
	{"3x3 with stride", 2, 16, 10, 24, 3, 2, 1, 1},
	{"3x3, nobody counts", 2, 8, 7, 8, 3, 1, 1, 0},
	{"odd channels", 2, 9, 6, 7, 3, 1, 1, 1},
	/* what cuDNN is given of channels is aligned where their number is no multiple of 4 */
	{"9 to 10 channels", 2, 9, 6, 10, 3, 1, 1, 1},
	{"10 to 18 channels", 2, 10, 6, 18, 1, 1, 0, 1},
	{"18 to 9 channels", 2, 18, 6, 9, 3, 1, 1, 1},
};

/* In torch's order: what goes in, and what comes out. */
struct numbers {
	float *x, *gamma, *beta, *weight, *dy;
	float *y, *sums, *dx, *dgamma, *dbeta, *dweight;
};

/* Sizes, and the operators of a backend. */
struct job {
	const struct pair *p;
	size_t in, out, weights;
	struct gn_op *norm, *conv;
	struct gn_op_conv_bn conv_bn;
};

static void make(struct fixture *b, struct job *j, enum gn_backend backend, struct gn_op_device *device)
{
	const struct pair *p = j->p;
	struct gn_op_desc norm = {.kind = GN_OP_BATCH_NORM, .relu = 1, .training = 1, .needs_din = 1, .eps = 1e-5, .momentum = 0.1,
				  .device = device, .conv_bn = device ? &j->conv_bn : NULL};
	struct gn_op_desc conv = {.kind = GN_OP_CONV, .channels_out = p->out_c, .kernel = p->kernel, .stride = p->stride, .pad = p->pad,
				  .training = 1, .needs_din = 1, .statistics = p->statistics, .weight = {GN_WEIGHT_PLAIN, 0},
				  .device = device, .conv_bn = norm.conv_bn};

	norm.in[0] = (struct gn_layout){p->n, p->c, p->side, p->side, 1, device ? 4 : 8};
	if (!fixture_ok(b, gn_op_create(backend, &norm, &j->norm, &b->err), "the batch norm"))
		return;
	conv.in[0] = gn_op_info(j->norm)->out;
	if (!fixture_ok(b, gn_op_create(backend, &conv, &j->conv, &b->err), "the convolution"))
		return;
	j->in = gn_layout_elements(&conv.in[0]);
	j->out = gn_layout_elements(&gn_op_info(j->conv)->out);
	j->weights = (size_t)p->out_c * (size_t)p->c * (size_t)p->kernel * (size_t)p->kernel;
}

static void run(struct fixture *b, struct job *j, struct gn_op_buffers *norm, struct gn_op_buffers *conv)
{
	if (fixture_ok(b, gn_op_bind(j->norm, norm, &b->err), "bind") && fixture_ok(b, gn_op_bind(j->conv, conv, &b->err), "bind") &&
	    fixture_ok(b, gn_op_forward(j->norm, 0, &b->err), "forward") && fixture_ok(b, gn_op_forward(j->conv, 0, &b->err), "forward") &&
	    fixture_ok(b, gn_op_backward(j->conv, &b->err), "backward"))
		fixture_ok(b, gn_op_backward(j->norm, &b->err), "backward");
}

static void *wide(const float *x, size_t count)
{
	double *d = fixture_doubles(count);

	for (size_t i = 0; x && i < count; i++)
		d[i] = x[i];
	return d;
}

static void by_oracle(struct fixture *b, const struct pair *p, struct numbers *n)
{
	struct job j = {.p = p};
	struct gn_op_buffers norm = {.weight = n->gamma, .bias = n->beta, .dweight = n->dgamma, .dbias = n->dbeta};
	struct gn_op_buffers conv = {.weight = n->weight, .dweight = n->dweight};
	float *mean = ops_floats((size_t)p->c), *var = ops_floats((size_t)p->c);
	double *y, *dx;

	make(b, &j, GN_BACKEND_REF, NULL);
	if (b->why[0])
		return;
	norm.in[0] = wide(n->x, j.in);
	norm.out = wide(NULL, j.in);
	norm.dout = wide(NULL, j.in);
	norm.din[0] = dx = wide(NULL, j.in);
	norm.running_mean = mean;
	norm.running_var = var;
	norm.workspace = calloc(1, gn_op_info(j.norm)->workspace_bytes + 1);
	norm.scratch = calloc(1, gn_op_info(j.norm)->scratch_bytes + 1);
	conv.in[0] = norm.out;
	conv.out = y = wide(NULL, j.out);
	conv.dout = wide(n->dy, j.out);
	conv.din[0] = (void *)norm.dout;
	conv.workspace = calloc(1, gn_op_info(j.conv)->workspace_bytes + 1);
	conv.scratch = calloc(1, gn_op_info(j.conv)->scratch_bytes + 1);
	run(b, &j, &norm, &conv);
	for (size_t i = 0; i < j.out; i++)
		n->y[i] = (float)y[i];
	for (size_t i = 0; i < j.in; i++)
		n->dx[i] = (float)dx[i];
	ops_sum_channels(&gn_op_info(j.conv)->out, n->y, n->sums);
	void *all[] = {(void *)norm.in[0], norm.out, (void *)norm.dout, dx, norm.workspace, norm.scratch, y, (void *)conv.dout,
		       conv.workspace, conv.scratch, mean, var};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i]);
	gn_op_destroy(j.norm);
	gn_op_destroy(j.conv);
}

/* NaN in every type. */
static void *device_nans(struct fixture *b, size_t bytes)
{
	void *nans = malloc(bytes), *out;

	if (!nans)
		abort();
	memset(nans, 0xff, bytes);
	out = fixture_bytes(b, nans, bytes);
	free(nans);
	return out;
}

static int all_ones(struct fixture *b, const void *device, size_t bytes)
{
	unsigned char *here = malloc(bytes);
	size_t i = 0;

	if (!here)
		abort();
	fixture_fetch(b, here, device, bytes);
	while (i < bytes && here[i] == 0xff)
		i++;
	free(here);
	return i == bytes;
}

static void take(struct fixture *b, struct gn_cuda_ops *ops, const struct job *j, const struct gn_op_buffers *norm,
		 const struct gn_op_buffers *conv, struct numbers *n)
{
	size_t channels = (size_t)j->p->c * 4;

	fixture_ok(b, gn_cuda_stream_wait(b->stream, &b->err), "the operators' work");
	ops_from_device(b, ops, &gn_op_info(j->conv)->out, conv->out, n->y);
	ops_from_device(b, ops, &gn_op_info(j->norm)->in[0], norm->din[0], n->dx);
	fixture_fetch(b, n->dgamma, norm->dweight, channels);
	fixture_fetch(b, n->dbeta, norm->dbias, channels);
	fixture_fetch(b, n->dweight, conv->dweight, j->weights * 4);
	if (conv->statistics)
		fixture_fetch(b, n->sums, conv->statistics, 2 * (size_t)j->p->out_c * 4);
	else
		ops_sum_channels(&gn_op_info(j->conv)->out, n->y, n->sums);
	if (j->conv_bn.defers && !all_ones(b, norm->out, gn_layout_bytes(&gn_op_info(j->norm)->out)))
		fixture_fail(b, "what the batch norm gives was written although it defers");
}

/* What the two read; what lies between them is NaN until it is written. */
static void provide(struct fixture *b, struct gn_cuda_ops *ops, const struct job *j, const struct numbers *n, struct gn_op_buffers *norm,
		    struct gn_op_buffers *conv)
{
	const struct gn_layout *in = &gn_op_info(j->norm)->in[0];

	norm->in[0] = ops_to_device(b, ops, in, n->x);
	norm->out = device_nans(b, gn_layout_bytes(in));
	conv->in[0] = norm->out;
	conv->dout = ops_to_device(b, ops, &gn_op_info(j->conv)->out, n->dy);
}

/* Returns what of it was taken, as text. */
static void on_device(struct fixture *b, struct gn_cuda_ops *ops, const struct pair *p, struct numbers *n, char taken[64])
{
	struct job j = {.p = p};
	struct gn_op_buffers norm = {0}, conv = {0};
	const struct gn_layout *in, *out;
	size_t channels = (size_t)p->c * 4;

	make(b, &j, GN_BACKEND_CUDA, gn_cuda_ops_device(ops));
	if (b->why[0])
		return;
	in = &gn_op_info(j.norm)->in[0];
	out = &gn_op_info(j.conv)->out;
	provide(b, ops, &j, n, &norm, &conv);
	norm.dout = ops_device_bytes(b, gn_layout_bytes(in));
	norm.din[0] = ops_device_bytes(b, gn_layout_bytes(in));
	norm.weight = fixture_bytes(b, n->gamma, channels);
	norm.bias = fixture_bytes(b, n->beta, channels);
	norm.dweight = ops_device_bytes(b, channels);
	norm.dbias = ops_device_bytes(b, channels);
	norm.running_mean = ops_device_bytes(b, channels);
	norm.running_var = ops_device_bytes(b, channels);
	norm.workspace = ops_device_bytes(b, gn_op_info(j.norm)->workspace_bytes);
	norm.scratch = ops_device_bytes(b, gn_op_info(j.norm)->scratch_bytes);
	conv.out = ops_device_bytes(b, gn_layout_bytes(out));
	conv.din[0] = (void *)norm.dout;
	conv.weight = fixture_bytes(b, n->weight, j.weights * 4);
	conv.dweight = ops_device_bytes(b, j.weights * 4);
	conv.statistics = ops_device_bytes(b, gn_op_info(j.conv)->statistics_bytes);
	conv.workspace = ops_device_bytes(b, gn_op_info(j.conv)->workspace_bytes);
	conv.scratch = ops_device_bytes(b, gn_op_info(j.conv)->scratch_bytes);
	/* where engines are tried, the first bind overwrites */
	if (!b->why[0] && fixture_ok(b, gn_op_bind(j.norm, &norm, &b->err), "bind") && fixture_ok(b, gn_op_bind(j.conv, &conv, &b->err), "bind"))
		provide(b, ops, &j, n, &norm, &conv);
	if (!b->why[0])
		run(b, &j, &norm, &conv);
	if (!b->why[0])
		take(b, ops, &j, &norm, &conv, n);
	snprintf(taken, 64, "%s, %s", j.conv_bn.defers ? "normalised on the way" : "apart", j.conv_bn.sums ? "sums with it" : "sums apart");
	gn_op_destroy(j.norm);
	gn_op_destroy(j.conv);
}

static void check(struct fixture *b, struct gn_cuda_ops *ops, enum gn_cuda_type type, const struct pair *p)
{
	int side = (p->side + 2 * p->pad - p->kernel) / p->stride + 1;
	size_t in = (size_t)p->n * (size_t)p->c * (size_t)p->side * (size_t)p->side, channels = (size_t)p->c;
	size_t out = (size_t)p->n * (size_t)p->out_c * (size_t)side * (size_t)side;
	size_t weights = (size_t)p->out_c * channels * (size_t)p->kernel * (size_t)p->kernel, sums = 2 * (size_t)p->out_c;
	struct numbers n[2];
	char taken[64] = "";

	fixture_begin(b);
	n[0] = (struct numbers){.x = ops_draw(b, type, in, 0.25, 1), .gamma = ops_draw(b, GN_CUDA_F32, channels, 1, 0.25),
				.beta = ops_draw(b, GN_CUDA_F32, channels, 0, 0.5), .weight = ops_draw(b, type, weights, 0, 0.1),
				.dy = ops_draw(b, type, out, 0, 1)};
	n[1] = n[0];
	for (int i = 0; i < 2; i++) {
		n[i].y = ops_floats(out);
		n[i].sums = ops_floats(sums);
		n[i].dx = ops_floats(in);
		n[i].dgamma = ops_floats(channels);
		n[i].dbeta = ops_floats(channels);
		n[i].dweight = ops_floats(weights);
	}
	by_oracle(b, p, &n[0]);
	on_device(b, ops, p, &n[1], taken);
	/* rounded once more on the way than a single operator's */
	ops_compare(b, type, "output", n[1].y, n[0].y, out, 2);
	ops_compare(b, type, "sums of channels", n[1].sums, n[0].sums, sums, 4);
	ops_compare(b, type, "gradient of the input", n[1].dx, n[0].dx, in, 4);
	ops_compare(b, type, "gradient of the norm's weight", n[1].dgamma, n[0].dgamma, channels, 4);
	ops_compare(b, type, "gradient of the norm's bias", n[1].dbeta, n[0].dbeta, channels, 4);
	ops_compare(b, type, "gradient of the weight", n[1].dweight, n[0].dweight, weights, 4);
	fixture_end(b, "%s, batch norm, relu, convolution %s: %s", gn_cuda_type_name(type), p->name, taken);
	for (int i = 0; i < 2; i++) {
		float *all[] = {n[i].y, n[i].sums, n[i].dx, n[i].dgamma, n[i].dbeta, n[i].dweight};

		for (size_t k = 0; k < sizeof all / sizeof *all; k++)
			free(all[k]);
	}
	float *inputs[] = {n[0].x, n[0].gamma, n[0].beta, n[0].weight, n[0].dy};
	for (size_t k = 0; k < sizeof inputs / sizeof *inputs; k++)
		free(inputs[k]);
}

void check_links(struct fixture *b, struct gn_cuda_ops *ops, enum gn_cuda_type type)
{
	for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
		check(b, ops, type, &pairs[i]);
}
