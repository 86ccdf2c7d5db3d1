#define GN_BF16_LOOPS gn_bf16_loops_plain
#include "kernels/host/bf16_loops.h"

const struct gn_bf16_loops *gn_bf16_loops(void)
{
#if defined __x86_64__
	if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"))
		return &gn_bf16_loops_avx512;
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return &gn_bf16_loops_avx2;
#endif
	return &gn_bf16_loops_plain;
}
