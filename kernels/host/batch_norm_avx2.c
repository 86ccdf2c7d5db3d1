#if defined __x86_64__
#include <immintrin.h>
#if defined __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#define GN_NORM_AVX
#define GN_NORM_LOOPS gn_norm_loops_avx2
#include "kernels/host/batch_norm_loops.h"
#if defined __clang__
#pragma clang attribute pop
#endif
#endif
