#include "tests/test.h"

#include "src/train/optim/lr.h"

#include <math.h>
#include <string.h>

static void near(double a, double b)
{
	if (fabs(a - b) > 1e-12 * fmax(1, fabs(b)))
		fail_msg("%.15g is not %.15g", a, b);
}

/* Goyal et al.: 0.1 for 256, 8192 images: 3.2 after five epochs that begin at 0.1; tenfold down at 30, 60, 80. */
static void test_goyal(void **state)
{
	struct gn_lr lr = {.shape = GN_LR_STEP, .lr = 0.1, .start = -1, .reference_batch = 256, .warmup_epochs = 5, .epochs = 90,
			   .factor = 0.1};
	struct gn_err err;

	(void)state;
	assert_ok(gn_lr_milestones_parse("30,60,80", &lr, &err));
	near(gn_lr_at(&lr, 8192, 0), 0.1);
	near(gn_lr_at(&lr, 8192, 2.5), 0.1 + (3.2 - 0.1) / 2);
	near(gn_lr_at(&lr, 8192, 5), 3.2);
	near(gn_lr_at(&lr, 8192, 29.999), 3.2);
	near(gn_lr_at(&lr, 8192, 30), 0.32);
	near(gn_lr_at(&lr, 8192, 80), 0.0032);
}

static void test_cosine_and_polynomial(void **state)
{
	struct gn_lr lr = {.shape = GN_LR_COSINE, .lr = 1, .start = -1, .warmup_epochs = 2, .epochs = 10, .final_lr = 0.1, .power = 2};

	(void)state;
	near(gn_lr_at(&lr, 64, 0), 1.0 / 8);
	lr.start = 0;
	near(gn_lr_at(&lr, 64, 0), 0);
	near(gn_lr_at(&lr, 64, 0.5), 0.25);
	near(gn_lr_at(&lr, 64, 2), 1);
	near(gn_lr_at(&lr, 64, 6), 0.55);
	near(gn_lr_at(&lr, 64, 10), 0.1);
	near(gn_lr_at(&lr, 64, 12), 0.1);
	lr.shape = GN_LR_POLYNOMIAL;
	near(gn_lr_at(&lr, 64, 6), 0.1 + 0.9 / 4);
	lr.shape = GN_LR_CONSTANT;
	near(gn_lr_at(&lr, 64, 9), 1);
}

/* What was published for 90 epochs, in a run of 9 and in one of 180. */
static void test_other_lengths(void **state)
{
	struct gn_lr lr = {.shape = GN_LR_STEP, .warmup_epochs = 5, .epochs = 9, .factor = 0.1}, other;
	struct gn_err err;

	(void)state;
	assert_ok(gn_lr_milestones_parse("30,60,80", &lr, &err));
	other = lr;
	assert_ok(gn_lr_fit(&other, 90, 90, &err));
	near(other.warmup_epochs, 0.5);
	near(other.milestones[0], 3);
	near(other.milestones[2], 8);
	other = lr;
	assert_ok(gn_lr_fit(&other, 0, 90, &err)); /* a warm-up that was given */
	near(other.warmup_epochs, 5);
	near(other.milestones[1], 6);
	other = lr;
	other.epochs = 180;
	assert_ok(gn_lr_fit(&other, 90, 90, &err));
	near(other.warmup_epochs, 5);
	near(other.milestones[0], 30);
}

static void test_warmup_of_all(void **state)
{
	struct gn_lr lr = {.warmup_epochs = 5, .epochs = 5};
	struct gn_err err;

	(void)state;
	assert_int_equal(gn_lr_fit(&lr, 0, 0, &err), GN_ERR_USAGE);
	assert_non_null(strstr(err.text, "--warmup-epochs 5 "));
	lr.epochs = 5.5;
	assert_ok(gn_lr_fit(&lr, 0, 0, &err));
	lr.epochs = 0; /* evaluation only */
	assert_ok(gn_lr_fit(&lr, 0, 0, &err));
}

static void test_bad_milestones(void **state)
{
	static const char *const bad[] = {"a", "30,,60", "60,30", "30;60", "-1", "inf", "30,30",
					  "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"};
	struct gn_lr lr = {0};
	struct gn_err err;

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(gn_lr_milestones_parse(bad[i], &lr, &err), GN_ERR_USAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_goyal),
		cmocka_unit_test(test_cosine_and_polynomial),
		cmocka_unit_test(test_other_lengths),
		cmocka_unit_test(test_warmup_of_all),
		cmocka_unit_test(test_bad_milestones),
	};

	return cmocka_run_group_tests_name("train/lr", tests, NULL, NULL);
}
