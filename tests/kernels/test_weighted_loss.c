/* The cross entropy with weights of classes, against torch. */
#include "tests/test.h"

#include "kernels/op.h"

#include <math.h>

enum { BATCH = 3, CLASSES = 4 };

static const double logits[BATCH * CLASSES] = {.5, -1, 2, .25, 1, 0, -.5, 3, -2, 1, .75, .5}, weights[CLASSES] = {.5, 2, 0, 1.25};
static const int32_t labels[BATCH] = {1, 3, 0}, first[BATCH] = {1, 3, 0}, second[BATCH] = {2, 3, 1};
static const float lambdas[BATCH] = {0.7f, 1, 0.25f};

/* torch.nn.functional.cross_entropy(logits, labels, weight=weights, label_smoothing=SMOOTHING), torch 2.15, in float64; the last with the
 * probabilities lambda * one_hot(first) + (1 - lambda) * one_hot(second). */
static const struct known {
	double smoothing;
	int mixed;
	double loss, dlogits[BATCH * CLASSES];
} known[] = {
	{0, 0, 2.3806172553939717,
	 {0.08225857348488651, -0.5149789646580692, 0.3686573497288164, 0.06406304144436631, 0.03711925329499918, 0.01365541015886552,
	  0.008282424932303299, -0.059057088386168036, -0.130607274723873, 0.05475435085508905, 0.0426427313225098, 0.03321019254627415}},
	{0.1, 0, 2.2993292370774823,
	 {0.07455525343516858, -0.47595404049394263, 0.3490724280244731, 0.052326359034301016, 0.03285793862929088,
	  -1.9308428439449414e-05, 0.00807536430899572, -0.04091399450984719, -0.12036874459554522, 0.046212023221576,
	  0.0463739703132294, 0.027782751060739807}},
	{0.1, 1, 2.2305647826405473,
	 {0.06543179824281153, -0.4211371500453299, 0.31191867949711577, 0.04378667230540264, 0.041072423286613584,
	  -2.4135535549316152e-05, 0.010094205386244644, -0.051142493137308974, -0.03106059488923508, -0.25363802037108585,
	  0.16590687655163966, 0.11879173870868119}},
};

static void check(const struct known *k)
{
	const struct gn_targets plain = {.labels = labels, .class_weights = weights}, mixed = {first, second, lambdas, weights};
	const struct gn_targets *targets = k->mixed ? &mixed : &plain;
	const double by = gn_targets_mean_weight(targets, BATCH);
	float narrow[BATCH * CLASSES], host_d[BATCH * CLASSES];
	double ref_loss, host_loss, ref_d[BATCH * CLASSES];
	struct gn_err err;

	for (int i = 0; i < BATCH * CLASSES; i++)
		narrow[i] = (float)logits[i];
	assert_ok(gn_softmax_cross_entropy_mixed(GN_BACKEND_REF, BATCH, CLASSES, logits, targets, k->smoothing, &ref_loss, ref_d, &err));
	assert_ok(gn_softmax_cross_entropy_mixed(GN_BACKEND_HOST, BATCH, CLASSES, narrow, targets, k->smoothing, &host_loss, host_d,
						 &err));
	/* 0.7 as a float is 1e-8 off */
	assert_true(fabs(ref_loss / by - k->loss) < 1e-7);
	assert_true(fabs(host_loss / by - k->loss) < 1e-7);
	for (int i = 0; i < BATCH * CLASSES; i++) {
		assert_true(fabs(ref_d[i] / by - k->dlogits[i]) < 1e-7);
		assert_true(fabs(host_d[i] / by - k->dlogits[i]) < 2e-7);
	}
}

static void test_as_torch(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		check(&known[i]);
}

/* Weights of 1 are none. */
static void test_ones(void **state)
{
	const double ones[CLASSES] = {1, 1, 1, 1};
	const struct gn_targets with = {.labels = labels, .class_weights = ones}, without = {.labels = labels};
	double a, b, da[BATCH * CLASSES], db[BATCH * CLASSES];
	struct gn_err err;

	(void)state;
	assert_ok(gn_softmax_cross_entropy_mixed(GN_BACKEND_REF, BATCH, CLASSES, logits, &with, 0.1, &a, da, &err));
	assert_ok(gn_softmax_cross_entropy_mixed(GN_BACKEND_REF, BATCH, CLASSES, logits, &without, 0.1, &b, db, &err));
	assert_true(fabs(a - b) < 1e-14);
	for (int i = 0; i < BATCH * CLASSES; i++)
		assert_true(fabs(da[i] - db[i]) < 1e-15);
}

static void test_mean_weight(void **state)
{
	const int32_t some[BATCH] = {-1, 1, 0}, none[BATCH] = {-1, -1, -1};
	const struct gn_targets partly = {.labels = some, .class_weights = weights}, empty = {.labels = none, .class_weights = weights};
	const struct gn_targets unweighted = {.labels = some};

	(void)state;
	assert_true(gn_targets_mean_weight(&partly, BATCH) == 1.25);
	assert_true(gn_targets_mean_weight(&empty, BATCH) == 0);
	assert_true(gn_targets_mean_weight(&unweighted, BATCH) == 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_torch), cmocka_unit_test(test_ones), cmocka_unit_test(test_mean_weight)};

	return cmocka_run_group_tests_name("kernels/weighted_loss", tests, NULL, NULL);
}
