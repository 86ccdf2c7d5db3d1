/* Operators on bfloat16 against the oracle in double on the same numbers. What they give is rounded once, to 8 bits: a number is
 * off by at most 2^-8 = 3.9e-3, and so is a norm (1.6e-3 for many). What is always float (gradients of parameters, statistics)
 * has PARAMS. */
#include "tests/kernels/op_pair.h"

#include "kernels/host/bf16.h"
#include "src/base/half.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TENSORS 4e-3
#define PARAMS 2e-5

static struct gn_layout shape(int n, int c, int h, int w)
{
	return (struct gn_layout){.n = n, .c = c, .h = h, .w = w, .block = 1, .element_bytes = 2};
}

static enum gn_status make_conv(int emulate, struct gn_err *err)
{
	struct gn_op_desc d = {.kind = GN_OP_CONV, .in = {shape(1, 16, 4, 4)}, .channels_out = 16, .kernel = 1, .stride = 1, .bf16 = 1,
			       .emulate = emulate};
	struct gn_op *op = NULL;
	enum gn_status s = gn_op_create(GN_BACKEND_HOST, &d, &op, err);

	if (!s)
		gn_op_destroy(op);
	return s;
}

/* oneDNN changes layouts of bfloat16 from AVX-512 on. */
static void need_bf16(void)
{
	struct gn_err err;

	if (make_conv(1, &err)) {
		print_message("# %s\n", err.text);
		skip();
	}
}

/* Refused where there are no instructions for it, unless they are to be emulated; then where there is no AVX-512. */
static void test_choice(void **state)
{
	struct gn_err err;
	int native = gn_backend_has_bf16(GN_BACKEND_HOST), emulated = !make_conv(1, &err);

	(void)state;
	print_message("# bfloat16 is %s here\n", native ? "native" : emulated ? "emulated" : "refused");
	if (!emulated)
		assert_non_null(strstr(err.text, "AVX-512"));
	if (native) {
		assert_true(emulated);
		assert_ok(make_conv(0, &err));
		return;
	}
	assert_int_equal(make_conv(0, &err), GN_ERR_UNSUPPORTED);
	assert_non_null(strstr(err.text, "no instructions for bfloat16"));
	assert_int_equal(strstr(err.text, "bf16-emulated") != NULL, emulated);
}

/* Those of a single channel have no fast loops of bfloat16, and compute in float. */
static void test_conv(void **state)
{
	static const int table[][8] = {
		{2, 64, 7, 64, 3, 1, 1, 0},   {2, 64, 6, 256, 1, 1, 0, 0}, {1, 128, 9, 64, 1, 2, 0, 0}, {2, 3, 17, 64, 7, 2, 3, 0},
		{2, 37, 10, 29, 3, 2, 1, 1},  {3, 20, 12, 50, 5, 1, 0, 1}, {2, 16, 9, 16, 3, 1, 1, 1},  {1, 1, 28, 20, 5, 1, 0, 1},
		{1, 256, 3, 256, 3, 1, 1, 0}, {4, 3, 19, 16, 3, 1, 1, 0},  {1, 5, 1, 3, 1, 1, 0, 1},    {2, 8, 3, 8, 3, 2, 1, 0},
		{1, 384, 2, 384, 3, 1, 1, 1}, {3, 24, 8, 48, 1, 2, 0, 0},  {2, 96, 7, 48, 3, 2, 1, 0},
	};
	char title[80];

	(void)state;
	need_bf16();
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		for (int mode = 0; mode < 6; mode++) {
			const int *t = table[i];
			struct gn_op_desc d = {.kind = GN_OP_CONV, .channels_out = t[3], .kernel = t[4], .stride = t[5],
					       .pad = t[6], .bias = t[7], .training = mode % 3 > 0,
					       .needs_din = mode % 3 > 1, .bf16 = 1, .emulate = 1};

			d.weight.order = mode < 3 ? GN_WEIGHT_PLAIN : GN_WEIGHT_ANY;
			d.in[0] = d.in[1] = shape(t[0], t[1], t[2], t[2]);
			snprintf(title, sizeof title, "bf16 conv %d to %d by %d, mode %d", t[1], t[3], t[4], mode);
			op_compare(title, &d, 0, (struct op_bounds){TENSORS, PARAMS});
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
	need_bf16();
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		for (int mode = 1; mode < 4; mode++) {
			const int *t = table[i];
			struct gn_op_desc d = {.kind = GN_OP_CONV, .channels_out = t[3], .kernel = t[4], .stride = t[5],
					       .pad = t[6], .bias = 1, .relu = mode & 1, .add = mode & 2, .bf16 = 1,
					       .emulate = 1};
			int out = (t[2] + 2 * t[6] - t[4]) / t[5] + 1;

			d.in[0] = shape(t[0], t[1], t[2], t[2]);
			d.in[1] = shape(t[0], t[3], out, out);
			snprintf(title, sizeof title, "bf16 conv%s%s %d to %d by %d", d.add ? "+sum" : "", d.relu ? "+relu" : "",
				 t[1], t[3], t[4]);
			op_compare(title, &d, 0, (struct op_bounds){TENSORS, PARAMS});
		}
	}
}

static void test_batch_norm(void **state)
{
	static const int table[][4] = {{4, 64, 9, 8},  {2, 16, 1, 1},	{2, 5, 1, 2},  {3, 37, 7, 5},
				       {1, 3, 41, 30}, {2, 48, 17, 15}, {16, 8, 1, 1}, {2, 100, 3, 3}, {2, 33, 3, 3}};
	char title[80];

	(void)state;
	need_bf16();
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		for (int mode = 0; mode < 6; mode++) {
			struct gn_op_desc d = {.kind = GN_OP_BATCH_NORM, .training = mode & 1, .relu = mode >= 2,
					       .add = mode >= 4, .needs_din = 1, .eps = 1e-5, .momentum = 0.1};

			d.in[0] = d.in[1] = shape(table[i][0], table[i][1], table[i][2], table[i][3]);
			snprintf(title, sizeof title, "bf16 batch norm%s%s %dx%dx%dx%d", d.add ? "+sum" : "",
				 d.relu ? "+relu" : "", d.in[0].n, d.in[0].c, d.in[0].h, d.in[0].w);
			op_compare_layouts(title, &d, 0, (struct op_bounds){TENSORS, PARAMS});
		}
	}
}

/* Choosing loses nothing; where windows overlap, their gradients are added as they come. */
static void test_max_pool(void **state)
{
	static const int table[][7] = {{2, 64, 12, 12, 3, 2, 1}, {2, 20, 14, 14, 2, 2, 0}, {1, 7, 9, 11, 3, 2, 1},
				       {3, 50, 7, 7, 2, 2, 0},	 {1, 1, 1, 1, 3, 2, 1},	   {2, 3, 5, 4, 3, 1, 1},
				       {1, 33, 11, 11, 3, 2, 1}};
	char title[80];

	(void)state;
	need_bf16();
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		for (int values = 0; values < 3; values++) {
			struct gn_op_desc d = {.kind = GN_OP_MAX_POOL, .kernel = table[i][4], .stride = table[i][5],
					       .pad = table[i][6], .training = 1, .needs_din = 1};

			d.in[0] = d.in[1] = shape(table[i][0], table[i][1], table[i][2], table[i][3]);
			snprintf(title, sizeof title, "bf16 max pool %dx%dx%dx%d by %d/%d+%d, %d values", d.in[0].n, d.in[0].c,
				 d.in[0].h, d.in[0].w, d.kernel, d.stride, d.pad, values);
			op_compare_layouts(title, &d, values, (struct op_bounds){2 * TENSORS, 0});
			d.training = 0;
			op_compare(title, &d, values, (struct op_bounds){0, 0});
		}
	}
}

static void test_adaptive_avg_pool(void **state)
{
	static const int table[][5] = {{2, 512, 7, 7, 1}, {2, 10, 7, 7, 7}, {1, 3, 10, 13, 7},	 {2, 5, 3, 2, 7},
				       {1, 1, 1, 1, 1},	  {2, 17, 14, 14, 7}, {1, 33, 9, 5, 4}};
	char title[80];

	(void)state;
	need_bf16();
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		struct gn_op_desc d = {.kind = GN_OP_ADAPTIVE_AVG_POOL, .out_side = table[i][4], .training = 1, .needs_din = 1};

		d.in[0] = d.in[1] = shape(table[i][0], table[i][1], table[i][2], table[i][3]);
		snprintf(title, sizeof title, "bf16 adaptive %dx%d to %d", table[i][2], table[i][3], table[i][4]);
		op_compare_layouts(title, &d, 0, (struct op_bounds){TENSORS, 0});
	}
}

static void test_pointwise(void **state)
{
	static const int table[][4] = {{2, 37, 5, 7}, {1, 1, 1, 1}, {3, 64, 8, 8}, {2, 4097, 1, 1}, {1, 3, 30, 31}};

	(void)state;
	need_bf16();
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		for (int k = 0; k < 3; k++) {
			struct gn_op_desc d = {.kind = k ? GN_OP_ADD : GN_OP_RELU, .relu = k == 2, .needs_din = 1, .training = 1};

			d.in[0] = d.in[1] = shape(table[i][0], table[i][1], table[i][2], table[i][3]);
			op_compare_layouts("bf16 pointwise", &d, 0, (struct op_bounds){k ? TENSORS : 0, 0});
		}
	}
}

/* The classifier takes floats and gives them whatever comes. */
static void test_float_only(void **state)
{
	static const enum gn_op_kind kinds[] = {GN_OP_LINEAR, GN_OP_DROPOUT};
	struct gn_err err;

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct gn_op_desc d = {.kind = kinds[i], .channels_out = 5, .in = {shape(2, 7, 3, 3)}};
		struct gn_op *op;

		assert_ok(gn_op_create(GN_BACKEND_HOST, &d, &op, &err));
		assert_int_equal(gn_op_info(op)->in[0].element_bytes, 4);
		assert_int_equal(gn_op_info(op)->out.element_bytes, 4);
		gn_op_destroy(op);
	}
}

enum { PIXELS = 37, LANES = 16, COUNT = PIXELS * LANES };

struct numbers {
	uint16_t x[COUNT], y[COUNT], dy[COUNT], more[COUNT], out[2][COUNT];
	float square[LANES * LANES];
	double line[5][LANES], sums[2][LANES];
};

static void fill(struct numbers *n)
{
	uint32_t seed = 7;

	for (size_t i = 0; i < COUNT; i++) {
		uint16_t *all[] = {&n->x[i], &n->y[i], &n->dy[i], &n->more[i]};

		for (size_t k = 0; k < 4; k++) {
			seed = seed * 1664525u + 1013904223u;
			*all[k] = gn_bf16_of_f32((float)(int32_t)seed * 0x1p-30f);
		}
	}
	for (size_t i = 0; i < LANES * LANES; i++) {
		seed = seed * 1664525u + 1013904223u;
		n->square[i] = (float)(int32_t)seed * 0x1p-30f;
	}
	n->square[5] = NAN;
	n->square[6] = -INFINITY;
	n->square[7] = 3.4028235e38f; /* rounds to infinity */
	n->square[8] = 1.00390625f;   /* between two: the even one */
	n->square[9] = 1.01171875f;
	for (size_t k = 0; k < LANES; k++)
		for (size_t i = 0; i < 5; i++)
			n->line[i][k] = 0.01 * (double)(k + 1) * (double)(i + 1) - 0.05;
}

/* Pairs of weights are the numbers that half.h rounds them to, where the order says. */
static void check_pairs(const struct gn_bf16_loops *loops, const struct numbers *n)
{
	uint16_t rows[LANES * LANES], columns[LANES * LANES], odd[4 * LANES];

	loops->pair_rows(LANES, n->square, rows);
	loops->pair_columns(n->square, columns);
	loops->pair_rows(3, n->square, odd);
	for (size_t i = 0; i < LANES; i++) {
		for (size_t o = 0; o < LANES; o++) {
			uint16_t want = gn_bf16_of_f32(n->square[i * LANES + o]);

			assert_int_equal(rows[i / 2 * 32 + o * 2 + i % 2], want);
			assert_int_equal(columns[o / 2 * 32 + i * 2 + o % 2], want);
			if (i < 3)
				assert_int_equal(odd[i / 2 * 32 + o * 2 + i % 2], want);
		}
	}
	for (size_t o = 0; o < LANES; o++)
		assert_int_equal(odd[32 + 2 * o + 1], 0);
}

static void check_pointwise(const struct gn_bf16_loops *loops, struct numbers *n)
{
	static const uint16_t special[] = {0x7fc0, 0xffc0, 0x8000, 0, 0xff80, 0x7f80, 0x8001, 1};
	uint16_t out[8];

	loops->relu(8, special, out);
	for (size_t i = 0; i < 8; i++)
		assert_int_equal(out[i], i == 4 || i == 6 ? 0 : special[i]); /* NaN of any sign stays, as does a zero */
	loops->relu_gradient(COUNT, n->y, n->dy, n->out[0], n->out[1]);
	for (size_t i = 0; i < COUNT; i++) {
		assert_int_equal(n->out[0][i], gn_f32_of_bf16(n->y[i]) > 0 ? n->dy[i] : 0);
		assert_int_equal(n->out[1][i], n->out[0][i]);
	}
	loops->add(COUNT - 3, n->x, n->y, 1, n->out[0]);
	for (size_t i = 0; i < COUNT - 3; i++) {
		float sum = gn_f32_of_bf16(n->x[i]) + gn_f32_of_bf16(n->y[i]);

		assert_int_equal(n->out[0][i], gn_bf16_of_f32(sum < 0 ? 0 : sum));
	}
}

/* Lane by lane, as for a layout whose channels do not lie in sixteens, gives what all at once give. */
static void check_norm(const struct gn_bf16_loops *loops, struct numbers *n)
{
	struct gn_norm_piece wide = {.pixels = PIXELS, .stride = LANES, .lanes = LANES}, one = wide;
	double sums[2];

	one.lanes = 1;
	for (int k = 0; k < LANES; k++) {
		struct gn_norm_line all = {n->line[0], n->line[1], n->line[2], n->line[3], n->line[4], 1};
		struct gn_norm_line own = {n->line[0] + k, n->line[1] + k, n->line[2] + k, n->line[3] + k, n->line[4] + k, 1};

		loops->norm.masked_sums(&wide, &all, n->x, n->y, n->dy, n->more, n->out[0], n->sums[0], n->sums[1]);
		loops->norm.masked_sums(&one, &own, n->x + k, n->y + k, n->dy + k, n->more + k, n->out[1] + k, sums, sums + 1);
		assert_true(fabs(sums[0] - n->sums[0][k]) < 1e-5 && fabs(sums[1] - n->sums[1][k]) < 1e-5);
		for (size_t i = 0; i < PIXELS; i++)
			assert_true(gn_f32_of_bf16(n->out[0][i * LANES + k]) == gn_f32_of_bf16(n->out[1][i * LANES + k]));
		loops->norm.sums(&wide, n->x, n->sums[0], n->sums[1]);
		loops->norm.sums(&one, n->x + k, sums, sums + 1);
		assert_true(fabs(sums[0] - n->sums[0][k]) < 1e-5 && fabs(sums[1] - n->sums[1][k]) < 1e-5);
		loops->norm.gradient_sums(&wide, &all, n->x, n->dy, n->sums[0], n->sums[1]);
		loops->norm.gradient_sums(&one, &own, n->x + k, n->dy + k, sums, sums + 1);
		assert_true(fabs(sums[0] - n->sums[0][k]) < 1e-5 && fabs(sums[1] - n->sums[1][k]) < 1e-5);
	}
}

/* Each set of instructions that this processor has. */
static void test_loops(void **state)
{
	const struct gn_bf16_loops *all[3] = {&gn_bf16_loops_plain};
	struct numbers n;
	size_t count = 1;

	(void)state;
#if defined __x86_64__
	if (gn_bf16_loops() != &gn_bf16_loops_plain)
		all[count++] = &gn_bf16_loops_avx2;
	if (gn_bf16_loops() == &gn_bf16_loops_avx512)
		all[count++] = &gn_bf16_loops_avx512;
#endif
	fill(&n);
	for (size_t i = 0; i < count; i++) {
		check_pairs(all[i], &n);
		check_pointwise(all[i], &n);
		check_norm(all[i], &n);
	}
	print_message("# %zu sets of instructions\n", count);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_choice),	   cmocka_unit_test(test_conv),	   cmocka_unit_test(test_conv_tail),	     cmocka_unit_test(test_batch_norm),
		cmocka_unit_test(test_max_pool),   cmocka_unit_test(test_adaptive_avg_pool), cmocka_unit_test(test_pointwise),
		cmocka_unit_test(test_float_only), cmocka_unit_test(test_loops),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
