/* Meshes of ranks: what --parallel says, and which rank is where. */
#include "tests/test.h"

#include "src/train/parallel/mesh.h"

#include <string.h>

static void parsed(const char *text, int ranks, int data, int pipeline)
{
	struct gn_mesh_shape s;
	struct gn_err err;

	assert_ok(gn_mesh_parse(text, ranks, &s, &err));
	assert_int_equal(s.data, data);
	assert_int_equal(s.pipeline, pipeline);
	assert_int_equal(s.tensor, 1);
}

static void refused(const char *text, int ranks, const char *why)
{
	struct gn_mesh_shape s = {7, 7, 7};
	struct gn_err err;

	assert_int_equal(gn_mesh_parse(text, ranks, &s, &err), GN_ERR_USAGE);
	if (!strstr(err.text, why))
		fail_msg("%s: %s", text, err.text);
	assert_int_equal(s.data, 7);
}

static void test_parse(void **state)
{
	(void)state;
	parsed("data=2,pipeline=3", 6, 2, 3);
	parsed("pipeline=3,tensor=1,data=2", 6, 2, 3);
	parsed("pipeline=3", 6, 2, 3);
	parsed("data=2", 6, 2, 3);
	parsed("tensor=1", 6, 6, 1);
	parsed("pipeline=3", 0, 0, 3);
	refused("data=2,pipeline=3", 5, "are 6 ranks, and there are 5");
	refused("pipeline=4", 6, "6 ranks cannot be divided by pipeline=4");
	refused("pipeline=4", 1, "1 rank cannot be divided");
	refused("data=4", 6, "cannot be divided by data=4");
	refused("data=1048576,pipeline=1048576", 6, "are 1099511627776 ranks");
	refused("tensor=2,pipeline=2", 6, "6 ranks cannot be divided by pipeline=2 x tensor=2");
	refused("tensor=2,pipeline=2,data=2", 4, "data=2 x pipeline=2 x tensor=2 are 8 ranks");
	refused("tensor=2", 3, "3 ranks cannot be divided by tensor=2");
	refused("data=2,tensor=2", 2, "data=2 x tensor=2 are 4 ranks");
	refused("data=2,data=2", 4, "given twice");
	refused("", 4, "none of");
	refused("data=2,", 2, "none of");
	refused(",data=2", 2, "none of");
	refused("pipe=2", 2, "pipe=2 is none of");
	refused("data", 2, "data is none of");
	refused("data=", 2, "from 1 to");
	refused("data=0", 2, "from 1 to");
	refused("data=-1", 2, "from 1 to");
	refused("data=2x", 2, "from 1 to");
	refused("data=99999999999999999999", 2, "from 1 to");
}

/* Whether all indices are there once and agree, in every shape of these ranks. */
static void check_indices(const struct gn_mesh *m)
{
	for (int r = 0; r < m->size; r++) {
		int d = gn_mesh_data_index(m, r), s = gn_mesh_stage(m, r);

		assert_in_range(d, 0, m->shape.data - 1);
		assert_in_range(s, 0, m->shape.pipeline - 1);
		assert_int_equal(m->ranks[m->positions[gn_mesh_rank(m, d, s)] + gn_mesh_slice(m, r)], r);
	}
	assert_int_equal(m->positions[0], 0);
	for (int d = 1; d < m->shape.data; d++)
		assert_true(gn_mesh_rank(m, d - 1, 0) < gn_mesh_rank(m, d, 0));
}

/* Pipelines with neighbours on two nodes. */
static int split_pipelines(const struct gn_mesh *m)
{
	int split = 0;

	for (int d = 0; d < m->shape.data; d++)
		for (int s = 1; s < m->shape.pipeline; s++)
			if (m->node_of[gn_mesh_rank(m, d, s)] != m->node_of[gn_mesh_rank(m, d, s - 1)]) {
				split++;
				break;
			}
	return split;
}

static void placed(const int *node_of, int ranks, int stages, int split)
{
	struct gn_mesh_shape s = {ranks / stages, stages, 1};
	struct gn_mesh m;
	struct gn_err err;

	assert_ok(gn_mesh_init(&m, &s, node_of, ranks, &err));
	check_indices(&m);
	assert_int_equal(split_pipelines(&m), split);
	gn_mesh_release(&m);
}

static void test_placement(void **state)
{
	static const int blocks[] = {0, 0, 0, 0, 1, 1, 1, 1}, cyclic[] = {0, 1, 0, 1, 0, 1, 0, 1}, uneven[] = {0, 0, 0, 1, 1, 1, 1, 2},
			 odd[] = {0, 0, 0, 1, 1, 1};

	(void)state;
	placed(blocks, 8, 2, 0);
	placed(blocks, 8, 4, 0);
	placed(blocks, 8, 8, 1);
	placed(blocks, 8, 1, 0);
	placed(cyclic, 8, 2, 0);
	placed(cyclic, 8, 4, 0);
	placed(uneven, 8, 4, 1); /* the four in the middle stay together */
	placed(uneven, 8, 2, 1);
	placed(odd, 6, 2, 1);
	placed(odd, 6, 3, 0);
}

/* Each rank has the copy of one other, and on another node as far as there are any. */
static void held(const int *node_of, int ranks, int same_node)
{
	int holders[8], copies[8] = {0};
	struct gn_err err;

	assert_ok(gn_redundancy_holders(node_of, ranks, holders, &err));
	for (int r = 0; r < ranks; r++) {
		assert_int_not_equal(holders[r], r);
		copies[holders[r]]++;
		same_node -= node_of[holders[r]] == node_of[r];
	}
	for (int r = 0; r < ranks; r++)
		assert_int_equal(copies[r], 1);
	assert_int_equal(same_node, 0);
}

static void test_copies(void **state)
{
	(void)state;
	held((const int[]){0, 0}, 2, 2);
	held((const int[]){0, 1}, 2, 0);
	held((const int[]){0, 0, 0, 0, 0}, 5, 5);
	held((const int[]){0, 0, 1, 1}, 4, 0);
	held((const int[]){0, 1, 0, 1, 0, 1}, 6, 0);
	held((const int[]){0, 0, 0, 1, 1, 2}, 6, 0);
	held((const int[]){0, 1, 1, 1}, 4, 2); /* one rank outside of the node has one copy */
	held((const int[]){0, 0, 1, 2, 2, 2, 2}, 7, 1);
}

/* Slices of one stage are next to each other. */
static void test_both(void **state)
{
	static const int node_of[] = {0, 0, 1, 1, 1, 1, 0, 0};
	static const char *const hosts[] = {"a", "a", "b", "b", "b", "b", "a", "a"};
	struct gn_mesh_shape s;
	struct gn_strbuf text;
	struct gn_mesh m;
	struct gn_err err;

	(void)state;
	assert_ok(gn_mesh_parse("pipeline=2,tensor=2", 8, &s, &err));
	assert_true(s.data == 2 && s.pipeline == 2 && s.tensor == 2);
	gn_strbuf_init(&text);
	assert_ok(gn_mesh_init(&m, &s, node_of, 8, &err));
	check_indices(&m);
	assert_false(gn_mesh_crosses(&m, 0));
	gn_mesh_draw(&m, hosts, 8, &text);
	assert_string_equal(gn_strbuf_text(&text), "mesh data=2 x pipeline=2 x tensor=2: 8 ranks on 2 nodes; stages in brackets, -> within a node, => between nodes\n"
						   "  data 0: (a[0] - a[1]) -> (a[6] - a[7])\n  data 1: (b[2] - b[3]) -> (b[4] - b[5])\n");
	gn_mesh_release(&m);
	s = (struct gn_mesh_shape){1, 4, 2};
	assert_ok(gn_mesh_init(&m, &s, node_of, 8, &err));
	check_indices(&m);
	assert_true(!gn_mesh_crosses(&m, 0) && gn_mesh_crosses(&m, 1) && !gn_mesh_crosses(&m, 2));
	gn_mesh_release(&m);
	gn_strbuf_release(&text);
}

static void test_drawing(void **state)
{
	static const int node_of[] = {0, 0, 0, 1, 1, 1};
	static const char *const hosts[] = {"a", "a", "a", "b", "b", "b"};
	struct gn_mesh_shape s = {3, 2, 1};
	struct gn_strbuf text;
	struct gn_mesh m;
	struct gn_err err;

	(void)state;
	gn_strbuf_init(&text);
	assert_ok(gn_mesh_init(&m, &s, node_of, 6, &err));
	gn_mesh_draw(&m, hosts, 8, &text);
	assert_string_equal(gn_strbuf_text(&text), "mesh data=3 x pipeline=2: 6 ranks on 2 nodes; -> within a node, => between nodes\n"
						   "  data 0: a[0] -> a[1]\n  data 1: a[2] => b[5]\n  data 2: b[3] -> b[4]\n");
	assert_true(gn_mesh_crosses(&m, 0));
	gn_strbuf_clear(&text);
	gn_mesh_draw(&m, hosts, 2, &text);
	assert_non_null(strstr(gn_strbuf_text(&text), "a[1]\n  ... 1 more\n  data 2:"));
	gn_mesh_release(&m);
	gn_mesh_release(&m);
	gn_strbuf_release(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse),
		cmocka_unit_test(test_placement),
		cmocka_unit_test(test_copies),
		cmocka_unit_test(test_both),
		cmocka_unit_test(test_drawing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
