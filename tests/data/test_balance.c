/* Class-balanced sampling: equal classes, equal images within a class, a pure function of seed and epoch. */
#include "tests/test.h"

#include "data/sample/order.h"

#include <stdlib.h>
#include <string.h>

enum { CLASSES = 6, COUNT = 1000 };
/* class 3 has none */
static const uint32_t sizes[CLASSES] = {1, 9, 200, 0, 740, 50};

static struct gn_balance *make(uint64_t seed, uint32_t labels[COUNT])
{
	struct gn_balance *b;
	struct gn_err err;
	uint32_t at = 0;

	for (uint32_t k = 0; k < CLASSES; k++)
		for (uint32_t i = 0; i < sizes[k]; i++)
			labels[(at++ * 7) % COUNT] = k;
	assert_int_equal(at, COUNT);
	assert_int_equal(gn_balance_create(seed, labels, COUNT, CLASSES, &b, &err), GN_OK);
	return b;
}

/* How often an epoch takes each sample, and each class. */
static void count(const struct gn_balance *b, const uint32_t *labels, uint32_t epoch, uint32_t samples[COUNT], uint32_t classes[CLASSES])
{
	memset(samples, 0, COUNT * sizeof *samples);
	memset(classes, 0, CLASSES * sizeof *classes);
	for (uint64_t d = 0; d < COUNT; d++) {
		uint64_t s = gn_balance_sample(b, epoch, d);

		assert_in_range(s, 0, COUNT - 1);
		samples[s]++;
		classes[labels[s]]++;
	}
}

static void test_equal_shares(void **state)
{
	uint32_t labels[COUNT], samples[COUNT], classes[CLASSES];
	struct gn_balance *b = make(4, labels);

	(void)state;
	assert_int_equal(gn_balance_classes(b), 5);
	assert_int_equal(gn_balance_smallest(b), 1);
	for (uint32_t epoch = 0; epoch < 4; epoch++) {
		count(b, labels, epoch, samples, classes);
		for (uint32_t k = 0; k < CLASSES; k++)
			assert_int_equal(classes[k], sizes[k] ? COUNT / 5 : 0);
		/* within a class none is taken twice more than another */
		for (uint32_t i = 0; i < COUNT; i++) {
			uint32_t share = 200 / sizes[labels[i]];

			assert_in_range(samples[i], share, share + (200 % sizes[labels[i]] != 0));
		}
	}
	gn_balance_destroy(b);
}

/* Nearly all images of a large class are shown within 24 epochs. */
static void test_large_classes_turn(void **state)
{
	uint32_t labels[COUNT], seen[COUNT] = {0}, missing = 0;
	struct gn_balance *b = make(4, labels);

	(void)state;
	for (uint32_t epoch = 0; epoch < 24; epoch++)
		for (uint64_t d = 0; d < COUNT; d++)
			seen[gn_balance_sample(b, epoch, d)]++;
	for (uint32_t i = 0; i < COUNT; i++)
		missing += labels[i] == 4 && !seen[i];
	/* by chance (1 - 200 / 740)^24 of 740, 0.4 */
	assert_in_range(missing, 0, 5);
	gn_balance_destroy(b);
}

static void test_pure(void **state)
{
	uint32_t labels[COUNT], same_seed = 0, same_epoch = 0;
	struct gn_balance *a = make(4, labels), *b = make(4, labels), *other = make(5, labels);

	(void)state;
	for (uint64_t d = 0; d < COUNT; d++) {
		uint64_t s = gn_balance_sample(a, 2, d);

		assert_int_equal(s, gn_balance_sample(b, 2, d));
		same_seed += s == gn_balance_sample(other, 2, d);
		/* an epoch that gives the same draw the same class */
		same_epoch += s == gn_balance_sample(a, 7, d);
	}
	/* the only image of a class is always the same */
	assert_in_range(same_seed, 200, 300);
	assert_in_range(same_epoch, 200, 300);
	gn_balance_destroy(a);
	gn_balance_destroy(b);
	gn_balance_destroy(other);
}

/* Where classes do not divide the samples, no two differ by more than one, and the one more goes round. */
static void test_rest(void **state)
{
	static const uint32_t labels[] = {0, 0, 0, 0, 0, 0, 1, 2};
	uint32_t total[3] = {0};
	struct gn_balance *b;
	struct gn_err err;

	(void)state;
	assert_int_equal(gn_balance_create(1, labels, 8, 3, &b, &err), GN_OK);
	for (uint32_t epoch = 0; epoch < 3; epoch++) {
		uint32_t classes[3] = {0};

		for (uint64_t d = 0; d < 8; d++)
			classes[labels[gn_balance_sample(b, epoch, d)]]++;
		for (int k = 0; k < 3; k++) {
			assert_in_range(classes[k], 2, 3);
			total[k] += classes[k];
		}
	}
	for (int k = 0; k < 3; k++)
		assert_int_equal(total[k], 8);
	gn_balance_destroy(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_equal_shares),
		cmocka_unit_test(test_large_classes_turn),
		cmocka_unit_test(test_pure),
		cmocka_unit_test(test_rest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
