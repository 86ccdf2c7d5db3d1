/* Half-precision conversions against their definitions, and the reductions of all types. */
#include "src/base/half.h"
#include "transport/schedule/types.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* The value of a binary16 by its definition. */
static double f16_value(uint16_t h)
{
	int exponent = h >> 10 & 31, fraction = h & 1023;
	double value = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);

	if (exponent == 31)
		value = fraction ? (double)NAN : (double)INFINITY;
	return h & 0x8000 ? -value : value;
}

static void every_f16_goes_there_and_back(void **state)
{
	(void)state;
	for (uint32_t h = 0; h <= 0xffff; h++) {
		double value = f16_value((uint16_t)h);
		float f = gn_f32_of_f16((uint16_t)h);

		if (isnan(value)) {
			assert_true(isnan(f));
			assert_true(isnan(gn_f32_of_f16(gn_f16_of_f32(f))));
			continue;
		}
		assert_true((double)f == value);
		assert_int_equal(gn_f16_of_f32(f), h);
	}
}

/* Between two neighbours: below the middle down, above it up, in the middle to the even one. */
static void f16_rounds_to_nearest_even(void **state)
{
	(void)state;
	for (uint16_t h = 0; h < 0x7bff; h++) {
		double low = f16_value(h), high = f16_value((uint16_t)(h + 1));
		float middle = (float)((low + high) / 2);

		assert_int_equal(gn_f16_of_f32(middle), h & 1 ? h + 1 : h);
		assert_int_equal(gn_f16_of_f32(nextafterf(middle, 0)), h);
		assert_int_equal(gn_f16_of_f32(nextafterf(middle, INFINITY)), h + 1);
		assert_int_equal(gn_f16_of_f32(-nextafterf(middle, INFINITY)), 0x8000 | (h + 1));
	}
	assert_int_equal(gn_f16_of_f32(65519.996f), 0x7bff);
	assert_int_equal(gn_f16_of_f32(65520.0f), 0x7c00);
	assert_int_equal(gn_f16_of_f32(1e30f), 0x7c00);
}

static void bf16_rounds_to_nearest_even(void **state)
{
	(void)state;
	for (uint32_t h = 0; h < 0x7f7f; h++) {
		double low = (double)gn_f32_of_bf16((uint16_t)h), high = (double)gn_f32_of_bf16((uint16_t)(h + 1));
		float middle = (float)((low + high) / 2);

		assert_int_equal(gn_bf16_of_f32((float)low), h);
		assert_int_equal(gn_bf16_of_f32(middle), h & 1 ? h + 1 : h);
		assert_int_equal(gn_bf16_of_f32(nextafterf(middle, INFINITY)), h + 1);
	}
	assert_int_equal(gn_bf16_of_f32(INFINITY), 0x7f80);
	assert_true(isnan(gn_f32_of_bf16(gn_bf16_of_f32(NAN))));
	assert_true(isnan(gn_f32_of_bf16(gn_bf16_of_f32(gn_f32_of_bits(0x7f800001)))));
}

static void halves_reduce(void **state)
{
	uint16_t a[3] = {gn_f16_of_f32(1.5f), gn_f16_of_f32(-2), gn_f16_of_f32(60000)};
	const uint16_t b[3] = {gn_f16_of_f32(2), gn_f16_of_f32(7), gn_f16_of_f32(60000)};

	(void)state;
	gn_reduce_of(GN_F16, GN_SUM)(a, b, 3);
	assert_true(gn_f32_of_f16(a[0]) == 3.5f && gn_f32_of_f16(a[1]) == 5.0f && isinf(gn_f32_of_f16(a[2])));
	gn_reduce_of(GN_F16, GN_MIN)(a, b, 3);
	assert_true(gn_f32_of_f16(a[0]) == 2.0f && gn_f32_of_f16(a[1]) == 5.0f && a[2] == b[2]);
	gn_reduce_divide(GN_F16, a, 3, 4);
	assert_true(gn_f32_of_f16(a[0]) == 0.5f && gn_f32_of_f16(a[1]) == 1.25f && gn_f32_of_f16(a[2]) == 15000.0f);
}

static void integers_divide_toward_zero(void **state)
{
	int32_t a[3] = {7, -7, 8};

	(void)state;
	gn_reduce_divide(GN_I32, a, 3, 4);
	assert_true(a[0] == 1 && a[1] == -1 && a[2] == 2);
	assert_null(gn_reduce_of(GN_BYTES, GN_AVERAGE));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_f16_goes_there_and_back), cmocka_unit_test(f16_rounds_to_nearest_even),
		cmocka_unit_test(bf16_rounds_to_nearest_even),	 cmocka_unit_test(halves_reduce),
		cmocka_unit_test(integers_divide_toward_zero),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
