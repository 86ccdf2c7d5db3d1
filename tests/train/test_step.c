/* A step with gradients that are not finite: nothing of a session changes but its counts, and the next step is as if the bad
 * one had been good for nothing but its samples. */
#include "tests/test.h"

#include "data/pack/pack.h"
#include "src/base/file.h"
#include "src/train/loop/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char root[64], data[80];

static int pack(void **state)
{
	struct gn_progress_bar progress = {0};
	struct gn_pack_options o = {
		.out = data, .synthetic_count = 64, .synthetic_classes = 10, .synthetic_height = 32, .synthetic_width = 32,
		.shard_bytes = 1 << 20, .seed = 1, .threads = 1, .quality = 90, .progress = &progress,
	};
	struct gn_pack_result result;
	struct gn_err err;

	(void)state;
	memcpy(root, "/tmp/gannet-step.XXXXXX", 24);
	if (!mkdtemp(root))
		return -1;
	snprintf(data, sizeof data, "%s/data", root);
	if (gn_pack(&o, &result, &err)) {
		fprintf(stderr, "# %s\n", err.text);
		return -1;
	}
	return 0;
}

static int drop(void **state)
{
	(void)state;
	return gn_remove_tree(root, NULL) ? -1 : 0;
}

static const struct gn_train_options options = {
	.data = data, .model = "resnet20", .epochs = 1, .batch = 4, .schedule = "constant", .lr = 0.1, .lr_start = -1,
	.optimizer = "sgd", .momentum = 0.9, .weight_decay = 1e-4, .eps = -1, .trust = 0.001, .ema = 0.9, .accumulate = 2,
	.augment = "none", .pad = -1, .resize_shorter = -1, .seed = 1, .resume = "none", .log_every = 1, .eval_every = 1,
	.device = "host", .algo = "auto", .threads = 1, .loader_threads = 1, .prefetch = 1 << 20, .bucket = 1 << 16,
};

static void step(struct gn_session *s, struct gn_interval *sums)
{
	static const volatile sig_atomic_t stop;
	struct gn_err err;
	int stopping;

	assert_ok(gn_session_step(s, &stop, sums, &stopping, &err));
}

static float *copy(const float *from, size_t count)
{
	float *to = malloc(count * sizeof *to);

	assert_non_null(to);
	return memcpy(to, from, count * sizeof *to);
}

/* The first step, then one with a NaN in a parameter for as long as it takes, then another. */
static void poison(struct gn_session *s)
{
	size_t count = gn_model_param_elements(s->model), buffer_count = gn_model_buffer_elements(s->model);
	struct gn_interval sums = {0};
	float *params, *buffers, *slot, *average, kept;

	step(s, &sums);
	params = copy(s->replica.params.host, count);
	slot = copy(gn_optimizer_slot(s->replica.optimizer, 0)->host, count);
	average = copy(s->replica.ema.params.host, count);
	buffers = copy(s->replica.buffers.host, buffer_count);
	kept = s->replica.params.host[0];
	s->replica.params.host[0] = NAN;
	step(s, &sums);
	s->replica.params.host[0] = kept;
	assert_memory_equal(s->replica.params.host, params, count * sizeof(float));
	assert_memory_equal(gn_optimizer_slot(s->replica.optimizer, 0)->host, slot, count * sizeof(float));
	assert_memory_equal(s->replica.ema.params.host, average, count * sizeof(float));
	assert_memory_equal(s->replica.buffers.host, buffers, buffer_count * sizeof(float));
	assert_int_equal(s->state.skipped, 1);
	assert_int_equal(s->state.step, 2);
	assert_int_equal(s->state.sample, 16);
	assert_int_equal(sums.skipped, 1);
	assert_true(isfinite(sums.loss_sum) && isfinite(sums.norm_sum));
	step(s, &sums);
	assert_int_equal(s->skips_in_a_row, 0);
	assert_int_equal(sums.skipped, 1);
	assert_int_not_equal(memcmp(s->replica.params.host, params, count * sizeof(float)), 0);
	free(params), free(buffers), free(slot), free(average);
}

static void test_poisoned_step(void **state)
{
	struct gn_world_options world_options = {0};
	struct gn_comm_options comm_options = {.transport = "auto", .tuning = "none"};
	struct gn_session *s;
	struct gn_world *world;
	struct gn_comm *comm;
	struct gn_err err;
	int resumed;

	(void)state;
	assert_ok(gn_world_create(&world_options, NULL, &world, &err));
	assert_ok(gn_comm_create(world, &comm_options, NULL, &comm, &err));
	assert_ok(gn_session_create(&options, "test", comm, NULL, &s, &err));
	assert_ok(gn_session_restore(s, &resumed, &err));
	assert_ok(gn_loader_start(s->data.loader, 0, 0, &err));
	poison(s);
	gn_session_destroy(s);
	gn_comm_destroy(comm);
	gn_world_destroy(world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_poisoned_step)};

	return cmocka_run_group_tests_name("train/step", tests, pack, drop);
}
