#include "tests/test.h"

#include "src/train/parallel/server.h"

#include <string.h>

static void test_options(void **state)
{
	static const struct {
		const char *update, *servers;
		struct gn_server_spec wanted;
	} right[] = {
		{NULL, NULL, {GN_UPDATE_ALLREDUCE, 0, 0, 0}},	 {"allreduce", "none", {GN_UPDATE_ALLREDUCE, 0, 0, 0}},
		{"sync", "1", {GN_UPDATE_SYNC, 0, 1, 0}},	 {"async", "shared", {GN_UPDATE_ASYNC, 0, 0, 1}},
		{"ssp:0", "12", {GN_UPDATE_SSP, 0, 12, 0}},	 {"ssp:4", "shared", {GN_UPDATE_SSP, 4, 0, 1}},
	};
	static const char *const wrong[][2] = {{"ssp", "1"}, {"ssp:", "1"}, {"ssp:-1", "1"}, {"ssp:1x", "1"}, {"ssp:99999999", "1"},
					       {"asynch", "1"}, {"", "1"}, {"sync", "0"}, {"sync", "-1"}, {"sync", "1.5"}, {"sync", "all"}, {"sync", ""},
					       {"sync", "none"}, {"sync", NULL}, {"allreduce", "1"}, {NULL, "shared"}};
	struct gn_server_spec got;
	struct gn_err err;

	(void)state;
	for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
		assert_ok(gn_server_parse(right[i].update, right[i].servers, &got, &err));
		assert_int_equal(got.mode, right[i].wanted.mode);
		assert_int_equal(got.bound, right[i].wanted.bound);
		assert_int_equal(got.servers, right[i].wanted.servers);
		assert_int_equal(got.is_shared, right[i].wanted.is_shared);
	}
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		assert_int_equal(gn_server_parse(wrong[i][0], wrong[i][1], &got, &err), GN_ERR_USAGE);
}

static void test_roles(void **state)
{
	const struct gn_server_spec two = {.mode = GN_UPDATE_ASYNC, .servers = 2}, shared = {.mode = GN_UPDATE_ASYNC, .is_shared = 1};

	(void)state;
	assert_int_equal(gn_server_workers(&two, 6), 4);
	assert_int_equal(gn_server_first(&two, 6), 4);
	assert_int_equal(gn_server_count(&two, 6), 2);
	assert_true(gn_server_workers(&two, 2) <= 0);
	assert_int_equal(gn_server_workers(&shared, 6), 6);
	assert_int_equal(gn_server_first(&shared, 6), 0);
	assert_int_equal(gn_server_count(&shared, 6), 6);
}

/* One behind the other, at lines of memory, all, and as even as lines allow. */
static void test_parts(void **state)
{
	static const size_t elements[] = {0, 1, 15, 16, 17, 100, 431080, 25557032, 138357544};

	(void)state;
	for (size_t e = 0; e < sizeof elements / sizeof *elements; e++)
		for (int servers = 1; servers < 40; servers++) {
			size_t at = 0, least = SIZE_MAX, most = 0;

			for (int i = 0; i < servers; i++) {
				struct gn_server_part p = gn_server_part(elements[e], servers, i);
				size_t lines = (p.end - p.begin + 15) / 16;

				assert_int_equal(p.begin, at);
				assert_true(p.end >= p.begin);
				assert_true(p.begin % 16 == 0 || p.begin == elements[e]);
				least = lines < least ? lines : least;
				most = lines > most ? lines : most;
				at = p.end;
			}
			assert_int_equal(at, elements[e]);
			assert_true(most - least <= 1);
		}
}

static void test_clock(void **state)
{
	const struct gn_server_spec async = {.mode = GN_UPDATE_ASYNC}, ssp = {.mode = GN_UPDATE_SSP, .bound = 3},
				    together = {.mode = GN_UPDATE_SSP, .bound = 0};

	(void)state;
	assert_true(gn_server_may_go(&async, 1000000, 0));
	assert_true(gn_server_may_go(&ssp, 3, 0));
	assert_false(gn_server_may_go(&ssp, 4, 0));
	assert_true(gn_server_may_go(&ssp, 4, 1));
	assert_true(gn_server_may_go(&ssp, 0, 0));
	assert_true(gn_server_may_go(&together, 7, 7));
	assert_false(gn_server_may_go(&together, 8, 7));
}

/* Workers of any speeds that follow the rule: none is ever more than the bound ahead, and all come to the end. */
static void test_bound(void **state)
{
	enum { WORKERS = 5, STEPS = 400 };
	uint64_t draw = 1;

	(void)state;
	for (uint64_t bound = 0; bound < 6; bound++) {
		const struct gn_server_spec ssp = {.mode = GN_UPDATE_SSP, .bound = bound};
		uint64_t clocks[WORKERS] = {0}, slowest = 0, ahead = 0;

		for (int turns = 0; slowest < STEPS; turns++) {
			uint64_t one, other;
			int w;

			assert_true(turns < 1000000);
			draw = draw * 6364136223846793005u + 1442695040888963407u;
			/* the first are drawn most often */
			one = (draw >> 33) % WORKERS;
			other = (draw >> 45) % WORKERS;
			w = (int)(one < other ? one : other);
			if (clocks[w] >= STEPS || !gn_server_may_go(&ssp, clocks[w], slowest))
				continue;
			ahead = clocks[w] - slowest > ahead ? clocks[w] - slowest : ahead;
			clocks[w]++;
			slowest = UINT64_MAX;
			for (int r = 0; r < WORKERS; r++)
				slowest = clocks[r] < slowest ? clocks[r] : slowest;
		}
		assert_int_equal(ahead, bound);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_options), cmocka_unit_test(test_roles), cmocka_unit_test(test_parts),
					   cmocka_unit_test(test_clock), cmocka_unit_test(test_bound)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
