/* Which node gannet preflight blames: made-up measurements with one fault each, and none; who meets whom in which round. */
#include "tests/test.h"

#include "src/base/file.h"
#include "src/jobs/preflight.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NODES 8

static struct gn_preflight_host hosts[NODES];
static struct gn_preflight_problem problems[GN_PREFLIGHT_PROBLEMS_MAX];
static double rate[NODES * NODES], latency[NODES * NODES];
static struct gn_preflight_options options = {.local = "/local", .max_skew_s = 0.1, .min_free_gb = 1};

static double noise(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return 1 + 0.05 * ((double)(*state >> 8) / (1 << 24) - 0.5);
}

/* count healthy nodes, 5 % apart */
static void make_healthy(int count, uint32_t seed)
{
	memset(hosts, 0, sizeof hosts);
	for (int i = 0; i < count; i++) {
		struct gn_preflight_host *h = &hosts[i];

		snprintf(h->host, sizeof h->host, "n%d", i + 1);
		h->gflops = 500 * noise(&seed);
		h->share = 1;
		h->memory_gb_per_s = 200 * noise(&seed);
		h->write_mb_per_s = 1500 * noise(&seed);
		h->read_mb_per_s = 3000 * noise(&seed);
		h->free_gb = 700;
		h->ahead_s = 0.001 * (noise(&seed) - 1);
		h->processors = 64;
		/* 0x4: power limit, as under load */
		h->gpus = (struct gn_preflight_gpus){.count = 4, .throttle = 0x4};
		h->memory_bytes = 256ull << 30;
		h->memlock_bytes = h->nofile = UINT64_MAX;
		strcpy(h->gannet, "0.2.0 abc");
		strcpy(h->ucx, "1.13.1");
		strcpy(h->kernel, "6.1.0");
		strcpy(h->mounts, "/\n/home\n/scratch\n");
	}
	for (int a = 0; a < count; a++)
		for (int b = 0; b < count; b++) {
			rate[a * count + b] = a == b ? 0 : 98 * noise(&seed);
			latency[a * count + b] = a == b ? 0 : 2.5 * noise(&seed);
		}
}

static size_t judge(int count, const struct gn_preflight_host *baseline)
{
	return gn_preflight_judge(&options, hosts, count, rate, latency, baseline, problems);
}

static void expect_one(int count, int node, const char *what)
{
	size_t n = judge(count, NULL);

	if (!n || problems[0].node != node || problems[n - 1].node != node || strcmp(problems[0].what, what))
		fail_msg("%s of node %d among %d: %zu problems, the first of node %d: %s", what, node, count, n, n ? problems[0].node : -1,
			 n ? problems[0].text : "");
}

static void healthy(void **state)
{
	(void)state;
	for (int count = 1; count <= NODES; count++)
		for (uint32_t seed = 0; seed < 50; seed++) {
			make_healthy(count, seed);
			if (judge(count, NULL))
				fail_msg("%d nodes, seed %u: %s: %s", count, seed, hosts[problems[0].node].host, problems[0].text);
		}
}

static void slow_link(int count, int node)
{
	for (int k = 0; k < count; k++) {
		rate[node * count + k] /= 2;
		rate[k * count + node] /= 2;
	}
}

/* Each fault on each node of clusters of each size. */
static void faults(void **state)
{
	(void)state;
	for (int count = 3; count <= NODES; count++)
		for (int node = 0; node < count; node++) {
			uint32_t seed = (uint32_t)(node * 100 + count);
			struct gn_preflight_host *h = &hosts[node];

			make_healthy(count, seed), h->gflops /= 2, expect_one(count, node, "processors");
			make_healthy(count, seed), h->share /= 2, expect_one(count, node, "share");
			make_healthy(count, seed), h->memory_gb_per_s *= 0.6, expect_one(count, node, "memory");
			make_healthy(count, seed), h->write_mb_per_s /= 4, expect_one(count, node, "disk");
			make_healthy(count, seed), h->free_gb = 0.5, expect_one(count, node, "disk");
			make_healthy(count, seed), slow_link(count, node), expect_one(count, node, "network");
			make_healthy(count, seed), h->ahead_s = -5, expect_one(count, node, "clock");
			make_healthy(count, seed), strcpy(h->ucx, "1.12.0"), expect_one(count, node, "version");
			make_healthy(count, seed), strcpy(h->mounts, "/\n/home\n"), expect_one(count, node, "mount");
			make_healthy(count, seed), h->memlock_bytes = 65536, expect_one(count, node, "limit");
			make_healthy(count, seed), h->memory_bytes /= 2, expect_one(count, node, "hardware");
			make_healthy(count, seed), h->gpus.count--, expect_one(count, node, "gpu");
			make_healthy(count, seed), h->gpus.count = 0, strcpy(h->gpus.why, "NVML: Driver Not Loaded"), expect_one(count, node, "gpu");
			make_healthy(count, seed), h->gpus.ecc_errors = 1, expect_one(count, node, "gpu");
			make_healthy(count, seed), h->gpus.throttle = 0x44, expect_one(count, node, "gpu");
			make_healthy(count, seed), strcpy(h->problem, "/local cannot be written: No space left on device"),
				expect_one(count, node, "measurement");
			make_healthy(count, seed);
			for (int k = 0; k < count; k++)
				latency[node * count + k] = latency[k * count + node] = k == node ? 0 : 200;
			expect_one(count, node, "latency");
		}
}

/* On a machine that others keep busy all nodes get little, and some much less than others. */
static void busy_machine(void **state)
{
	static const double seen[] = {0.14, 0.13, 0.1, 0.078};

	(void)state;
	make_healthy(4, 1);
	for (int i = 0; i < 4; i++)
		hosts[i].share = seen[i];
	assert_int_equal(judge(4, NULL), 0);
}

static void of_two(void **state)
{
	(void)state;
	make_healthy(2, 1);
	hosts[0].gflops /= 2;
	expect_one(2, 0, "processors");
	make_healthy(2, 1);
	rate[0 * 2 + 1] /= 2;
	/* which end is to blame two nodes cannot tell: what leaves one arrives at the other */
	assert_int_equal(judge(2, NULL), 2);
	assert_non_null(strstr(problems[0].text, "network out"));
	assert_non_null(strstr(problems[1].text, "network in"));
}

static void one_pair(void **state)
{
	(void)state;
	make_healthy(6, 3);
	rate[1 * 6 + 4] = 10;
	assert_int_equal(judge(6, NULL), 1);
	assert_int_equal(problems[0].node, 1);
	assert_string_equal(problems[0].what, "pair");
	assert_non_null(strstr(problems[0].text, "to n5 10 Gbit/s"));
}

static void baseline(void **state)
{
	char path[] = "/tmp/gn-preflight-XXXXXX";
	static const char *const bad[] = {"", "{", "[]", "{\"hosts\": 3}", "{\"hosts\": []}"};
	struct gn_preflight_host expected;
	struct gn_json j;
	struct gn_err err;
	json_t *root, *last;
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	make_healthy(4, 5);
	assert_int_equal(judge(4, NULL), 0);
	hosts[3].read_mb_per_s = 0;
	hosts[3].free_gb = -1;
	gn_json_init(&j);
	gn_preflight_write(hosts, 4, rate, latency, problems, 0, 1.5, &j);
	assert_false(gn_json_failed(&j));
	root = json_loads(gn_json_text(&j), 0, NULL);
	assert_non_null(root);
	assert_true(json_is_true(json_object_get(root, "ok")));
	assert_int_equal(json_array_size(json_object_get(root, "hosts")), 4);
	last = json_array_get(json_object_get(root, "hosts"), 3);
	assert_true(json_is_null(json_object_get(last, "disk_read_mb_per_s")));
	assert_true(json_is_null(json_object_get(last, "disk_free_gb")));
	assert_true(json_is_real(json_object_get(last, "disk_write_mb_per_s")));
	assert_true(json_is_null(json_array_get(json_array_get(json_object_get(root, "rate_gbit_per_s"), 1), 1)));
	json_decref(root);
	assert_ok(gn_file_replace(path, gn_json_text(&j), strlen(gn_json_text(&j)), &err));
	gn_json_release(&j);
	assert_ok(gn_preflight_baseline(path, &expected, &err));
	assert_int_equal(judge(4, &expected), 0);
	/* all nodes have lost the same: only the baseline knows */
	for (int i = 0; i < 4; i++)
		hosts[i].memory_gb_per_s /= 2;
	assert_int_equal(judge(4, NULL), 0);
	assert_int_equal(judge(4, &expected), 4);
	assert_non_null(strstr(problems[0].text, "by the baseline"));
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		assert_ok(gn_file_replace(path, bad[i], strlen(bad[i]), &err));
		assert_int_equal(gn_preflight_baseline(path, &expected, &err), GN_ERR_DATA);
	}
	unlink(path);
	assert_int_not_equal(gn_preflight_baseline(path, &expected, &err), GN_OK);
}

static void rounds(void **state)
{
	(void)state;
	for (int n = 2; n <= 65; n++) {
		int count = n + (n & 1) - 1, *met = calloc((size_t)(n * n), sizeof *met);

		assert_non_null(met);
		for (int r = 0; r < count; r++)
			for (int i = 0; i < n; i++) {
				int other = gn_preflight_partner(i, r, n);

				if (other < 0) {
					assert_true(n & 1);
					continue;
				}
				assert_in_range(other, 0, n - 1);
				assert_int_not_equal(other, i);
				assert_int_equal(gn_preflight_partner(other, r, n), i);
				met[i * n + other]++;
			}
		for (int i = 0; i < n * n; i++)
			assert_int_equal(met[i], i % n != i / n);
		free(met);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(healthy), cmocka_unit_test(faults), cmocka_unit_test(of_two),
					   cmocka_unit_test(busy_machine),
					   cmocka_unit_test(one_pair), cmocka_unit_test(baseline), cmocka_unit_test(rounds)};

	return cmocka_run_group_tests_name("preflight", tests, NULL, NULL);
}
