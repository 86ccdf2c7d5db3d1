/* The index arithmetic of the GPU's kernels, which needs no GPU: everything is covered once, over all small shapes. */
#include "kernels/cuda/shape.h"
#include "tests/test.h"

#include <stdlib.h>

/* Row and vector of every thread of every block, counted. */
static void cover(size_t rows, int vectors, int blocks)
{
	struct gn_cuda_tile t = gn_cuda_tile_make(rows, vectors, blocks);
	unsigned char *seen = calloc(rows * vectors, 1);

	assert_non_null(seen);
	assert_int_equal(t.lanes * t.row_lanes, GN_CUDA_THREADS);
	assert_true(t.chunks >= 1 && t.chunks <= GN_CUDA_CHUNKS_MAX && t.groups >= 1);
	for (int y = 0; y < t.chunks; y++) {
		size_t begin = y * t.rows_per_chunk,
		       end = begin + t.rows_per_chunk < rows ? begin + t.rows_per_chunk : rows;

		assert_true(begin < rows);
		for (int x = 0; x < t.groups * t.lanes; x++)
			for (int thread = 0; x < vectors && thread < t.row_lanes; thread++)
				for (size_t row = begin + thread; row < end; row += t.row_lanes)
					seen[row * vectors + x]++;
	}
	for (size_t i = 0; i < rows * vectors; i++)
		assert_int_equal(seen[i], 1);
	free(seen);
}

static void test_tiles_cover_once(void **state)
{
	static const size_t rows[] = {1, 2, 7, 31, 32, 33, 255, 256, 257, 1000, 4097};
	static const int vectors[] = {1, 2, 3, 5, 8, 31, 32, 33, 64, 100};
	static const int blocks[] = {1, 2, 20, 528, 2112, 100000};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		for (size_t k = 0; k < sizeof vectors / sizeof *vectors; k++)
			for (size_t m = 0; m < sizeof blocks / sizeof *blocks; m++)
				cover(rows[i], vectors[k], blocks[m]);
}

static void test_pool_ranges(void **state)
{
	(void)state;
	for (int in = 1; in <= 16; in++)
		for (int kernel = 1; kernel <= 6; kernel++)
			for (int stride = 1; stride <= 4; stride++)
				for (int pad = 0; pad <= kernel / 2; pad++) {
					int out = in + 2 * pad < kernel ? 0 : (in + 2 * pad - kernel) / stride + 1;

					for (int i = 0; i < in; i++)
						for (int o = 0; o < out; o++) {
							int holds =
								o * stride - pad <= i && i < o * stride - pad + kernel;
							int in_range =
								o >= gn_cuda_pool_first(i, kernel, stride, pad) &&
								o <= gn_cuda_pool_last(i, stride, pad, out);

							assert_int_equal(in_range, holds);
						}
				}
}

static void test_adaptive_ranges(void **state)
{
	(void)state;
	for (int in = 1; in <= 40; in++)
		for (int out = 1; out <= 40; out++)
			for (int i = 0; i < in; i++) {
				int first = gn_cuda_adaptive_first(i, in, out);

				for (int o = 0; o < out; o++) {
					int holds = gn_cuda_adaptive_begin(o, in, out) <= i &&
						    i < gn_cuda_adaptive_end(o, in, out);
					int in_range = o >= first && gn_cuda_adaptive_begin(o, in, out) <= i;

					assert_int_equal(in_range, holds);
				}
			}
}

/* Taps lie within the pixels, whatever the box, and weigh something. */
static void test_taps(void **state)
{
	(void)state;
	for (unsigned length = 1; length <= 40; length += 3)
		for (unsigned outputs = 1; outputs <= 40; outputs += 3)
			for (int from = -45; from <= 45; from += 5)
				for (double span = 0.75; span < 60; span *= 1.7)
					for (unsigned i = 0; i < outputs; i++) {
						struct gn_cuda_taps t = gn_cuda_taps_of(from + 0.3 * (i % 2), span, outputs, i, length);
						float sum = 0;

						assert_true(t.first >= 0 && t.count >= 1 && t.first + t.count <= (int)length);
						for (int k = 0; k < t.count; k++)
							sum += gn_cuda_tap_weight(&t, k);
						assert_true(sum > 1e-3f);
					}
}

/* Pixels as they are when nothing is resized. */
static void test_one_tap(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 30; i++) {
		struct gn_cuda_taps t = gn_cuda_taps_of(7, 30, 30, i, 50);

		for (int k = 0; k < t.count; k++)
			assert_true(gn_cuda_tap_weight(&t, k) == (t.first + k == (int)i + 7 ? 1.f : 0.f));
	}
}

/* Every 16-bit number comes back; between two neighbours the nearer wins, and of both the even one. */
static void test_narrowing(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 65536; i++) {
		float bf16 = gn_bf16_widen((uint16_t)i), f16 = gn_f16_widen((uint16_t)i);

		if (bf16 == bf16)
			assert_int_equal(gn_bf16_narrow(bf16), i);
		if (f16 == f16)
			assert_int_equal(gn_f16_narrow(f16), i);
		assert_true(bf16 == bf16 || gn_bf16_widen(gn_bf16_narrow(bf16)) != gn_bf16_widen(gn_bf16_narrow(bf16)));
		assert_true(f16 == f16 || gn_f16_widen(gn_f16_narrow(f16)) != gn_f16_widen(gn_f16_narrow(f16)));
	}
	for (uint32_t i = 0; i < 0x7bff; i++) {
		double low = (double)gn_f16_widen((uint16_t)i), high = (double)gn_f16_widen((uint16_t)(i + 1));
		float middle = (float)((low + high) / 2);

		assert_int_equal(gn_f16_narrow(middle), i + (i & 1));
		assert_int_equal(gn_f16_narrow(nextafterf(middle, 0)), i);
		assert_int_equal(gn_f16_narrow(nextafterf(middle, INFINITY)), i + 1);
	}
	assert_int_equal(gn_f16_narrow(65519), 0x7bff);
	assert_int_equal(gn_f16_narrow(65520), 0x7c00);
	assert_int_equal(gn_bf16_narrow(-3.4e38f), 0xff80);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tiles_cover_once),
		cmocka_unit_test(test_pool_ranges),
		cmocka_unit_test(test_adaptive_ranges),
		cmocka_unit_test(test_narrowing),
		cmocka_unit_test(test_taps),
		cmocka_unit_test(test_one_tap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
