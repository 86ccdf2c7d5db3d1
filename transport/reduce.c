/* Built-in reductions: plain loops that the compiler vectorises. For small agreement work and for transport by itself; the
 * training step brings its own from kernels/. */
#include "transport/comm.h"

#define SUM(a, b) ((a) + (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
/* integers wrap instead of overflowing, which C leaves undefined for signed ones */
#define WRAP32(a, b) ((int32_t)((uint32_t)(a) + (uint32_t)(b)))
#define WRAP64(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))

#define REDUCTION(name, type, OP)                                                                                      \
	static void name(void *acc, const void *in, size_t count)                                                      \
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

static const struct {
	size_t bytes;
	gn_reduce_fn sum, max, min;
} types[] = {
	[GN_F32] = {4, sum_f32, max_f32, min_f32},
	[GN_F64] = {8, sum_f64, max_f64, min_f64},
	[GN_I32] = {4, sum_i32, max_i32, min_i32},
	[GN_I64] = {8, sum_i64, max_i64, min_i64},
	[GN_BYTES] = {1, NULL, max_bytes, min_bytes},
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
