/* Built-in reductions: plain loops, vectorised by the compiler because GN_VECTOR says so. */
#include "src/base/half.h"
#include "src/base/vector.h"
#include "transport/schedule/types.h"

#define SUM(a, b) ((a) + (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
/* signed overflow is undefined in C, so integers are added as unsigned */
#define WRAP32(a, b) ((int32_t)((uint32_t)(a) + (uint32_t)(b)))
#define WRAP64(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))

#define REDUCTION(name, type, OP)                                                                                      \
	GN_VECTOR static void name(void *acc, const void *in, size_t count)                                            \
	{                                                                                                              \
		type *restrict a = acc;                                                                                \
		const type *restrict b = in;                                                                           \
                                                                                                                       \
		for (size_t i = 0; i < count; i++)                                                                     \
			a[i] = OP(a[i], b[i]);                                                                         \
	}

REDUCTION(sum_f32, float, SUM)
REDUCTION(sum_f64, double, SUM)
REDUCTION(sum_i32, int32_t, WRAP32)
REDUCTION(sum_i64, int64_t, WRAP64)
REDUCTION(max_f32, float, MAX)
REDUCTION(max_f64, double, MAX)
REDUCTION(max_i32, int32_t, MAX)
REDUCTION(max_i64, int64_t, MAX)
REDUCTION(max_bytes, uint8_t, MAX)
REDUCTION(min_f32, float, MIN)
REDUCTION(min_f64, double, MIN)
REDUCTION(min_i32, int32_t, MIN)
REDUCTION(min_i64, int64_t, MIN)
REDUCTION(min_bytes, uint8_t, MIN)

/* Converted to f32 and back. */
#define REDUCTION_HALF(name, FROM, TO, OP)                                                                             \
	GN_VECTOR static void name(void *acc, const void *in, size_t count)                                            \
	{                                                                                                              \
		uint16_t *restrict a = acc;                                                                            \
		const uint16_t *restrict b = in;                                                                       \
                                                                                                                       \
		for (size_t i = 0; i < count; i++)                                                                     \
			a[i] = TO(OP(FROM(a[i]), FROM(b[i])));                                                         \
	}

REDUCTION_HALF(sum_f16, gn_f32_of_f16, gn_f16_of_f32, SUM)
REDUCTION_HALF(max_f16, gn_f32_of_f16, gn_f16_of_f32, MAX)
REDUCTION_HALF(min_f16, gn_f32_of_f16, gn_f16_of_f32, MIN)
REDUCTION_HALF(sum_bf16, gn_f32_of_bf16, gn_bf16_of_f32, SUM)
REDUCTION_HALF(max_bf16, gn_f32_of_bf16, gn_bf16_of_f32, MAX)
REDUCTION_HALF(min_bf16, gn_f32_of_bf16, gn_bf16_of_f32, MIN)

static const struct {
	const char *name;
	size_t bytes;
	gn_reduce_fn sum, max, min;
} types[GN_DTYPE_COUNT] = {
	[GN_F32] = {"f32", 4, sum_f32, max_f32, min_f32},
	[GN_F64] = {"f64", 8, sum_f64, max_f64, min_f64},
	[GN_I32] = {"i32", 4, sum_i32, max_i32, min_i32},
	[GN_I64] = {"i64", 8, sum_i64, max_i64, min_i64},
	[GN_BYTES] = {"bytes", 1, NULL, max_bytes, min_bytes},
	[GN_F16] = {"f16", 2, sum_f16, max_f16, min_f16},
	[GN_BF16] = {"bf16", 2, sum_bf16, max_bf16, min_bf16},
};

gn_reduce_fn gn_reduce_sum(enum gn_dtype type)
{
	return types[type].sum;
}

gn_reduce_fn gn_reduce_max(enum gn_dtype type)
{
	return types[type].max;
}

gn_reduce_fn gn_reduce_min(enum gn_dtype type)
{
	return types[type].min;
}

size_t gn_dtype_bytes(enum gn_dtype type)
{
	return types[type].bytes;
}

const char *gn_dtype_name(enum gn_dtype type)
{
	return types[type].name;
}

gn_reduce_fn gn_reduce_of(enum gn_dtype type, enum gn_reduction reduction)
{
	return reduction == GN_MAX ? types[type].max : reduction == GN_MIN ? types[type].min : types[type].sum;
}

const char *gn_reduction_name(enum gn_reduction reduction)
{
	static const char *const names[GN_REDUCTION_COUNT] = {"sum", "max", "min", "average"};

	return names[reduction];
}

const char *gn_collective_name(enum gn_collective what)
{
	static const char *const names[GN_COLLECTIVE_COUNT] = {"allreduce", "reduce-scatter", "allgather",  "broadcast",
							       "reduce",    "barrier",	      "all-to-all"};

	return names[what];
}

#define DIVISION(name, type)                                                                                           \
	GN_VECTOR static void name(void *data, size_t count, int by)                                                   \
	{                                                                                                              \
		type *d = data;                                                                                        \
                                                                                                                       \
		for (size_t i = 0; i < count; i++)                                                                     \
			d[i] /= (type)by;                                                                              \
	}

DIVISION(divide_f32, float)
DIVISION(divide_f64, double)
DIVISION(divide_i32, int32_t)
DIVISION(divide_i64, int64_t)

#define DIVISION_HALF(name, FROM, TO)                                                                                  \
	GN_VECTOR static void name(void *data, size_t count, int by)                                                   \
	{                                                                                                              \
		uint16_t *d = data;                                                                                    \
                                                                                                                       \
		for (size_t i = 0; i < count; i++)                                                                     \
			d[i] = TO(FROM(d[i]) / (float)by);                                                             \
	}

DIVISION_HALF(divide_f16, gn_f32_of_f16, gn_f16_of_f32)
DIVISION_HALF(divide_bf16, gn_f32_of_bf16, gn_bf16_of_f32)

void gn_reduce_divide(enum gn_dtype type, void *data, size_t count, int by)
{
	/* not for bytes, which have no sum */
	static void (*const division[GN_DTYPE_COUNT])(void *, size_t, int) = {
		[GN_F32] = divide_f32, [GN_F64] = divide_f64,   [GN_I32] = divide_i32,
		[GN_I64] = divide_i64, [GN_F16] = divide_f16, [GN_BF16] = divide_bf16,
	};

	if (division[type])
		division[type](data, count, by);
}
