#include "tests/test.h"

#include "src/train/model/model.h"

#include <string.h>

static size_t elements(const struct gn_model *m)
{
	size_t sum = 0;

	for (int i = 0; i < gn_model_param_count(m); i++)
		sum += gn_model_param(m, i)->count;
	return sum;
}

/* The counts are torchvision's; lenet's is Caffe's; resnet20's is 0.27 million of the paper plus two projections. */
static void test_counts(void **state)
{
	static const struct {
		const char *name;
		int classes;
		size_t count;
		int params, buffers;
	} table[] = {
		{"resnet18", 1000, 11689512, 62, 40},
		{"resnet34", 1000, 21797672, 110, 72},
		{"resnet50", 1000, 25557032, 161, 106},
		{"resnet101", 1000, 44549160, 314, 208},
		{"resnet152", 1000, 60192808, 467, 310},
		{"vgg16", 1000, 138357544, 32, 0},
		{"lenet", 10, 431080, 8, 0},
		{"resnet20", 10, 272474, 65, 42},
		{"mobilenet_v2", 1000, 3504872, 158, 104},
		{"mobilenet_v3_large", 1000, 5483032, 174, 92},
		{"efficientnet_b0", 1000, 5288548, 213, 98},
		{"convnext_tiny", 1000, 28589128, 182, 0},
		{"vit_b_16", 1000, 86567656, 152, 0},
	};
	struct gn_err err;

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		struct gn_model *m;

		assert_ok(gn_model_create(table[i].name, table[i].classes, 0, gn_model_default_side(table[i].name), &m,
					  &err));
		assert_int_equal(elements(m), table[i].count);
		assert_int_equal(gn_model_param_count(m), table[i].params);
		assert_int_equal(gn_model_buffer_count(m), table[i].buffers);
		gn_model_destroy(m);
	}
}

static const struct gn_param *find(const struct gn_model *m, const char *name)
{
	for (int i = 0; i < gn_model_param_count(m); i++)
		if (!strcmp(gn_model_param(m, i)->name, name))
			return gn_model_param(m, i);
	fail_msg("there is no parameter %s", name);
	return NULL;
}

static void assert_shape(const struct gn_model *m, const char *name, int64_t a, int64_t b, int64_t c, int64_t d)
{
	const int64_t want[4] = {a, b, c, d};
	const struct gn_param *p = find(m, name);

	for (int i = 0; i < p->dims; i++)
		assert_int_equal(p->shape[i], want[i]);
}

/* The order of a torchvision bottleneck's state dict, and the stride of version 1.5. */
static void test_resnet50_names(void **state)
{
	static const char *const begin[] = {
		"conv1.weight",
		"bn1.weight",
		"bn1.bias",
		"layer1.0.conv1.weight",
		"layer1.0.bn1.weight",
		"layer1.0.bn1.bias",
		"layer1.0.conv2.weight",
		"layer1.0.bn2.weight",
		"layer1.0.bn2.bias",
		"layer1.0.conv3.weight",
		"layer1.0.bn3.weight",
		"layer1.0.bn3.bias",
		"layer1.0.downsample.0.weight",
		"layer1.0.downsample.1.weight",
		"layer1.0.downsample.1.bias",
		"layer1.1.conv1.weight",
	};
	struct gn_model *m;
	struct gn_err err;

	(void)state;
	assert_ok(gn_model_create("resnet50", 1000, 0, 224, &m, &err));
	for (size_t i = 0; i < sizeof begin / sizeof *begin; i++)
		assert_string_equal(gn_model_param(m, (int)i)->name, begin[i]);
	assert_string_equal(gn_model_buffer(m, 0)->name, "bn1.running_mean");
	assert_string_equal(gn_model_buffer(m, 1)->name, "bn1.running_var");
	assert_shape(m, "layer2.0.conv2.weight", 128, 128, 3, 3);
	assert_int_equal(gn_model_node(m, find(m, "layer2.0.conv1.weight")->node)->stride, 1);
	assert_int_equal(gn_model_node(m, find(m, "layer2.0.conv2.weight")->node)->stride, 2);
	assert_shape(m, "fc.weight", 1000, 2048, 0, 0);
	gn_model_destroy(m);
}

static void test_other_names(void **state)
{
	struct gn_model *m;
	struct gn_err err;

	(void)state;
	assert_ok(gn_model_create("vgg16", 10, 0, 64, &m, &err));
	assert_shape(m, "features.28.weight", 512, 512, 3, 3);
	assert_shape(m, "classifier.0.weight", 4096, 25088, 0, 0);
	assert_shape(m, "classifier.6.bias", 10, 0, 0, 0);
	gn_model_destroy(m);
	assert_ok(gn_model_create("lenet", 10, 3, 32, &m, &err));
	assert_shape(m, "conv1.weight", 20, 3, 5, 5);
	assert_shape(m, "fc1.weight", 500, 1250, 0, 0);
	gn_model_destroy(m);
	assert_ok(gn_model_create("resnet20", 10, 0, 32, &m, &err));
	assert_shape(m, "layer3.0.downsample.0.weight", 64, 32, 1, 1);
	gn_model_destroy(m);
	assert_ok(gn_model_create("vit_b_16", 10, 1, 48, &m, &err));
	assert_shape(m, "conv_proj.weight", 768, 1, 16, 16);
	assert_shape(m, "class_token", 1, 1, 768, 0);
	assert_shape(m, "encoder.pos_embedding", 1, 10, 768, 0);
	assert_shape(m, "encoder.layers.encoder_layer_11.self_attention.in_proj_weight", 2304, 768, 0, 0);
	assert_shape(m, "encoder.layers.encoder_layer_11.self_attention.out_proj.bias", 768, 0, 0, 0);
	assert_shape(m, "heads.head.weight", 10, 768, 0, 0);
	gn_model_destroy(m);
}

/* Flat arrays: no overlap, aligned, all inside. */
static void test_offsets(void **state)
{
	struct gn_model *m;
	struct gn_err err;
	size_t end = 0;

	(void)state;
	assert_ok(gn_model_create("resnet18", 7, 0, 75, &m, &err));
	for (int i = 0; i < gn_model_param_count(m); i++) {
		const struct gn_param *p = gn_model_param(m, i);

		assert_true(p->offset >= end && p->offset % 16 == 0);
		end = p->offset + p->count;
	}
	assert_true(end <= gn_model_param_elements(m));
	gn_model_destroy(m);
}

static void test_refusals(void **state)
{
	struct gn_model *m = NULL;
	struct gn_err err;

	(void)state;
	assert_int_equal(gn_model_create("resnet51", 10, 0, 32, &m, &err), GN_ERR_USAGE);
	assert_non_null(strstr(err.text, "resnet50"));
	assert_int_equal(gn_model_create("lenet", 0, 0, 28, &m, &err), GN_ERR_USAGE);
	assert_int_equal(gn_model_create("lenet", 10, -1, 28, &m, &err), GN_ERR_USAGE);
	assert_int_equal(gn_model_create("lenet", 10, 0, 0, &m, &err), GN_ERR_USAGE);
	assert_int_equal(gn_model_create("vit_b_16", 10, 0, 100, &m, &err), GN_ERR_USAGE);
	assert_non_null(strstr(err.text, "must be a multiple of 16"));
	assert_null(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counts),      cmocka_unit_test(test_resnet50_names),
		cmocka_unit_test(test_other_names), cmocka_unit_test(test_offsets),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
