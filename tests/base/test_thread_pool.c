#include "tests/test.h"

#include "src/base/thread_pool.h"

#include <stdatomic.h>

static atomic_int running, most, done;

static void job(void *argument)
{
	int now = atomic_fetch_add(&running, 1) + 1, seen = atomic_load(&most);

	while (now > seen && !atomic_compare_exchange_weak(&most, &seen, now))
		;
	atomic_fetch_add(&done, *(int *)argument);
	atomic_fetch_sub(&running, 1);
}

static void test_every_job_runs_once(void **state)
{
	struct gn_thread_pool *pool;
	struct gn_err err;
	int one = 1;

	(void)state;
	assert_ok(gn_thread_pool_create(3, 2, &pool, &err));
	for (int i = 0; i < 5000; i++)
		gn_thread_pool_submit(pool, job, &one);
	gn_thread_pool_wait(pool);
	assert_int_equal(atomic_load(&done), 5000);
	assert_true(atomic_load(&most) <= 3);
	for (int i = 0; i < 10; i++)
		gn_thread_pool_submit(pool, job, &one);
	gn_thread_pool_destroy(pool);
	assert_int_equal(atomic_load(&done), 5010);
}

static void test_refusals(void **state)
{
	struct gn_thread_pool *pool;
	struct gn_err err;

	(void)state;
	assert_int_equal(gn_thread_pool_create(0, 1, &pool, &err), GN_ERR_USAGE);
	assert_true(gn_cpu_count() >= 1);
	gn_thread_pool_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_job_runs_once),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests_name("base/pool", tests, NULL, NULL);
}
