/* The simulator against closed forms, against itself unfolded, and against nonsense. */
#include "tests/test.h"

#include "transport/sim/sim.h"

#include <math.h>

/* Only latency, rate and gamma: then the textbook's formulas hold. */
static struct gn_sim_topology plain(int nodes, int ranks_per_node)
{
	return (struct gn_sim_topology){.nodes = nodes, .ranks_per_node = ranks_per_node, .rails = 1, .link_bytes_per_s = 1e9,
					.link_latency_s = 10e-6, .node_bytes_per_s = 1e10, .node_latency_s = 1e-6,
					.oversubscription = 1, .reduce_s_per_byte = 1e-10, .eager_bytes = 1e12, .seed = 7};
}

static double simulated(const struct gn_sim_topology *t, const char *name, size_t bytes, struct gn_sim_result *r)
{
	const struct gn_algorithm *a = gn_algorithm_find(GN_COLLECTIVE_ALLREDUCE, name);
	struct gn_err err;

	assert_non_null(a);
	assert_ok(gn_sim_run(t, a, bytes, 1, 0, r, &err));
	return r->time_s;
}

static void expect_near(double got, double wanted, double share)
{
	if (!(fabs(got - wanted) <= wanted * share))
		fail_msg("%.9g, not %.9g", got, wanted);
}

static void test_closed_forms(void **state)
{
	struct gn_sim_topology t = plain(8, 1);
	double n = 8 << 20, beta = 1e-9, alpha = 10e-6, gamma = 1e-10;
	struct gn_sim_result r;

	(void)state;
	expect_near(simulated(&t, "ring", 8 << 20, &r), 14 * (alpha + n / 8 * beta) + 7 * n / 8 * gamma, 1e-6);
	assert_int_equal(r.simulated_ranks, 1);
	assert_int_equal(r.messages, 8 * 14);
	assert_int_equal(r.network_bytes, 14 * (8 << 20));
	expect_near(simulated(&t, "recursive-doubling", 8 << 20, &r), 3 * (alpha + n * beta + n * gamma), 1e-6);
	expect_near(simulated(&t, "halving-doubling", 8 << 20, &r), 6 * alpha + 2 * n * 7 / 8 * beta + n * 7 / 8 * gamma, 1e-6);
	/* rendezvous: request and answer before each message */
	t.eager_bytes = 0;
	expect_near(simulated(&t, "recursive-doubling", 8 << 20, &r), 3 * (3 * alpha + n * beta + n * gamma), 1e-6);
}

/* One node for all gives what all give. A jitter too small to matter is enough to simulate every rank. */
static void test_folding(void **state)
{
	struct gn_sim_result folded, all;

	(void)state;
	for (int leaf = 0; leaf <= 2; leaf += 2)
		for (int per_node = 1; per_node <= 3; per_node++) {
			struct gn_sim_topology t = plain(6, per_node);

			t.leaf_nodes = leaf;
			t.oversubscription = 3;
			t.eager_bytes = 1000;
			t.send_overhead_s = 2e-6;
			simulated(&t, "ring", 18 * 40000, &folded);
			t.jitter = 1e-13;
			simulated(&t, "ring", 18 * 40000, &all);
			assert_int_equal(folded.simulated_ranks, per_node * (leaf ? leaf : 1));
			assert_int_equal(all.simulated_ranks, 6 * per_node);
			expect_near(folded.time_s, all.time_s, 1e-9);
			assert_int_equal(folded.messages, all.messages);
			assert_int_equal(folded.network_bytes, all.network_bytes);
		}
}

/* By streams nobody waits for a receiver. Ranks that differ by next to nothing used to do so in turn, their answers behind
 * what they sent to others. */
static void test_folding_of_streams(void **state)
{
	struct gn_sim_result folded, all;

	(void)state;
	for (int nodes = 3; nodes <= 5; nodes++)
		for (int eager = 0; eager <= 1; eager++) {
			struct gn_sim_topology t = plain(nodes, 1);

			t.streams = 1;
			t.eager_bytes = eager ? 1e12 : 0;
			t.send_overhead_s = 2e-6;
			simulated(&t, "ring", 8 << 20, &folded);
			t.jitter = 1e-13;
			simulated(&t, "ring", 8 << 20, &all);
			assert_int_equal(folded.simulated_ranks, 1);
			assert_int_equal(all.simulated_ranks, nodes);
			expect_near(folded.time_s, all.time_s, 1e-4);
		}
}

/* A root that sends the same to two others: one after the other, or to both at half the rate. */
static void test_streams_share(void **state)
{
	const struct gn_algorithm *a = gn_algorithm_find(GN_COLLECTIVE_BROADCAST, "4-nomial");
	struct gn_sim_topology t = plain(3, 1);
	double one = (8 << 20) * 1e-9;
	struct gn_sim_result r;
	struct gn_err err;

	(void)state;
	assert_non_null(a);
	assert_ok(gn_sim_run(&t, a, 8 << 20, 1, 0, &r, &err));
	expect_near(r.time_s, 2 * one + 10e-6, 1e-3);
	expect_near(r.fastest_s, one + 10e-6, 1e-3);
	t.streams = 1;
	assert_ok(gn_sim_run(&t, a, 8 << 20, 1, 0, &r, &err));
	expect_near(r.time_s, 2 * one + 10e-6, 1e-3);
	/* but for two parts, of which there are 64 */
	expect_near(r.fastest_s, 2 * one, 1.0 / 60);
}

/* Every algorithm ends by streams, too, on any machine, and no port carries more than it can. */
static void test_streams_of_all(void **state)
{
	size_t count;
	const struct gn_algorithm *all = gn_algorithms(&count);
	struct gn_sim_result plainly, r;
	struct gn_err err;

	(void)state;
	for (size_t i = 0; i < count; i++)
		for (int k = 0; k < 24; k++) {
			struct gn_sim_topology t = plain(1 + k % 6, 1 + k / 12);

			t.rails = 1 + k / 6 % 2;
			t.eager_bytes = k % 4 ? 0 : 100000;
			t.leaf_nodes = k % 6 == 5 ? 2 : 0;
			assert_ok(gn_sim_run(&t, &all[i], 300000, 1 + (uint32_t)k % 3, 0, &plainly, &err));
			t.streams = 1;
			assert_ok(gn_sim_run(&t, &all[i], 300000, 1 + (uint32_t)k % 3, 0, &r, &err));
			assert_int_equal(r.messages, plainly.messages);
			assert_int_equal(r.network_bytes, plainly.network_bytes);
			assert_true(r.time_s >= (double)r.network_bytes / (t.nodes * t.rails) * 1e-9);
			assert_true(r.time_s <= 3 * plainly.time_s);
		}
}

/* Times in a row: whoever is done begins the next time, and what it sends shares the ports with what the others lack. The mean is
 * near what one time takes alone, and never below what the busiest port does. */
static void test_rounds(void **state)
{
	static const char *const names[] = {"ring", "recursive-doubling", "halving-doubling", "double-tree"};
	struct gn_sim_result once, often;

	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		for (int size = 2; size <= 7; size++)
			for (int way = 0; way < 3; way++) {
				struct gn_sim_topology t = plain(size, 1);

				t.streams = way == 2;
				t.eager_bytes = way ? 1e12 : 0;
				simulated(&t, names[i], 1 << 20, &once);
				t.repeats = 6;
				t.warmup = 2;
				simulated(&t, names[i], 1 << 20, &often);
				/* one time's tail beside the next one's head */
				assert_true(often.time_s > 0.6 * once.time_s && often.time_s < 2 * once.time_s);
				assert_true(often.time_s * 1e9 * size >= (double)once.network_bytes / size);
				assert_true(often.fastest_s <= often.time_s);
			}
}

/* Two trees between four: the roots are done early, and their next messages take the way of those that the others wait for.
 * 64 MiB at 1 Gbit/s take 1.13 s once, and 1.35 to 1.45 s on the virtual cluster in a row. */
static void test_rounds_compete(void **state)
{
	const struct gn_algorithm *a = gn_algorithm_find(GN_COLLECTIVE_ALLREDUCE, "double-tree");
	struct gn_sim_topology t = plain(4, 1);
	struct gn_sim_result once, often;
	struct gn_err err;

	(void)state;
	t.streams = 1;
	assert_ok(gn_sim_run(&t, a, 64 << 20, 64, 0, &once, &err));
	t.repeats = 5;
	assert_ok(gn_sim_run(&t, a, 64 << 20, 64, 0, &often, &err));
	assert_true(often.time_s > 1.1 * once.time_s && often.time_s < 1.3 * once.time_s);
}

/* The root of a broadcast waits for nobody. */
static void test_rounds_ahead(void **state)
{
	const struct gn_algorithm *a = gn_algorithm_find(GN_COLLECTIVE_BROADCAST, "4-nomial");
	struct gn_sim_topology t = plain(2, 1);
	struct gn_sim_result r;
	struct gn_err err;

	(void)state;
	assert_non_null(a);
	t.repeats = 1000;
	t.straggler_s = 1;
	t.stragglers = 1;
	assert_ok(gn_sim_run(&t, a, 1000, 1, 0, &r, &err));
	assert_true(r.time_s < 1.1e-3);
}

/* What makes a machine worse makes it slower; the same seed gives the same times. */
static void test_monotone(void **state)
{
	struct gn_sim_topology t = plain(8, 4), worse;
	struct gn_sim_result r;
	double good = simulated(&t, "hierarchical", 1 << 22, &r), first;

	(void)state;
	/* 2 (nodes - 1) / nodes of the buffer for each node */
	assert_int_equal(r.network_bytes, 2 * 7 * (1 << 22));
	worse = t;
	worse.leaf_nodes = 2;
	worse.oversubscription = 8;
	assert_true(simulated(&worse, "hierarchical", 1 << 22, &r) > good * 1.2);
	worse = t;
	worse.stragglers = 1;
	worse.straggler_s = 0.5;
	assert_true(simulated(&worse, "hierarchical", 1 << 22, &r) > 0.5);
	worse = t;
	worse.jitter = 0.2;
	first = simulated(&worse, "hierarchical", 1 << 22, &r);
	assert_true(first > good);
	expect_near(simulated(&worse, "hierarchical", 1 << 22, &r), first, 0);
	worse.seed++;
	assert_true(fabs(simulated(&worse, "hierarchical", 1 << 22, &r) - first) > 0);
	t.rails = 4;
	assert_true(simulated(&t, "hierarchical", 1 << 22, &r) < good / 2);
}

/* Of more rails than ranks each rank has several: as many as one that is as fast as all. */
static void test_rails(void **state)
{
	struct gn_sim_topology many = plain(4, 1), fast = many;
	struct gn_sim_result r;

	(void)state;
	many.rails = 4;
	fast.link_bytes_per_s *= 4;
	expect_near(simulated(&many, "ring", 1 << 22, &r), simulated(&fast, "ring", 1 << 22, &r), 0);
	many = fast = plain(3, 2);
	many.rails = 5;
	fast.rails = 2;
	fast.link_bytes_per_s *= 2.5;
	expect_near(simulated(&many, "hierarchical", 1 << 22, &r), simulated(&fast, "hierarchical", 1 << 22, &r), 0);
}

static void test_step(void **state)
{
	const struct gn_algorithm *a = gn_algorithm_find(GN_COLLECTIVE_ALLREDUCE, "ring");
	struct gn_sim_topology t = plain(4, 1);
	struct gn_sim_bucket buckets[] = {{4 << 20, 0.1}, {4 << 20, 0.2}};
	struct gn_sim_step step = {.compute_s = 0.2, .buckets = buckets, .count = 2};
	double seconds, exposed, one;
	struct gn_sim_result r;
	struct gn_err err;

	(void)state;
	assert_ok(gn_sim_run(&t, a, 4 << 20, 0, 0, &r, &err));
	one = r.time_s;
	assert_ok(gn_sim_step_time(&t, a, &step, &seconds, &exposed, &err));
	expect_near(seconds, 0.2 + one, 1e-9); /* the first is hidden, the last is not */
	expect_near(exposed, one, 1e-6);
}

static struct gn_node_map *map_of(const int *node_of, int size)
{
	struct gn_node_map *map;
	struct gn_err err;

	assert_ok(gn_node_map_create(node_of, size, &map, &err));
	return map;
}

/* Ranks on nodes as mapped: as without a map where that says the same; a node that sends for more ranks takes longer. */
static void test_map(void **state)
{
	static const int even[] = {0, 0, 1, 1, 2, 2}, uneven[] = {0, 0, 0, 0, 1, 2}, cyclic[] = {0, 1, 2, 0, 1, 2};
	struct gn_node_map *maps[] = {map_of(even, 6), map_of(uneven, 6), map_of(cyclic, 6)};
	struct gn_sim_topology t = plain(3, 2), mapped = plain(0, 0);
	struct gn_sim_result r, plainly;
	struct gn_err err;
	size_t count;
	const struct gn_algorithm *all = gn_algorithms(&count);

	(void)state;
	for (int streams = 0; streams < 2; streams++)
		for (size_t i = 0; i < count; i++) {
			t.streams = mapped.streams = streams;
			mapped.map = maps[0];
			assert_ok(gn_sim_run(&t, &all[i], 600000, 2, 0, &plainly, &err));
			assert_ok(gn_sim_run(&mapped, &all[i], 600000, 2, 0, &r, &err));
			expect_near(r.time_s, plainly.time_s, 1e-5);
			assert_int_equal(r.network_bytes, plainly.network_bytes);
		}
	/* a ring leaves each of three consecutive nodes once, and between cyclic ones each rank sends */
	mapped.map = maps[1];
	simulated(&mapped, "ring", 6 << 20, &r);
	assert_int_equal(r.network_bytes, 3 * 10 << 20);
	mapped.map = maps[2];
	simulated(&mapped, "ring", 6 << 20, &r);
	assert_int_equal(r.network_bytes, 6 * 10 << 20);
	/* to all: 4 ranks of a node send to 2 others */
	mapped.map = maps[1];
	mapped.link_latency_s = mapped.node_latency_s = 0;
	assert_ok(gn_sim_run(&mapped, gn_algorithm_find(GN_COLLECTIVE_ALL_TO_ALL, "direct"), 6 << 20, 1, 0, &r, &err));
	assert_true(r.time_s > 8 * 1e-9 * (1 << 20));
	mapped.rails = 2;
	assert_int_equal(gn_sim_run(&mapped, &all[0], 1024, 1, 0, &r, &err), GN_ERR_USAGE);
	mapped.rails = 1;
	mapped.leaf_nodes = 1;
	assert_int_equal(gn_sim_run(&mapped, &all[0], 1024, 1, 0, &r, &err), GN_ERR_USAGE);
	for (int i = 0; i < 3; i++)
		gn_node_map_destroy(maps[i]);
}

static void test_refusals(void **state)
{
	const struct gn_algorithm *a = gn_algorithm_find(GN_COLLECTIVE_ALLREDUCE, "ring");
	struct gn_sim_topology t = plain(0, 1);
	struct gn_sim_result r;
	struct gn_err err;

	(void)state;
	assert_int_equal(gn_sim_run(&t, a, 1024, 1, 0, &r, &err), GN_ERR_USAGE);
	t = plain(4, 1);
	t.link_bytes_per_s = NAN;
	assert_int_equal(gn_sim_run(&t, a, 1024, 1, 0, &r, &err), GN_ERR_USAGE);
	t = plain(1000, 4);
	t.jitter = 0.1;
	assert_int_equal(gn_sim_run(&t, a, 1 << 20, 1, 1 << 20, &r, &err), GN_ERR_UNSUPPORTED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_closed_forms), cmocka_unit_test(test_folding), cmocka_unit_test(test_folding_of_streams),
		cmocka_unit_test(test_streams_share), cmocka_unit_test(test_streams_of_all), cmocka_unit_test(test_rounds),
		cmocka_unit_test(test_rounds_compete), cmocka_unit_test(test_rounds_ahead), cmocka_unit_test(test_monotone),
		cmocka_unit_test(test_rails), cmocka_unit_test(test_step), cmocka_unit_test(test_map),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
