#include "transport/direct.h"

#include <string.h>

/* Small enough that accumulator and one input stay in the first-level cache. */
#define BLOCK_BYTES 8192

/* The same source, compiled for what the processor has: chosen once at load time. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__clang__)
#define VECTOR __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define VECTOR
#endif

VECTOR static void sum_two(float *restrict a, float *restrict b, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		float sum = a[i] + b[i];

		a[i] = sum;
		b[i] = sum;
	}
}

VECTOR static void sum_four(float *restrict a, float *restrict b, float *restrict c, float *restrict d, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		float sum = ((a[i] + b[i]) + c[i]) + d[i];

		a[i] = sum;
		b[i] = sum;
		c[i] = sum;
		d[i] = sum;
	}
}

static void by_blocks(char *const *parts, int ranks, size_t offset, size_t count, size_t element_bytes,
		      gn_reduce_fn reduce)
{
	_Alignas(64) char block[BLOCK_BYTES];
	size_t each = BLOCK_BYTES / element_bytes;

	for (size_t done = 0; done < count; done += each) {
		size_t n = count - done < each ? count - done : each, at = offset + done * element_bytes;

		memcpy(block, parts[0] + at, n * element_bytes);
		for (int i = 1; i < ranks; i++)
			reduce(block, parts[i] + at, n);
		for (int i = 0; i < ranks; i++)
			memcpy(parts[i] + at, block, n * element_bytes);
	}
}

void gn_direct_reduce(char *const *parts, int ranks, size_t offset_bytes, size_t count, size_t element_bytes,
		      gn_reduce_fn reduce)
{
	if (ranks == 2 && reduce == gn_reduce_sum(GN_F32))
		sum_two((float *)(void *)(parts[0] + offset_bytes), (float *)(void *)(parts[1] + offset_bytes), count);
	else if (ranks == 4 && reduce == gn_reduce_sum(GN_F32))
		sum_four((float *)(void *)(parts[0] + offset_bytes), (float *)(void *)(parts[1] + offset_bytes),
			 (float *)(void *)(parts[2] + offset_bytes), (float *)(void *)(parts[3] + offset_bytes), count);
	else if (ranks > 1)
		by_blocks(parts, ranks, offset_bytes, count, element_bytes, reduce);
}

VECTOR static void add_two(float *restrict out, const float *restrict a, const float *restrict b, size_t count)
{
	for (size_t i = 0; i < count; i++)
		out[i] = a[i] + b[i];
}

void gn_direct_combine(char *out, char *const *parts, int ranks, size_t count, size_t element_bytes, gn_reduce_fn reduce)
{
	size_t each = BLOCK_BYTES / element_bytes;

	if (ranks == 2 && reduce == gn_reduce_sum(GN_F32)) {
		add_two((float *)(void *)out, (const float *)(const void *)parts[0], (const float *)(const void *)parts[1], count);
		return;
	}
	for (size_t done = 0; done < count; done += each) {
		size_t n = count - done < each ? count - done : each, at = done * element_bytes;

		memcpy(out + at, parts[0] + at, n * element_bytes);
		for (int i = 1; i < ranks; i++)
			reduce(out + at, parts[i] + at, n);
	}
}
