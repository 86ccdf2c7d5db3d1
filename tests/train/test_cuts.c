/* Where networks are cut: the best cuts against all of them, names, and what pieces cost. */
#include "tests/test.h"

#include "src/base/philox.h"
#include "src/train/parallel/cuts.h"

#include <math.h>
#include <string.h>

enum { PIECES_MAX = 9, STAGES_MAX = 5 };

/* --- every way to cut, tried --- */

struct oracle {
	const struct gn_cut_costs *c;
	int stages, micro_batches;
	const double *bytes_per_s;
	int first[STAGES_MAX + 1];
	double slowest, sending;
};

/* Of the ways that are within rounding the fastest, the one that sends least. */
static void judge(struct oracle *o)
{
	double slowest = 0, sending = 0;

	for (int s = 0; s < o->stages; s++) {
		double compute = gn_cut_compute_s(o->c, o->first[s], o->first[s + 1], o->micro_batches), send = 0;

		if (s)
			send += o->c->pieces[o->first[s] - 1].out_bytes / o->bytes_per_s[s - 1];
		if (s + 1 < o->stages)
			send += o->c->pieces[o->first[s + 1] - 1].out_bytes / o->bytes_per_s[s];
		slowest = fmax(slowest, compute + send);
		sending += send;
	}
	if (slowest < o->slowest * (1 - 1e-9) || (slowest < o->slowest * (1 + 1e-9) && sending < o->sending)) {
		o->slowest = slowest;
		o->sending = sending;
	}
}

static void try_all(struct oracle *o, int stage)
{
	if (stage == o->stages) {
		judge(o);
		return;
	}
	for (int first = o->first[stage - 1] + 1; first < o->c->count; first++) {
		o->first[stage] = first;
		for (int k = stage + 1; k <= o->stages; k++)
			o->first[k] = o->c->count;
		try_all(o, stage + 1);
	}
}

static void compare(const struct gn_cut_costs *c, int stages, int micro_batches, const double *bytes_per_s)
{
	struct oracle o = {c, stages, micro_batches, bytes_per_s, {0}, INFINITY, INFINITY}, chosen = o;
	int nodes[STAGES_MAX];
	struct gn_err err;
	double slowest;

	o.first[stages] = c->count;
	try_all(&o, 1);
	assert_ok(gn_cuts_choose(c, stages, micro_batches, bytes_per_s, nodes, &slowest, &err));
	chosen.first[stages] = c->count;
	for (int s = 1; s < stages; s++) {
		while (c->pieces[chosen.first[s]].node != nodes[s - 1])
			assert_true(++chosen.first[s] < c->count);
		assert_true(chosen.first[s] > chosen.first[s - 1]);
	}
	judge(&chosen);
	assert_true(fabs(slowest - o.slowest) <= 1e-9 * o.slowest);
	assert_true(fabs(chosen.slowest - o.slowest) <= 1e-8 * o.slowest);
	assert_true(fabs(chosen.sending - o.sending) <= 1e-8 * o.sending);
}

static void test_against_all(void **state)
{
	struct gn_cut_piece pieces[PIECES_MAX];
	struct gn_cut_costs c = {pieces, 0};
	struct gn_rng rng;

	(void)state;
	gn_rng_init(&rng, 3, GN_RNG_TEST, 0, 0);
	for (int round = 0; round < 2000; round++) {
		double bytes_per_s[STAGES_MAX];
		int stages;

		c.count = 1 + (int)gn_rng_below(&rng, PIECES_MAX);
		for (int i = 0; i < c.count; i++) /* often the same, so that there are ties; some 0 */
			pieces[i] = (struct gn_cut_piece){3 * i + 1, gn_rng_below(&rng, 4), gn_rng_below(&rng, 4), gn_rng_uniform(&rng),
							  i + 1 < c.count ? 1e6 * gn_rng_below(&rng, 5) : 0};
		for (int s = 0; s < STAGES_MAX; s++)
			bytes_per_s[s] = gn_rng_below(&rng, 3) ? 1e6 * (1 + gn_rng_below(&rng, 3)) : 1e12;
		stages = 1 + (int)gn_rng_below(&rng, (uint32_t)(c.count < STAGES_MAX ? c.count : STAGES_MAX));
		compare(&c, stages, 1 + (int)gn_rng_below(&rng, 8), bytes_per_s);
	}
}

static void test_too_many_stages(void **state)
{
	struct gn_cut_piece pieces[] = {{1, 1, 1, 0, 8}, {3, 1, 1, 0, 0}};
	const struct gn_cut_costs c = {pieces, 2};
	const double bytes_per_s[] = {1, 1};
	struct gn_err err;
	int nodes[2];

	(void)state;
	assert_int_equal(gn_cuts_choose(&c, 3, 1, bytes_per_s, nodes, NULL, &err), GN_ERR_USAGE);
	assert_non_null(strstr(err.text, "2 stages at most, not 3"));
	memset(pieces, 0, sizeof pieces); /* no times at all */
	pieces[0].node = 1;
	pieces[1].node = 3;
	assert_ok(gn_cuts_choose(&c, 2, 1, bytes_per_s, nodes, NULL, &err));
	assert_int_equal(nodes[0], 3);
}

/* --- names --- */

static void refused(const struct gn_model *m, const char *text, int stages, const char *why)
{
	struct gn_err err;
	int nodes[STAGES_MAX];

	assert_int_equal(gn_cuts_parse(m, text, stages, nodes, &err), GN_ERR_USAGE);
	if (!strstr(err.text, why))
		fail_msg("%s: %s", text, err.text);
}

static void test_names(void **state)
{
	static const char *const networks[] = {"lenet", "resnet18", "resnet50", "vgg16", "mobilenet_v2", "efficientnet_b0", "convnext_tiny", "vit_b_16"};
	struct gn_strbuf text;
	struct gn_model *m;
	struct gn_err err;
	int nodes[STAGES_MAX];

	(void)state;
	assert_ok(gn_model_create("resnet18", 10, 0, 32, &m, &err));
	assert_ok(gn_cuts_parse(m, "layer2,layer3.1,fc", 4, nodes, &err));
	refused(m, "layer2", 3, "1 name for 3 stages, which 2 begin");
	refused(m, "layer2,layer3", 2, "2 names for 2 stages, which 1 begins");
	refused(m, "layer3,layer2", 3, "layer2 is not behind");
	refused(m, "layer2,layer2.0", 3, "layer2.0 is not behind");
	refused(m, "layer2.0.conv2", 2, "places near it: layer1.1,layer2,layer2.1,layer3");
	refused(m, "layer3.7", 2, "no layer or block of that name; places near it: layer2,layer2.1,layer3,layer3.1");
	refused(m, "conv1", 2, "only the image; places near it: layer1,layer1.1");
	refused(m, "layer2,", 3, "no layer or block");
	refused(m, "layer2.0123456789012345678901234567890123456789012345678901234567890123", 2, "so long a name");
	gn_model_destroy(m);
	gn_strbuf_init(&text);
	for (size_t i = 0; i < sizeof networks / sizeof *networks; i++) {
		assert_ok(gn_model_create(networks[i], 10, 0, gn_model_default_side(networks[i]), &m, &err));
		for (int node = 1; node < gn_model_node_count(m); node++) {
			if (!gn_model_can_cut(m, node))
				continue;
			gn_strbuf_clear(&text);
			gn_cuts_text(m, &node, 1, &text);
			assert_ok(gn_cuts_parse(m, gn_strbuf_text(&text), 2, nodes, &err));
			assert_int_equal(nodes[0], node);
		}
		gn_model_destroy(m);
	}
	gn_strbuf_release(&text);
}

/* --- costs --- */

static void check_costs(const struct gn_model *m, const struct gn_cut_costs *c)
{
	for (int i = 0; i < c->count; i++) {
		const struct gn_cut_piece *p = &c->pieces[i];

		assert_true(i ? gn_model_can_cut(m, p->node) : p->node == 1);
		assert_true(p->forward_s > 0 && p->backward_s > 0 && p->add_s > 0);
		assert_true(p->forward_s + p->backward_s + p->add_s < 60);
		assert_true((p->out_bytes > 0) == (i + 1 < c->count));
	}
}

static void test_costs(void **state)
{
	struct gn_plan_options o = {.backend = GN_BACKEND_HOST, .batch = 4, .training = 1, .dropout = 1, .drop_path = 0.1};
	static const char *const networks[] = {"lenet", "resnet20", "mobilenet_v2"},
			 *const larger[] = {"vgg16", "resnet50", "mobilenet_v3_large", "efficientnet_b0", "convnext_tiny", "vit_b_16"};
	struct gn_cut_costs measured, estimated;
	struct gn_model *m;
	struct gn_err err;

	(void)state;
	for (size_t i = 0; i < sizeof networks / sizeof *networks; i++) {
		assert_ok(gn_model_create(networks[i], 10, 0, 32, &m, &err));
		assert_ok(gn_cut_costs_estimate(m, &o, 1, 1e10, 1e11, &estimated, &err));
		assert_ok(gn_cut_costs_measure(m, &o, 1, &measured, &err));
		assert_int_equal(measured.count, estimated.count);
		check_costs(m, &estimated);
		check_costs(m, &measured);
		for (int k = 0; k < measured.count; k++)
			assert_true(measured.pieces[k].out_bytes == estimated.pieces[k].out_bytes);
		gn_cut_costs_release(&measured);
		gn_cut_costs_release(&estimated);
		gn_model_destroy(m);
	}
	for (size_t i = 0; i < sizeof larger / sizeof *larger; i++) {
		assert_ok(gn_model_create(larger[i], 10, 0, gn_model_default_side(larger[i]), &m, &err));
		assert_ok(gn_cut_costs_estimate(m, &o, 1, 1e10, 1e11, &estimated, &err));
		check_costs(m, &estimated);
		gn_cut_costs_release(&estimated);
		gn_model_destroy(m);
	}
	o.backend = GN_BACKEND_CUDA;
	assert_ok(gn_model_create("lenet", 10, 0, 28, &m, &err));
	assert_int_equal(gn_cut_costs_measure(m, &o, 1, &measured, &err), GN_ERR_UNSUPPORTED);
	gn_model_destroy(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_against_all),
		cmocka_unit_test(test_too_many_stages),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_costs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
