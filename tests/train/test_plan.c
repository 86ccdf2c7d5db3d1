/* Whole networks: the host against the oracle, and what a plan promises. */
#include "tests/train/net.h"

#include "kernels/optim.h"
#include "src/train/plan/weight_layouts.h"
#include "src/train/plan/plan_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double train(struct net *n, int steps)
{
	const struct gn_optim sgd = {.kind = GN_OPTIM_SGD, .momentum = 0.9};
	size_t count = gn_model_param_elements(n->model);
	float *momentum = room(count, sizeof *momentum);
	const struct gn_optim_tensor all = {.params = n->params, .grads = n->grads, .slots = {momentum}, .count = count,
					    .weight_decay = 1e-4, .lr_scale = 1};
	const float *logits;
	struct gn_err err;
	double loss = 0;

	for (int i = 0; i < steps; i++) {
		assert_ok(gn_plan_forward(n->plan, n->images, (uint64_t)i, &logits, &err));
		assert_ok(gn_plan_loss(n->plan, n->labels, &loss, &err));
		assert_ok(gn_plan_backward(n->plan, NULL, NULL, &err));
		gn_optim_step(&sgd, &(struct gn_optim_update){.lr = 0.01, .grad_scale = 1, .step = (uint64_t)i + 1}, &all);
	}
	free(momentum);
	return loss;
}

static double apart(size_t count, const float *a, const float *b)
{
	double off = 0, size = 0;

	for (size_t i = 0; i < count; i++) {
		off += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
		size += (double)b[i] * b[i];
	}
	return size > 0 ? sqrt(off / size) : sqrt(off);
}

static void compare(const char *model, int batch, int side, struct gn_plan_options o, double bound,
		    double gradient_bound)
{
	struct net host, ref;
	double a, b;

	o.batch = batch;
	o.training = 1;
	o.backend = GN_BACKEND_HOST;
	net_init(&host, model, 10, side, "seed:5", o);
	o.backend = GN_BACKEND_REF;
	net_init(&ref, model, 10, side, "seed:5", o);
	a = train(&host, 3);
	b = train(&ref, 3);
	assert_true(fabs(a - b) <= bound * fabs(b));
	assert_true(apart(gn_model_param_elements(host.model), host.grads, ref.grads) <= gradient_bound);
	assert_true(apart(gn_model_param_elements(host.model), host.params, ref.params) <= bound);
	assert_true(apart(gn_model_buffer_elements(host.model), host.buffers, ref.buffers) <= bound);
	net_release(&host);
	net_release(&ref);
}

/* Three steps; rounding has 2e-4 of each norm as room after them. Gradients of twenty layers have more: 1.3e-3 was seen with one
 * thread, which adds in another order than two; a value that crosses a ReLU's corner can do that. */
static void test_host_is_oracle(void **state)
{
	(void)state;
	compare("lenet", 5, 28, (struct gn_plan_options){0}, 1e-5, 1e-5);
	compare("lenet", 3, 33, (struct gn_plan_options){.label_smoothing = 0.1}, 1e-5, 1e-5);
	compare("resnet20", 4, 19, (struct gn_plan_options){0}, 2e-4, 5e-3);
}

/* mobilenet_v3_large because it has dropout behind an activation; both plans on the same parameters. */
static void test_dropout_is_oracle(void **state)
{
	struct gn_plan_options o = {.backend = GN_BACKEND_HOST, .batch = 4, .training = 1, .dropout = 1, .seed = 99};
	const float *a, *b;
	struct gn_plan *ref;
	struct gn_err err;
	struct net host;

	(void)state;
	net_init(&host, "mobilenet_v3_large", 10, 32, "seed:5", o);
	o.backend = GN_BACKEND_REF;
	assert_ok(gn_plan_create(host.model, &o, host.params, host.grads, host.buffers, &ref, &err));
	assert_ok(gn_plan_forward(host.plan, host.images, 7, &a, &err));
	assert_ok(gn_plan_forward(ref, host.images, 7, &b, &err));
	assert_true(apart(40, a, b) < 1e-3);
	assert_ok(gn_plan_forward(host.plan, host.images, 8, &a, &err));
	assert_true(apart(40, a, b) > 1e-2);
	gn_plan_destroy(ref);
	net_release(&host);
}

/* Inference uses running statistics, leaves buffers alone, and gives the same for an image in any batch. */
static void test_inference(void **state)
{
	struct gn_plan_options o = {.backend = GN_BACKEND_HOST, .batch = 4, .training = 1};
	struct gn_plan_options eval = {.backend = GN_BACKEND_HOST, .batch = 4},
			       single = {.backend = GN_BACKEND_HOST, .batch = 1};
	struct gn_plan *four, *one;
	const float *a, *b;
	float *before;
	struct net n;
	struct gn_err err;
	size_t count;
	double loss;

	(void)state;
	net_init(&n, "resnet20", 10, 19, "seed:5", o);
	train(&n, 2);
	count = gn_model_buffer_elements(n.model);
	before = room(count, sizeof *before);
	memcpy(before, n.buffers, count * sizeof *before);
	assert_ok(gn_plan_create(n.model, &eval, n.params, NULL, n.buffers, &four, &err));
	assert_ok(gn_plan_create(n.model, &single, n.params, NULL, n.buffers, &one, &err));
	assert_ok(gn_plan_forward(four, n.images, 0, &a, &err));
	assert_ok(gn_plan_forward(one, n.images + 2 * 3 * 19 * 19, 0, &b, &err));
	assert_true(apart(10, b, a + 20) < 1e-5);
	assert_memory_equal(before, n.buffers, count * sizeof *before);
	assert_ok(gn_plan_loss(four, n.labels, &loss, &err));
	assert_int_equal(gn_plan_backward(four, NULL, NULL, &err), GN_ERR_USAGE);
	assert_true(gn_plan_bytes(four) < gn_plan_bytes(n.plan) / 2);
	gn_plan_destroy(four);
	gn_plan_destroy(one);
	free(before);
	net_release(&n);
}

/* A frozen plan gives what another one gives, but for rounding, from the weights that it was last told to take. */
static void frozen(const char *model, int side, int arranged)
{
	struct gn_plan_options o = {.backend = GN_BACKEND_HOST, .batch = 3, .training = 1}, eval = {.batch = 3};
	struct gn_plan *plain, *folded;
	struct gn_weight_layouts *arrange;
	const float *a, *b;
	struct net n;
	struct gn_err err;
	double first;

	net_init(&n, model, 10, side, "seed:5", o);
	assert_ok(gn_weight_layouts_create(n.model, &arrange, &err));
	if (arranged) {
		gn_plan_destroy(n.plan);
		o.weights = eval.weights = gn_weight_layouts_layouts(arrange);
		assert_ok(gn_plan_create(n.model, &o, n.params, n.grads, n.buffers, &n.plan, &err));
		assert_ok(gn_weight_layouts_take(arrange, n.plan, &err));
		gn_weight_layouts_in(arrange, n.params);
	}
	train(&n, 2);
	eval.backend = GN_BACKEND_HOST;
	assert_ok(gn_plan_create(n.model, &eval, n.params, NULL, n.buffers, &plain, &err));
	eval.frozen = 1;
	assert_ok(gn_plan_create(n.model, &eval, n.params, NULL, n.buffers, &folded, &err));
	assert_int_equal(gn_plan_forward(folded, n.images, 0, &b, &err), GN_ERR_USAGE);
	assert_ok(gn_plan_freeze(folded, &err));
	assert_ok(gn_plan_forward(plain, n.images, 0, &a, &err));
	assert_ok(gn_plan_forward(folded, n.images, 0, &b, &err));
	assert_true(apart(30, b, a) < 1e-5);
	assert_true(folded->op_count < plain->op_count || !strcmp(model, "lenet"));
	first = a[7];
	train(&n, 1);
	assert_ok(gn_plan_forward(plain, n.images, 0, &a, &err));
	assert_ok(gn_plan_freeze(folded, &err));
	assert_ok(gn_plan_forward(folded, n.images, 0, &b, &err));
	assert_true(a[7] != (float)first && apart(30, b, a) < 1e-5);
	gn_plan_destroy(plain);
	gn_plan_destroy(folded);
	gn_weight_layouts_destroy(arrange);
	net_release(&n);
}

static void test_frozen(void **state)
{
	(void)state;
	frozen("lenet", 28, 0);
	frozen("resnet20", 19, 0);
	frozen("resnet50", 40, 1);
}

/* Activations of bfloat16: near those of float, in loss and in the direction of the whole gradient, and learning as fast. */
static void test_bf16(void **state)
{
	struct gn_plan_options o = {.backend = GN_BACKEND_HOST, .batch = 4, .training = 1};
	struct net wide, narrow;
	const float *logits;
	struct gn_err err;
	double a, b, dot = 0, aa = 0, bb = 0;

	(void)state;
	if (!gn_backend_has_bf16(GN_BACKEND_HOST))
		skip();
	net_init(&wide, "resnet20", 10, 32, "seed:5", o);
	o.bf16 = 1;
	net_init(&narrow, "resnet20", 10, 32, "seed:5", o);
	/* half, and what does not shrink; with AMX 0.5 MB of scratch memory more */
	assert_true(100 * gn_plan_bytes(narrow.plan) < 65 * gn_plan_bytes(wide.plan));
	assert_ok(gn_plan_forward(wide.plan, wide.images, 0, &logits, &err));
	assert_ok(gn_plan_loss(wide.plan, wide.labels, &a, &err));
	assert_ok(gn_plan_backward(wide.plan, NULL, NULL, &err));
	assert_ok(gn_plan_forward(narrow.plan, narrow.images, 0, &logits, &err));
	assert_ok(gn_plan_loss(narrow.plan, narrow.labels, &b, &err));
	assert_ok(gn_plan_backward(narrow.plan, NULL, NULL, &err));
	for (size_t i = 0; i < gn_model_param_elements(wide.model); i++) {
		dot += (double)wide.grads[i] * narrow.grads[i];
		aa += (double)wide.grads[i] * wide.grads[i];
		bb += (double)narrow.grads[i] * narrow.grads[i];
	}
	print_message("# loss %.5f and %.5f, cosine of gradients %.5f\n", a, b, dot / sqrt(aa * bb));
	assert_true(fabs(a - b) < 0.01 * a);
	assert_true(dot > 0.95 * sqrt(aa * bb)); /* rounding flips relus at every layer */
	a = train(&wide, 12);
	b = train(&narrow, 12);
	print_message("# after 12 steps %.5f and %.5f\n", a, b);
	assert_true(a < 1 && fabs(a - b) < 0.1);
	net_release(&wide);
	net_release(&narrow);
}

/* Inference on convolutions with batch norm in them, in bfloat16: near float, from the weights last taken. */
static void test_frozen_bf16(void **state)
{
	static const char *const models[] = {"resnet20", "resnet18", "lenet"};

	(void)state;
	if (!gn_backend_has_bf16(GN_BACKEND_HOST))
		skip();
	for (size_t i = 0; i < 3; i++) {
		struct gn_plan_options o = {.backend = GN_BACKEND_HOST, .batch = 3, .training = 1};
		struct gn_plan_options eval = {.backend = GN_BACKEND_HOST, .batch = 3, .frozen = 1};
		struct gn_plan *wide, *narrow;
		const float *a, *b;
		struct gn_err err;
		struct net n;

		net_init(&n, models[i], 10, 32, "seed:5", o);
		assert_ok(gn_plan_create(n.model, &eval, n.params, NULL, n.buffers, &wide, &err));
		eval.bf16 = 1;
		assert_ok(gn_plan_create(n.model, &eval, n.params, NULL, n.buffers, &narrow, &err));
		for (int k = 0; k < 2; k++) {
			train(&n, 2);
			assert_ok(gn_plan_freeze(wide, &err));
			assert_ok(gn_plan_freeze(narrow, &err));
			assert_ok(gn_plan_forward(wide, n.images, 0, &a, &err));
			for (int again = 0; again < 2; again++) { /* what was made of the weights is still there */
				assert_ok(gn_plan_forward(narrow, n.images, 0, &b, &err));
				assert_true(apart(30, b, a) < 2e-2);
			}
		}
		gn_plan_destroy(wide);
		gn_plan_destroy(narrow);
		net_release(&n);
	}
}

struct calls {
	const struct net *n;
	int count, last_node;
	unsigned char seen[256];
	double sums[256];
};

static double checksum(const struct net *n, int param)
{
	const struct gn_param *p = gn_model_param(n->model, param);
	double sum = 0;

	for (size_t i = 0; i < p->count; i++)
		sum += fabs(n->grads[p->offset + i]) * (double)(i % 7 + 1);
	return sum;
}

static void ready(void *context, int param)
{
	struct calls *c = context;
	int node = gn_model_param(c->n->model, param)->node;

	assert_true(param < 256 && !c->seen[param]);
	assert_true(c->count == 0 || node <= c->last_node + 2); /* the projection's two, after the norm in its sum */
	c->seen[param] = 1;
	c->sums[param] = checksum(c->n, param);
	c->last_node = node;
	c->count++;
}

/* Each parameter once, from the last layer to the first but for those around a sum, and nothing changes it afterwards. */
static void test_ready(void **state)
{
	struct gn_plan_options o = {.backend = GN_BACKEND_HOST, .batch = 2, .training = 1};
	static struct calls c;
	const float *logits;
	struct gn_err err;
	struct net n;
	double loss;

	(void)state;
	net_init(&n, "resnet50", 10, 64, "seed:5", o);
	c.n = &n;
	assert_ok(gn_plan_forward(n.plan, n.images, 0, &logits, &err));
	assert_ok(gn_plan_loss(n.plan, n.labels, &loss, &err));
	assert_ok(gn_plan_backward(n.plan, ready, &c, &err));
	assert_int_equal(c.count, gn_model_param_count(n.model));
	for (int i = 0; i < c.count; i++)
		assert_true(c.sums[i] == checksum(&n, i));
	net_release(&n);
}

static void test_same_twice(void **state)
{
	struct gn_plan_options o = {.backend = GN_BACKEND_HOST, .batch = 3, .training = 1};
	struct net a, b;

	(void)state;
	net_init(&a, "resnet20", 10, 32, "seed:5", o);
	net_init(&b, "resnet20", 10, 32, "seed:5", o);
	train(&a, 3);
	train(&b, 3);
	assert_memory_equal(a.params, b.params, gn_model_param_elements(a.model) * sizeof(float));
	net_release(&a);
	net_release(&b);
}

/* Made again before backward or kept: the same bits, in less memory. */
static void test_recomputed(void **state)
{
	struct gn_plan_options o = {.backend = GN_BACKEND_HOST, .batch = 2, .training = 1};
	struct net a, b;

	(void)state;
	for (int bf16 = 0; bf16 < 1 + gn_backend_has_bf16(GN_BACKEND_HOST); bf16++) {
		o.bf16 = bf16;
		o.keep = 0;
		net_init(&a, "resnet50", 10, 64, "seed:5", o);
		o.keep = 1;
		net_init(&b, "resnet50", 10, 64, "seed:5", o);
		print_message("# arena %zu and %zu bytes\n", gn_plan_bytes(a.plan), gn_plan_bytes(b.plan));
		/* 2 MiB of activations; how much scratch memory stands beside them depends on the processor */
		assert_true(gn_plan_bytes(a.plan) + (1 << 20) < gn_plan_bytes(b.plan));
		train(&a, 1);
		train(&b, 1);
		assert_memory_equal(a.params, b.params, gn_model_param_elements(a.model) * sizeof(float));
		assert_memory_equal(a.grads, b.grads, gn_model_param_elements(a.model) * sizeof(float));
		assert_memory_equal(a.buffers, b.buffers, gn_model_buffer_elements(a.model) * sizeof(float));
		net_release(&a);
		net_release(&b);
	}
}

enum { TIE_SIDE = 9, TIE_MAP = 2 * 3 * TIE_SIDE * TIE_SIDE };

static struct gn_op *tie_op(enum gn_op_kind kind, const struct gn_layout *in)
{
	struct gn_op_desc d = {.kind = kind, .in = {*in}, .kernel = 2, .stride = 2, .training = 1, .needs_din = 1};
	struct gn_err err;
	struct gn_op *op;

	assert_ok(gn_op_create(GN_BACKEND_REF, &d, &op, &err));
	return op;
}

/* x through two operators, and dy back through them. */
static void through(enum gn_op_kind first, enum gn_op_kind second, const double *x, const double *dy, double *y, double *dx)
{
	struct gn_layout in = {2, 3, TIE_SIDE, TIE_SIDE, 1, sizeof(double)};
	struct gn_op *a = tie_op(first, &in), *b = tie_op(second, &gn_op_info(a)->out);
	double *between = room(TIE_MAP, sizeof *between), *dbetween = room(TIE_MAP, sizeof *dbetween);
	struct gn_op_buffers m = {.in = {x}, .out = between, .dout = dbetween, .din = {dx}};
	struct gn_op_buffers n = {.in = {between}, .out = y, .dout = dy, .din = {dbetween}};
	struct gn_err err;

	m.workspace = room(gn_op_info(a)->workspace_bytes, 1);
	n.workspace = room(gn_op_info(b)->workspace_bytes, 1);
	m.scratch = room(gn_op_info(a)->scratch_bytes, 1);
	n.scratch = room(gn_op_info(b)->scratch_bytes, 1);
	assert_ok(gn_op_bind(a, &m, &err));
	assert_ok(gn_op_bind(b, &n, &err));
	assert_ok(gn_op_forward(a, 0, &err));
	assert_ok(gn_op_forward(b, 0, &err));
	assert_ok(gn_op_backward(b, &err));
	assert_ok(gn_op_backward(a, &err));
	gn_op_destroy(a);
	gn_op_destroy(b);
	free(m.workspace);
	free(n.workspace);
	free(m.scratch);
	free(n.scratch);
	free(between);
	free(dbetween);
}

/* Relu and max pooling give the same in either order, both ways, on whole numbers of which many are alike. */
static void test_pool_and_relu_commute(void **state)
{
	double x[TIE_MAP], dy[TIE_MAP], y[2][TIE_MAP], dx[2][TIE_MAP];
	size_t pooled = 2 * 3 * (TIE_SIDE / 2) * (TIE_SIDE / 2);

	(void)state;
	srand(4);
	for (int i = 0; i < TIE_MAP; i++) {
		x[i] = rand() % 7 - 3;
		dy[i] = rand() % 100;
	}
	through(GN_OP_RELU, GN_OP_MAX_POOL, x, dy, y[0], dx[0]);
	through(GN_OP_MAX_POOL, GN_OP_RELU, x, dy, y[1], dx[1]);
	for (size_t i = 0; i < pooled; i++)
		assert_true(y[0][i] == y[1][i]);
	for (int i = 0; i < TIE_MAP; i++)
		assert_true(dx[0][i] == dx[1][i]);
}

/* A relu before a max pooling comes behind it. */
static void test_pool_first(void **state)
{
	struct gn_plan_options o = {.backend = GN_BACKEND_HOST, .batch = 2, .training = 1};
	float *params, *grads; /* half a gigabyte each, which nobody touches */
	struct gn_model *m;
	struct gn_plan *plan;
	struct gn_err err;
	int pools = 0;

	(void)state;
	assert_ok(gn_model_create("vgg16", 10, 0, 32, &m, &err));
	params = calloc(gn_model_param_elements(m), sizeof *params);
	grads = calloc(gn_model_param_elements(m), sizeof *grads);
	assert_true(params && grads);
	assert_ok(gn_plan_create(m, &o, params, grads, NULL, &plan, &err));
	for (int i = 0; i < plan->op_count; i++) {
		const struct gn_plan_op *op = &plan->ops[i];

		if (op->kind != GN_OP_MAX_POOL)
			continue;
		pools++;
		assert_int_equal(plan->ops[plan->tensors[op->in[0]].producer].kind, GN_OP_CONV);
		assert_int_equal(plan->ops[i + 1].kind, GN_OP_RELU);
		assert_int_equal(plan->ops[i + 1].in[0], op->out);
	}
	assert_int_equal(pools, 5);
	gn_plan_destroy(plan);
	gn_model_destroy(m);
	free(params);
	free(grads);
}

/* Weights as the plan likes them, in training and inference: bit for bit what torch's order gives. */
static void test_arranged(void **state)
{
	struct gn_plan_options o = {.backend = GN_BACKEND_HOST, .batch = 2, .training = 1}, eval = {.batch = 2};
	const float *a, *b;
	struct gn_plan *plain, *arranged;
	struct gn_weight_layouts *arrange;
	struct net n, m;
	struct gn_err err;
	size_t count;
	int changed = 0;

	(void)state;
	net_init(&n, "resnet50", 10, 40, "seed:5", o);
	net_init(&m, "resnet50", 10, 40, "seed:5", o);
	count = gn_model_param_elements(m.model);
	gn_plan_destroy(m.plan);
	m.plan = NULL;
	assert_ok(gn_weight_layouts_create(m.model, &arrange, &err));
	o.weights = eval.weights = gn_weight_layouts_layouts(arrange);
	assert_ok(gn_plan_create(m.model, &o, m.params, m.grads, m.buffers, &m.plan, &err));
	assert_ok(gn_weight_layouts_take(arrange, m.plan, &err));
	for (int i = 0; i < gn_model_param_count(m.model); i++)
		changed += eval.weights[i].order != GN_WEIGHT_PLAIN;
	print_message("# %d weights in an order of their own\n", changed);
	gn_weight_layouts_in(arrange, m.params);
	assert_true(!changed || memcmp(m.params, n.params, count * sizeof(float)));
	train(&n, 2);
	train(&m, 2);
	eval.backend = GN_BACKEND_HOST;
	assert_ok(gn_plan_create(m.model, &eval, m.params, NULL, m.buffers, &arranged, &err));
	eval.weights = NULL;
	assert_ok(gn_plan_create(n.model, &eval, n.params, NULL, n.buffers, &plain, &err));
	assert_ok(gn_plan_forward(arranged, m.images, 0, &a, &err));
	assert_ok(gn_plan_forward(plain, n.images, 0, &b, &err));
	assert_memory_equal(a, b, 20 * sizeof *a);
	gn_weight_layouts_out(arrange, m.params);
	gn_weight_layouts_out(arrange, m.grads);
	assert_memory_equal(m.params, n.params, count * sizeof(float));
	assert_memory_equal(m.grads, n.grads, count * sizeof(float));
	gn_plan_destroy(plain);
	gn_plan_destroy(arranged);
	gn_weight_layouts_destroy(arrange);
	net_release(&n);
	net_release(&m);
}

static void test_refusals(void **state)
{
	struct gn_plan_options o = {.backend = GN_BACKEND_HOST, .batch = 1, .training = 1};
	const int32_t wrong[3] = {0, 10, 0};
	const float *logits;
	struct gn_plan *p = NULL;
	struct gn_model *m;
	struct gn_err err;
	struct net n;
	double loss;

	(void)state;
	o.batch = 3;
	net_init(&n, "lenet", 10, 28, "seed:5", o);
	assert_int_equal(gn_plan_loss(n.plan, n.labels, &loss, &err), GN_ERR_USAGE);
	assert_int_equal(gn_plan_backward(n.plan, NULL, NULL, &err), GN_ERR_USAGE);
	assert_ok(gn_plan_forward(n.plan, n.images, 0, &logits, &err));
	assert_int_equal(gn_plan_loss(n.plan, wrong, &loss, &err), GN_ERR_DATA);
	o.batch = 0;
	assert_int_equal(gn_plan_create(n.model, &o, n.params, n.grads, n.buffers, &p, &err), GN_ERR_USAGE);
	o.batch = 1 << 20;
	assert_int_equal(gn_plan_create(n.model, &o, n.params, n.grads, n.buffers, &p, &err), GN_ERR_NO_MEMORY);
	assert_non_null(strstr(err.text, "smaller batch"));
	net_release(&n);
	o.batch = 2;
	for (int i = 0; i < 3; i++) {
		static const char *const names[] = {"lenet", "vgg16", "resnet50"};
		static const int sides[] = {10, 31, 1};
		float unused = 0;

		o.batch = i == 2 ? 1 : 2;
		assert_ok(gn_model_create(names[i], 10, 0, sides[i], &m, &err));
		assert_int_equal(gn_plan_create(m, &o, &unused, &unused, &unused, &p, &err), GN_ERR_USAGE);
		gn_model_destroy(m);
	}
	assert_null(p);
}

static int in_use(const struct gn_memory_planner *s, int t)
{
	return s->first <= t && t <= s->last && !(s->gap_first <= t && t <= s->gap_last);
}

/* Random lifetimes: no two pieces alive together share a byte. */
static void test_storage(void **state)
{
	struct gn_memory_planner s[120];
	struct gn_err err;
	size_t total, sum = 0;

	(void)state;
	srand(3);
	for (int i = 0; i < 120; i++) {
		int first = rand() % 100;

		s[i] = (struct gn_memory_planner){.bytes = (size_t)rand() % 5000, .first = first, .last = first + rand() % 20};
		s[i].gap_first = first + 1 + rand() % 10;
		s[i].gap_last = i % 2 ? s[i].last - 1 - rand() % 3 : -1;
		sum += s[i].bytes;
	}
	assert_ok(gn_memory_planner_place(s, 120, &total, &err));
	assert_true(total < sum / 2);
	for (int i = 0; i < 120; i++) {
		assert_true(s[i].offset % 256 == 0 && (!s[i].bytes || s[i].offset + s[i].bytes <= total));
		for (int k = 0; k < i; k++) {
			int together = 0;
			int apart_in_memory = s[i].offset + s[i].bytes <= s[k].offset ||
					      s[k].offset + s[k].bytes <= s[i].offset;

			for (int t = 0; t < 120; t++)
				together |= in_use(&s[i], t) && in_use(&s[k], t);
			assert_true(!together || apart_in_memory || !s[i].bytes || !s[k].bytes);
		}
	}
}

/* torchvision's vgg.py: convolutions kaiming_normal_ by fan-out, classifier normal_(0, 0.01), all biases 0. */
static void test_init_of_vgg16(void **state)
{
	struct gn_model *m;
	struct gn_err err;
	int seen = 0;

	(void)state;
	assert_ok(gn_model_create("vgg16", 10, 0, 224, &m, &err));
	for (int i = 0; i < gn_model_param_count(m); i++) {
		const struct gn_param *p = gn_model_param(m, i);
		double sum = 0, square = 0, wanted = p->dims == 4 ? sqrt(2.0 / (double)(p->shape[0] * 9)) : 0.01;
		double bound = 4 / sqrt((double)p->count); /* four standard errors of the mean */
		float *values;

		/* All but the classifier's large ones. */
		if (p->count > 600000)
			continue;
		values = room(p->count, sizeof *values);
		gn_init_param(m, i, 1, values);
		for (size_t k = 0; k < p->count; k++) {
			sum += (double)values[k];
			square += (double)values[k] * (double)values[k];
		}
		if (p->dims == 1)
			assert_true(!(square > 0));
		else
			assert_true(fabs(sum / (double)p->count) < bound * wanted &&
				    fabs(sqrt(square / (double)p->count) / wanted - 1) < bound);
		seen += p->dims == 2;
		free(values);
	}
	assert_int_equal(seen, 1);
	gn_model_destroy(m);
}

/* The same seed gives the same values, another one others, of the right size. */
static void test_init(void **state)
{
	struct gn_model *m;
	struct gn_err err;
	float *a, *b, *buffers;
	size_t count;
	double sum = 0, square = 0;

	(void)state;
	assert_ok(gn_model_create("resnet18", 10, 0, 32, &m, &err));
	count = gn_model_param_elements(m);
	a = room(count, sizeof *a);
	b = room(count, sizeof *b);
	buffers = room(gn_model_buffer_elements(m), sizeof *buffers);
	assert_ok(gn_init_params(m, "seed:1", a, buffers, &err));
	assert_ok(gn_init_params(m, "seed:1", b, buffers, &err));
	assert_memory_equal(a, b, count * sizeof *a);
	assert_ok(gn_init_params(m, "seed:2", b, buffers, &err));
	assert_true(apart(64, a, b) > 0.1);
	for (size_t i = 0; i < gn_model_param(m, 3)->count; i++) {
		double v = a[gn_model_param(m, 3)->offset + i];

		sum += v;
		square += v * v;
	}
	/* layer1.0.conv1: 64 x 64 x 3 x 3, fan-out 576 */
	assert_true(fabs(sum / 36864) < 1e-3 && fabs(square / 36864 / (2.0 / 576) - 1) < 0.03);
	assert_true(buffers[gn_model_buffer(m, 1)->offset] == 1 && buffers[0] == 0);
	assert_int_equal(gn_init_params(m, "seed:x", a, buffers, &err), GN_ERR_USAGE);
	assert_int_equal(gn_init_params(m, "seed:-1", a, buffers, &err), GN_ERR_USAGE);
	assert_int_equal(gn_init_params(m, "", a, buffers, &err), GN_ERR_USAGE);
	free(a);
	free(b);
	free(buffers);
	gn_model_destroy(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_host_is_oracle), cmocka_unit_test(test_dropout_is_oracle),
		cmocka_unit_test(test_inference), cmocka_unit_test(test_frozen), cmocka_unit_test(test_bf16), cmocka_unit_test(test_frozen_bf16),      cmocka_unit_test(test_ready),
		cmocka_unit_test(test_same_twice), cmocka_unit_test(test_recomputed), cmocka_unit_test(test_pool_first),
		cmocka_unit_test(test_pool_and_relu_commute),
		cmocka_unit_test(test_arranged),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_storage),        cmocka_unit_test(test_init), cmocka_unit_test(test_init_of_vgg16),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
