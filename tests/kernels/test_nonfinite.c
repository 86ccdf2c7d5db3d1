/* NaN and infinities at random places of inputs, weights and gradients: every operator of the host gives them where the oracle does, and
 * the oracle where PyTorch does. */
#include "tests/kernels/op_pair.h"

#include "src/base/philox.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PLACES = 4 };

/* At four random places in each tensor: NaN, infinity and minus infinity, the first `kinds` of them. which: bits of what is poisoned, inputs,
 * weights, gradients. */
static void poison(struct op_run *r, unsigned which, uint32_t kinds, uint32_t seed)
{
	static const float bad[] = {NAN, INFINITY, -INFINITY};
	struct {
		float *x;
		size_t count;
		unsigned bit;
	} all[] = {{r->x[0], r->in_count, 1}, {r->x[1], r->out_count, 1}, {r->weight, r->weight_count, 2}, {r->bias, r->bias_count, 2},
		   {r->dy, r->out_count, 4}};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		struct gn_rng rng;

		gn_rng_init(&rng, 11, GN_RNG_TEST, seed, (uint32_t)i);
		for (int k = 0; k < PLACES && (all[i].bit & which) && all[i].count; k++)
			all[i].x[gn_rng_below(&rng, (uint32_t)all[i].count)] = bad[gn_rng_below(&rng, kinds)];
	}
}

/* NaN where NaN is, infinity or NaN where infinity is (a weight of infinity may be multiplied with more before it is added), and else about
 * the same. LEAKY: the host's relu keeps minus infinity. WIDE: a sum of Winograd's filtering may be of neighbours, too, so that these may be NaN
 * or infinite, and infinity may be NaN. */
enum { LEAKY = 1, WIDE = 2 };

static void assert_alike(const char *title, const char *what, size_t count, const float *host, const float *ref, int how)
{
	for (size_t i = 0; i < count; i++) {
		int is_same = (how & WIDE) && !isfinite(host[i]) ? 1
			      : isnan(ref[i])   ? isnan(host[i])
			      : isinf(ref[i]) ? !isfinite(host[i])
					      : fabsf(host[i] - ref[i]) <= 0.05f * (1 + fabsf(ref[i]));

		if (!is_same && !((how & LEAKY) && ref[i] == 0 && host[i] == -INFINITY))
			fail_msg("%s: %s %zu is %g on the host, %g for the oracle", title, what, i, (double)host[i], (double)ref[i]);
	}
}

static void compare(const char *title, const struct gn_op_desc *desc, unsigned which, uint32_t seed)
{
	struct op_run host, ref;
	/* an infinite weight makes NaN of a batch norm in inference, which multiplies it with the mean first, as PyTorch's does */
	const uint32_t kinds = desc->kind == GN_OP_BATCH_NORM && which == 2 ? 1 : 3;
	const int wide = desc->kind == GN_OP_CONV && desc->convolution == GN_CONVOLUTION_WINOGRAD ? WIDE : 0;
	const int leaky = desc->kind == GN_OP_CONV && desc->relu ? LEAKY : 0, adds = desc->kind == GN_OP_ADD || desc->kind == GN_OP_SCALE;

	op_run_init(&host, desc, 0);
	op_run_init(&ref, desc, 0);
	poison(&host, which, kinds, seed);
	poison(&ref, which, kinds, seed);
	op_run_execute(&host, GN_BACKEND_HOST, desc);
	op_run_execute(&ref, GN_BACKEND_REF, desc);
	assert_alike(title, "output", host.out_count, host.y, ref.y, leaky | wide);
	if (desc->training) {
		assert_alike(title, "weight gradient", host.weight_count, host.dweight, ref.dweight, wide);
		assert_alike(title, "bias gradient", host.bias_count, host.dbias, ref.dbias, 0);
		assert_alike(title, "input gradient", host.in_count, host.dx[0], ref.dx[0], wide);
	}
	if (desc->training && adds)
		assert_alike(title, "second input gradient", desc->kind == GN_OP_ADD ? host.in_count : (size_t)host.in.n * host.in.c,
			     host.dx[1], ref.dx[1], 0);
	if (desc->training && desc->kind == GN_OP_BATCH_NORM) {
		assert_alike(title, "running mean", host.in.c, host.mean, ref.mean, 0);
		assert_alike(title, "running variance", host.in.c, host.var, ref.var, 0);
	}
	op_run_release(&host);
	op_run_release(&ref);
}

/* In every layout, with everything poisoned that there is, in turn. */
static void compare_all(const char *title, struct gn_op_desc d)
{
	static const int blocks[] = {1, 16, 8, 0};
	/* the relu of a batch norm masks by a factor: a gradient that is NaN passes also where the relu is 0 */
	const unsigned last = !d.training || (d.kind == GN_OP_BATCH_NORM && d.relu) ? 2 : 4;
	char named[100];

	d.needs_din = d.training;
	for (unsigned which = 1; which <= last; which *= 2)
		for (uint32_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
			d.in[0].block = d.in[1].block = blocks[i];
			snprintf(named, sizeof named, "%s, block %d, poisoned %u", title, blocks[i], which);
			compare(named, &d, which, 10 * i + which);
		}
}

static struct gn_op_desc desc_of(enum gn_op_kind kind, int channels, int side)
{
	struct gn_layout in = {.n = 2, .c = channels, .h = side, .w = side, .block = 1, .element_bytes = 4};

	return (struct gn_op_desc){.kind = kind, .in = {in, in}, .channels_out = 32, .eps = 1e-5, .momentum = 0.1};
}

static void test_convolutions(void **state)
{
	struct gn_op_desc d = desc_of(GN_OP_CONV, 32, 9);

	(void)state;
	d.stride = 1;
	for (d.kernel = 1; d.kernel <= 3; d.kernel += 2)
		for (d.training = 0; d.training < 2; d.training++) {
			d.pad = d.kernel / 2;
			d.bias = 1;
			d.relu = !d.training;
			d.convolution = GN_CONVOLUTION_DIRECT;
			compare_all(d.kernel == 1 ? "convolution 1x1" : "convolution 3x3", d);
			d.convolution = GN_CONVOLUTION_WINOGRAD;
			compare_all(d.kernel == 1 ? "convolution 1x1" : "convolution 3x3 by Winograd's filtering", d);
		}
}

static void test_max_pooling(void **state)
{
	struct gn_op_desc d = desc_of(GN_OP_MAX_POOL, 24, 9);

	(void)state;
	d.stride = 2;
	for (d.training = 0; d.training < 2; d.training++)
		for (d.kernel = 2; d.kernel < 4; d.kernel++) {
			d.pad = d.kernel == 3;
			for (d.in[0].element_bytes = 2; d.in[0].element_bytes < 5; d.in[0].element_bytes += 2)
				compare_all("max pooling", d);
		}
}

static void test_norms(void **state)
{
	struct gn_op_desc d = desc_of(GN_OP_BATCH_NORM, 24, 5);

	(void)state;
	for (d.training = 0; d.training < 2; d.training++)
		for (d.relu = 0; d.relu < 2; d.relu++)
			compare_all(d.relu ? "batch norm with relu" : "batch norm", d);
	d = desc_of(GN_OP_LAYER_NORM, 24, 5);
	d.training = 1;
	compare_all("layer norm", d);
}

static void test_pointwise(void **state)
{
	static const struct {
		const char *name;
		enum gn_op_kind kind;
		int relu;
		enum gn_activation activation;
	} ops[] = {
		{"relu", GN_OP_RELU, 0, 0},
		{"sum", GN_OP_ADD, 0, 0},
		{"sum with relu", GN_OP_ADD, 1, 0},
		{"dropout", GN_OP_DROPOUT, 0, 0},
		{"scale", GN_OP_SCALE, 0, 0},
		{"drop path", GN_OP_DROP_PATH, 0, 0},
		{"channel scale", GN_OP_CHANNEL_SCALE, 0, 0},
		{"average pooling", GN_OP_ADAPTIVE_AVG_POOL, 0, 0},
		{"relu6", GN_OP_ACTIVATION, 0, GN_ACTIVATION_RELU6},
		{"silu", GN_OP_ACTIVATION, 0, GN_ACTIVATION_SILU},
		{"hard swish", GN_OP_ACTIVATION, 0, GN_ACTIVATION_HARD_SWISH},
		{"hard sigmoid", GN_OP_ACTIVATION, 0, GN_ACTIVATION_HARD_SIGMOID},
		{"sigmoid", GN_OP_ACTIVATION, 0, GN_ACTIVATION_SIGMOID},
		{"gelu", GN_OP_ACTIVATION, 0, GN_ACTIVATION_GELU},
	};

	(void)state;
	for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
		struct gn_op_desc d = desc_of(ops[i].kind, 24, 5);

		d.relu = ops[i].relu;
		d.activation = ops[i].activation;
		d.rate = 0.5;
		d.out_side = 2;
		d.training = 1;
		if (ops[i].kind == GN_OP_SCALE)
			d.in[1].h = d.in[1].w = 1;
		for (int bytes = 2; bytes <= 4; bytes += 2) {
			d.in[0].element_bytes = d.in[1].element_bytes = bytes;
			compare_all(ops[i].name, d);
		}
	}
}

static void test_linear(void **state)
{
	struct gn_op_desc d = desc_of(GN_OP_LINEAR, 24, 1);

	(void)state;
	d.bias = d.training = 1;
	compare_all("linear", d);
}

static void test_attention(void **state)
{
	struct gn_op_desc d = desc_of(GN_OP_ATTENTION, 48, 3);

	(void)state;
	d.heads = 2;
	d.training = 1;
	compare_all("attention", d);
}

/* What PyTorch 2.15 gives on a processor: each function and its gradient (of 1) at NaN, infinity, minus infinity. Where it has two answers (the
 * gradient of relu6 at NaN is 1 alone and 0 in a vector), and for its gelu of infinity, which is NaN, the formula counts. */
static void test_oracle_as_pytorch(void **state)
{
	static const struct {
		enum gn_activation kind;
		float y[3], slope[3];
	} known[] = {
		{GN_ACTIVATION_RELU6, {NAN, 6, 0}, {1, 0, 0}},
		{GN_ACTIVATION_SILU, {NAN, INFINITY, NAN}, {NAN, NAN, NAN}},
		{GN_ACTIVATION_HARD_SWISH, {NAN, INFINITY, NAN}, {1, 1, 0}},
		{GN_ACTIVATION_HARD_SIGMOID, {NAN, 1, 0}, {0, 0, 0}},
		{GN_ACTIVATION_SIGMOID, {NAN, 1, 0}, {NAN, 0, 0}},
		{GN_ACTIVATION_GELU, {NAN, INFINITY, NAN}, {NAN, NAN, NAN}},
	};
	static const float at[3] = {NAN, INFINITY, -INFINITY};

	(void)state;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		struct gn_op_desc d = desc_of(GN_OP_ACTIVATION, 3, 1);
		struct op_run r;

		d.activation = known[i].kind;
		d.training = d.needs_din = 1;
		op_run_init(&r, &d, 0);
		memcpy(r.x[0], at, sizeof at);
		for (int k = 0; k < 3; k++)
			r.dy[k] = 1;
		op_run_execute(&r, GN_BACKEND_REF, &d);
		assert_alike("activation", "value", 3, r.y, known[i].y, 0);
		assert_alike("activation", "slope", 3, r.dx[0], known[i].slope, 0);
		op_run_release(&r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_oracle_as_pytorch), cmocka_unit_test(test_convolutions), cmocka_unit_test(test_max_pooling),
		cmocka_unit_test(test_norms),		  cmocka_unit_test(test_pointwise),    cmocka_unit_test(test_linear),
		cmocka_unit_test(test_attention),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
