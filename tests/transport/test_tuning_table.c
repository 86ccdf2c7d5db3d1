/* Fits of made-up measurements, the table that keeps them, and the choice that follows. */
#include "tests/test.h"

#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/philox.h"
#include "transport/select/select.h"
#include "transport/select/tuning_table.h"
#include "transport/tune/tune_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void expect_near(double got, double wanted, double share)
{
	if (!(fabs(got - wanted) <= wanted * share))
		fail_msg("%.9g, not %.9g", got, wanted);
}

static struct gn_cost_path known(void)
{
	struct gn_cost_path p = {.bytes_per_s = 1e9, .path = {.count = 3, .eager_bytes = 10000}};

	p.path.ranges[0] = (struct gn_sim_range){0, 5e-6, 0, 1e-6, 0.5e-6};
	p.path.ranges[1] = (struct gn_sim_range){2048, 8e-6, 0.5e-9, 2e-6, 0.7e-6};
	p.path.ranges[2] = (struct gn_sim_range){10001, 6e-6, 0.1e-9, 1e-6, 0.5e-6};
	return p;
}

static const double overheads[2][2] = {{1e-6, 0.5e-6}, {2e-6, 0.7e-6}};

static int sample(const struct gn_cost_path *p, double noise, struct gn_tune_sample *out)
{
	struct gn_rng rng;
	int n = 0;

	gn_rng_init(&rng, 5, GN_RNG_TEST, 0, 0);
	for (double bytes = 8; bytes <= 4 << 20; bytes *= 2)
		out[n++] = (struct gn_tune_sample){bytes, gn_cost_message_s(p, bytes) * (1 + noise * gn_rng_normal(&rng))};
	return n;
}

static void test_fit(void **state)
{
	struct gn_cost_path truth = known(), p = {.bytes_per_s = 1e9, .path = {.eager_bytes = 10000}};
	struct gn_tune_sample samples[GN_TUNE_SAMPLES];
	struct gn_tune_fit fits[GN_SIM_RANGES];
	int n = sample(&truth, 0, samples);

	(void)state;
	gn_tune_fit_path(samples, n, overheads, &p, fits);
	assert_int_equal(p.path.count, 3);
	for (int i = 0; i < 3; i++) {
		expect_near(p.path.ranges[i].from_bytes, truth.path.ranges[i].from_bytes, 1e-9);
		expect_near(p.path.ranges[i].latency_s, truth.path.ranges[i].latency_s, 1e-6);
		assert_true(fits[i].worst < 1e-6);
	}
	expect_near(p.path.ranges[1].s_per_byte, 0.5e-9, 1e-6);
	for (int i = 0; i < n; i++)
		expect_near(gn_cost_message_s(&p, samples[i].bytes), samples[i].one_way_s, 1e-6);
	/* noise shows up in the residuals, and does not make ranges of its own */
	n = sample(&truth, 0.05, samples);
	gn_tune_fit_path(samples, n, overheads, &p, fits);
	assert_in_range(p.path.count, 2, 5);
	for (int i = 0; i < n; i++)
		expect_near(gn_cost_message_s(&p, samples[i].bytes), samples[i].one_way_s, 0.2);
}

/* A token bucket of 256 KiB on 100 MB/s, 2 GB/s while it lasts. */
static void test_shaped(void **state)
{
	struct gn_cost_path truth = known(), p = {.path = {.eager_bytes = 10000}};
	struct gn_tune_sample samples[GN_TUNE_SAMPLES];
	struct gn_tune_fit fits[GN_SIM_RANGES];
	double arrived[96];
	int n;

	(void)state;
	truth.bytes_per_s = 1e8;
	truth.burst_bytes = 262144;
	truth.burst_bytes_per_s = 2e9;
	for (int i = 0; i < 96; i++)
		arrived[i] = 1 + gn_cost_port_s(&truth, (i + 1) * 32768.0);
	gn_tune_fit_stream(arrived, 96, 32768, &p);
	expect_near(p.bytes_per_s, 1e8, 0.01);
	expect_near(p.burst_bytes, 262144, 0.25);
	n = sample(&truth, 0, samples);
	gn_tune_fit_path(samples, n, overheads, &p, fits);
	expect_near(p.bytes_per_s, 1e8, 0.01);
	expect_near(p.burst_bytes, 262144, 0.05);
	/* nor does it stay hidden when the receiver has not looked for a while */
	arrived[1] += 300e-6;
	arrived[2] += 280e-6;
	gn_tune_fit_stream(arrived, 96, 32768, &p);
	expect_near(p.bytes_per_s, 1e8, 0.01);
	expect_near(p.burst_bytes, 262144, 0.25);
	/* nor when it looks away again and again: the rate of the later half is not the port's then */
	for (int i = 0; i < 96; i++)
		arrived[i] = 1 + gn_cost_port_s(&truth, (i + 1) * 32768.0) + (i > 60 ? 4e-3 : 0) + (i > 75 ? 3e-3 : 0);
	gn_tune_fit_stream(arrived, 96, 32768, &p);
	expect_near(p.burst_bytes, 262144, 0.25);
	/* no bucket is found where there is none */
	for (int i = 0; i < 96; i++)
		arrived[i] = 1 + (i + 1) * 32768.0 / 1e8;
	gn_tune_fit_stream(arrived, 96, 32768, &p);
	assert_true(p.burst_bytes <= 0);
	expect_near(p.bytes_per_s, 1e8, 1e-6);
}

/* One stream of three whose receiver looked away does not count. */
static void test_middle_stream(void **state)
{
	struct gn_cost_path hidden[3] = {{.bytes_per_s = 1.19e8, .burst_bytes = 250000}, {.bytes_per_s = 1.2e8},
					 {.bytes_per_s = 1.18e8, .burst_bytes = 262144}};
	struct gn_cost_path made_up[3] = {{.bytes_per_s = 1e9}, {.bytes_per_s = 9e8, .burst_bytes = 1e6}, {.bytes_per_s = 1.1e9}};

	(void)state;
	expect_near(gn_tune_middle_stream(hidden, 3)->burst_bytes, 250000, 1e-9);
	assert_true(gn_tune_middle_stream(made_up, 3)->burst_bytes <= 0);
}

static struct gn_tune_result result_of(const char *signature)
{
	struct gn_tune_result r = {.cost = {.node = known(), .link = known(), .reduce_bytes_per_s = 5e9, .measured = 1}};

	strcpy(r.cost.link.lanes, "tcp/eth0");
	r.cost.link.bytes_per_s = 1.25e8;
	r.cost.node.connect_s = gn_cost_connect_s("posix/");
	r.cost.link.connect_s = gn_cost_connect_s("tcp/eth0");
	r.cost.picks[0] = (struct gn_cost_pick){.bytes = 1024, .seconds = 1e-4, .algorithm = "recursive-doubling"};
	r.cost.picks[1] = (struct gn_cost_pick){.bytes = 4096, .seconds = 2e-4, .algorithm = "ring", .piece_bytes = 65536};
	r.cost.pick_count = 2;
	snprintf(r.signature, sizeof r.signature, "%s", signature);
	return r;
}

static void test_picks(void **state)
{
	struct gn_tune_result r = result_of("");
	struct gn_err err;

	(void)state;
	assert_null(gn_cost_pick(&r.cost, 511));
	assert_ptr_equal(gn_cost_pick(&r.cost, 512), &r.cost.picks[0]);
	assert_ptr_equal(gn_cost_pick(&r.cost, 1900), &r.cost.picks[0]);
	assert_ptr_equal(gn_cost_pick(&r.cost, 2100), &r.cost.picks[1]);
	assert_ptr_equal(gn_cost_pick(&r.cost, 8192), &r.cost.picks[1]);
	assert_null(gn_cost_pick(&r.cost, 8193));
	r.cost.pick_count = GN_COST_PICKS + 1;
	assert_int_equal(gn_cost_check(&r.cost, &err), GN_ERR_DATA);
}

static void put(const char *path, const void *data, size_t len)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
}

/* Fabric a's line of a table of which this is the text, or an error that says where. */
static void read_any(const char *path, const char *text, size_t len)
{
	struct gn_cost got;
	struct gn_err err;
	int found = 0;
	enum gn_status status;

	put(path, text, len);
	status = gn_tuning_table_read(path, "fabric a", &found, &got, &err);
	assert_true(status == GN_OK || (status == GN_ERR_DATA && strstr(err.text, "t.jsonl:")));
	if (!status && found)
		assert_ok(gn_cost_check(&got, &err));
}

/* The same table cut off anywhere, then with any byte of it another. */
static void read_damaged(const char *path)
{
	struct gn_err err;
	char *text;
	size_t len;

	assert_ok(gn_file_load(path, 1 << 20, &text, &len, &err));
	assert_int_equal(strlen(text), len);
	assert_ptr_not_equal(strchr(text, '\n'), strrchr(text, '\n'));
	for (size_t cut = 0; cut < len; cut++)
		read_any(path, text, cut);
	for (size_t at = 0; at < len; at++) {
		char kept = text[at];

		text[at] = (char)(kept ^ 0x15);
		read_any(path, text, len);
		text[at] = kept;
	}
	free(text);
}

static void test_table(void **state)
{
	char folder[] = "/tmp/gn-tuning.XXXXXX", path[64];
	struct gn_tune_result a = result_of("fabric a"), b = result_of("fabric \"b\"");
	struct gn_cost got;
	struct gn_err err;
	int found;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/new/t.jsonl", folder);
	assert_int_equal(gn_tuning_table_read(path, "fabric a", &found, &got, &err), GN_ERR_NOT_FOUND);
	assert_ok(gn_tuning_table_write(path, &a, &err));
	assert_ok(gn_tuning_table_write(path, &b, &err));
	a.cost.link.bytes_per_s = 7e7;
	assert_ok(gn_tuning_table_write(path, &a, &err));
	assert_ok(gn_tuning_table_read(path, "fabric a", &found, &got, &err));
	assert_true(found);
	assert_memory_equal(&got, &a.cost, sizeof got);
	assert_ok(gn_tuning_table_read(path, "fabric \"b\"", &found, &got, &err));
	assert_true(found && got.link.bytes_per_s > 1e8);
	assert_ok(gn_tuning_table_read(path, "another", &found, &got, &err));
	assert_false(found);
	read_damaged(path);
	put(path, "{\"signature\": \"fabric a\"}\n", 27);
	assert_int_equal(gn_tuning_table_read(path, "fabric a", &found, &got, &err), GN_ERR_DATA);
	put(path, "\n\n{\"gannet_tuning\": 1,}\n", 24);
	assert_int_equal(gn_tuning_table_read(path, "fabric a", &found, &got, &err), GN_ERR_DATA);
	assert_non_null(strstr(err.text, "t.jsonl:3: "));
	/* an algorithm of another version */
	strcpy(a.cost.picks[1].algorithm, "telepathy");
	assert_ok(gn_remove_tree(path, &err));
	assert_ok(gn_tuning_table_write(path, &a, &err));
	assert_int_equal(gn_tuning_table_read(path, "fabric a", &found, &got, &err), GN_ERR_DATA);
	assert_non_null(strstr(err.text, "run gannet tune again"));
	put(path, "\n\n{\"gannet_tuning\": 1,}\n", 24);
	/* what is no table is not written over */
	assert_int_equal(gn_tuning_table_write(path, &a, &err), GN_ERR_DATA);
	assert_ok(gn_remove_tree(folder, &err));
}

static struct gn_node_map *map_of(int nodes, int local, int extra)
{
	int size = nodes * local + extra, *node_of = calloc((size_t)size, sizeof *node_of);
	struct gn_node_map *map;
	struct gn_err err;

	assert_non_null(node_of);
	for (int r = 0; r < size; r++)
		node_of[r] = r < nodes * local ? r / local : nodes - 1;
	assert_ok(gn_node_map_create(node_of, size, &map, &err));
	free(node_of);
	return map;
}

static struct gn_choice choose(const struct gn_cost *cost, const struct gn_node_map *map, enum gn_collective what,
			       size_t bytes, const char *algo)
{
	struct gn_select_args args = {.what = what, .bytes = bytes, .map = map, .cost = cost, .algo = algo};
	struct gn_choice c;
	struct gn_err err;

	assert_ok(gn_select(&args, &c, &err));
	return c;
}

static void test_choice(void **state)
{
	struct gn_tune_result r = result_of("");
	struct gn_node_map *map = map_of(8, 1, 0), *odd = map_of(3, 2, 1), *one = map_of(1, 1, 0), *many = map_of(300, 1, 0);
	struct gn_select_args args = {.what = GN_COLLECTIVE_ALLREDUCE, .bytes = 8, .map = map, .cost = &r.cost, .algo = "best"};
	struct gn_choice c;
	struct gn_err err;
	int sizes;

	(void)state;
	/* rounds count when small, bytes when large */
	assert_string_equal(choose(&r.cost, map, GN_COLLECTIVE_ALLREDUCE, 8, NULL).algorithm->name, "recursive-doubling");
	c = choose(&r.cost, map, GN_COLLECTIVE_ALLREDUCE, 64 << 20, "auto");
	assert_string_not_equal(c.algorithm->name, "recursive-doubling");
	assert_true(c.pieces >= 1 && c.predicted_s > 2 * 7 / 8.0 * (64 << 20) / 1.25e8 * 0.99);
	assert_string_equal(choose(&r.cost, map, GN_COLLECTIVE_ALLREDUCE, 8, "ring").algorithm->name, "ring");
	/* a ring of 8 sends 2 MiB at once of 16 */
	args.algo = "ring";
	args.bytes = 16 << 20;
	args.piece_bytes = 64 << 10;
	assert_ok(gn_select(&args, &c, &err));
	assert_int_equal(c.pieces, 32);
	args.piece_bytes = gn_select_piece_bytes(&sizes)[sizes - 1];
	assert_ok(gn_select(&args, &c, &err));
	assert_int_equal(c.pieces, 1);
	/* any size will do, and any number of ranks */
	args.piece_bytes = 100000;
	assert_ok(gn_select(&args, &c, &err));
	assert_int_equal(c.pieces, 20);
	args.map = many;
	args.bytes = 300 << 20;
	args.piece_bytes = 256 << 10;
	assert_ok(gn_select(&args, &c, &err));
	assert_int_equal(c.pieces, 4);
	args.algo = "best";
	assert_int_equal(gn_select(&args, &c, &err), GN_ERR_USAGE);
	assert_non_null(strstr(err.text, "auto|ring|recursive-doubling"));
	for (int what = 0; what < GN_COLLECTIVE_COUNT; what++)
		for (size_t bytes = 4; bytes < 1 << 26; bytes *= 64) {
			c = choose(&r.cost, odd, (enum gn_collective)what, bytes, NULL);
			assert_int_equal(c.algorithm->what, what);
			assert_true(c.predicted_s > 0);
			c = choose(&r.cost, one, (enum gn_collective)what, bytes, NULL);
			assert_int_equal(c.algorithm->what, what);
		}
	gn_node_map_destroy(map);
	gn_node_map_destroy(odd);
	gn_node_map_destroy(one);
	gn_node_map_destroy(many);
}

/* Two levels: the links are slow, so bytes between nodes count. */
static void test_levels(void **state)
{
	struct gn_tune_result r = result_of("");
	struct gn_node_map *map = map_of(4, 4, 0);

	(void)state;
	assert_non_null(strstr(choose(&r.cost, map, GN_COLLECTIVE_ALLREDUCE, 64 << 10, NULL).algorithm->name, "hierarchical"));
	gn_node_map_destroy(map);
}

/* The closed forms are near the simulator: without slices within a quarter of each other, with slices within a factor of 2. */
static void test_forms(void **state)
{
	static const int shapes[][3] = {{2, 1, 0}, {4, 1, 0}, {7, 1, 0}, {4, 2, 0}, {3, 2, 1}, {16, 4, 0}, {1, 4, 0}};
	struct gn_tune_result r = result_of("");
	size_t count;
	const struct gn_algorithm *all = gn_algorithms(&count);

	(void)state;
	for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
		struct gn_node_map *map = map_of(shapes[k][0], shapes[k][1], shapes[k][2]);
		double worst[2] = {1, 1};

		for (size_t i = 0; i < count; i++)
			for (size_t bytes = 64; bytes <= 64 << 20; bytes *= 1 << 10) {
				struct gn_select_args args = {.what = all[i].what, .bytes = bytes, .map = map, .cost = &r.cost};
				struct gn_sim_topology t;
				struct gn_sim_result simulated;
				struct gn_select_form form;
				struct gn_err err;
				struct gn_choice c = choose(&r.cost, map, all[i].what, bytes, all[i].name);
				double ratio;

				gn_cost_topology(&r.cost, map->nodes, map->size / map->nodes, &t);
				t.map = map;
				assert_ok(gn_sim_run(&t, &all[i], bytes, c.pieces, 0, &simulated, &err));
				assert_ok(gn_select_closed_form(&args, &all[i], c.pieces, &form, &err));
				ratio = fmax(form.seconds / simulated.time_s, simulated.time_s / form.seconds);
				worst[c.pieces > 1] = fmax(worst[c.pieces > 1], ratio);
				if (ratio > (c.pieces > 1 ? 2 : 1.25))
					fail_msg("%s %s of %zu bytes in %u slices, %d x %d ranks: %g us by closed form, %g simulated",
						 gn_collective_name(all[i].what), all[i].name, bytes, c.pieces, shapes[k][0], shapes[k][1],
						 form.seconds * 1e6, simulated.time_s * 1e6);
			}
		print_message("# %d x %d + %d ranks: off by a factor of %.3f at most, with slices %.3f\n", shapes[k][0], shapes[k][1],
			      shapes[k][2], worst[0], worst[1]);
		gn_node_map_destroy(map);
	}
}

static void test_guess(void **state)
{
	struct gn_net_device items[2] = {{.name = "eth0", .up = 1, .gbit_per_s = 25}, {.name = "mlx5_0", .gbit_per_s = 200}};
	struct gn_devices devices = {items, 2};
	struct gn_cost tcp, rc;
	struct gn_err err;

	(void)state;
	gn_cost_guess(&devices, "", "tcp/eth0", &tcp);
	gn_cost_guess(&devices, "posix/memory cma/memory", "rc_mlx5/mlx5_0:1", &rc);
	assert_ok(gn_cost_check(&tcp, &err));
	assert_ok(gn_cost_check(&rc, &err));
	expect_near(rc.link.bytes_per_s, 200e9 / 8 * 0.95, 1e-9);
	assert_true(tcp.link.bytes_per_s < rc.link.bytes_per_s);
	assert_true(tcp.link.path.ranges[0].latency_s > rc.link.path.ranges[0].latency_s);
	assert_false(tcp.measured);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fit),    cmocka_unit_test(test_middle_stream), cmocka_unit_test(test_shaped), cmocka_unit_test(test_table),
		cmocka_unit_test(test_picks),
		cmocka_unit_test(test_choice), cmocka_unit_test(test_levels), cmocka_unit_test(test_forms),
		cmocka_unit_test(test_guess),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
