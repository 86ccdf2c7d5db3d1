#if defined __x86_64__
#include <immintrin.h>
#if defined __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512bf16"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx512bf16")
#endif
#define GN_BF16_NATIVE 1
#define GN_BF16_LOOPS gn_bf16_loops_avx512
#include "kernels/host/bf16_loops.h"
#if defined __clang__
#pragma clang attribute pop
#endif
#endif
