/* Every operator of the host backend against the oracle. Bounds are norms of differences relative to norms: 2e-6 is
 * some thirty times the rounding of a float, which sums over thousands of products reach. */
#include "tests/kernels/op_pair.h"

#include <stdio.h>
#include <string.h>

static struct gn_layout shape(int n, int c, int h, int w)
{
	return (struct gn_layout){.n = n, .c = c, .h = h, .w = w, .block = 1};
}

static void compare(const char *title, const struct gn_op_desc *desc, int values, double bound)
{
	op_compare(title, desc, values, (struct op_bounds){bound, bound});
}

static void compare_layouts(const char *title, const struct gn_op_desc *desc, int values, double bound)
{
	op_compare_layouts(title, desc, values, (struct op_bounds){bound, bound});
}

static void test_conv(void **state)
{
	static const struct {
		int n, c, h, w, out, kernel, stride, pad, bias;
	} table[] = {
		{2, 3, 17, 19, 64, 7, 2, 3, 0}, {2, 1, 28, 28, 20, 5, 1, 0, 1},   {3, 20, 12, 12, 50, 5, 1, 0, 1},
		{2, 16, 9, 7, 16, 3, 1, 1, 0},  {1, 64, 14, 14, 128, 1, 2, 0, 0}, {2, 37, 10, 11, 29, 3, 2, 1, 1},
		{2, 64, 7, 7, 256, 1, 1, 0, 0}, {1, 256, 3, 3, 256, 3, 1, 1, 0},  {4, 3, 19, 19, 16, 3, 1, 1, 0},
		{1, 5, 1, 1, 3, 1, 1, 0, 1},    {2, 8, 3, 3, 8, 3, 2, 1, 0},      {1, 384, 2, 2, 384, 3, 1, 1, 1},
		{2, 3, 16, 16, 64, 3, 1, 1, 1}, {1, 17, 1, 9, 33, 1, 1, 0, 0},    {3, 24, 8, 8, 48, 1, 2, 0, 0},
	};
	char title[80];

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		for (int mode = 0; mode < 3; mode++) {
			struct gn_op_desc d = {.kind = GN_OP_CONV,
					       .channels_out = table[i].out,
					       .kernel = table[i].kernel,
					       .stride = table[i].stride,
					       .pad = table[i].pad,
					       .convolution = GN_CONVOLUTION_DIRECT, /* test_winograd has the others */
					       .bias = table[i].bias,
					       .training = mode > 0,
					       .needs_din = mode > 1};

			d.in[0] = d.in[1] = shape(table[i].n, table[i].c, table[i].h, table[i].w);
			snprintf(title, sizeof title, "conv %dx%dx%dx%d to %d by %d/%d+%d", table[i].n, table[i].c,
				 table[i].h, table[i].w, d.channels_out, d.kernel, d.stride, d.pad);
			compare(title, &d, 0, 2e-6);
		}
	}
}

/* Sum and relu taken along, in inference. */
static void test_conv_tail(void **state)
{
	static const int table[][7] = {{2, 64, 9, 64, 3, 1, 1},	 {2, 64, 8, 256, 1, 1, 0}, {1, 128, 9, 64, 1, 2, 0},
				       {2, 3, 17, 64, 7, 2, 3},	 {2, 37, 10, 29, 3, 2, 1}, {3, 20, 12, 50, 5, 1, 0}};
	char title[80];

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		for (int mode = 1; mode < 4; mode++) {
			const int *t = table[i];
			struct gn_op_desc d = {.kind = GN_OP_CONV, .channels_out = t[3], .kernel = t[4], .stride = t[5],
					       .pad = t[6], .convolution = GN_CONVOLUTION_DIRECT, .bias = 1, .relu = mode & 1,
					       .add = mode & 2};
			int out = (t[2] + 2 * t[6] - t[4]) / t[5] + 1;

			d.in[0] = shape(t[0], t[1], t[2], t[2]);
			d.in[1] = shape(t[0], t[3], out, out);
			snprintf(title, sizeof title, "conv%s%s %d to %d by %d", d.add ? "+sum" : "", d.relu ? "+relu" : "",
				 t[1], t[3], t[4]);
			compare(title, &d, 0, 2e-6);
		}
	}
}

static void test_batch_norm(void **state)
{
	static const int table[][4] = {{4, 64, 9, 8},  {2, 16, 1, 1},   {2, 5, 1, 2},  {3, 37, 7, 5},
				       {1, 3, 41, 30}, {2, 48, 17, 15}, {16, 8, 1, 1}, {2, 100, 3, 3}, {2, 33, 3, 3}};
	char title[80];

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		for (int mode = 0; mode < 6; mode++) {
			struct gn_op_desc d = {.kind = GN_OP_BATCH_NORM,
					       .training = mode & 1,
					       .relu = mode >= 2,
					       .add = mode >= 4,
					       .needs_din = 1,
					       .eps = 1e-5,
					       .momentum = 0.1};

			d.in[0] = d.in[1] = shape(table[i][0], table[i][1], table[i][2], table[i][3]);
			snprintf(title, sizeof title, "batch norm%s%s %dx%dx%dx%d", d.add ? "+sum" : "",
				 d.relu ? "+relu" : "", d.in[0].n, d.in[0].c, d.in[0].h, d.in[0].w);
			compare_layouts(title, &d, 0, 1e-7);
		}
	}
}

static void test_max_pool(void **state)
{
	static const struct {
		int n, c, h, w, kernel, stride, pad;
	} table[] = {
		{2, 64, 12, 12, 3, 2, 1}, {2, 20, 14, 14, 2, 2, 0}, {1, 7, 9, 11, 3, 2, 1},   {3, 50, 7, 7, 2, 2, 0},
		{1, 1, 1, 1, 3, 2, 1},    {2, 3, 5, 4, 3, 1, 1},    {1, 33, 11, 11, 3, 2, 1},
	};
	char title[80];

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		for (int values = 0; values < 3; values++) { /* values 1: all the same; 2: ties everywhere */
			struct gn_op_desc d = {.kind = GN_OP_MAX_POOL,
					       .kernel = table[i].kernel,
					       .stride = table[i].stride,
					       .pad = table[i].pad,
					       .training = 1,
					       .needs_din = 1};

			d.in[0] = d.in[1] = shape(table[i].n, table[i].c, table[i].h, table[i].w);
			snprintf(title, sizeof title, "max pool %dx%dx%dx%d by %d/%d+%d, %d values", d.in[0].n,
				 d.in[0].c, d.in[0].h, d.in[0].w, d.kernel, d.stride, d.pad, values);
			compare_layouts(title, &d, values, 1e-7);
			d.training = 0;
			compare(title, &d, values, 0);
		}
	}
}

static void test_adaptive_avg_pool(void **state)
{
	static const int table[][5] = {{2, 512, 7, 7, 1}, {2, 10, 7, 7, 7}, {1, 3, 10, 13, 7},
				       {2, 5, 3, 2, 7},   {1, 1, 1, 1, 1},  {2, 17, 14, 14, 7}};
	char title[80];

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		struct gn_op_desc d = {
			.kind = GN_OP_ADAPTIVE_AVG_POOL, .out_side = table[i][4], .training = 1, .needs_din = 1};

		d.in[0] = d.in[1] = shape(table[i][0], table[i][1], table[i][2], table[i][3]);
		snprintf(title, sizeof title, "adaptive %dx%d to %d", table[i][2], table[i][3], table[i][4]);
		compare_layouts(title, &d, 0, 5e-7);
	}
}

static void test_linear(void **state)
{
	static const struct {
		int n, c, side, out, bias;
	} table[] = {{4, 512, 1, 1000, 1}, {3, 50, 4, 500, 1}, {1, 1, 1, 1, 1},
		     {2, 37, 1, 7, 0},     {5, 64, 7, 33, 1},  {64, 500, 1, 10, 1}};
	char title[80];

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		for (int mode = 0; mode < 3; mode++) {
			struct gn_op_desc d = {.kind = GN_OP_LINEAR,
					       .channels_out = table[i].out,
					       .bias = table[i].bias,
					       .training = mode > 0,
					       .needs_din = mode > 1};

			d.in[0] = d.in[1] = shape(table[i].n, table[i].c, table[i].side, table[i].side);
			snprintf(title, sizeof title, "linear %dx%dx%d to %d", d.in[0].n, d.in[0].c, d.in[0].h,
				 d.channels_out);
			compare(title, &d, 0, 2e-6);
		}
	}
}

static void test_pointwise(void **state)
{
	static const enum gn_op_kind kinds[] = {GN_OP_RELU, GN_OP_ADD, GN_OP_DROPOUT};
	static const int table[][4] = {{2, 37, 5, 7}, {1, 1, 1, 1}, {3, 64, 8, 8}, {2, 4097, 1, 1}};

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		for (int k = 0; k < 8; k++) {
			struct gn_op_desc d = {.kind = kinds[k % 3 == 2 ? 2 : k % 3],
					       .relu = k % 3 == 1 && k > 3,
					       .needs_din = 1,
					       .training = k != 5,
					       .rate = 0.3,
					       .seed = 12345678901ull,
					       .stream = 9};

			d.in[0] = d.in[1] = shape(table[i][0], table[i][1], table[i][2], table[i][3]);
			compare_layouts("pointwise", &d, 0, 2e-7);
		}
	}
}

/* Weights in the operator's own order: the same bits come out, gradients included, and both orders' values are the same. */
static void test_weight_orders(void **state)
{
	static const int table[][7] = {{2, 64, 9, 64, 3, 1, 1},	 {2, 64, 8, 256, 1, 1, 0}, {1, 128, 9, 64, 1, 2, 0},
				       {2, 3, 17, 64, 7, 2, 3},	 {2, 32, 9, 48, 3, 2, 1},  {3, 20, 12, 50, 5, 1, 0},
				       {1, 384, 2, 384, 3, 1, 1}};
	int own = 0;

	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		const int *t = table[i];
		struct gn_op_desc d = {.kind = GN_OP_CONV, .channels_out = t[3], .kernel = t[4], .stride = t[5], .pad = t[6],
				       .training = 1, .needs_din = 1};
		struct op_run plain, other;

		d.in[0] = d.in[1] = shape(t[0], t[1], t[2], t[2]);
		op_run_init(&plain, &d, 0);
		op_run_init(&other, &d, 0);
		op_run_execute(&plain, GN_BACKEND_HOST, &d);
		d.weight.order = GN_WEIGHT_ANY;
		op_run_execute(&other, GN_BACKEND_HOST, &d);
		own += other.weight_layout.order != GN_WEIGHT_PLAIN;
		assert_memory_equal(plain.y, other.y, plain.out_count * sizeof(float));
		assert_memory_equal(plain.dx[0], other.dx[0], plain.in_count * sizeof(float));
		assert_memory_equal(plain.dweight, other.dweight, plain.weight_count * sizeof(float));
		op_run_release(&plain);
		op_run_release(&other);
	}
	print_message("# %d of %zu in an order of their own\n", own, sizeof table / sizeof *table);
}

static void test_weight_reorder(void **state)
{
	static const struct gn_weight_layout layouts[] = {{GN_WEIGHT_PLAIN, 0},	    {GN_WEIGHT_OI_BLOCKS, 16},
							  {GN_WEIGHT_OI_BLOCKS, 8}, {GN_WEIGHT_O_BLOCKS, 16},
							  {GN_WEIGHT_O_BLOCKS, 8},  {GN_WEIGHT_OHWI, 0}};
	struct gn_weight_shape s = {32, 48, 6}, odd = {32, 20, 4};
	float x[32 * 48 * 6], y[32 * 48 * 6], z[32 * 48 * 6];
	unsigned char seen[32 * 48 * 6];

	(void)state;
	for (size_t i = 0; i < 32 * 48 * 6; i++)
		x[i] = (float)i;
	for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++) {
		assert_true(gn_weight_fits(&s, layouts[k]));
		gn_weight_reorder(&s, layouts[k], 0, x, y);
		gn_weight_reorder(&s, layouts[k], 1, y, z);
		assert_memory_equal(x, z, sizeof x);
		memset(seen, 0, sizeof seen);
		for (size_t i = 0; i < 32 * 48 * 6; i++)
			assert_true(y[i] >= 0 && y[i] < 32 * 48 * 6 && !seen[(size_t)y[i]]++);
		/* the channel out that follows the first one, from the same channel in */
		if (layouts[k].block)
			assert_true(y[1] == 48 * 6);
	}
	gn_weight_reorder(&s, layouts[5], 0, x, y);
	assert_true(y[1] == 6 && y[48] == 1);
	assert_false(gn_weight_fits(&odd, layouts[1]));
	assert_true(gn_weight_fits(&odd, layouts[3]));
	assert_false(gn_weight_fits(&s, (struct gn_weight_layout){GN_WEIGHT_ANY, 0}));
}

/* Shapes that make nothing, and statistics over one value, are refused with a reason. */
static void test_refusals(void **state)
{
	static const enum gn_backend backends[] = {GN_BACKEND_REF, GN_BACKEND_HOST};
	struct gn_op_desc conv = {.kind = GN_OP_CONV, .channels_out = 4, .kernel = 5, .stride = 1};
	struct gn_op_desc norm = {.kind = GN_OP_BATCH_NORM, .training = 1, .eps = 1e-5};
	struct gn_op_desc sum = {.kind = GN_OP_ADD};
	struct gn_op *op;
	struct gn_err err;

	(void)state;
	conv.in[0] = shape(1, 3, 4, 9);
	norm.in[0] = shape(1, 3, 1, 1);
	sum.in[0] = shape(1, 3, 4, 4);
	sum.in[1] = shape(1, 3, 4, 5);
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(gn_op_create(backends[i], &conv, &op, &err), GN_ERR_USAGE);
		assert_non_null(strstr(err.text, "smaller than the window"));
		assert_int_equal(gn_op_create(backends[i], &norm, &op, &err), GN_ERR_USAGE);
		assert_int_equal(gn_op_create(backends[i], &sum, &op, &err), GN_ERR_USAGE);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_conv),     cmocka_unit_test(test_conv_tail), cmocka_unit_test(test_batch_norm),
		cmocka_unit_test(test_max_pool), cmocka_unit_test(test_adaptive_avg_pool),
		cmocka_unit_test(test_linear),   cmocka_unit_test(test_pointwise),
		cmocka_unit_test(test_weight_orders), cmocka_unit_test(test_weight_reorder),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
