#include "tests/test.h"

#include "src/base/half.h"
#include "src/base/philox.h"
#include "src/train/parallel/compress_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void test_parse(void **state)
{
	static const char *const good[] = {"none", "auto", "bf16", "fp16", "int8", "topk:0.01", "dgc:0.001", "powersgd:4", "topk:1"};
	static const char *const bad[] = {"", "bf", "bf16:", "bf16:1", "topk", "topk:", "topk:0", "topk:1.5", "topk:-1", "topk:nan", "topk:0.1x",
					  "powersgd", "powersgd:0", "powersgd:1.5", "powersgd:65", "powersgd:x", "TOPK:0.1"};
	struct gn_compress_spec s;
	char name[GN_COMPRESS_NAME_MAX];
	struct gn_err err;

	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		assert_ok(gn_compress_parse(good[i], &s, &err));
		gn_compress_name(&s, name);
		assert_string_equal(name, good[i]);
	}
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(gn_compress_parse(bad[i], &s, &err), GN_ERR_USAGE);
	assert_ok(gn_compress_parse(NULL, &s, &err));
	assert_int_equal(s.method, GN_COMPRESS_NONE);
}

static void draw(struct gn_rng *rng, float *x, size_t count)
{
	for (size_t i = 0; i < count; i++)
		x[i] = (float)gn_rng_normal(rng) * (i % 7 ? 1 : 1e-3f);
}

static int by_size(const void *a, const void *b)
{
	float x = fabsf(*(const float *)a), y = fabsf(*(const float *)b);

	return (x < y) - (x > y);
}

/* Against a sort; ties, zeros, odd sizes. */
static void test_select(void **state)
{
	static const size_t sizes[] = {1, 2, 3, 31, 255, 1000, 4097};
	struct gn_rng rng;

	(void)state;
	gn_rng_init(&rng, 3, GN_RNG_TEST, 0, 0);
	for (size_t c = 0; c < 4 * sizeof sizes / sizeof *sizes; c++) {
		size_t n = sizes[c / 4], k = 1 + gn_rng_below(&rng, (uint32_t)n), above, larger = 0, sent = 0;
		float x[4097], whole[4097], sorted[4097], sum[4097] = {0};
		struct gn_sparse_entry entries[4097];

		draw(&rng, x, n);
		for (size_t i = 0; i < n && c % 2; i++)
			x[i] = (float)(int)(x[i] * 2); /* many equal ones */
		memcpy(whole, x, sizeof whole);
		memcpy(sorted, x, sizeof sorted);
		qsort(sorted, n, sizeof *sorted, by_size);
		assert_int_equal(gn_select_kth(x, n, k, &above), gn_bits_of_f32(fabsf(sorted[k - 1])));
		for (size_t i = 0; i < n; i++)
			larger += fabsf(x[i]) > fabsf(sorted[k - 1]);
		assert_int_equal(above, larger);
		gn_sparse_take(x, NULL, n, k, entries);
		for (size_t i = 0; i < k; i++) {
			assert_true(entries[i].index < n && (!i || entries[i].index > entries[i - 1].index));
			assert_true(fabsf(entries[i].value) >= fabsf(sorted[k - 1]) && x[entries[i].index] == 0);
			sum[entries[i].index] = entries[i].value;
			sent++;
		}
		assert_int_equal(sent, k);
		for (size_t i = 0; i < n; i++)
			assert_true(sum[i] + x[i] == whole[i]); /* sent + kept */
	}
	gn_sparse_take(NULL, NULL, 0, 0, NULL);
}

/* Within a step of the scale; the same again, another in another step; unbiased; NaN stays; sizes around blocks. */
static void test_int8(void **state)
{
	static const size_t sizes[] = {0, 1, 255, 256, 257, 1001};
	const uint32_t key[2] = {7, 0};
	struct gn_rng rng;
	float x[1001], y[1001], z[1001];
	char message[5 * (256 + sizeof(float))], again[sizeof message];
	double sum = 0;

	(void)state;
	gn_rng_init(&rng, 4, GN_RNG_TEST, 0, 0);
	draw(&rng, x, 1001);
	for (size_t c = 0; c < sizeof sizes / sizeof *sizes; c++) {
		size_t n = sizes[c];

		assert_int_equal(gn_int8_bytes(n), (n + 255) / 256 * 260);
		gn_int8_encode(x, n, key, 3, 1, 0, message);
		gn_int8_encode(x, n, key, 3, 1, 0, again);
		assert_memory_equal(message, again, gn_int8_bytes(n));
		gn_int8_decode(message, n, 0, y);
		for (size_t i = 0; i < n; i++) {
			size_t block = i / 256 * 256;
			float max = gn_f32_of_bits(gn_codec_max_bits(x + block, n - block < 256 ? n - block : 256));

			assert_true(fabsf(y[i] - x[i]) <= 1.0001f * max / 127);
		}
		memcpy(z, y, n * sizeof(float));
		gn_int8_decode(message, n, 1, z);
		for (size_t i = 0; i < n; i++)
			assert_true(z[i] == y[i] + y[i]);
	}
	gn_int8_encode(x, 256, key, 4, 1, 0, again);
	assert_memory_not_equal(message, again, 260);
	for (int step = 0; step < 4000; step++) {
		gn_int8_encode(x, 256, key, (uint64_t)step, 1, 0, message);
		gn_int8_decode(message, 256, 0, y);
		sum += y[5] - x[5];
	}
	assert_true(fabs(sum / 4000) < 0.1 * gn_f32_of_bits(gn_codec_max_bits(x, 256)) / 127);
	x[300] = NAN;
	gn_int8_encode(x, 1001, key, 0, 1, 0, message);
	gn_int8_decode(message, 1001, 0, y);
	assert_true(isfinite(y[0]) && isnan(y[300]) && isfinite(y[999]));
}

static void test_max_bits(void **state)
{
	float x[2050] = {0};

	(void)state;
	assert_int_equal(gn_codec_max_bits(x, 0), 0);
	x[2049] = -3;
	assert_true(gn_codec_max_bits(x, 2050) == gn_bits_of_f32(3.0f));
	assert_true(gn_codec_is_finite(x, 2050));
	x[1024] = -INFINITY;
	assert_false(gn_codec_is_finite(x, 2050));
	x[1024] = -NAN;
	assert_false(gn_codec_is_finite(x, 2050));
}

static void test_orthogonalise(void **state)
{
	enum { N = 37, COLUMNS = 5 };
	struct gn_rng rng;
	float p[COLUMNS * N];

	(void)state;
	gn_rng_init(&rng, 5, GN_RNG_TEST, 0, 0);
	draw(&rng, p, COLUMNS * N);
	for (size_t i = 0; i < N; i++)
		p[3 * N + i] = 2 * p[i] - p[N + i]; /* depends on the first two */
	gn_powersgd_orthogonalise(p, N, COLUMNS);
	for (int a = 0; a < COLUMNS; a++)
		for (int b = 0; b <= a; b++) {
			double sum = 0;

			for (size_t i = 0; i < N; i++)
				sum += (double)p[a * N + (int)i] * p[b * N + (int)i];
			assert_true(fabs(sum - (a == b && a != 3)) < 1e-6);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse), cmocka_unit_test(test_select), cmocka_unit_test(test_int8), cmocka_unit_test(test_max_bits),
		cmocka_unit_test(test_orthogonalise),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
