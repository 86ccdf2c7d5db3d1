/* One update of a whole model: clipping, what gets decay, and what happens when a gradient is not finite. */
#include "tests/test.h"
#include "tests/kernels/ref_optim.h"

#include "src/train/model/init.h"
#include "src/train/optim/optimizer.h"
#include "src/train/plan/device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct bench {
	struct gn_model *model;
	struct gn_plan_device device;
	struct gn_optimizer *optimizer;
	struct gn_update_result result; /* of the last step */
	size_t count;
	float *params, *before, *grads;
};

static void create_optimizer(struct bench *b, const struct gn_optimizer_options *options, float *buffers, const struct gn_ema *ema)
{
	const struct gn_optimizer_arrays arrays = {.params = b->params, .grads = b->grads, .buffers = buffers, .ranks = 1, .ema = ema};
	struct gn_err err;

	gn_optimizer_destroy(b->optimizer);
	assert_ok(gn_optimizer_create(b->model, options, &arrays, b->device.compute, &b->optimizer, &err));
}

/* Whether parameters were updated. */
static int step(struct bench *b, const struct gn_optim_update *u)
{
	struct gn_err err;

	assert_ok(gn_optimizer_step(b->optimizer, u, &b->result, &err));
	return !b->result.skipped;
}

static struct bench make(const struct gn_optimizer_options *options)
{
	const struct gn_plan_options host = {.backend = GN_BACKEND_HOST};
	struct bench b = {.optimizer = NULL};
	struct gn_err err;
	float *buffers;

	assert_ok(gn_model_create("resnet20", 10, 3, 32, &b.model, &err));
	assert_ok(gn_plan_device_open(&host, &b.device, &err));
	b.count = gn_model_param_elements(b.model);
	b.params = calloc(b.count, sizeof(float));
	b.before = calloc(b.count, sizeof(float));
	b.grads = calloc(b.count, sizeof(float));
	buffers = calloc(gn_model_buffer_elements(b.model), sizeof(float));
	assert_true(b.params && b.before && b.grads && buffers);
	assert_ok(gn_init_params(b.model, "seed:1", b.params, buffers, &err));
	memcpy(b.before, b.params, b.count * sizeof(float));
	for (int i = 0; i < gn_model_param_count(b.model); i++) {
		const struct gn_param *p = gn_model_param(b.model, i);

		for (size_t k = 0; k < p->count; k++)
			b.grads[p->offset + k] = (float)gn_init_formula(p->name, k);
	}
	free(buffers);
	create_optimizer(&b, options, NULL, NULL);
	return b;
}

static void drop(struct bench *b)
{
	gn_optimizer_destroy(b->optimizer);
	gn_plan_device_close(&b->device);
	gn_model_destroy(b->model);
	free(b->params);
	free(b->before);
	free(b->grads);
}

/* Plain descent: the length of the step is lr times the norm of what clipping leaves. */
static void test_clipping(void **state)
{
	static const struct gn_optim_update u = {1, 0.5, 1};
	struct gn_optimizer_options o = {.name = "sgd"};
	double full, moved;
	struct bench b = make(&o);

	(void)state;
	full = 0.5 * sqrt(gn_ref_sum_squares(b.grads, b.count));
	drop(&b);
	for (double share = 0.25; share < 3; share *= 2) {
		o.clip = share * full;
		b = make(&o);
		assert_int_equal(step(&b, &u), 1);
		assert_true(fabs(b.result.norm - full) < 1e-9 * full);
		for (size_t i = 0; i < b.count; i++)
			b.params[i] -= b.before[i];
		moved = sqrt(gn_ref_sum_squares(b.params, b.count));
		assert_true(fabs(moved - (share < 1 ? share : 1) * full) < 1e-5 * full);
		drop(&b);
	}
}

/* Without gradients only decay moves parameters: by lr * decay of their own size, biases and batch norm not at all. */
static void test_what_decays(void **state)
{
	static const struct gn_optim_update u = {0.5, 1, 1};

	(void)state;
	for (int all = 0; all < 2; all++) {
		struct gn_optimizer_options o = {.name = "sgd", .weight_decay = 0.125, .decay_all = all};
		struct bench b = make(&o);

		memset(b.grads, 0, b.count * sizeof(float));
		assert_int_equal(step(&b, &u), 1);
		for (int i = 0; i < gn_model_param_count(b.model); i++) {
			const struct gn_param *p = gn_model_param(b.model, i);
			float factor = p->kind == GN_PARAM_WEIGHT || all ? 1 - 0.0625f : 1;

			for (size_t k = p->offset; k < p->offset + p->count; k++)
				assert_true(fabsf(b.params[k] - factor * b.before[k]) <= 1e-7f);
		}
		drop(&b);
	}
}

static void test_not_finite(void **state)
{
	static const char *const names[] = {"sgd", "lars", "lamb"};
	static const struct gn_optim_update u = {0.1, 1, 1};
	static const float bad[] = {NAN, INFINITY, -INFINITY};

	(void)state;
	for (int k = 0; k < 9; k++) {
		struct gn_optimizer_options o = {.name = names[k / 3], .momentum = 0.9, .beta2 = 0.999, .trust = 0.001, .eps = -1};
		struct bench b = make(&o);
		const struct gn_param *last = gn_model_param(b.model, gn_model_param_count(b.model) - 1);
		float *zero = calloc(b.count, sizeof(float));

		assert_non_null(zero);
		b.grads[last->offset + last->count - 1] = bad[k % 3];
		assert_int_equal(step(&b, &u), 0);
		assert_false(isfinite(b.result.norm));
		assert_memory_equal(b.params, b.before, b.count * sizeof(float));
		for (int slot = 0; slot < gn_optim_slots(gn_optimizer_kind(b.optimizer)); slot++)
			assert_memory_equal(gn_optimizer_slot(b.optimizer, slot)->host, zero, b.count * sizeof(float));
		b.grads[last->offset + last->count - 1] = 1;
		assert_int_equal(step(&b, &u), 1);
		assert_int_not_equal(memcmp(b.params, b.before, b.count * sizeof(float)), 0);
		free(zero);
		drop(&b);
	}
}

/* 9 blocks of two convolutions, 3 of them with a projection, which stays as it is. */
static void test_zero_gamma(void **state)
{
	struct gn_optimizer_options o = {.name = "sgd"};
	struct bench b = make(&o);
	int zeros = 0;

	(void)state;
	gn_init_zero_gamma(b.model, b.params);
	for (int i = 0; i < gn_model_param_count(b.model); i++) {
		const struct gn_param *p = gn_model_param(b.model, i);
		int zeroed = p->kind == GN_PARAM_BN_WEIGHT && strstr(p->name, ".bn2.") != NULL;

		zeros += zeroed;
		for (size_t k = p->offset; k < p->offset + p->count; k++)
			assert_true(b.params[k] == (zeroed ? 0 : b.before[k]));
	}
	assert_int_equal(zeros, 9);
	drop(&b);
}

/* Averages of updates that leave the parameters where they are. */
static void test_average(void **state)
{
	struct gn_optimizer_options o = {.name = "sgd"};
	struct bench b = make(&o);
	struct gn_optim_update u = {0, 1, 1};
	float *buffers = calloc(gn_model_buffer_elements(b.model), sizeof(float));
	struct gn_ema e;
	struct gn_err err;

	(void)state;
	assert_ok(gn_ema_init(&e, b.model, 0.5, NULL, b.device.device, &err));
	gn_ema_set(&e, b.params, buffers);
	create_optimizer(&b, &o, buffers, &e);
	b.params[0] = b.before[0] + 4;
	buffers[0] = 8;
	assert_int_equal(step(&b, &u), 1); /* d = 2/11 */
	assert_true(fabsf(e.params.host[0] - (b.before[0] + 4 * 9.0f / 11)) < 1e-6);
	u.step = 1000;
	assert_int_equal(step(&b, &u), 1); /* d = 0.5 */
	assert_true(fabsf(e.params.host[0] - (b.before[0] + 4 * 10.0f / 11)) < 1e-6);
	assert_true(fabsf(e.buffers.host[0] - 8 * 10.0f / 11) < 1e-6);
	b.grads[0] = NAN;
	assert_int_equal(step(&b, &u), 0);
	assert_true(fabsf(e.buffers.host[0] - 8 * 10.0f / 11) < 1e-6);
	gn_ema_swap(&e, b.params, buffers);
	assert_true(e.params.host[0] == b.before[0] + 4 && e.buffers.host[0] == 8);
	assert_true(fabsf(buffers[0] - 8 * 10.0f / 11) < 1e-6);
	gn_optimizer_destroy(b.optimizer);
	b.optimizer = NULL;
	gn_ema_release(&e);
	free(buffers);
	drop(&b);
}

static void test_bad_options(void **state)
{
	static const struct gn_optimizer_options bad[] = {
		{.name = "adam"},
		{.name = "lamb", .momentum = 0.9, .beta2 = 0.999, .nesterov = 1},
		{.name = "lamb", .momentum = 1, .beta2 = 0.999},
	};
	enum gn_optim_kind kind;
	struct gn_err err;

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(gn_optimizer_check(&bad[i], &kind, &err), GN_ERR_USAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_clipping),   cmocka_unit_test(test_what_decays), cmocka_unit_test(test_not_finite),
		cmocka_unit_test(test_zero_gamma), cmocka_unit_test(test_average),     cmocka_unit_test(test_bad_options),
	};

	return cmocka_run_group_tests_name("train/optimizer", tests, NULL, NULL);
}
