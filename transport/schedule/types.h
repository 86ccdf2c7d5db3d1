/* Element types, reductions and collectives, for all of transport/. Thread safety: any thread, no shared state. */
#ifndef GN_TRANSPORT_SCHEDULE_TYPES_H
#define GN_TRANSPORT_SCHEDULE_TYPES_H

#include <stddef.h>
#include <stdint.h>

/* GN_F16 is IEEE binary16, GN_BF16 the upper half of an f32. Each reduction of two such values is computed in f32 and rounded to
 * nearest even. */
enum gn_dtype { GN_F32, GN_F64, GN_I32, GN_I64, GN_BYTES, GN_F16, GN_BF16, GN_DTYPE_COUNT };
size_t gn_dtype_bytes(enum gn_dtype type);
/* "f32", "bf16", ... */
const char *gn_dtype_name(enum gn_dtype type);

/* GN_AVERAGE is the sum divided by the number of ranks at the end; integers round toward zero. */
enum gn_reduction { GN_SUM, GN_MAX, GN_MIN, GN_AVERAGE, GN_REDUCTION_COUNT };
const char *gn_reduction_name(enum gn_reduction reduction);

/* acc[i] = acc[i] op in[i] for count elements; op associative and commutative up to rounding. */
typedef void (*gn_reduce_fn)(void *acc, const void *in, size_t count);
/* NULL when the type has no such reduction: bytes have no sum. GN_AVERAGE returns the sum. */
gn_reduce_fn gn_reduce_of(enum gn_dtype type, enum gn_reduction reduction);
gn_reduce_fn gn_reduce_sum(enum gn_dtype type);
gn_reduce_fn gn_reduce_max(enum gn_dtype type);
gn_reduce_fn gn_reduce_min(enum gn_dtype type);
/* data[i] /= by. */
void gn_reduce_divide(enum gn_dtype type, void *data, size_t count, int by);

enum gn_collective {
	GN_COLLECTIVE_ALLREDUCE,
	GN_COLLECTIVE_REDUCE_SCATTER,
	GN_COLLECTIVE_ALLGATHER,
	GN_COLLECTIVE_BROADCAST,
	GN_COLLECTIVE_REDUCE,
	GN_COLLECTIVE_BARRIER,
	GN_COLLECTIVE_ALL_TO_ALL,
	GN_COLLECTIVE_COUNT
};
/* "allreduce", "reduce-scatter", ... */
const char *gn_collective_name(enum gn_collective what);

#endif
