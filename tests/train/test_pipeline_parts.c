/* Networks cut into parts that run one after the other: the same bits as the whole, whose gradients are accumulated over as many batches. */
#include "tests/train/net.h"

#include "src/train/plan/device.h"
#include "src/train/plan/weight_layouts.h"

#include <string.h>

enum { PARTS_MAX = 4, BATCHES = 3, BATCH = 2 };

struct part {
	struct gn_model *model;
	struct gn_weight_layouts *layouts;
	float *params, *grads, *buffers, *sums;
	struct gn_plan *plans[BATCHES]; /* one for each batch in flight */
};

static void ignore(void *context, int param, struct gn_event *event)
{
	(void)context;
	(void)param;
	(void)event;
}

static const struct gn_plan_observer observer = {.ready = ignore};

/* As a step does it: the last batch's gradients get the others added. */
static void keep(float *sums, const float *grads, size_t count, int first)
{
	for (size_t i = 0; i < count; i++)
		sums[i] = first ? grads[i] : sums[i] + grads[i];
}

static const float *images_of(const struct net *n, int k)
{
	return n->images + (size_t)k * BATCH * gn_model_channels(n->model) * gn_model_side(n->model) * gn_model_side(n->model);
}

static void run_whole(struct net *n, struct gn_plan *plan, float *sums)
{
	struct gn_err err;

	for (int k = 0; k < BATCHES; k++) {
		const struct gn_targets targets = {.labels = n->labels + k * BATCH};

		assert_ok(gn_plan_stage(plan, images_of(n, k), &targets, &err));
		assert_ok(gn_plan_run(plan, (uint64_t)k, &observer, k + 1 == BATCHES ? sums : NULL, &err));
		if (k + 1 < BATCHES)
			keep(sums, n->grads, gn_model_param_elements(n->model), k == 0);
	}
}

static void make_part(struct part *p, const struct net *n, int first, int end, struct gn_plan_options o, const struct part *before)
{
	struct gn_model_origin at;
	struct gn_err err;

	assert_ok(gn_model_part(n->model, first, end, &p->model, &err));
	at = gn_model_origin(p->model);
	p->params = room(gn_model_param_elements(p->model), sizeof(float));
	p->grads = room(gn_model_param_elements(p->model), sizeof(float));
	p->sums = room(gn_model_param_elements(p->model), sizeof(float));
	p->buffers = room(gn_model_buffer_elements(p->model), sizeof(float));
	memcpy(p->params, n->params + at.params, gn_model_param_elements(p->model) * sizeof(float));
	memcpy(p->buffers, n->buffers + at.buffers, gn_model_buffer_elements(p->model) * sizeof(float));
	assert_ok(gn_weight_layouts_create(p->model, &p->layouts, &err));
	for (int k = 0; k < BATCHES; k++) {
		o.weights = gn_weight_layouts_layouts(p->layouts);
		o.input = before ? gn_plan_output_layout(before->plans[0]) : NULL;
		assert_ok(gn_plan_create(p->model, &o, p->params, p->grads, p->buffers, &p->plans[k], &err));
		assert_ok(gn_weight_layouts_take(p->layouts, p->plans[k], &err));
	}
	gn_weight_layouts_in(p->layouts, p->params);
}

static void release_part(struct part *p)
{
	for (int k = 0; k < BATCHES; k++)
		gn_plan_destroy(p->plans[k]);
	gn_weight_layouts_destroy(p->layouts);
	gn_model_destroy(p->model);
	free(p->params);
	free(p->grads);
	free(p->buffers);
	free(p->sums);
}

/* All forwards, then all backwards, as gpipe; or each batch at once. */
static void run_forward(const struct net *n, struct part *parts, int count, int k)
{
	const struct gn_targets targets = {.labels = n->labels + k * BATCH};
	const void *in = images_of(n, k);
	struct gn_err err;

	for (int s = 0; s < count; s++) {
		assert_ok(gn_plan_stage(parts[s].plans[k], in, &targets, &err));
		assert_ok(gn_plan_run_forward(parts[s].plans[k], (uint64_t)k, &observer, &err));
		in = gn_plan_output(parts[s].plans[k]);
	}
}

static void run_backward(struct part *parts, int count, int k)
{
	const void *gradient = NULL;
	int last = k + 1 == BATCHES;
	struct gn_err err;

	for (int s = count - 1; s >= 0; s--) {
		struct part *p = &parts[s];

		assert_ok(gn_plan_run_backward(p->plans[k], gradient, &observer, last ? p->sums : NULL, &err));
		gradient = gn_plan_input_gradient(p->plans[k]);
		if (!last)
			keep(p->sums, p->grads, gn_model_param_elements(p->model), k == 0);
	}
}

static void check_same(const struct net *n, struct part *p)
{
	struct gn_model_origin at = gn_model_origin(p->model);

	gn_weight_layouts_out(p->layouts, p->grads);
	for (int i = 0; i < gn_model_param_count(p->model); i++) {
		const struct gn_param *t = gn_model_param(p->model, i);

		assert_memory_equal(p->grads + t->offset, n->grads + at.params + t->offset, t->count * sizeof(float));
	}
	for (int i = 0; i < gn_model_buffer_count(p->model); i++) {
		const struct gn_param *t = gn_model_buffer(p->model, i);

		assert_memory_equal(p->buffers + t->offset, n->buffers + at.buffers + t->offset, t->count * sizeof(float));
	}
}

/* In fp32. nodes: where to cut, in order, then 0. */
static void compare(const char *model, int side, const int *nodes, int is_gpipe)
{
	struct gn_plan_options o = {.backend = GN_BACKEND_HOST, .batch = BATCH, .training = 1, .dropout = 1, .drop_path = 0.3, .seed = 5, .batches = BATCHES}, all = o;
	struct part parts[PARTS_MAX] = {{.model = NULL}};
	struct gn_weight_layouts *layouts;
	struct gn_plan *plan;
	struct gn_err err;
	struct net n;
	float *sums;
	int count = 0, first = 1;

	all.batch = BATCHES * BATCH; /* for room; its plan does not run */
	net_init(&n, model, 10, side, "seed:5", all);
	for (;;) {
		int end = nodes[count] ? nodes[count] : gn_model_node_count(n.model);

		make_part(&parts[count], &n, first, end, o, count ? &parts[count - 1] : NULL);
		first = end;
		if (!nodes[count++])
			break;
	}
	sums = room(gn_model_param_elements(n.model), sizeof *sums);
	assert_ok(gn_weight_layouts_create(n.model, &layouts, &err));
	o.weights = gn_weight_layouts_layouts(layouts);
	assert_ok(gn_plan_create(n.model, &o, n.params, n.grads, n.buffers, &plan, &err));
	assert_ok(gn_weight_layouts_take(layouts, plan, &err));
	gn_weight_layouts_in(layouts, n.params);
	run_whole(&n, plan, sums);
	for (int k = 0; k < BATCHES; k++) {
		run_forward(&n, parts, count, k);
		if (!is_gpipe)
			run_backward(parts, count, k);
	}
	for (int k = 0; k < BATCHES && is_gpipe; k++)
		run_backward(parts, count, k);
	gn_weight_layouts_out(layouts, n.grads);
	for (int s = 0; s < count; s++) {
		check_same(&n, &parts[s]);
		release_part(&parts[s]);
	}
	gn_weight_layouts_destroy(layouts);
	gn_plan_destroy(plan);
	net_release(&n);
	free(sums);
}

/* Of each network every single place, then all of every third one. */
static void compare_everywhere(const char *model, int side)
{
	int nodes[PARTS_MAX] = {0}, count = 0, places = 0;
	struct gn_model *m;
	struct gn_err err;

	assert_ok(gn_model_create(model, 10, 0, side, &m, &err));
	for (int i = 0; i < gn_model_node_count(m); i++) {
		const int one[] = {i, 0};

		if (!gn_model_can_cut(m, i))
			continue;
		compare(model, side, one, places % 2);
		if (places++ % 3 == 1 && count < PARTS_MAX - 1)
			nodes[count++] = i;
	}
	assert_true(places > 1);
	compare(model, side, nodes, 1);
	gn_model_destroy(m);
}

static void test_small_networks(void **state)
{
	(void)state;
	compare_everywhere("lenet", 28);
	compare_everywhere("resnet20", 16);
}

static void cut_at(const char *model, int side, int is_gpipe, const char *a, const char *b, const char *c)
{
	const char *names[] = {a, b, c};
	int nodes[PARTS_MAX] = {0};
	struct gn_model *m;
	struct gn_err err;

	assert_ok(gn_model_create(model, 10, 0, side, &m, &err));
	for (int i = 0; i < 3 && names[i]; i++)
		assert_ok(gn_model_find_cut(m, names[i], &nodes[i], &err));
	gn_model_destroy(m);
	compare(model, side, nodes, is_gpipe);
}

static void test_resnet(void **state)
{
	(void)state;
	cut_at("resnet18", 32, 0, "layer2", "layer4.1", NULL);
}

static void test_bottlenecks(void **state)
{
	(void)state;
	cut_at("resnet50", 32, 1, "layer1.1", "layer2", "layer4.2");
}

static void test_mobilenet(void **state)
{
	(void)state;
	cut_at("mobilenet_v2", 32, 0, "features.2", "features.11", NULL);
}

static void test_efficientnet(void **state)
{
	(void)state;
	cut_at("efficientnet_b0", 32, 1, "features.3", NULL, NULL);
}

static void refuse(const struct gn_model *m, const char *name, const char *text)
{
	struct gn_err err;
	int node;

	assert_int_equal(gn_model_find_cut(m, name, &node, &err), GN_ERR_USAGE);
	assert_non_null(strstr(err.text, text));
}

static void test_refused(void **state)
{
	struct gn_model *m, *part;
	struct gn_err err;

	(void)state;
	assert_ok(gn_model_create("resnet18", 10, 0, 32, &m, &err));
	refuse(m, "layer9", "no layer or block");
	refuse(m, "", "no layer or block");
	refuse(m, "layer", "no layer or block");
	refuse(m, "bn1", "cannot be cut");
	refuse(m, "conv1", "cannot be cut");
	refuse(m, "layer2.0.conv2", "cannot be cut");
	assert_int_equal(gn_model_part(m, 0, 3, &part, &err), GN_ERR_USAGE);
	assert_int_equal(gn_model_part(m, 1, 3, &part, &err), GN_ERR_USAGE);
	assert_int_equal(gn_model_part(m, 1, 100000, &part, &err), GN_ERR_USAGE);
	gn_model_destroy(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_small_networks),
		cmocka_unit_test(test_resnet),
		cmocka_unit_test(test_bottlenecks),
		cmocka_unit_test(test_mobilenet),
		cmocka_unit_test(test_efficientnet),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
