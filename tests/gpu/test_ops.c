/* Every operator of GN_BACKEND_CUDA, forward and backward, against the oracle on the same numbers, over a table of shapes and
 * types. Prints TAP, and what deviates most. Arguments: beginnings of names of cases; then these alone are checked.
 *
 * Tolerances are of the norm of a result: f32 without tf32 1e-5; f16 and bf16 what one rounding of inputs that were rounded
 * already, and of the result, may make: 1e-3 and 8e-3; gradients that go through a rounded intermediate result twice that. */
#include "tests/gpu/ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHAPE(n_, c_, h_, w_) {{.n = n_, .c = c_, .h = h_, .w = w_}}
#define BOTH(n_, c_, h_, w_) {{.n = n_, .c = c_, .h = h_, .w = w_}, {.n = n_, .c = c_, .h = h_, .w = w_}}
#define CONV(n_, c_, h_, w_, out_, kernel_, stride_, pad_, ...)                                                        \
	{.kind = GN_OP_CONV, .in = SHAPE(n_, c_, h_, w_), .channels_out = out_, .kernel = kernel_, .stride = stride_,   \
	 .pad = pad_, __VA_ARGS__}
#define SUM_CONV(n_, c_, h_, w_, out_, kernel_, pad_)                                                                  \
	{.kind = GN_OP_CONV, .in = {{.n = n_, .c = c_, .h = h_, .w = w_}, {.n = n_, .c = out_, .h = h_, .w = w_}},       \
	 .channels_out = out_, .kernel = kernel_, .stride = 1, .pad = pad_, .bias = 1, .add = 1, .relu = 1}
#define NORM(...) {.kind = GN_OP_BATCH_NORM, .eps = 1e-5, .momentum = 0.1, __VA_ARGS__}
#define PLAIN .weight = {GN_WEIGHT_PLAIN, 0}
#define ANY .weight = {GN_WEIGHT_ANY, 0}

static const struct ops_case cases[] = {
	{"first layer", CONV(2, 3, 32, 32, 16, 7, 2, 3, ANY), 0, 0},
	{"3x3", CONV(3, 16, 9, 9, 24, 3, 1, 1, ANY), 0, 0},
	{"3x3, torch's weights", CONV(3, 16, 9, 9, 24, 3, 1, 1, PLAIN), 0, 0},
	{"3x3 with stride", CONV(2, 8, 11, 7, 16, 3, 2, 1, ANY), 0, 0},
	{"1x1", CONV(2, 32, 8, 8, 64, 1, 1, 0, ANY), 0, 0},
	{"1x1 with stride", CONV(2, 32, 9, 9, 16, 1, 2, 0, ANY), 0, 0},
	{"5x5, one channel, bias", CONV(4, 1, 28, 28, 6, 5, 1, 2, .bias = 1, ANY), 0, 0},
	{"odd channels, bias", CONV(2, 7, 10, 10, 5, 3, 1, 1, .bias = 1, PLAIN), 0, 0},
	{"inference, bias, relu", CONV(2, 16, 8, 8, 32, 3, 1, 1, .bias = 1, .relu = 1, ANY), 1, 0},
	{"inference, bias, relu, odd", CONV(2, 16, 8, 8, 9, 3, 1, 1, .bias = 1, .relu = 1, ANY), 1, 0},
	{"inference, bias, sum, relu", SUM_CONV(2, 16, 8, 8, 32, 1, 0), 1, 0},
	{"inference, bias, sum, relu, odd", SUM_CONV(2, 16, 8, 8, 9, 3, 1), 1, 0},
	{"3x3 with sums", CONV(2, 16, 12, 12, 24, 3, 1, 1, .statistics = 1, ANY), 0, 0},
	{"1x1 with stride and sums", CONV(3, 32, 9, 9, 64, 1, 2, 0, .statistics = 1, PLAIN), 0, 0},
	{"3x3 with sums, odd", CONV(2, 16, 8, 8, 9, 3, 1, 1, .statistics = 1, ANY), 0, 0},
	{"3x3 with sums, 7", CONV(2, 16, 8, 8, 7, 3, 1, 1, .statistics = 1, ANY), 0, 0},
	{"1x1 with sums, 10", CONV(2, 16, 8, 8, 10, 1, 1, 0, .statistics = 1, ANY), 0, 0},
	{"3x3 with sums, 18", CONV(2, 10, 8, 8, 18, 3, 1, 1, .statistics = 1, PLAIN), 0, 0},
	{"linear", {.kind = GN_OP_LINEAR, .in = SHAPE(8, 64, 1, 1), .channels_out = 40, .bias = 1}, 0, 0},
	{"linear of maps", {.kind = GN_OP_LINEAR, .in = SHAPE(4, 16, 5, 5), .channels_out = 10, .bias = 1}, 0, 0},
	{"linear, few outputs", {.kind = GN_OP_LINEAR, .in = SHAPE(8, 64, 1, 1), .channels_out = 7, .bias = 1}, 0, 0},
	{"linear, no bias", {.kind = GN_OP_LINEAR, .in = SHAPE(16, 96, 1, 1), .channels_out = 48}, 0, 0},
	{"linear, odd inputs", {.kind = GN_OP_LINEAR, .in = SHAPE(5, 33, 1, 1), .channels_out = 20, .bias = 1}, 0, 0},
	{"linear, one image", {.kind = GN_OP_LINEAR, .in = SHAPE(1, 256, 1, 1), .channels_out = 100, .bias = 1}, 0, 0},
	{"linear, ResNet-50's", {.kind = GN_OP_LINEAR, .in = SHAPE(8, 2048, 1, 1), .channels_out = 1000, .bias = 1}, 0, 0},
	{"linear, inference", {.kind = GN_OP_LINEAR, .in = SHAPE(8, 128, 1, 1), .channels_out = 1000, .bias = 1}, 1, 0},
	{"batch norm", NORM(.in = SHAPE(4, 24, 7, 7)), 0, 0},
	{"batch norm, relu", NORM(.in = SHAPE(4, 24, 7, 7), .relu = 1), 0, 1},
	{"batch norm, sum, relu", NORM(.in = BOTH(4, 24, 7, 7), .add = 1, .relu = 1), 0, 0},
	{"batch norm, sum, relu, two gradients", NORM(.in = BOTH(4, 13, 7, 5), .add = 1, .relu = 1), 0, 1},
	{"batch norm from sums", NORM(.in = SHAPE(4, 24, 7, 7), .relu = 1, .statistics = 1), 0, 1},
	{"batch norm from sums, sum, relu", NORM(.in = BOTH(4, 13, 7, 5), .add = 1, .relu = 1, .statistics = 1), 0, 0},
	{"batch norm, inference", NORM(.in = SHAPE(4, 24, 7, 7), .relu = 1), 1, 0},
	{"relu", {.kind = GN_OP_RELU, .in = SHAPE(3, 10, 5, 5)}, 0, 1},
	{"sum", {.kind = GN_OP_ADD, .in = BOTH(3, 10, 5, 5)}, 0, 0},
	{"sum, relu", {.kind = GN_OP_ADD, .in = BOTH(3, 16, 5, 5), .relu = 1}, 0, 1},
	{"max pooling", {.kind = GN_OP_MAX_POOL, .in = SHAPE(2, 16, 12, 12), .kernel = 3, .stride = 2, .pad = 1}, 0, 0},
	{"average pooling", {.kind = GN_OP_ADAPTIVE_AVG_POOL, .in = SHAPE(3, 32, 7, 7), .out_side = 1}, 0, 0},
	{"average pooling to 3", {.kind = GN_OP_ADAPTIVE_AVG_POOL, .in = SHAPE(2, 8, 7, 7), .out_side = 3}, 0, 0},
	{"dropout", {.kind = GN_OP_DROPOUT, .in = SHAPE(4, 33, 1, 1), .rate = 0.4, .seed = 77, .stream = 3}, 0, 0},
	{"dropout, odd", {.kind = GN_OP_DROPOUT, .in = SHAPE(7, 19, 1, 1), .rate = 0.4, .seed = 77, .stream = 3}, 0, 0},
	{"dropout of maps", {.kind = GN_OP_DROPOUT, .in = SHAPE(2, 6, 3, 3), .rate = 0.4, .seed = 77, .stream = 3}, 0, 0},
	{"3x3 in groups", CONV(2, 16, 9, 9, 24, 3, 1, 1, .groups = 4, PLAIN), 0, 0},
	{"3x3 of each channel, sums", CONV(2, 16, 9, 9, 16, 3, 2, 1, .groups = 16, .statistics = 1, ANY), 0, 0},
	{"7x7 of each channel, bias", CONV(2, 12, 8, 8, 12, 7, 1, 3, .groups = 12, .bias = 1, ANY), 0, 0},
	{"1x1 of tokens, bias", CONV(2, 24, 17, 1, 72, 1, 1, 0, .bias = 1, ANY), 0, 0},
	{"relu6", {.kind = GN_OP_ACTIVATION, .in = SHAPE(3, 10, 5, 5), .activation = GN_ACTIVATION_RELU6}, 0, 1},
	{"silu", {.kind = GN_OP_ACTIVATION, .in = SHAPE(3, 16, 5, 5), .activation = GN_ACTIVATION_SILU}, 0, 0},
	{"hard swish", {.kind = GN_OP_ACTIVATION, .in = SHAPE(3, 10, 5, 5), .activation = GN_ACTIVATION_HARD_SWISH}, 0, 0},
	{"hard sigmoid", {.kind = GN_OP_ACTIVATION, .in = SHAPE(3, 10, 5, 5), .activation = GN_ACTIVATION_HARD_SIGMOID}, 0, 0},
	{"sigmoid", {.kind = GN_OP_ACTIVATION, .in = SHAPE(3, 10, 1, 1), .activation = GN_ACTIVATION_SIGMOID}, 0, 0},
	{"gelu", {.kind = GN_OP_ACTIVATION, .in = SHAPE(3, 10, 5, 5), .activation = GN_ACTIVATION_GELU}, 0, 1},
	{"scaling", {.kind = GN_OP_SCALE, .in = {{.n = 3, .c = 24, .h = 5, .w = 4}, {.n = 3, .c = 24, .h = 1, .w = 1}}}, 0, 0},
	{"scaling, odd", {.kind = GN_OP_SCALE, .in = {{.n = 2, .c = 13, .h = 7, .w = 7}, {.n = 2, .c = 13, .h = 1, .w = 1}}}, 0, 0},
	{"layer scale", {.kind = GN_OP_CHANNEL_SCALE, .in = SHAPE(3, 40, 6, 6)}, 0, 0},
	{"stochastic depth", {.kind = GN_OP_DROP_PATH, .in = SHAPE(9, 10, 3, 3), .rate = 0.4, .seed = 77, .stream = 3}, 0, 0},
	{"stochastic depth, inference", {.kind = GN_OP_DROP_PATH, .in = SHAPE(9, 10, 3, 3), .rate = 0.4, .seed = 77, .stream = 3}, 1, 0},
	{"layer norm", {.kind = GN_OP_LAYER_NORM, .in = SHAPE(3, 24, 7, 7), .eps = 1e-6}, 0, 0},
	{"layer norm, odd", {.kind = GN_OP_LAYER_NORM, .in = SHAPE(2, 13, 5, 1), .eps = 1e-6}, 0, 0},
	{"layer norm, ViT's", {.kind = GN_OP_LAYER_NORM, .in = SHAPE(2, 768, 17, 1), .eps = 1e-6}, 0, 0},
	{"tokens", {.kind = GN_OP_TOKENS, .in = SHAPE(3, 24, 4, 4)}, 0, 0},
	{"tokens, odd", {.kind = GN_OP_TOKENS, .in = SHAPE(2, 7, 3, 2)}, 0, 0},
	{"first pixel", {.kind = GN_OP_FIRST_PIXEL, .in = SHAPE(3, 24, 17, 1)}, 0, 0},
	{"first pixel, odd", {.kind = GN_OP_FIRST_PIXEL, .in = SHAPE(3, 7, 5, 1)}, 0, 0},
	{"attention", {.kind = GN_OP_ATTENTION, .in = SHAPE(2, 72, 17, 1), .heads = 3}, 0, 0},
	{"attention, odd", {.kind = GN_OP_ATTENTION, .in = SHAPE(3, 30, 5, 1), .heads = 2}, 0, 0},
	{"attention, odd heads of even tokens", {.kind = GN_OP_ATTENTION, .in = SHAPE(1, 27, 2, 1), .heads = 1}, 0, 0},
	{"attention, ViT's", {.kind = GN_OP_ATTENTION, .in = SHAPE(1, 2304, 50, 1), .heads = 12}, 0, 0},
	{"attention, inference", {.kind = GN_OP_ATTENTION, .in = SHAPE(2, 48, 9, 1), .heads = 2}, 1, 0},
};

/* In place, from torch's order or back. */
static void turn_weight(const struct ops_case *c, const struct ops_sizes *s, struct gn_weight_layout l, int back, float *w)
{
	struct gn_weight_shape shape = {(size_t)c->desc.channels_out, s->channels, (size_t)c->desc.kernel * (size_t)c->desc.kernel};
	float *copy = ops_floats(s->weight);

	memcpy(copy, w, s->weight * sizeof *w);
	if (c->desc.kind == GN_OP_CONV && l.order != GN_WEIGHT_PLAIN)
		gn_weight_reorder(&shape, l, back, copy, w);
	free(copy);
}

/* The device's buffers of an operator. */
static void provide(struct fixture *b, struct gn_cuda_ops *ops, const struct ops_case *c, const struct gn_op_info *info,
		    const struct ops_sizes *s, const struct ops_numbers *n, struct gn_op_buffers *v)
{
	float *w = ops_floats(s->weight), *half = ops_floats(s->y);

	memcpy(w, n->weight, s->weight * sizeof *w);
	turn_weight(c, s, info->weight, 0, w);
	for (size_t i = 0; i < s->y; i++)
		half[i] = c->halves ? n->dy[i] / 2 : n->dy[i];
	for (int i = 0; i < 2; i++) {
		v->in[i] = s->x[i] ? ops_to_device(b, ops, &info->in[i], n->x[i]) : NULL;
		v->din[i] = s->x[i] && !c->inference ? ops_device_bytes(b, gn_layout_bytes(&info->in[i])) : NULL;
	}
	v->out = ops_device_bytes(b, gn_layout_bytes(&info->out));
	v->dout = ops_to_device(b, ops, &info->out, half);
	v->more_dout = c->halves && info->sums_gradients ? ops_to_device(b, ops, &info->out, half) : NULL;
	v->weight = s->weight ? fixture_bytes(b, w, s->weight * 4) : NULL;
	v->bias = s->bias ? fixture_bytes(b, n->bias, s->bias * 4) : NULL;
	v->dweight = ops_device_bytes(b, s->weight * 4);
	v->dbias = ops_device_bytes(b, s->bias * 4);
	v->running_mean = fixture_bytes(b, n->new_mean, s->channels * 4);
	v->running_var = fixture_bytes(b, n->new_var, s->channels * 4);
	v->statistics = ops_device_bytes(b, info->statistics_bytes);
	if (s->sums && c->desc.kind == GN_OP_BATCH_NORM) {
		ops_sum_channels(&s->out, n->x[0], n->sums);
		v->statistics = fixture_bytes(b, n->sums, s->sums * 4);
	}
	v->workspace = ops_device_bytes(b, info->workspace_bytes);
	v->scratch = ops_device_bytes(b, info->scratch_bytes);
	free(w);
	free(half);
}

static void take(struct fixture *b, struct gn_cuda_ops *ops, const struct ops_case *c, const struct gn_op_info *info,
		 const struct ops_sizes *s, const struct gn_op_buffers *v, struct ops_numbers *n)
{
	fixture_ok(b, gn_cuda_stream_wait(b->stream, &b->err), "the operator's work");
	ops_from_device(b, ops, &info->out, v->out, n->y);
	fixture_fetch(b, n->new_mean, v->running_mean, s->channels * 4);
	fixture_fetch(b, n->new_var, v->running_var, s->channels * 4);
	if (v->statistics)
		fixture_fetch(b, n->sums, v->statistics, s->sums * 4);
	else if (s->sums)
		ops_sum_channels(&s->out, n->y, n->sums);
	if (c->inference)
		return;
	for (int i = 0; i < 2; i++)
		ops_from_device(b, ops, &info->in[i], v->din[i], n->dx[i]);
	if (s->weight)
		fixture_fetch(b, n->dweight, v->dweight, s->weight * 4);
	if (s->bias)
		fixture_fetch(b, n->dbias, v->dbias, s->bias * 4);
	turn_weight(c, s, info->weight, 1, n->dweight);
}

static void run_device(struct fixture *b, struct gn_cuda_ops *ops, const struct ops_case *c, const struct ops_sizes *s, struct ops_numbers *n)
{
	struct gn_op_desc d = ops_plain_desc(c, 4);
	struct gn_op_buffers v = {0};
	const struct gn_op_info *info;
	struct gn_op *op;

	d.device = gn_cuda_ops_device(ops);
	if (!fixture_ok(b, gn_op_create(GN_BACKEND_CUDA, &d, &op, &b->err), "the operator"))
		return;
	info = gn_op_info(op);
	/* where engines are tried, the first bind overwrites */
	for (int i = 0; i < 2 && !b->why[0]; i++) {
		provide(b, ops, c, info, s, n, &v);
		fixture_ok(b, gn_op_bind(op, &v, &b->err), "bind");
	}
	if (!b->why[0] &&
	    fixture_ok(b, gn_cuda_ops_set_step(ops, OPS_STEP, &b->err), "step") &&
	    fixture_ok(b, gn_op_forward(op, OPS_STEP, &b->err), "forward") &&
	    (c->inference || fixture_ok(b, gn_op_backward(op, &b->err), "backward")))
		take(b, ops, c, info, s, &v, n);
	gn_op_destroy(op);
}

enum { INPUTS = 1, WEIGHTS, GRADIENTS };

/* NaN, infinity and minus infinity at four places of what is poisoned. */
static void poison(struct fixture *b, int what, const struct ops_sizes *s, struct ops_numbers *n)
{
	static const float bad[] = {NAN, INFINITY, -INFINITY};
	const struct {
		float *x;
		size_t count;
		int what;
	} all[] = {{n->x[0], s->x[0], INPUTS}, {n->x[1], s->x[1], INPUTS}, {n->weight, s->weight, WEIGHTS}, {n->bias, s->bias, WEIGHTS},
		   {n->dy, s->y, GRADIENTS}};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		for (int k = 0; k < 4 && all[i].what == what && all[i].count; k++)
			all[i].x[(size_t)(fixture_uniform(b) * (double)all[i].count)] = bad[(int)(fixture_uniform(b) * 3)];
}

/* poisoned: what has numbers that are not finite, or 0. */
static void check(struct fixture *b, struct gn_cuda_ops *ops, enum gn_cuda_type type, const struct ops_case *c, int poisoned)
{
	static const char *const titles[] = {"", ", bad inputs", ", bad weights", ", bad gradients"};
	struct ops_numbers want = {0}, got;
	struct ops_sizes s;

	fixture_begin(b);
	s = ops_sizes_of(b, c);
	ops_fill(b, type, c, &s, &want);
	poison(b, poisoned, &s, &want);
	got = want;
	ops_make_results(&s, &want);
	ops_make_results(&s, &got);
	ops_run_oracle(b, c, &s, &want);
	run_device(b, ops, c, &s, &got);
	ops_compare(b, type, "output", got.y, want.y, s.y, 1);
	ops_compare(b, type, "sums of channels", got.sums, want.sums, s.sums, 1);
	for (int i = 0; i < 2 && !c->inference; i++)
		ops_compare(b, type, "gradient of the input", got.dx[i], want.dx[i], s.x[i], 2);
	if (!c->inference) {
		ops_compare(b, type, "gradient of the weight", got.dweight, want.dweight, s.weight, 2);
		ops_compare(b, type, "gradient of the bias", got.dbias, want.dbias, s.bias, 2);
	}
	ops_compare(b, GN_CUDA_F32, "running mean", got.new_mean, want.new_mean, s.channels, 1);
	ops_compare(b, GN_CUDA_F32, "running variance", got.new_var, want.new_var, s.channels, 1);
	fixture_end(b, "%s, %s%s", gn_cuda_type_name(type), c->name, titles[poisoned]);
	ops_free_results(&want);
	ops_free_results(&got);
	free(want.x[0]);
	free(want.x[1]);
	free(want.dy);
	free(want.weight);
	free(want.bias);
	free(want.mean);
	free(want.var);
}

static int is_wanted(const char *name, char **beginnings)
{
	if (!*beginnings)
		return 1;
	while (*beginnings && strncmp(name, *beginnings, strlen(*beginnings)) != 0)
		beginnings++;
	return *beginnings != NULL;
}

static enum gn_status check_type(struct fixture *b, enum gn_cuda_type type, int tune, char **beginnings)
{
	struct gn_cuda_ops_options o = {.type = type, .dnn = {.workspace_limit_bytes = (size_t)64 << 20}, .tune = tune};
	struct gn_cuda_ops *ops;
	enum gn_status status = gn_cuda_ops_create(b->stream, &o, &ops, &b->err);

	if (status)
		return status;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		if (is_wanted(cases[i].name, beginnings))
			check(b, ops, type, &cases[i], 0);
	/* of what the libraries compute one type is enough */
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		for (int what = INPUTS; what <= (cases[i].inference ? WEIGHTS : GRADIENTS); what++)
			if (is_wanted(cases[i].name, beginnings) && (type == GN_CUDA_F32 || !cases[i].desc.channels_out))
				check(b, ops, type, &cases[i], what);
	if (is_wanted("links", beginnings))
		check_links(b, ops, type);
	gn_cuda_ops_destroy(ops);
	return GN_OK;
}

/* cuDNN missing is as good as no GPU, and said so. */
static int skip(const char *why)
{
	printf("ok 1 - operators on a GPU # SKIP %s\n1..1\n", why);
	return 0;
}

int main(int argc, char **argv)
{
	struct fixture b;
	struct gn_err err;
	int devices = 0, failed;
	enum gn_status status = gn_cuda_device_count(&devices, &err);

	if (status == GN_ERR_NOT_FOUND || status == GN_ERR_UNSUPPORTED)
		return skip(err.text);
	if (!status)
		status = fixture_open(&b, 0, (size_t)512 << 20, &err);
	if (status) {
		printf("not ok 1 - operators on a GPU: %s\n1..1\n", err.text);
		return 1;
	}
	for (int type = 0; type < 3 && !status; type++) {
		status = check_type(&b, (enum gn_cuda_type)type, type == GN_CUDA_BF16, argv + (argc > 0));
		if (status == GN_ERR_NOT_FOUND && type == 0) {
			fixture_close(&b);
			return skip(b.err.text);
		}
		if (status == GN_ERR_UNSUPPORTED) {
			printf("ok %d - %s # SKIP %s\n", ++b.points, gn_cuda_type_name((enum gn_cuda_type)type), b.err.text);
			status = GN_OK;
		}
	}
	if (status) {
		printf("not ok %d - %s\n", ++b.points, b.err.text);
		b.failed++;
	}
	for (int type = 0; type < 3; type++)
		printf("# %s: largest deviation %.1e\n", gn_cuda_type_name((enum gn_cuda_type)type), ops_worst[type]);
	printf("1..%d\n", b.points);
	failed = b.failed;
	fixture_close(&b);
	return failed != 0;
}
