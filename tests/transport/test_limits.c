#include "tests/test.h"
#include "transport/bootstrap/limits.h"

#include <stdlib.h>
#include <string.h>

static void clear(void)
{
	unsetenv(GN_LIMITS_JOIN);
	unsetenv(GN_LIMITS_HEARTBEAT);
	unsetenv(GN_LIMITS_STALL);
}

static void assert_limits(struct gn_limits given, int ranks, double join_s, double heartbeat_s, double stall_s)
{
	struct gn_err err;

	assert_ok(gn_limits_resolve(&given, ranks, &err));
	assert_float_equal(given.join_s, join_s, 1e-9);
	assert_float_equal(given.heartbeat_s, heartbeat_s, 1e-9);
	assert_float_equal(given.stall_s, stall_s, 1e-9);
}

static void test_defaults(void **state)
{
	const struct gn_limits none = {0};

	(void)state;
	clear();
	assert_limits(none, 1, 60.06, 5, 5);
	assert_limits(none, 64, 63.84, 5, 5);
	assert_limits(none, 65, 63.9, 6, 6);
	assert_limits(none, 128, 67.68, 6, 6);
	assert_limits(none, 1024, 121.44, 9, 9);
	assert_limits(none, 4096, 305.76, 11, 11);
	/* ends, too */
	assert_limits(none, 2000000000, 60 + 0.06 * 2e9, 29, 29);
}

static void test_precedence(void **state)
{
	(void)state;
	clear();
	setenv(GN_LIMITS_JOIN, "300", 1);
	setenv(GN_LIMITS_HEARTBEAT, "2.5", 1);
	setenv(GN_LIMITS_STALL, "", 1);
	/* a stall is not found before the usual time because heartbeats are awaited for a shorter one */
	assert_limits((struct gn_limits){0}, 1024, 300, 2.5, 9);
	assert_limits((struct gn_limits){.join_s = 7, .heartbeat_s = 30}, 4, 7, 30, 30);
	assert_limits((struct gn_limits){.heartbeat_s = 30, .stall_s = 3}, 4, 300, 30, 3);
	clear();
}

static void test_garbage(void **state)
{
	static const char *const garbage[] = {"0", "-5", "0.5", "86401", "1e9", "nan", "inf", "5s", "five", " "};
	struct gn_limits given = {0};
	struct gn_err err;

	(void)state;
	clear();
	for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++) {
		setenv(GN_LIMITS_STALL, garbage[i], 1);
		assert_int_equal(gn_limits_resolve(&given, 2, &err), GN_ERR_USAGE);
		assert_non_null(strstr(err.text, GN_LIMITS_STALL));
		assert_true(given.join_s == 0);
	}
	clear();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_precedence),
		cmocka_unit_test(test_garbage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
