/* Simulated pipelines against closed forms. */
#include "tests/test.h"

#include "transport/sim/sim_pipe.h"

#include <math.h>
#include <stdlib.h>

/* Messages take their bytes at 1e9 per second and no more, between nodes and within one. */
static struct gn_sim_topology plain(int nodes, int ranks_per_node)
{
	return (struct gn_sim_topology){.nodes = nodes, .ranks_per_node = ranks_per_node, .rails = 1, .link_bytes_per_s = 1e9,
					.node_bytes_per_s = 1e9, .oversubscription = 1, .eager_bytes = 1e12, .seed = 7};
}

static void expect_near(double got, double wanted)
{
	if (!(fabs(got - wanted) <= fabs(wanted) * 1e-9))
		fail_msg("%.12g, not %.12g", got, wanted);
}

/* All forwards, then all backwards; or first some forwards, then one of both in turns. */
static struct gn_sim_pipe_action *orders(int stages, int batches, int is_gpipe)
{
	struct gn_sim_pipe_action *list = calloc((size_t)stages * 2 * (size_t)batches, sizeof *list), *a = list;

	assert_non_null(list);
	for (int s = 0; s < stages; s++) {
		int ahead = is_gpipe || stages - s > batches ? batches : stages - s, forward = 0, backward = 0;

		while (backward < batches) {
			int goes_back = forward == batches || forward - backward >= ahead;

			*a++ = (struct gn_sim_pipe_action){goes_back, goes_back ? backward++ : forward++};
		}
	}
	return list;
}

static struct gn_sim_pipe_result run(const struct gn_sim_topology *t, int stages, int batches, int is_gpipe, struct gn_sim_pipe_stage each)
{
	int size = gn_sim_ranks(t);
	struct gn_sim_pipe_stage *costs = calloc((size_t)stages, sizeof *costs);
	struct gn_sim_pipe_action *actions = orders(stages, batches, is_gpipe);
	int *ranks = calloc((size_t)size, sizeof *ranks);
	struct gn_sim_pipe p = {stages, size / stages, batches, costs, actions, ranks, 0};
	struct gn_sim_pipe_result r;
	struct gn_err err;

	for (int s = 0; s < stages; s++)
		costs[s] = each;
	costs[stages - 1].out_bytes = 0;
	for (int i = 0; i < size; i++)
		ranks[i] = i;
	assert_ok(gn_sim_pipe_run(t, &p, gn_algorithm_find(GN_COLLECTIVE_ALLREDUCE, "ring"), &r, &err));
	free(costs);
	free(actions);
	free(ranks);
	return r;
}

static void test_equal_stages(void **state)
{
	const struct gn_sim_pipe_stage each = {.forward_s = 1, .backward_s = 2, .update_s = 0.5};

	(void)state;
	for (int stages = 1; stages <= 5; stages++)
		for (int batches = 1; batches <= 9; batches++)
			for (int gpipe = 0; gpipe < 2; gpipe++) {
				struct gn_sim_topology t = plain(3, stages);
				struct gn_sim_pipe_result r = run(&t, stages, batches, gpipe, each);

				expect_near(r.pipe_s, (batches + stages - 1) * 3.0);
				expect_near(r.step_s, r.pipe_s + 0.5);
				expect_near(1 - r.bubble, (double)batches / (batches + stages - 1));
			}
}

/* 1 s of a message each way between two stages: of the last micro-batch nothing is hidden. */
static void test_messages(void **state)
{
	const struct gn_sim_pipe_stage each = {.forward_s = 1, .backward_s = 2, .out_bytes = 1e9};
	struct gn_sim_topology apart = plain(2, 1), together = plain(1, 2);

	(void)state;
	expect_near(run(&apart, 2, 1, 1, each).step_s, 1 + 1 + 1 + 2 + 1 + 2);
	expect_near(run(&together, 2, 1, 1, each).step_s, 1 + 1 + 1 + 2 + 1 + 2);
	/* two micro-batches: forwards at 0 and 1, at 2 and 3, backwards there at 4 and 6, and here at 7 and 9 */
	expect_near(run(&apart, 2, 2, 1, each).step_s, 11);
	/* three of which each message is longer than computing: the link decides */
	expect_near(run(&apart, 2, 3, 1, (struct gn_sim_pipe_stage){.forward_s = 0.1, .backward_s = 0.1, .out_bytes = 1e9}).step_s,
		    0.1 + 3 + 0.1 + 0.1 + 3 + 0.1);
	assert_int_equal(run(&apart, 2, 3, 1, each).network_bytes, 6000000000);
	assert_int_equal(run(&together, 2, 3, 1, each).network_bytes, 0);
	/* two pipelines in step, whose messages share the ports of the two nodes */
	{
		struct gn_sim_topology t = plain(2, 2);
		struct gn_sim_pipe_stage costs[] = {each, each};
		const struct gn_sim_pipe_action actions[] = {{0, 0}, {1, 0}, {0, 0}, {1, 0}};
		const int ranks[] = {0, 2, 1, 3};
		const struct gn_sim_pipe p = {2, 2, 1, costs, actions, ranks, 0};
		struct gn_sim_pipe_result r;
		struct gn_err err;

		costs[1].out_bytes = 0;
		assert_ok(gn_sim_pipe_run(&t, &p, gn_algorithm_find(GN_COLLECTIVE_ALLREDUCE, "ring"), &r, &err));
		expect_near(r.pipe_s, 1 + 2 + 1 + 2 + 1 + 2); /* the second one's gradient leaves when the first one's has left */
	}
}

/* Each of 4 ranks of a stage sends 2 * 3 / 4 of its gradient; the other stage of its node does so too. */
static void test_sums(void **state)
{
	const struct gn_sim_pipe_stage each = {.forward_s = 1, .backward_s = 2, .gradient_bytes = 4e8};
	struct gn_sim_topology t = plain(4, 2);
	struct gn_sim_pipe_result r = run(&t, 2, 3, 0, each);

	(void)state;
	expect_near(r.sum_s, 2 * 0.75 * 0.4 * 2);
	expect_near(r.step_s, 4 * 3 + r.sum_s);
	assert_int_equal(r.network_bytes, 2 * 6 * 400000000ULL);
	t.rails = 2; /* a port for each */
	expect_near(run(&t, 2, 3, 0, each).sum_s, 2 * 0.75 * 0.4);
}

/* Buckets that become ready in the middle and at the end of backward; and the fastest sum of those that there are, of one simulation. */
static void test_buckets(void **state)
{
	struct gn_sim_topology t = plain(4, 1);
	struct gn_sim_pipe_stage cost = {.forward_s = 1, .backward_s = 2, .gradient_bytes = 4e8, .update_s = 0.5};
	const struct gn_sim_pipe_action actions[] = {{0, 0}, {1, 0}};
	const int ranks[] = {0, 1, 2, 3};
	struct gn_sim_pipe p = {1, 4, 1, &cost, actions, ranks, 2e8};
	const struct gn_algorithm *ring = gn_algorithm_find(GN_COLLECTIVE_ALLREDUCE, "ring"), *all;
	struct gn_sim_pipe_result r, one, best = {.step_s = 1e9};
	struct gn_err err;
	size_t count;

	(void)state;
	assert_ok(gn_sim_pipe_run(&t, &p, ring, &r, &err));
	expect_near(r.sum_s, 2 * 0.75 * 0.4);
	expect_near(r.step_s, 3 + r.sum_s / 2 + 0.5); /* the first one is done before the second one is ready */
	cost.gradient_bytes = 4e9;
	p.bucket_bytes = 2e9;
	assert_ok(gn_sim_pipe_run(&t, &p, ring, &r, &err));
	expect_near(r.step_s, 2 + r.sum_s + 0.5); /* the first one takes longer than the rest of backward */
	p.bucket_bytes = 0;
	all = gn_algorithms(&count);
	for (size_t i = 0; i < count; i++)
		if (all[i].what == GN_COLLECTIVE_ALLREDUCE && !gn_sim_pipe_run(&t, &p, &all[i], &one, &err) && one.step_s < best.step_s)
			best = one;
	assert_ok(gn_sim_pipe_run(&t, &p, NULL, &r, &err));
	assert_ptr_equal(r.sum, best.sum);
	expect_near(r.step_s, best.step_s);
	assert_int_equal(r.network_bytes, best.network_bytes);
}

static void test_refusals(void **state)
{
	const struct gn_sim_pipe_stage costs[] = {{.forward_s = 1, .backward_s = 1, .out_bytes = 8}, {.forward_s = 1, .backward_s = 1}};
	const struct gn_sim_pipe_action backward_first[] = {{1, 0}, {0, 0}, {0, 0}, {1, 0}};
	const struct gn_algorithm *ring = gn_algorithm_find(GN_COLLECTIVE_ALLREDUCE, "ring");
	const int ranks[] = {0, 1};
	struct gn_sim_pipe p = {2, 1, 1, costs, backward_first, ranks, 0};
	struct gn_sim_topology t = plain(2, 1), larger = plain(3, 1);
	struct gn_sim_pipe_result r;
	struct gn_err err;

	(void)state;
	assert_int_equal(gn_sim_pipe_run(&t, &p, ring, &r, &err), GN_ERR_FAILED);
	assert_int_equal(gn_sim_pipe_run(&larger, &p, ring, &r, &err), GN_ERR_USAGE);
	p.batches = 1 << 30;
	assert_int_equal(gn_sim_pipe_run(&t, &p, ring, &r, &err), GN_ERR_UNSUPPORTED);
}

/* 10,000 ranks: 1,250 nodes with a pipeline each. Jitter only makes it longer. */
static void test_many_ranks(void **state)
{
	const struct gn_sim_pipe_stage each = {.forward_s = 0.01, .backward_s = 0.02, .out_bytes = 1e5, .gradient_bytes = 4e6};
	struct gn_sim_topology t = plain(1250, 8);
	struct gn_sim_pipe_result even = run(&t, 8, 16, 0, each), uneven;

	(void)state;
	assert_true(even.step_s > 23 * 0.03);
	t.jitter = 0.1;
	t.nodes = 50; /* of a random machine every rank's part in the sums is simulated */
	uneven = run(&t, 8, 16, 0, each);
	t.jitter = 0;
	assert_true(uneven.step_s > run(&t, 8, 16, 0, each).step_s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_equal_stages), cmocka_unit_test(test_messages), cmocka_unit_test(test_sums), cmocka_unit_test(test_buckets),
		cmocka_unit_test(test_refusals),     cmocka_unit_test(test_many_ranks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
