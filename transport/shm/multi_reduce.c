#include "transport/shm/shm_internal.h"

#include "src/base/vector.h"

#include <string.h>

/* The accumulator and one input fit the L1 cache. */
#define BLOCK_BYTES 8192
/* Large enough for memcpy to use string instructions, which overwrite cache lines that another processor holds without reading them
 * first: storing sums one by one took twice the time on processors that do not share a cache. */
#define COPIED_BYTES 16384

/* Inputs and outputs are the same or do not overlap: no result depends on the input of another, as GN_INDEPENDENT asserts. */
GN_VECTOR static void sum_two(const float *a, const float *b, float *x, float *y, size_t count)
{
	GN_INDEPENDENT
	for (size_t i = 0; i < count; i++) {
		float sum = a[i] + b[i];

		x[i] = sum;
		y[i] = sum;
	}
}

GN_VECTOR static void sum_four(char *const *in, char *const *out, size_t offset, size_t count)
{
	const float *a = (void *)(in[0] + offset), *b = (void *)(in[1] + offset), *c = (void *)(in[2] + offset),
		    *d = (void *)(in[3] + offset);
	float *w = (void *)(out[0] + offset), *x = (void *)(out[1] + offset), *y = (void *)(out[2] + offset),
	      *z = (void *)(out[3] + offset);

	GN_INDEPENDENT
	for (size_t i = 0; i < count; i++) {
		float sum = ((a[i] + b[i]) + c[i]) + d[i];

		w[i] = sum;
		x[i] = sum;
		y[i] = sum;
		z[i] = sum;
	}
}

GN_VECTOR static void add_two(float *restrict out, const float *restrict a, const float *restrict b, size_t count)
{
	for (size_t i = 0; i < count; i++)
		out[i] = a[i] + b[i];
}

/* Reduces n elements of all parts, from byte `at` on, into block. */
static void combine_block(char *block, char *const *parts, int ranks, size_t at, size_t n, size_t element_bytes, gn_reduce_fn reduce)
{
	if (ranks == 2 && reduce == gn_reduce_sum(GN_F32)) {
		add_two((float *)(void *)block, (const float *)(const void *)(parts[0] + at),
			(const float *)(const void *)(parts[1] + at), n);
		return;
	}
	memcpy(block, parts[0] + at, n * element_bytes);
	for (int i = 1; i < ranks; i++)
		reduce(block, parts[i] + at, n);
}

static void reduce_by_blocks(char *const *in, char *const *out, int ranks, size_t offset, size_t count, size_t element_bytes,
		      gn_reduce_fn reduce)
{
	_Alignas(64) char block[BLOCK_BYTES];
	size_t each = BLOCK_BYTES / element_bytes;

	for (size_t done = 0; done < count; done += each) {
		size_t n = count - done < each ? count - done : each, at = offset + done * element_bytes;

		combine_block(block, in, ranks, at, n, element_bytes, reduce);
		for (int i = 0; i < ranks; i++)
			memcpy(out[i] + at, block, n * element_bytes);
	}
}

void gn_multi_reduce(char *const *in, char *const *out, int ranks, size_t offset_bytes, size_t count, size_t element_bytes,
		      gn_reduce_fn reduce)
{
	if (ranks == 2 && reduce == gn_reduce_sum(GN_F32))
		sum_two((void *)(in[0] + offset_bytes), (void *)(in[1] + offset_bytes), (void *)(out[0] + offset_bytes),
			(void *)(out[1] + offset_bytes), count);
	else if (ranks == 4 && reduce == gn_reduce_sum(GN_F32))
		sum_four(in, out, offset_bytes, count);
	else if (ranks > 1)
		reduce_by_blocks(in, out, ranks, offset_bytes, count, element_bytes, reduce);
}

void gn_multi_combine(char *out, char *const *parts, int ranks, size_t count, size_t element_bytes, gn_reduce_fn reduce)
{
	size_t each = BLOCK_BYTES / element_bytes;

	for (size_t done = 0; done < count; done += each) {
		size_t n = count - done < each ? count - done : each, at = done * element_bytes;

		combine_block(out + at, parts, ranks, at, n, element_bytes, reduce);
	}
}

void gn_multi_combine_both(char *a, char *b, char *const *parts, int ranks, size_t count, size_t element_bytes,
			    gn_reduce_fn reduce)
{
	_Alignas(64) char block[COPIED_BYTES];
	size_t each = COPIED_BYTES / element_bytes;

	for (size_t done = 0; done < count; done += each) {
		size_t n = count - done < each ? count - done : each, at = done * element_bytes;

		combine_block(block, parts, ranks, at, n, element_bytes, reduce);
		memcpy(b + at, block, n * element_bytes);
		memcpy(a + at, block, n * element_bytes);
	}
}
