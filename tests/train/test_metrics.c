#include "tests/test.h"

#include "src/train/loop/input.h"
#include "src/train/metrics/metrics.h"

#include <math.h>
#include <string.h>

/* Seven classes, three images: right at once, right among five, not even that. */
static void test_counts(void **state)
{
	static const float logits[3][7] = {
		{9, 1, 2, 3, 4, 5, 6},
		{5, 6, 7, 1, 8, 0, 0},
		{5, 6, 7, 1, 8, 4, -1},
	};
	static const int32_t labels[3] = {0, 0, 6};
	struct gn_metrics score = {0};
	double loss = 0;

	(void)state;
	gn_metrics_add(&score, logits[0], labels, 3, 7);
	assert_int_equal(score.images, 3);
	assert_int_equal(score.top1, 1);
	assert_int_equal(score.top5, 2);
	for (int i = 0; i < 3; i++) {
		double sum = 0;

		for (int k = 0; k < 7; k++)
			sum += exp((double)logits[i][k]);
		loss += log(sum) - logits[i][labels[i]];
	}
	assert_true(fabs(score.loss_sum - loss) < 1e-12 * loss);
}

/* All logits equal: only the first class is right, and only labels below five are among the top five. */
static void test_ties(void **state)
{
	static const float logits[10] = {0};

	(void)state;
	for (int32_t label = 0; label < 10; label++) {
		struct gn_metrics score = {0};

		gn_metrics_add(&score, logits, &label, 1, 10);
		assert_int_equal(score.top1, label == 0);
		assert_int_equal(score.top5, label < 5);
	}
}

static void test_huge_logits_stay_finite(void **state)
{
	static const float logits[3] = {1e30f, -1e30f, 0};
	const int32_t label = 0;
	struct gn_metrics score = {0};

	(void)state;
	gn_metrics_add(&score, logits, &label, 1, 3);
	assert_true(score.loss_sum == 0);
}

/* What is not a number is no right answer, wherever it stands, and is counted. */
static void test_not_finite(void **state)
{
	static const float logits[5][6] = {
		{NAN, NAN, NAN, NAN, NAN, NAN}, {1, 2, 3, 9, 4, NAN}, {1, 2, 3, NAN, 4, 5}, {1, 2, 3, INFINITY, 4, 5},
		{1, 2, 3, 9, -INFINITY, 5},
	};
	static const int32_t labels[5] = {3, 3, 3, 3, 3};
	static const float finite[6] = {1, 2, 3, 9, 4, 5};
	struct gn_metrics score = {0};

	(void)state;
	gn_metrics_add(&score, logits[0], labels, 5, 6);
	gn_metrics_add(&score, finite, labels, 1, 6);
	assert_int_equal(score.images, 6);
	assert_int_equal(score.top1, 1);
	assert_int_equal(score.top5, 1);
	assert_int_equal(score.nonfinite, 5);
	assert_false(isfinite(score.loss_sum));
}

static void test_input_values(void **state)
{
	static const char *const bad[] = {"", "a", "1,2", "1,2,3,4", "1,,2", "nan", "1,2,", "0.5 "};
	struct gn_input_spec spec = {0};
	struct gn_err err;

	(void)state;
	assert_ok(gn_input_parse(NULL, NULL, 3, &spec, &err));
	assert_true(spec.mean[0] == 0.485 && spec.deviation[2] == 0.225);
	assert_ok(gn_input_parse("0.1307", "0.3081", 1, &spec, &err));
	assert_true(spec.mean[2] == 0.1307 && spec.deviation[0] == 0.3081);
	assert_int_equal(gn_input_parse("0.1,0.2,0.3", NULL, 1, &spec, &err), GN_ERR_USAGE);
	assert_non_null(strstr(err.text, "--mean '0.1,0.2,0.3' has three numbers"));
	assert_int_equal(gn_input_parse(NULL, "0.1,0.2,0.3", 1, &spec, &err), GN_ERR_USAGE);
	assert_ok(gn_input_parse("0.1,0.2,0.3", NULL, 3, &spec, &err));
	assert_true(spec.mean[0] == 0.1 && spec.mean[2] == 0.3);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (gn_input_parse(bad[i], NULL, 3, &spec, &err) != GN_ERR_USAGE)
			fail_msg("'%s' passed", bad[i]);
	assert_int_equal(gn_input_parse(NULL, "0", 3, &spec, &err), GN_ERR_USAGE);
}

static void test_augment_names(void **state)
{
	enum gn_augment augment;
	struct gn_err err;

	(void)state;
	assert_ok(gn_input_augment_parse("auto", 224, &augment, &err));
	assert_int_equal(augment, GN_AUGMENT_CROP_FLIP);
	assert_ok(gn_input_augment_parse("auto", 32, &augment, &err));
	assert_int_equal(augment, GN_AUGMENT_SHIFT);
	assert_ok(gn_input_augment_parse("none", 32, &augment, &err));
	assert_int_equal(augment, GN_AUGMENT_NONE);
	assert_int_equal(gn_input_augment_parse("flip", 32, &augment, &err), GN_ERR_USAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counts),
		cmocka_unit_test(test_ties),
		cmocka_unit_test(test_huge_logits_stay_finite),
		cmocka_unit_test(test_not_finite),
		cmocka_unit_test(test_input_values),
		cmocka_unit_test(test_augment_names),
	};

	return cmocka_run_group_tests_name("train/score and input", tests, NULL, NULL);
}
