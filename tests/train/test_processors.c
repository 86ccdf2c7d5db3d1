#include "tests/test.h"

#include "src/train/plan/processors.h"

#include <stdio.h>
#include <string.h>

/* A rank that may run on processors first to last. */
static struct gn_processors_rank rank(const char *kernel, int first, int last, int threads)
{
	struct gn_processors_rank r;

	memset(&r, 0, sizeof r);
	snprintf(r.kernel, sizeof r.kernel, "%s", kernel);
	for (int cpu = first; cpu <= last; cpu++)
		CPU_SET((size_t)cpu, &r.allowed);
	r.threads = threads;
	return r;
}

/* Four ranks of "two nodes" that are one machine with two processors: the demo. */
static void test_one_kernel(void **state)
{
	const struct gn_processors_rank all[] = {rank("k", 0, 1, 1), rank("k", 0, 1, 1), rank("k", 0, 1, 1), rank("k", 0, 1, 1)};
	struct gn_processors p;

	(void)state;
	gn_processors_count(all, 4, &p);
	assert_int_equal(p.ranks, 4);
	assert_int_equal(p.threads, 4);
	assert_int_equal(p.processors, 2);
	assert_true(gn_processors_shared(&p));
	gn_processors_count(all, 2, &p);
	assert_false(gn_processors_shared(&p));
}

/* Two real nodes, ranks alternating, each bound to processors of its own: none is shared. */
static void test_two_kernels(void **state)
{
	const struct gn_processors_rank all[] = {rank("a", 0, 3, 4), rank("b", 0, 3, 4), rank("a", 4, 7, 4), rank("b", 4, 7, 4)};
	struct gn_processors p;

	(void)state;
	gn_processors_count(all, 4, &p);
	assert_int_equal(p.ranks, 2);
	assert_int_equal(p.threads, 8);
	assert_int_equal(p.processors, 8);
	assert_false(gn_processors_shared(&p));
}

/* The node that has too few is what counts, wherever it is in the order. */
static void test_worst_kernel(void **state)
{
	const struct gn_processors_rank all[] = {rank("a", 0, 7, 8), rank("b", 0, 1, 2), rank("b", 0, 1, 3), rank("c", 0, 3, 1)};
	struct gn_processors p;

	(void)state;
	gn_processors_count(all, 4, &p);
	assert_int_equal(p.ranks, 2);
	assert_int_equal(p.threads, 5);
	assert_int_equal(p.processors, 2);
	assert_true(gn_processors_shared(&p));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_kernel),
		cmocka_unit_test(test_two_kernels),
		cmocka_unit_test(test_worst_kernel),
	};

	return cmocka_run_group_tests_name("train/processors", tests, NULL, NULL);
}
