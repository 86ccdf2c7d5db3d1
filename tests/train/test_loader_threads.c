#include "tests/test.h"

#include "src/train/loop/session.h"

static void test_as_many_as_steps_need(void **state)
{
	static const struct {
		double decode, step, waited;
		int now, most, want;
	} cases[] = {
		/* decoding takes four threads' time of a step without waits, and one in five of that as reserve */
		{0.4, 0.2, 0.1, 2, 16, 5},
		{0.4, 0.2, 0.1, 2, 3, 3},    /* no more than processors */
		{0.4, 0.2, 0.1, 5, 16, 6},   /* the estimate says five, and five are not enough */
		{0.4, 0.1, 0.1, 2, 16, 16},  /* steps do nothing but wait */
		{0.01, 0.1, 0, 2, 16, 1},    /* fewer are enough */
		{0.15, 0.1, 0, 2, 16, 2},
		{0.4, 0.1, 0.001, 4, 16, 4}, /* it waits for next to nothing: no more */
		{0, 0.1, 0, 2, 16, 1},
		{0.4, 0.1, 0.1, 1, 1, 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		int found = gn_loader_threads_choose(cases[i].decode, cases[i].step, cases[i].waited, cases[i].now, cases[i].most);

		if (found != cases[i].want)
			fail_msg("case %zu: %d threads, not %d", i, found, cases[i].want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_many_as_steps_need)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
