/* Networks after ResNet as plans: stochastic depth against the oracle, recomputed against kept outputs, batch norm folded into
 * convolutions, bfloat16, initial values. Their numbers against torchvision's are selftest.t's. */
#include "tests/train/net.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 32, BATCH = 4, CLASSES = 10 };

static void of_formula(struct net *n, const char *name, struct gn_plan_options o)
{
	o.batch = BATCH;
	net_init(n, name, CLASSES, SIDE, "formula", o);
}

static const float *forward(struct net *n, uint64_t step)
{
	const float *logits;
	struct gn_err err;

	assert_ok(gn_plan_forward(n->plan, n->images, step, &logits, &err));
	return logits;
}

static void backward(struct net *n)
{
	struct gn_err err;
	double loss;

	assert_ok(gn_plan_loss(n->plan, n->labels, &loss, &err));
	assert_ok(gn_plan_backward(n->plan, NULL, NULL, &err));
}

static double apart(size_t count, const float *a, const float *b)
{
	double off = 0, size = 0;

	for (size_t i = 0; i < count; i++) {
		off += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
		size += (double)b[i] * b[i];
	}
	return sqrt(off / size);
}

static void test_drop_path(void **state)
{
	struct gn_plan_options o = {.backend = GN_BACKEND_HOST, .training = 1, .drop_path = 0.5, .seed = 77};
	struct net host, ref, off;

	(void)state;
	of_formula(&host, "efficientnet_b0", o);
	o.backend = GN_BACKEND_REF;
	of_formula(&ref, "efficientnet_b0", o);
	o.drop_path = 0;
	o.backend = GN_BACKEND_HOST;
	of_formula(&off, "efficientnet_b0", o);
	assert_true(apart(BATCH * CLASSES, forward(&host, 7), forward(&ref, 7)) < 1e-3);
	backward(&host);
	backward(&ref);
	assert_true(apart(gn_model_param_elements(ref.model), host.grads, ref.grads) < 1e-2);
	assert_true(apart(BATCH * CLASSES, forward(&host, 8), forward(&ref, 7)) > 1e-2);
	assert_true(apart(BATCH * CLASSES, forward(&off, 7), forward(&ref, 7)) > 1e-2);
	net_release(&host);
	net_release(&ref);
	net_release(&off);
}

/* An activation that overwrites its input leaves nothing to recompute; one that reads its input again does. */
static void test_recomputed(void **state)
{
	static const char *const names[] = {"mobilenet_v2", "efficientnet_b0"};

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct gn_plan_options o = {.backend = GN_BACKEND_HOST, .training = 1};
		struct net again, kept;

		of_formula(&again, names[i], o);
		o.keep = 1;
		of_formula(&kept, names[i], o);
		forward(&again, 0);
		backward(&again);
		forward(&kept, 0);
		backward(&kept);
		assert_memory_equal(again.grads, kept.grads, gn_model_param_elements(kept.model) * sizeof(float));
		net_release(&again);
		net_release(&kept);
	}
}

static void test_frozen(void **state)
{
	struct net plain, frozen;
	struct gn_err err;

	(void)state;
	of_formula(&plain, "mobilenet_v3_large", (struct gn_plan_options){.backend = GN_BACKEND_HOST});
	of_formula(&frozen, "mobilenet_v3_large", (struct gn_plan_options){.backend = GN_BACKEND_HOST, .frozen = 1});
	assert_ok(gn_plan_freeze(frozen.plan, &err));
	assert_true(apart(BATCH * CLASSES, forward(&frozen, 0), forward(&plain, 0)) < 1e-4);
	net_release(&plain);
	net_release(&frozen);
}

static void test_bf16(void **state)
{
	static const char *const names[] = {"convnext_tiny", "vit_b_16"};

	(void)state;
	if (!gn_backend_has_bf16(GN_BACKEND_HOST))
		skip();
	for (int i = 0; i < 2; i++) {
		struct net full, half;

		of_formula(&full, names[i], (struct gn_plan_options){.backend = GN_BACKEND_HOST, .training = 1});
		of_formula(&half, names[i], (struct gn_plan_options){.backend = GN_BACKEND_HOST, .training = 1, .bf16 = 1});
		assert_true(apart(BATCH * CLASSES, forward(&half, 0), forward(&full, 0)) < 5e-2);
		backward(&full);
		backward(&half);
		assert_true(apart(gn_model_param_elements(full.model), half.grads, full.grads) < 5e-2);
		net_release(&full);
		net_release(&half);
	}
}

static double deviation(const char *network, const char *name)
{
	struct gn_model *m;
	struct gn_err err;
	double sum = 0;
	int index = 0;
	float *x;

	assert_ok(gn_model_create(network, 1000, 0, 224, &m, &err));
	while (strcmp(gn_model_param(m, index)->name, name))
		assert_true(++index < gn_model_param_count(m));
	x = room(gn_model_param(m, index)->count, sizeof *x);
	gn_init_param(m, index, 3, x);
	for (size_t i = 0; i < gn_model_param(m, index)->count; i++)
		sum += (double)x[i] * x[i];
	sum = sqrt(sum / (double)gn_model_param(m, index)->count);
	free(x);
	gn_model_destroy(m);
	return sum;
}

static void test_initial(void **state)
{
	static const struct {
		const char *network, *name;
		double deviation; /* torchvision's */
	} table[] = {
		{"mobilenet_v2", "classifier.1.weight", 0.01},
		{"mobilenet_v2", "classifier.1.bias", 0},
		{"mobilenet_v2", "features.2.conv.0.0.weight", 0.14433757}, /* sqrt(2 / 96) */
		{"mobilenet_v3_large", "classifier.0.weight", 0.01},
		{"mobilenet_v3_large", "features.4.block.2.fc1.bias", 0},
		{"efficientnet_b0", "classifier.1.weight", 0.018257419}, /* 1 / sqrt(1000) / sqrt(3) */
		{"efficientnet_b0", "classifier.1.bias", 0},
		{"efficientnet_b0", "features.6.0.block.1.0.weight", 0.010910895}, /* sqrt(2 / (672 * 25)) */
		{"convnext_tiny", "features.1.0.block.3.weight", 0.02},
		{"convnext_tiny", "features.0.0.weight", 0.02},
		{"convnext_tiny", "features.0.0.bias", 0},
		{"convnext_tiny", "features.1.0.layer_scale", 1e-6},
		{"convnext_tiny", "classifier.0.weight", 1},
		{"vit_b_16", "conv_proj.weight", 0.036084392}, /* sqrt(1 / 768) */
		{"vit_b_16", "class_token", 0},
		{"vit_b_16", "encoder.pos_embedding", 0.02},
		{"vit_b_16", "encoder.layers.encoder_layer_5.self_attention.in_proj_weight", 0.025515518}, /* sqrt(2 / 3072) */
		{"vit_b_16", "encoder.layers.encoder_layer_5.self_attention.in_proj_bias", 0},
		{"vit_b_16", "encoder.layers.encoder_layer_5.self_attention.out_proj.weight", 0.020833333}, /* 1 / sqrt(768) / sqrt(3) */
		{"vit_b_16", "encoder.layers.encoder_layer_5.self_attention.out_proj.bias", 0},
		{"vit_b_16", "encoder.layers.encoder_layer_5.mlp.0.weight", 0.022821773}, /* sqrt(2 / 3840) */
		{"vit_b_16", "encoder.layers.encoder_layer_5.mlp.3.bias", 1e-6},
		{"vit_b_16", "encoder.ln.weight", 1},
		{"vit_b_16", "heads.head.weight", 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		double found = deviation(table[i].network, table[i].name);

		if (!(fabs(found - table[i].deviation) <= 0.03 * table[i].deviation))
			fail_msg("%s of %s: deviation %g, torchvision's is %g", table[i].name, table[i].network, found, table[i].deviation);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_drop_path), cmocka_unit_test(test_recomputed), cmocka_unit_test(test_frozen),
		cmocka_unit_test(test_bf16),	  cmocka_unit_test(test_initial),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
