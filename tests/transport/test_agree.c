/* Who differs from most ranks, and how many comparisons that takes. */
#include "tests/test.h"

#include "transport/coll/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct gn_agree_odd find(const char *values)
{
	int ranks = (int)strlen(values);
	struct gn_agree_item *all = calloc((size_t)ranks * 2, sizeof *all);
	struct gn_agree_odd odd;
	struct gn_err err;

	assert_non_null(all);
	/* of two items each, the second */
	for (int r = 0; r < ranks; r++) {
		snprintf(all[2 * r].digest, sizeof all->digest, "%d", r);
		all[2 * r + 1].digest[0] = values[r];
	}
	assert_ok(gn_agree_find_odd(all + 1, 2, ranks, &odd, &err));
	free(all);
	return odd;
}

static void assert_odd(const char *values, int odd, int usual, int same)
{
	struct gn_agree_odd o = find(values);

	assert_int_equal(o.odd, odd);
	assert_int_equal(o.usual, usual);
	assert_int_equal(o.same, same);
}

static void test_majority(void **state)
{
	(void)state;
	assert_odd("a", -1, 0, 1);
	assert_odd("aaaa", -1, 0, 4);
	assert_odd("aaba", 2, 0, 3);
	assert_odd("baaa", 0, 1, 3);
	assert_odd("abcbc", 0, 1, 2);
	assert_odd("ba", 1, 0, 1);
	assert_odd("zzaayyy", 0, 4, 3);
}

/* All differ: with ranks^2 comparisons, 10^11 of them, this would take minutes. */
static void test_many_ranks(void **state)
{
	const int ranks = 300000;
	struct gn_agree_item *all = calloc((size_t)ranks, sizeof *all);
	struct gn_agree_odd odd;
	struct gn_err err;

	(void)state;
	assert_non_null(all);
	for (int r = 0; r < ranks; r++)
		snprintf(all[r].digest, sizeof all->digest, "%d", r);
	assert_ok(gn_agree_find_odd(all, 1, ranks, &odd, &err));
	assert_int_equal(odd.usual, 0);
	assert_int_equal(odd.same, 1);
	assert_int_equal(odd.odd, 1);
	free(all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_majority),
		cmocka_unit_test(test_many_ranks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
