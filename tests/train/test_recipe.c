#include "tests/test.h"

#include "src/train/optim/recipe.h"
#include "src/train/optim/resize_schedule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *value(const struct gn_recipe *r, const char *option)
{
	for (size_t i = 0; i < r->count; i++)
		if (!strcmp(r->choices[i].option, option))
			return r->choices[i].value;
	fail_msg("no %s", option);
	return NULL;
}

static double number(const struct gn_recipe *r, const char *option)
{
	return atof(value(r, option));
}

static void test_published(void **state)
{
	struct gn_recipe r;
	struct gn_err err;

	(void)state;
	assert_ok(gn_recipe_find("goyal", 8192, &r, &err));
	assert_string_equal(value(&r, "milestones"), "30,60,80");
	assert_true(number(&r, "lr") == 0.1 && number(&r, "lr-batch") == 256 && number(&r, "weight-decay") == 1e-4);
	assert_int_equal(r.batch, 0);
	assert_ok(gn_recipe_find("nvidia-50", 256, &r, &err));
	assert_true(number(&r, "weight-decay") == 1.0 / 32768 && number(&r, "momentum") == 0.875);
	assert_ok(gn_recipe_find("mlperf-lars", 4096, &r, &err));
	assert_true(number(&r, "lr") == 10 && number(&r, "warmup-epochs") == 5 && number(&r, "weight-decay") == 2e-4);
	assert_string_equal(value(&r, "optimizer"), "lars");
	assert_int_equal(r.batch, 4096);
}

/* Nearest in ratio, from one image to more than anyone published. */
static void test_nearest(void **state)
{
	static const int64_t near[][2] = {{1, 1632},	 {2300, 1632}, {2400, 3264},   {3600, 3264}, {3700, 4096},
					  {5700, 4096}, {5900, 8192}, {32768, 32768}, {1 << 30, 67840}};
	struct gn_recipe r;
	struct gn_err err;

	(void)state;
	for (size_t i = 0; i < sizeof near / sizeof *near; i++) {
		assert_ok(gn_recipe_find("mlperf-lars", near[i][0], &r, &err));
		assert_int_equal(r.batch, near[i][1]);
	}
	assert_int_equal(gn_recipe_find("adamw", 256, &r, &err), GN_ERR_USAGE);
}

/* FFCV's get_resolution(), which numpy's round makes: 160 up to start, 192 from end on, between them multiples of 32. */
static int ffcv_side(int epoch, int start, int end)
{
	if (epoch <= start)
		return 160;
	return epoch >= end ? 192 : 32 * (int)nearbyint((160 + 32.0 * (epoch - start) / (end - start)) / 32);
}

static void test_ffcv_resizes(void **state)
{
	static const int ramps[][3] = {{16, 11, 13}, {24, 17, 20}, {32, 23, 27}, {40, 29, 34}, {56, 41, 48}, {88, 65, 76}};
	struct gn_resize_schedule schedule;
	struct gn_recipe r;
	struct gn_err err;
	char name[16];

	(void)state;
	for (size_t i = 0; i < sizeof ramps / sizeof *ramps; i++) {
		snprintf(name, sizeof name, "ffcv-%d", ramps[i][0]);
		assert_ok(gn_recipe_find(name, 4096, &r, &err));
		assert_int_equal((int)r.epochs, ramps[i][0]);
		assert_ok(gn_resize_schedule_parse(value(&r, "resize-schedule"), &schedule, &err));
		for (int epoch = 0; epoch < ramps[i][0]; epoch++)
			assert_int_equal(gn_resize_schedule_side(&schedule, (uint64_t)epoch, 256),
					 ffcv_side(epoch, ramps[i][1], ramps[i][2]));
	}
}

/* torchvision's decay by 32 steps of 8 x 128 images, by step: EMA in train.py is scaled by world size, batch, steps and epochs. */
/* Of another side, and another batch: what depends on them follows. */
static void test_fit(void **state)
{
	struct gn_recipe r;
	struct gn_err err;

	(void)state;
	assert_ok(gn_recipe_find("torchvision-v2", 8, &r, &err));
	gn_recipe_fit(&r, 112, 8, 1);
	assert_string_equal(value(&r, "resize"), "116");
	assert_string_equal(value(&r, "resize-schedule"), "0:88");
	/* 0.01 of 0.5 * 8 / 1024 */
	assert_true(fabs(number(&r, "lr-start") - 0.01 * 0.5 * 8 / 1024) < 1e-9);
	assert_ok(gn_recipe_find("ffcv-16", 4096, &r, &err));
	gn_recipe_fit(&r, 64, 4096, 0);
	assert_string_equal(value(&r, "resize-schedule"), "0:40,12:48");
	assert_string_equal(value(&r, "lr-start"), "0.00017");
	assert_ok(gn_recipe_find("goyal", 256, &r, &err));
	gn_recipe_fit(&r, 0, 256, 1);
	assert_string_equal(value(&r, "lr-start"), "-1");
}

static void test_torchvision_average(void **state)
{
	double by_32 = 1 - (1 - 0.99998) * (8 * 128 * 32 / 600.0);
	struct gn_recipe r;
	struct gn_err err;

	(void)state;
	assert_ok(gn_recipe_find("torchvision-v2", 1024, &r, &err));
	assert_true(fabs(pow(number(&r, "ema"), 32) - by_32) < 1e-5);
}

/* Every recipe of the list exists, fits, has a source for each value and sets none twice. */
static void test_all(void **state)
{
	char names[512], *rest = names;
	struct gn_recipe r;
	struct gn_err err;

	(void)state;
	snprintf(names, sizeof names, "%s", gn_recipe_names);
	for (char *name = strtok_r(names, "|", &rest); name; name = strtok_r(NULL, "|", &rest)) {
		assert_ok(gn_recipe_find(name, 2048, &r, &err));
		assert_true(r.count > 10 && r.count <= GN_RECIPE_CHOICES_MAX && r.epochs > 0 && r.title);
		for (size_t i = 0; i < r.count; i++) {
			assert_true(r.choices[i].source && *r.choices[i].source);
			for (size_t k = 0; k < i; k++)
				assert_string_not_equal(r.choices[i].option, r.choices[k].option);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_published), cmocka_unit_test(test_nearest), cmocka_unit_test(test_ffcv_resizes),
					   cmocka_unit_test(test_fit), cmocka_unit_test(test_torchvision_average),
					   cmocka_unit_test(test_all)};

	return cmocka_run_group_tests_name("train/recipe", tests, NULL, NULL);
}
