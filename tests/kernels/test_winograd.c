/* Winograd's filtering on the host against the oracle in double precision: every pass, ragged maps, few and many channels, both
 * schedules, and the two instruction sets where the processor has them. Bounds: 3e-6 of the norm; direct convolutions are
 * allowed 2e-6. */
#include "kernels/host/winograd.h"
#include "tests/kernels/op_pair.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct op_bounds bounds = {3e-6, 3e-6};

static struct gn_op_desc conv(int n, int c, int h, int w, int out)
{
	return (struct gn_op_desc){.kind = GN_OP_CONV, .in = {{n, c, h, w, 1, 0}, {n, out, h, w, 1, 0}}, .channels_out = out, .kernel = 3,
				   .stride = 1, .pad = 1, .convolution = GN_CONVOLUTION_WINOGRAD};
}

/* What the operator says of itself. */
static int is_winograd(const struct gn_op_desc *d)
{
	struct gn_op *op;
	struct gn_err err;
	int is;

	assert_ok(gn_op_create(GN_BACKEND_HOST, d, &op, &err));
	is = gn_op_info(op)->winograd;
	gn_op_destroy(op);
	return is;
}

static void test_passes(void **state)
{
	static const int table[][5] = {{1, 16, 4, 4, 16},   {2, 16, 9, 7, 32},	{3, 32, 1, 1, 16},   {1, 48, 5, 13, 16},
				       {2, 64, 14, 14, 48}, {1, 208, 7, 7, 224}, {1, 320, 2, 2, 320}, {1, 224, 10, 9, 208}};
	char title[80];

	(void)state;
	if (!gn_backend_has_winograd(GN_BACKEND_HOST))
		skip();
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		for (int mode = 0; mode < 6; mode++) {
			const int *t = table[i];
			struct gn_op_desc d = conv(t[0], t[1], t[2], t[3], t[4]);

			d.training = mode > 0;
			d.needs_din = mode > 1;
			d.bias = mode % 2;
			d.weight.order = mode == 3 ? GN_WEIGHT_ANY : GN_WEIGHT_PLAIN;
			assert_true(is_winograd(&d));
			snprintf(title, sizeof title, "%dx%dx%dx%d to %d, mode %d", t[0], t[1], t[2], t[3], t[4], mode);
			op_compare(title, &d, 0, bounds);
		}
}

/* Sum, relu and packed weights of inference. */
static void test_tail(void **state)
{
	(void)state;
	for (int mode = 0; mode < 8; mode++) {
		struct gn_op_desc d = conv(2, 32, 9, 10, 48);

		d.bias = 1;
		d.relu = mode & 1;
		d.add = mode >> 1 & 1;
		d.frozen = mode >> 2;
		assert_int_equal(is_winograd(&d), gn_backend_has_winograd(GN_BACKEND_HOST));
		op_compare("with a tail", &d, 0, bounds);
	}
}

/* The deviations of the table in training.md, of 32 output channels: those of direct sums, and of Winograd's filtering, which are at most 6
 * times as large. */
static void test_errors(void **state)
{
	static const int shapes[][2] = {{64, 56}, {128, 28}, {256, 14}, {512, 7}, {64, 112}};

	(void)state;
	if (!gn_backend_has_winograd(GN_BACKEND_HOST))
		skip();
	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
		struct gn_op_desc d = conv(1, shapes[i][0], shapes[i][1], shapes[i][1], 32);
		struct op_run ref, host;
		double far[2][3];

		d.training = d.needs_din = 1;
		op_run_init(&ref, &d, 0);
		op_run_execute(&ref, GN_BACKEND_REF, &d);
		for (int k = 0; k < 2; k++) {
			d.convolution = k ? GN_CONVOLUTION_WINOGRAD : GN_CONVOLUTION_DIRECT;
			op_run_init(&host, &d, 0);
			op_run_execute(&host, GN_BACKEND_HOST, &d);
			far[k][0] = assert_near("forward", "y", ref.out_count, host.y, ref.y, bounds.tensors);
			far[k][1] = assert_near("gradient", "dx", ref.in_count, host.dx[0], ref.dx[0], bounds.tensors);
			far[k][2] = assert_near("gradient", "dw", ref.weight_count, host.dweight, ref.dweight, bounds.params);
			op_run_release(&host);
		}
		op_run_release(&ref);
		printf("# %d x %d x %d: forward %.1e, directly %.1e; gradients of the input %.1e, %.1e; of the weights %.1e, %.1e\n",
		       shapes[i][0], shapes[i][1], shapes[i][1], far[1][0], far[0][0], far[1][1], far[0][1], far[1][2], far[0][2]);
		for (int p = 0; p < 3; p++)
			assert_true(far[1][p] < 6 * far[0][p]);
	}
}

/* What is not for it is direct, whatever is asked. */
static void test_others(void **state)
{
	struct gn_op_desc d[] = {conv(1, 3, 8, 8, 16), conv(1, 16, 8, 8, 20), conv(1, 16, 8, 8, 16), conv(1, 16, 8, 8, 16),
				 conv(1, 16, 8, 8, 16), conv(1, 16, 8, 8, 16), conv(1, 32, 8, 8, 32)};

	(void)state;
	d[2].stride = 2;
	d[3].kernel = 1, d[3].pad = 0;
	d[4].pad = 0;
	d[5].convolution = GN_CONVOLUTION_DIRECT;
	d[6].groups = 2;
	for (size_t i = 0; i < sizeof d / sizeof *d; i++)
		assert_false(is_winograd(&d[i]));
}

struct tensors {
	size_t x, w, y;
	float *in, *weight, *dy, *out[3];
	void *scratch;
};

static float *numbers(size_t count)
{
	float *x = aligned_alloc(64, (count * sizeof *x + 63) / 64 * 64);

	assert_non_null(x);
	for (size_t i = 0; i < count; i++)
		x[i] = (float)((i * 2654435761u >> 8 & 0xffff) / 65536. - 0.5);
	return x;
}

static void run(const struct gn_winograd *w, struct tensors *t, float *out)
{
	if (w->pass == GN_WINOGRAD_OF_WEIGHTS)
		gn_winograd_run_weights(w, t->in, t->dy, out, NULL, t->scratch);
	else
		gn_winograd_run(w, w->pass == GN_WINOGRAD_FORWARD ? t->in : t->dy, t->weight, NULL, out, t->scratch);
}

/* A schedule changes the order of nothing but sums over tiles, a number of threads nothing but those, and a second run nothing. */
static void test_same_bits(void **state)
{
	static const int lanes[] = {8, 16};

	(void)state;
	for (int i = 0; i < 2; i++)
		for (int pass = 0; pass < GN_WINOGRAD_PASSES; pass++) {
			struct gn_winograd first = {.loops = gn_winograd_loops(lanes[i]), .pass = (enum gn_winograd_pass)pass}, w;
			struct gn_layout in = {3, 48, 13, 10, lanes[i], sizeof(float)};
			struct tensors t = {.x = 3 * 48 * 130, .w = 64 * 48 * 9, .y = 3 * 64 * 130};
			size_t count = pass == 0 ? t.y : pass == 1 ? t.x : t.w;

			if (!first.loops)
				continue;
			gn_winograd_init(&first, &in, 64);
			t.in = numbers(t.x), t.weight = numbers(t.w), t.dy = numbers(t.y);
			t.out[0] = numbers(count), t.out[1] = numbers(count), t.out[2] = numbers(count);
			for (int k = 0; k < 8; k++) {
				w = first;
				w.threads = 1 + k % 4;
				w.shared = k / 4;
				w.tiles = w.shared ? 36 : w.loops->rows;
				gn_winograd_sizes(&w);
				t.scratch = numbers(w.scratch_bytes / sizeof(float));
				run(&w, &t, t.out[k > 0]);
				if (pass != GN_WINOGRAD_OF_WEIGHTS)
					assert_memory_equal(t.out[0], t.out[k > 0], count * sizeof(float));
				else
					assert_near("weights", "another schedule", count, t.out[k > 0], t.out[0], 1e-6);
				run(&w, &t, t.out[2]);
				assert_memory_equal(t.out[2], t.out[k > 0], count * sizeof(float));
				free(t.scratch);
			}
			free(t.in), free(t.weight), free(t.dy), free(t.out[0]), free(t.out[1]), free(t.out[2]);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_passes),
		cmocka_unit_test(test_tail),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_others),
		cmocka_unit_test(test_same_bits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
