/* The choice of algorithms on many ranks, what connecting costs, and what of a tuning table holds for other numbers of nodes. */
#include "tests/test.h"

#include "src/base/file.h"
#include "transport/select/critical_path.h"
#include "transport/select/select.h"
#include "transport/select/tuning_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct gn_node_map *map_of(int nodes, int local)
{
	int size = nodes * local, *node_of = calloc((size_t)size, sizeof *node_of);
	struct gn_node_map *map;
	struct gn_err err;

	assert_non_null(node_of);
	for (int r = 0; r < size; r++)
		node_of[r] = r / local;
	assert_ok(gn_node_map_create(node_of, size, &map, &err));
	free(node_of);
	return map;
}

static struct gn_cost cost_of(const char *link_lanes)
{
	struct gn_net_device device = {.name = "mlx5_0", .up = 1, .gbit_per_s = 100};
	struct gn_devices devices = {&device, 1};
	struct gn_cost c;

	gn_cost_guess(&devices, "posix/memory", link_lanes, &c);
	return c;
}

static struct gn_choice choose(const struct gn_cost *c, const struct gn_node_map *map, enum gn_collective what, size_t bytes,
			       const char *algo)
{
	struct gn_select_args args = {.what = what, .bytes = bytes, .map = map, .cost = c, .algo = algo};
	struct gn_choice choice;
	struct gn_err err;

	assert_ok(gn_select(&args, &choice, &err));
	return choice;
}

static double simulated_s(const struct gn_cost *c, int nodes, int local, const char *algorithm, size_t bytes, uint32_t pieces)
{
	struct gn_sim_topology t;
	struct gn_sim_result r;
	struct gn_err err;

	gn_cost_topology(c, nodes, local, &t);
	assert_ok(gn_sim_run(&t, gn_algorithm_find(GN_COLLECTIVE_ALLREDUCE, algorithm), bytes, pieces, 0, &r, &err));
	return r.time_s;
}

/* Messages are cut by their length, however many ranks there are: uncut ones take 2 to 3 times as long. */
static void test_many_ranks(void **state)
{
	struct gn_cost c = cost_of("rc_mlx5/mlx5_0:1");
	struct gn_node_map *map = map_of(512, 1), *folded = map_of(300, 1);
	size_t bytes = 32 << 20;
	struct gn_choice choice = choose(&c, map, GN_COLLECTIVE_ALLREDUCE, bytes, NULL);
	double took_s;

	(void)state;
	assert_true(choice.pieces > 1);
	took_s = simulated_s(&c, 512, 1, choice.algorithm->name, bytes, choice.pieces);
	print_message("# 512 ranks, 32 MiB: %s in %u pieces, %.0f us simulated\n", choice.algorithm->name, choice.pieces, took_s * 1e6);
	assert_true(took_s < 0.8 * simulated_s(&c, 512, 1, "halving-doubling", bytes, 1));
	assert_true(took_s < 0.6 * simulated_s(&c, 512, 1, "ring", bytes, 1));
	/* ranks that act for two are looked at: halving-doubling moves half as much again here, a tree does not */
	choice = choose(&c, folded, GN_COLLECTIVE_ALLREDUCE, bytes, NULL);
	assert_string_equal(choice.algorithm->name, "double-tree");
	assert_true(choice.pieces > 1);
	/* what would be cut into too many steps is not */
	choice = choose(&c, map, GN_COLLECTIVE_ALLREDUCE, (size_t)8 << 30, "ring");
	assert_true(choice.pieces > 1 && choice.pieces * 4 * 511 <= GN_SELECT_STEPS_MAX);
	gn_node_map_destroy(map);
	gn_node_map_destroy(folded);
}

/* The linker gives the calls to the first to the second. */
double __real_gn_critical_path_seconds(struct gn_critical_path *p, double bytes);
double __wrap_gn_critical_path_seconds(struct gn_critical_path *p, double bytes);

#define STEPS_PER_RANK 1000
static double walked; /* steps, since the last choice */

double __wrap_gn_critical_path_seconds(struct gn_critical_path *p, double bytes)
{
	walked += gn_critical_path_steps(p);
	return __real_gn_critical_path_seconds(p, bytes);
}

/* A choice is made in milliseconds, tens of them for thousands of ranks: it walks a few steps of each rank. */
static void test_planning_work(void **state)
{
	static const int shapes[][2] = {{512, 1}, {64, 8}, {1024, 1}, {4096, 1}, {512, 8}};
	struct gn_cost c = cost_of("rc_mlx5/mlx5_0:1");

	(void)state;
	for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
		struct gn_node_map *map = map_of(shapes[k][0], shapes[k][1]);
		double worst = 0;

		for (size_t bytes = 64; bytes <= (size_t)8 << 30; bytes *= 64) {
			walked = 0;
			choose(&c, map, GN_COLLECTIVE_ALLREDUCE, bytes, NULL);
			choose(&c, map, GN_COLLECTIVE_ALLGATHER, bytes, NULL);
			worst = walked > worst ? walked : worst;
		}
		print_message("# %d x %d ranks: both chosen by %.0f steps at most\n", shapes[k][0], shapes[k][1], worst);
		assert_true(worst > 0 && worst < STEPS_PER_RANK * shapes[k][0] * shapes[k][1]);
		gn_node_map_destroy(map);
	}
}

/* Few rounds for small blocks; no message is longer than it has to be for large ones. */
static void test_reduce_scatter(void **state)
{
	struct gn_cost c = cost_of("rc_mlx5/mlx5_0:1");
	struct gn_node_map *map = map_of(64, 1), *odd = map_of(100, 1);

	(void)state;
	assert_string_equal(choose(&c, map, GN_COLLECTIVE_REDUCE_SCATTER, 4096, NULL).algorithm->name, "recursive-halving");
	assert_string_equal(choose(&c, odd, GN_COLLECTIVE_REDUCE_SCATTER, 6400, NULL).algorithm->name, "recursive-halving");
	/* folded ranks send the whole buffer once more */
	assert_string_not_equal(choose(&c, odd, GN_COLLECTIVE_REDUCE_SCATTER, 64 << 20, NULL).algorithm->name, "recursive-halving");
	gn_node_map_destroy(map);
	gn_node_map_destroy(odd);
}

/* Few rounds and peers for small blocks; the fewest bytes between nodes for large ones. */
static void test_allgather(void **state)
{
	struct gn_cost c = cost_of("rc_mlx5/mlx5_0:1"), free_of_charge = c;
	struct gn_node_map *map = map_of(100, 1), *wide = map_of(64, 8), *few = map_of(6, 1);
	struct gn_choice choice = choose(&c, map, GN_COLLECTIVE_ALLGATHER, 6400, NULL);

	(void)state;
	assert_string_equal(choice.algorithm->name, "bruck");
	/* one of each round, of seven */
	assert_true(choice.connecting_s > 6.5 * c.link.connect_s && choice.connecting_s < 7.5 * c.link.connect_s);
	choice = choose(&c, map, GN_COLLECTIVE_ALLGATHER, 6400, "direct");
	assert_true(choice.connecting_s > 98.5 * c.link.connect_s);
	choice = choose(&c, wide, GN_COLLECTIVE_ALLGATHER, 64 << 20, NULL);
	assert_string_equal(choice.algorithm->name, "ring");
	/* connections decide where times hardly differ */
	free_of_charge.link.connect_s = 0;
	c.link.connect_s = 0.1;
	assert_string_equal(choose(&free_of_charge, few, GN_COLLECTIVE_ALLGATHER, 64, NULL).algorithm->name, "direct");
	assert_string_not_equal(choose(&c, few, GN_COLLECTIVE_ALLGATHER, 64, NULL).algorithm->name, "direct");
	gn_node_map_destroy(map);
	gn_node_map_destroy(wide);
	gn_node_map_destroy(few);
}

/* Only what is near a trial in length counts as tried. */
static void test_trials(void **state)
{
	struct gn_cost c = cost_of("tcp/eth0");
	int near;

	(void)state;
	c.picks[0] = (struct gn_cost_pick){.bytes = 1024, .seconds = 1e-4, .algorithm = "ring"};
	c.picks[1] = (struct gn_cost_pick){.bytes = 4096, .seconds = 2e-4, .algorithm = "double-tree"};
	c.picks[2] = (struct gn_cost_pick){.bytes = 16384, .seconds = 2e-4, .algorithm = "ring"};
	c.pick_count = 3;
	assert_null(gn_cost_trial(&c, "recursive-doubling", 1024, &near));
	assert_false(near);
	assert_ptr_equal(gn_cost_trial(&c, "ring", 256, &near), &c.picks[0]);
	assert_true(near);
	assert_ptr_equal(gn_cost_trial(&c, "ring", 255, &near), &c.picks[0]);
	assert_false(near);
	assert_ptr_equal(gn_cost_trial(&c, "ring", 65536, &near), &c.picks[2]);
	assert_true(near);
	assert_ptr_equal(gn_cost_trial(&c, "ring", 25 << 20, &near), &c.picks[2]);
	assert_false(near);
	/* tried on another number of nodes: no time of ours */
	c.tuned_nodes = 4;
	gn_cost_use_at(&c, 4);
	assert_non_null(gn_cost_trial(&c, "ring", 1024, &near));
	gn_cost_use_at(&c, 8);
	assert_int_equal(c.pick_count, 3);
	assert_null(gn_cost_trial(&c, "ring", 1024, &near));
	gn_cost_use_at(&c, 4 * GN_COST_NODES_APART);
	assert_int_equal(c.pick_count, 3);
	gn_cost_use_at(&c, 4 * GN_COST_NODES_APART + 1);
	assert_int_equal(c.pick_count, 0);
}

/* What was the fastest on 8 nodes stays on 16, where it is; not on 9, where halving-doubling would have to fold. */
static void test_kept_picks(void **state)
{
	struct gn_cost tuned = cost_of("rc_mlx5/mlx5_0:1"), c;
	struct gn_node_map *same = map_of(8, 1), *twice = map_of(16, 1), *odd = map_of(9, 1), *far = map_of(33, 1);
	struct gn_err err;

	(void)state;
	tuned.tuned_nodes = 8;
	tuned.measured = 1;
	tuned.picks[0] = (struct gn_cost_pick){.bytes = 64, .seconds = 1e-5, .algorithm = "recursive-doubling"};
	tuned.picks[1] = (struct gn_cost_pick){.bytes = 1 << 20, .seconds = 1e-3, .algorithm = "recursive-doubling"};
	tuned.picks[2] = (struct gn_cost_pick){.bytes = 16 << 20, .seconds = 1e-2, .algorithm = "halving-doubling"};
	tuned.pick_count = 3;
	c = tuned;
	assert_ok(gn_select_keep_picks(&c, same, &err));
	assert_memory_equal(&c, &tuned, sizeof c);
	/* the one in the middle never was */
	assert_ok(gn_select_keep_picks(&c, twice, &err));
	assert_int_equal(c.pick_count, 2);
	assert_string_equal(c.picks[1].algorithm, "halving-doubling");
	assert_true(c.picks[0].seconds <= 0 && c.picks[1].seconds <= 0);
	c = tuned;
	assert_ok(gn_select_keep_picks(&c, odd, &err));
	assert_int_equal(c.pick_count, 1);
	assert_string_equal(c.picks[0].algorithm, "recursive-doubling");
	c = tuned;
	assert_ok(gn_select_keep_picks(&c, far, &err));
	assert_int_equal(c.pick_count, 0);
	assert_true(c.measured);
	gn_node_map_destroy(same);
	gn_node_map_destroy(twice);
	gn_node_map_destroy(odd);
	gn_node_map_destroy(far);
}

static void put_line(const char *path, int nodes, const char *rest, double rate)
{
	struct gn_tune_result r = {.cost = cost_of("tcp/eth0")};
	struct gn_err err;

	r.cost.link.bytes_per_s = rate;
	snprintf(r.signature, sizeof r.signature, "%d nodes of %s", nodes, rest);
	assert_ok(gn_tuning_table_write(path, &r, &err));
}

/* How many nodes the line that is found was measured on; 0: none is. */
static int tuned_at(const char *path, const char *signature)
{
	struct gn_cost c;
	struct gn_err err;
	int found;

	assert_ok(gn_tuning_table_read(path, signature, &found, &c, &err));
	if (found)
		assert_true(c.measured && c.link.bytes_per_s > 1e6 * c.tuned_nodes - 1 && c.link.bytes_per_s < 1e6 * c.tuned_nodes + 1);
	return found ? c.tuned_nodes : 0;
}

static void test_nearest_line(void **state)
{
	char folder[] = "/tmp/gn-choose.XXXXXX", path[64];
	struct gn_err err;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/t.jsonl", folder);
	put_line(path, 16, "2; within: posix; between: tcp/eth0", 16e6);
	put_line(path, 4, "2; within: posix; between: tcp/eth0", 4e6);
	put_line(path, 9, "4; within: posix; between: tcp/eth0", 1);
	put_line(path, 10, "2; within: posix; between: rc/mlx5", 1);
	assert_int_equal(tuned_at(path, "4 nodes of 2; within: posix; between: tcp/eth0"), 4);
	assert_int_equal(tuned_at(path, "16 nodes of 2; within: posix; between: tcp/eth0"), 16);
	/* by ratio, and of two as near the larger */
	assert_int_equal(tuned_at(path, "7 nodes of 2; within: posix; between: tcp/eth0"), 4);
	assert_int_equal(tuned_at(path, "8 nodes of 2; within: posix; between: tcp/eth0"), 16);
	assert_int_equal(tuned_at(path, "9 nodes of 2; within: posix; between: tcp/eth0"), 16);
	assert_int_equal(tuned_at(path, "1000 nodes of 2; within: posix; between: tcp/eth0"), 16);
	assert_int_equal(tuned_at(path, "2 nodes of 2; within: posix; between: tcp/eth0"), 4);
	/* other ranks on a node, another transport */
	assert_int_equal(tuned_at(path, "9 nodes of 3; within: posix; between: tcp/eth0"), 0);
	assert_int_equal(tuned_at(path, "9 nodes of 2; within: posix; between: tcp/eth1"), 0);
	assert_int_equal(tuned_at(path, "nodes of 2; within: posix; between: tcp/eth0"), 0);
	assert_int_equal(tuned_at(path, "99999999999999999999 nodes of 2; within: posix; between: tcp/eth0"), 0);
	assert_ok(gn_remove_tree(folder, &err));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many_ranks), cmocka_unit_test(test_planning_work), cmocka_unit_test(test_allgather),
		cmocka_unit_test(test_reduce_scatter),
		cmocka_unit_test(test_trials),	   cmocka_unit_test(test_kept_picks),	 cmocka_unit_test(test_nearest_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
