/* Operators of networks after ResNet: convolutions in groups, activations, scaling, stochastic depth, layer norm, attention and tokens.
 * The host's against the oracle, in floats and in bfloat16 (one rounding of a tensor is 2^-8), and the oracle's gradients against central
 * differences. */
#include "tests/kernels/op_pair.h"

#include "kernels/backend.h"
#include "kernels/host/layer.h"
#include "kernels/ref/ref.h"
#include "src/base/philox.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const enum gn_activation activations[] = {GN_ACTIVATION_RELU6,	     GN_ACTIVATION_SILU,    GN_ACTIVATION_HARD_SWISH,
						 GN_ACTIVATION_HARD_SIGMOID, GN_ACTIVATION_SIGMOID, GN_ACTIVATION_GELU};

static struct gn_layout shape(int n, int c, int h, int w)
{
	return (struct gn_layout){.n = n, .c = c, .h = h, .w = w, .block = 1, .element_bytes = 4};
}

/* In floats and bfloat16. */
static void compare(const char *title, struct gn_op_desc *d, double bound)
{
	char low[100];

	op_compare_layouts(title, d, 0, (struct op_bounds){bound, bound});
	snprintf(low, sizeof low, "bf16 %s", title);
	d->in[0].element_bytes = d->in[1].element_bytes = 2;
	op_compare_layouts(low, d, 0, (struct op_bounds){4e-3, 2e-5});
}

static void test_groups(void **state)
{
	/* images, channels, side, out, kernel, stride, padding, groups, bias */
	static const int table[][9] = {
		{2, 32, 9, 32, 3, 1, 1, 32, 0},	  {2, 96, 10, 96, 3, 2, 1, 96, 0}, {3, 144, 7, 144, 5, 2, 2, 144, 0}, {2, 72, 9, 72, 5, 1, 2, 72, 0},
		{1, 184, 7, 184, 3, 1, 1, 184, 0}, {2, 96, 12, 96, 7, 1, 3, 96, 1}, {2, 24, 8, 48, 3, 1, 1, 4, 1},	  {2, 6, 5, 9, 3, 2, 1, 3, 1},
		{1, 5, 4, 5, 3, 1, 1, 5, 0},
	};
	char title[80];

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		for (int mode = 0; mode < 6; mode++) {
			const int *t = table[i];
			int low = mode >= 3;
			struct gn_op_desc d = {.kind = GN_OP_CONV, .channels_out = t[3], .kernel = t[4], .stride = t[5], .pad = t[6],
					       .groups = t[7], .bias = t[8], .training = mode % 3 > 0, .needs_din = mode % 3 > 1,
					       .bf16 = low, .emulate = 1};

			if (low && !gn_backend_has_bf16(GN_BACKEND_HOST))
				continue;
			d.weight.order = mode % 2 ? GN_WEIGHT_ANY : GN_WEIGHT_PLAIN;
			d.in[0] = d.in[1] = shape(t[0], t[1], t[2], t[2]);
			snprintf(title, sizeof title, "%sconv %d to %d in %d groups, mode %d", low ? "bf16 " : "", t[1], t[3], t[7], mode);
			op_compare(title, &d, 0, low ? (struct op_bounds){4e-3, 2e-5} : (struct op_bounds){2e-6, 2e-6});
		}
}

static const int sizes[][4] = {{2, 37, 5, 7}, {1, 1, 1, 1}, {3, 64, 8, 8}, {2, 48, 11, 9}, {3, 12, 1, 1}};

static void test_activations(void **state)
{
	char title[80];

	(void)state;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		for (size_t k = 0; k < sizeof activations / sizeof *activations; k++) {
			struct gn_op_desc d = {.kind = GN_OP_ACTIVATION, .activation = activations[k], .training = 1, .needs_din = 1};

			d.in[0] = d.in[1] = shape(sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3]);
			snprintf(title, sizeof title, "activation %d of %dx%d", (int)activations[k], sizes[i][1], sizes[i][2]);
			compare(title, &d, 2e-6);
		}
}

static void test_scaling(void **state)
{
	static const enum gn_op_kind kinds[] = {GN_OP_SCALE, GN_OP_CHANNEL_SCALE, GN_OP_DROP_PATH};
	char title[80];

	(void)state;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		for (int k = 0; k < 6; k++) {
			struct gn_op_desc d = {.kind = kinds[k % 3], .rate = 0.4, .seed = 12345678901ull, .stream = 7, .training = k < 3,
					       .needs_din = 1};

			d.in[0] = shape(sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3]);
			d.in[1] = shape(sizes[i][0], sizes[i][1], 1, 1);
			snprintf(title, sizeof title, "scaling %d of %dx%d", k, sizes[i][1], sizes[i][2]);
			compare(title, &d, 2e-6);
		}
}

static void test_layer_norm(void **state)
{
	static const int table[][4] = {{2, 37, 5, 7}, {3, 96, 8, 8}, {2, 48, 11, 9}, {3, 12, 1, 1}, {1, 768, 3, 3}};
	char title[80];

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		struct gn_op_desc d = {.kind = GN_OP_LAYER_NORM, .eps = 1e-6, .training = 1, .needs_din = 1};

		d.in[0] = d.in[1] = shape(table[i][0], table[i][1], table[i][2], table[i][3]);
		snprintf(title, sizeof title, "layer norm of %dx%d", table[i][1], table[i][2]);
		compare(title, &d, 5e-6);
	}
}

static void test_attention(void **state)
{
	/* images, heads, channels of a head, rows, columns */
	static const int table[][5] = {{2, 3, 8, 5, 1}, {1, 1, 1, 1, 1}, {3, 12, 64, 17, 1}, {2, 2, 16, 33, 1}, {1, 4, 5, 6, 7}};
	char title[80];

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		const int *t = table[i];
		struct gn_op_desc d = {.kind = GN_OP_ATTENTION, .heads = t[1], .training = 1, .needs_din = 1};

		d.in[0] = d.in[1] = shape(t[0], 3 * t[1] * t[2], t[3], t[4]);
		snprintf(title, sizeof title, "attention of %d heads of %d over %dx%d", t[1], t[2], t[3], t[4]);
		compare(title, &d, 5e-6);
	}
}

static void test_tokens(void **state)
{
	static const enum gn_op_kind kinds[] = {GN_OP_TOKENS, GN_OP_FIRST_PIXEL, GN_OP_TOKENS};
	char title[80];

	(void)state;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		for (int k = 0; k < 3; k++) {
			struct gn_op_desc d = {.kind = kinds[k], .training = 1, .needs_din = k < 2};

			d.in[0] = d.in[1] = shape(sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3]);
			snprintf(title, sizeof title, "tokens %d of %dx%d", k, sizes[i][1], sizes[i][2]);
			compare(title, &d, 2e-6);
		}
}

/* An image is dropped or kept as a whole, as often as the rate says; the mask depends on step and stream alone. */
static void test_drop_path(void **state)
{
	enum { IMAGES = 4096 };
	static float a[IMAGES], b[IMAGES];
	struct gn_op_desc d = {.kind = GN_OP_DROP_PATH, .in = {shape(IMAGES, 1, 1, 1)}, .rate = 0.25, .seed = 5, .stream = 9, .training = 1};
	int dropped = 0, same = 0;

	(void)state;
	gn_drop_path_factors(&d, 3, a);
	gn_drop_path_factors(&d, 3, b);
	assert_memory_equal(a, b, sizeof a);
	gn_drop_path_factors(&d, 4, b);
	for (int i = 0; i < IMAGES; i++) {
		assert_true(a[i] == 0 || fabsf(a[i] * 0.75f - 1) < 1e-6f);
		dropped += a[i] == 0;
		same += a[i] == b[i];
	}
	assert_in_range(dropped, IMAGES / 4 - 150, IMAGES / 4 + 150);
	assert_in_range(same, IMAGES * 5 / 8 - 200, IMAGES * 5 / 8 + 200);
	d.training = 0;
	gn_drop_path_factors(&d, 3, a);
	assert_true(a[0] == 1 && a[IMAGES - 1] == 1);
}

/* Corners have PyTorch's values and slopes. */
static void test_corners(void **state)
{
	const struct {
		enum gn_activation kind;
		double x, y, slope;
	} table[] = {{GN_ACTIVATION_RELU6, 0, 0, 0},	       {GN_ACTIVATION_RELU6, 6, 6, 0},		{GN_ACTIVATION_RELU6, 5, 5, 1},
		     {GN_ACTIVATION_HARD_SWISH, -3, 0, 0},     {GN_ACTIVATION_HARD_SWISH, 3, 3, 1},	{GN_ACTIVATION_HARD_SIGMOID, -3, 0, 0},
		     {GN_ACTIVATION_HARD_SIGMOID, 3, 1, 0},    {GN_ACTIVATION_SILU, 0, 0, 0.5},		{GN_ACTIVATION_GELU, 0, 0, 0.5},
		     {GN_ACTIVATION_SIGMOID, 0, 0.5, 0.25},    {GN_ACTIVATION_SILU, 1, 0.7310585786300049, 0.9276705118714867},
		     {GN_ACTIVATION_GELU, 1, 0.8413447460685429, 1.0833154705876864}};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		const float fx = (float)table[i].x, one = 1;
		float fy, slope;
		double y, dx, dy = 1;

		gn_ref_activation_forward(table[i].kind, 1, &table[i].x, &y);
		gn_ref_activation_backward(table[i].kind, 1, &table[i].x, &dy, &dx);
		assert_true(fabs(y - table[i].y) < 1e-12 && fabs(dx - table[i].slope) < 1e-12);
		gn_layer_loops()->forward(table[i].kind, 0, 1, &fx, &fy);
		gn_layer_loops()->backward(table[i].kind, 0, 1, gn_layer_reads_out(table[i].kind) ? &fy : &fx, &one, NULL, &slope);
		assert_true(fabs(fy - table[i].y) < 1e-6 && fabs(slope - table[i].slope) < 1e-6);
	}
}

enum { ROOM = 512 };

/* sum(c * y) of an operator of the oracle. */
static double value(struct gn_op *op, const double *c)
{
	const double *y = op->buffers.out;
	struct gn_err err;
	double sum = 0;

	assert_ok(gn_op_forward(op, 1, &err));
	for (size_t i = 0; i < gn_layout_elements(&op->info.out); i++)
		sum += c[i] * y[i];
	return sum;
}

static void check_slopes(struct gn_op *op, const double *c, double *x, size_t count, const double *gradient)
{
	const double h = 1e-6;

	for (size_t i = 0; i < count; i++) {
		double kept = x[i], above, below;

		x[i] = kept + h;
		above = value(op, c);
		x[i] = kept - h;
		below = value(op, c);
		x[i] = kept;
		if (!(fabs((above - below) / (2 * h) - gradient[i]) < 1e-6))
			fail_msg("operator %d: gradient %zu is %.9g, by differences %.9g", (int)op->desc.kind, i, gradient[i],
				 (above - below) / (2 * h));
	}
}

static void test_differences(void **state)
{
	static double x[2][ROOM], y[ROOM], c[ROOM], dx[2][ROOM], workspace[4 * ROOM], scratch[8 * ROOM];
	static float weight[ROOM], bias[ROOM], dweight[ROOM], dbias[ROOM];
	static const enum gn_op_kind kinds[] = {GN_OP_SCALE, GN_OP_CHANNEL_SCALE, GN_OP_DROP_PATH, GN_OP_LAYER_NORM, GN_OP_CONV,
						 GN_OP_TOKENS, GN_OP_ATTENTION, GN_OP_FIRST_PIXEL};
	struct gn_rng r;

	(void)state;
	gn_rng_init(&r, 3, GN_RNG_TEST, 0, 0);
	for (int i = 0; i < ROOM; i++) {
		x[0][i] = gn_rng_normal(&r);
		x[1][i] = gn_rng_normal(&r);
		c[i] = gn_rng_normal(&r);
		weight[i] = (float)gn_rng_normal(&r);
		bias[i] = (float)gn_rng_normal(&r);
	}
	for (size_t k = 0; k < sizeof kinds / sizeof *kinds + sizeof activations / sizeof *activations; k++) {
		size_t fixed = sizeof kinds / sizeof *kinds;
		struct gn_op_desc d = {.kind = k < fixed ? kinds[k] : GN_OP_ACTIVATION, .in = {shape(2, 6, 3, 3), shape(2, 6, 1, 1)},
				       .channels_out = 6, .kernel = 3, .stride = 1, .pad = 1, .groups = 3, .heads = 2, .rate = 0.4, .eps = 1e-6,
				       .training = 1, .needs_din = 1};
		struct gn_op_buffers b = {.in = {x[0], x[1]}, .out = y, .dout = c, .din = {dx[0], dx[1]}, .weight = weight, .bias = bias,
					  .dweight = dweight, .dbias = dbias, .workspace = workspace, .scratch = scratch};
		struct gn_op *op;
		struct gn_err err;

		d.activation = k < fixed ? GN_ACTIVATION_RELU6 : activations[k - fixed];
		assert_ok(gn_op_create(GN_BACKEND_REF, &d, &op, &err));
		assert_true(gn_op_info(op)->scratch_bytes <= sizeof scratch && gn_op_info(op)->workspace_bytes <= sizeof workspace);
		assert_ok(gn_op_bind(op, &b, &err));
		assert_ok(gn_op_forward(op, 1, &err));
		assert_ok(gn_op_backward(op, &err));
		check_slopes(op, c, x[0], 108, dx[0]);
		if (d.kind == GN_OP_SCALE)
			check_slopes(op, c, x[1], 12, dx[1]);
		gn_op_destroy(op);
	}
}

/* Scaling by channel and layer norm of 48 pixels with 16 channels; the gradients of factors, weights and biases, too. */
static void same_by_channel(const struct gn_layer_loops *a, const struct gn_layer_loops *b, const float *x, const float *dy)
{
	enum { PIXELS = 48, CHANNELS = 16, COUNT = PIXELS * CHANNELS };
	static float weight[CHANNELS], bias[CHANNELS], buffer[2 * GN_LAYER_TILE * CHANNELS];
	const struct gn_layer_piece piece = {PIXELS, CHANNELS, CHANNELS, 0};
	const struct gn_layer_rows rows = {PIXELS, CHANNELS, CHANNELS, CHANNELS, CHANNELS, 0, 1e-6, weight, bias};
	const struct gn_layer_loops *of[2] = {a, b};
	static float y[2][COUNT], sums[2][2 * CHANNELS], d[2][COUNT];

	for (int c = 0; c < CHANNELS; c++) {
		weight[c] = 1 + (float)c / 10;
		bias[c] = (float)(c % 3) - 1;
	}
	for (int k = 0; k < 2; k++)
		of[k]->scale(&piece, x, weight, y[k]);
	assert_near("loops", "scaled", COUNT, y[1], y[0], 1e-6);
	for (int k = 0; k < 2; k++)
		of[k]->scale_gradient(&piece, x, weight, dy, y[k], sums[k]);
	assert_near("loops", "gradient of what is scaled", COUNT, y[1], y[0], 1e-6);
	assert_near("loops", "gradient of factors", CHANNELS, sums[1], sums[0], 1e-5);
	for (int k = 0; k < 2; k++)
		of[k]->norm(&rows, x, y[k], buffer);
	assert_near("loops", "normalised", COUNT, y[1], y[0], 1e-5);
	for (int k = 0; k < 2; k++) {
		memcpy(y[k], x, COUNT * sizeof *x);
		memcpy(d[k], dy, COUNT * sizeof *dy);
		of[k]->softmax(COUNT, 0.5f, y[k]);
		of[k]->softmax_gradient(COUNT, 0.5f, y[k], d[k]);
	}
	assert_near("loops", "softmax", COUNT, y[1], y[0], 1e-5);
	assert_near("loops", "gradient of softmax", COUNT, d[1], d[0], 1e-4);
	memset(sums, 0, sizeof sums);
	for (int k = 0; k < 2; k++)
		of[k]->norm_gradient(&rows, x, dy, y[k], sums[k], sums[k] + CHANNELS, buffer);
	assert_near("loops", "gradient of what is normalised", COUNT, y[1], y[0], 1e-5);
	/* sums of terms that cancel, of rows whose mean is large beside their deviation */
	assert_near("loops", "gradients of weight and bias", 2 * (size_t)CHANNELS, sums[1], sums[0], 1e-4);
}

/* Every set of instructions that this processor has gives the same to within rounding. */
static void test_loops(void **state)
{
	const struct gn_layer_loops *all[3] = {&gn_layer_loops_plain};
	static float x[777], dy[777], y[2][777], dx[2][777];
	size_t count = 1;

	(void)state;
#if defined __x86_64__
	if (gn_layer_loops() != &gn_layer_loops_plain)
		all[count++] = &gn_layer_loops_avx2;
	if (gn_layer_loops() == &gn_layer_loops_avx512)
		all[count++] = &gn_layer_loops_avx512;
#endif
	for (int i = 0; i < 777; i++) {
		x[i] = (float)(i - 388) / 30;
		dy[i] = (float)(i % 7) - 3;
	}
	for (size_t k = 0; k < sizeof activations / sizeof *activations; k++)
		for (size_t i = 0; i < count; i++) {
			int to = i > 0;

			all[i]->forward(activations[k], 0, 777, x, y[to]);
			all[i]->backward(activations[k], 0, 777, gn_layer_reads_out(activations[k]) ? y[to] : x, dy, dy, dx[to]);
			assert_near("loops", "output", 777, y[to], y[0], 1e-6);
			assert_near("loops", "gradient", 777, dx[to], dx[0], 2e-6);
		}
	print_message("# %zu sets of instructions\n", count);
	for (size_t i = 1; i < count; i++)
		same_by_channel(all[0], all[i], x, dy);
}

static void test_refusals(void **state)
{
	struct gn_op_desc conv = {.kind = GN_OP_CONV, .in = {shape(1, 6, 4, 4)}, .channels_out = 6, .kernel = 3, .stride = 1, .groups = 4};
	struct gn_op_desc scale = {.kind = GN_OP_SCALE, .in = {shape(2, 6, 4, 4), shape(2, 5, 1, 1)}};
	struct gn_op *op;
	struct gn_err err;

	(void)state;
	assert_int_equal(gn_op_create(GN_BACKEND_HOST, &conv, &op, &err), GN_ERR_USAGE);
	assert_non_null(strstr(err.text, "4 groups do not divide"));
	conv.groups = 6;
	conv.weight.order = GN_WEIGHT_OHWI;
	assert_int_equal(gn_op_create(GN_BACKEND_HOST, &conv, &op, &err), GN_ERR_USAGE);
	assert_int_equal(gn_op_create(GN_BACKEND_HOST, &scale, &op, &err), GN_ERR_USAGE);
	assert_non_null(strstr(err.text, "factors of 2x5x1x1"));
	scale.kind = GN_OP_ATTENTION;
	for (scale.heads = 0; scale.heads < 5; scale.heads += 4)
		assert_int_equal(gn_op_create(GN_BACKEND_HOST, &scale, &op, &err), GN_ERR_USAGE);
	assert_non_null(strstr(err.text, "attention of 4 heads over 6 channels"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_groups),	  cmocka_unit_test(test_activations), cmocka_unit_test(test_scaling),
		cmocka_unit_test(test_attention),  cmocka_unit_test(test_tokens),
		cmocka_unit_test(test_layer_norm), cmocka_unit_test(test_drop_path),  cmocka_unit_test(test_corners),
		cmocka_unit_test(test_differences), cmocka_unit_test(test_loops),     cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
