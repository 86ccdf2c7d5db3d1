#include "data/sample/order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct gn_order order(uint64_t count, uint32_t ranks, uint32_t batch, int training)
{
	return (struct gn_order){.seed = 7, .count = count, .ranks = ranks, .batch = batch, .shuffled = training, .drops = training};
}

static void each_epoch_is_a_permutation(void **state)
{
	static const uint64_t counts[] = {1, 2, 3, 4, 5, 7, 10, 16, 17, 100, 257, 1000, 7000, 65537};

	(void)state;
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
		struct gn_order o = order(counts[i], 1, 1, 1);
		uint8_t *seen = calloc(counts[i], 1);

		assert_non_null(seen);
		for (uint64_t p = 0; p < counts[i]; p++) {
			uint64_t s = gn_order_sample(&o, 3, p);

			assert_in_range(s, 0, counts[i] - 1);
			assert_int_equal(seen[s], 0);
			seen[s] = 1;
		}
		free(seen);
	}
}

/* The largest dataset: still inside, still without two positions on one sample among those looked at. */
static void large_counts_stay_in_range(void **state)
{
	struct gn_order o = order(UINT32_MAX, 1, 1, 1);
	uint64_t before = UINT64_MAX;

	(void)state;
	for (uint64_t p = 0; p < UINT32_MAX; p += 104729 * 97) {
		uint64_t s = gn_order_sample(&o, 0, p);

		assert_in_range(s, 0, UINT32_MAX - 1u);
		assert_int_not_equal(s, before);
		before = s;
	}
}

/* Samples at the same place in two orders of 1,000: one is expected by chance, dozens mean the orders are related. */
static int agreements(const struct gn_order *a, uint32_t epoch_a, const struct gn_order *b, uint32_t epoch_b)
{
	int same = 0;

	for (uint64_t p = 0; p < a->count; p++)
		same += gn_order_sample(a, epoch_a, p) == gn_order_sample(b, epoch_b, p);
	return same;
}

static void epochs_and_seeds_differ(void **state)
{
	struct gn_order o = order(1000, 1, 1, 1), other = o, high = o;

	(void)state;
	other.seed = 8;
	high.seed = 7 | 1ull << 40;
	for (uint32_t e = 0; e < 20; e++) {
		assert_in_range(agreements(&o, e, &o, e + 1), 0, 9);
		assert_in_range(agreements(&o, e, &other, e), 0, 9);
		assert_in_range(agreements(&o, e, &high, e), 0, 9);
		assert_int_equal(agreements(&o, e, &o, e), 1000);
	}
}

/* Chi-square over (position, sample) counts: (n-1)^2 degrees of freedom; the bound is five deviations away. */
static void check_uniform(uint64_t n, uint32_t epochs)
{
	struct gn_order o = order(n, 1, 1, 1);
	uint32_t *hits = calloc(n * n, sizeof *hits);
	double expected = (double)epochs / (double)n, chi = 0, freedom = (double)((n - 1) * (n - 1));

	assert_non_null(hits);
	for (uint32_t e = 0; e < epochs; e++)
		for (uint64_t p = 0; p < n; p++)
			hits[p * n + gn_order_sample(&o, e, p)]++;
	for (uint64_t i = 0; i < n * n; i++)
		chi += (hits[i] - expected) * (hits[i] - expected) / expected;
	free(hits);
	if ((chi - freedom) * (chi - freedom) > 25 * 2 * freedom)
		fail_msg("%d samples: chi-square %.1f with %.0f degrees of freedom", (int)n, chi, freedom);
}

static void samples_are_uniform_over_positions(void **state)
{
	(void)state;
	check_uniform(4, 4000);
	check_uniform(10, 4000);
	check_uniform(37, 2000);
	check_uniform(100, 2000);
}

/* Neighbours in one order must not be neighbours in the next: how often sample s+1 follows s, over many epochs, is
 * about once an epoch. */
static void neighbours_are_parted(void **state)
{
	struct gn_order o = order(500, 1, 1, 1);
	int follow = 0;

	(void)state;
	for (uint32_t e = 0; e < 100; e++)
		for (uint64_t p = 0; p + 1 < o.count; p++)
			follow += gn_order_sample(&o, e, p) + 1 == gn_order_sample(&o, e, p + 1);
	assert_in_range(follow, 50, 150);
}

/* All 24 orders of four samples come up, none of them twice as often as it should. */
static void small_counts_reach_every_order(void **state)
{
	struct gn_order o = order(4, 1, 1, 1);
	int hits[256] = {0}, reached = 0;

	(void)state;
	for (uint32_t e = 0; e < 4800; e++) {
		int code = 0;

		for (uint64_t p = 0; p < 4; p++)
			code = code * 4 + (int)gn_order_sample(&o, e, p);
		hits[code]++;
	}
	for (int i = 0; i < 256; i++) {
		reached += hits[i] > 0;
		assert_in_range(hits[i], 0, 300);
	}
	assert_int_equal(reached, 24);
}

static void ranks_share_the_global_batch(void **state)
{
	static const uint32_t worlds[] = {1, 2, 3, 4, 8};
	const uint32_t global = 48;
	struct gn_order whole = order(1003, 1, global, 1);

	(void)state;
	for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
		for (uint64_t b = 0; b < gn_order_batches(&whole); b++) {
			uint64_t at = b * global, first;

			for (uint32_t r = 0; r < worlds[w]; r++) {
				struct gn_order o = order(1003, worlds[w], global / worlds[w], 1);

				o.rank = r;
				assert_int_equal(gn_order_batches(&o), 1003 / global);
				assert_int_equal(gn_order_slice(&o, b, &first), o.batch);
				assert_int_equal(first, at);
				at += o.batch;
			}
			assert_int_equal(at, (b + 1) * global);
		}
	}
}

/* A step of so many batches, whatever the number of ranks that take them: each position once, and the same ones in each step. */
static void ranks_take_batches_in_turns(void **state)
{
	struct gn_err err;

	(void)state;
	for (uint32_t batches = 1; batches < 9; batches++)
		for (uint32_t ranks = 1; ranks <= batches; ranks++) {
			uint8_t seen[1003] = {0};
			uint64_t first, steps = (1003 - 7) / (batches * 5);

			for (uint32_t r = 0; r < ranks; r++) {
				struct gn_order o = order(1003, ranks, 5, 1);
				uint64_t own = batches / ranks + (r < batches % ranks);

				o.rank = r;
				o.step_batches = batches;
				o.done = 7;
				assert_int_equal(gn_order_check(&o, &err), GN_OK);
				assert_int_equal(gn_order_batches(&o), steps * own);
				for (uint64_t b = 0; b < steps * own; b++) {
					assert_int_equal(gn_order_slice(&o, b, &first), 5);
					assert_int_equal((first - 7) / (batches * 5), b / own);
					for (int i = 0; i < 5; i++)
						assert_int_equal(seen[first + (uint64_t)i]++, 0);
				}
			}
			for (uint64_t i = 0; i < 1003; i++)
				assert_int_equal(seen[i], i >= 7 && i < 7 + steps * batches * 5);
		}
}

static void check_evaluation(uint64_t count, uint32_t ranks, uint32_t batch)
{
	uint8_t *seen = calloc(count, 1);
	uint32_t least = 0, most = 0;

	assert_non_null(seen);
	for (uint32_t r = 0; r < ranks; r++) {
		struct gn_order o = order(count, ranks, batch, 0);
		uint64_t batches = gn_order_batches(&o), first;

		o.rank = r;
		for (uint64_t b = 0; b < batches; b++) {
			uint32_t n = gn_order_slice(&o, b, &first);

			assert_in_range(n, 0, batch);
			least = !r || n < least ? n : least;
			most = !r || n > most ? n : most;
			for (uint32_t i = 0; i < n; i++) {
				assert_in_range(first + i, 0, count - 1);
				assert_int_equal(gn_order_sample(&o, 5, first + i), first + i);
				assert_int_equal(seen[first + i], 0);
				seen[first + i] = 1;
			}
		}
		if (batches == 1)
			assert_in_range(most - least, 0, 1);
	}
	for (uint64_t i = 0; i < count; i++)
		assert_int_equal(seen[i], 1);
	free(seen);
}

static void evaluation_covers_each_sample_once(void **state)
{
	(void)state;
	for (uint64_t count = 1; count < 40; count++)
		for (uint32_t ranks = 1; ranks < 9; ranks++)
			for (uint32_t batch = 1; batch < 9; batch++)
				check_evaluation(count, ranks, batch);
	check_evaluation(1000, 7, 64);
	check_evaluation(1000, 4, 1000);
	check_evaluation(3, 64, 4000000000u);
}

static void nonsense_is_refused(void **state)
{
	struct gn_order o = order(100, 4, 26, 1);
	struct gn_err err;

	(void)state;
	assert_int_equal(gn_order_check(&o, &err), GN_ERR_DATA);
	assert_non_null(strstr(err.text, "fewer than a step takes: 104 in batches of 26 on 4 ranks"));
	assert_non_null(strstr(err.text, "holds 100"));
	o.drops = 0;
	assert_int_equal(gn_order_check(&o, &err), GN_OK);
	o.drops = 1;
	o.batch = 25;
	assert_int_equal(gn_order_check(&o, &err), GN_OK);
	o.rank = 4;
	assert_int_equal(gn_order_check(&o, &err), GN_ERR_USAGE);
	o.rank = 0;
	o.step_batches = 3;
	assert_int_equal(gn_order_check(&o, &err), GN_ERR_USAGE);
	assert_non_null(strstr(err.text, "a step of 3 batches has none for some of 4 ranks"));
	o.step_batches = 5;
	assert_int_equal(gn_order_check(&o, &err), GN_ERR_DATA);
	o = order(100, 0, 1, 0);
	assert_int_equal(gn_order_check(&o, &err), GN_ERR_USAGE);
	o = order(100, 1, 0, 0);
	assert_int_equal(gn_order_check(&o, &err), GN_ERR_USAGE);
	o = order(0, 1, 1, 0);
	assert_int_equal(gn_order_check(&o, &err), GN_ERR_DATA);
	o = order(1ull << 32, 1, 1, 0);
	assert_int_equal(gn_order_check(&o, &err), GN_ERR_UNSUPPORTED);
	o = order(100, UINT32_MAX, UINT32_MAX, 1);
	assert_int_equal(gn_order_check(&o, &err), GN_ERR_DATA);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_epoch_is_a_permutation),	cmocka_unit_test(large_counts_stay_in_range),
		cmocka_unit_test(epochs_and_seeds_differ),	cmocka_unit_test(samples_are_uniform_over_positions),
		cmocka_unit_test(neighbours_are_parted),	cmocka_unit_test(small_counts_reach_every_order),
		cmocka_unit_test(ranks_share_the_global_batch),
		cmocka_unit_test(ranks_take_batches_in_turns), cmocka_unit_test(evaluation_covers_each_sample_once),
		cmocka_unit_test(nonsense_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
