#include "tests/test.h"

#include "src/train/optim/recipe.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_published), cmocka_unit_test(test_nearest)};

	return cmocka_run_group_tests_name("train/recipe", tests, NULL, NULL);
}
