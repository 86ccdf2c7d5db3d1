#if defined __x86_64__
#include <immintrin.h>
#if defined __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq")
#endif
#define GN_NORM_AVX
#define GN_NORM_LOOPS gn_norm_loops_avx512
#include "kernels/host/batch_norm_loops.h"
#if defined __clang__
#pragma clang attribute pop
#endif
#endif
