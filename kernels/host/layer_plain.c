#define GN_LAYER_LOOPS gn_layer_loops_plain
#include "kernels/host/layer_loops.h"

const struct gn_layer_loops *gn_layer_loops(void)
{
#if defined __x86_64__
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512vl"))
		return &gn_layer_loops_avx512;
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return &gn_layer_loops_avx2;
#endif
	return &gn_layer_loops_plain;
}
