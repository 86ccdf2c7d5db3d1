#if defined __x86_64__
#include <immintrin.h>
#if defined __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl")
#endif
typedef __m512 vec;
#define LANES 16
#define ROWS 14
#define TABLE gn_winograd_loops_avx512
#define load(p) _mm512_loadu_ps(p)
#define store(p, x) _mm512_storeu_ps(p, x)
#define set(x) _mm512_set1_ps(x)
#define fma(x, y, z) _mm512_fmadd_ps(x, y, z)
#define larger(x, y) _mm512_max_ps(y, x) /* of NaN and another number the second */
#include "kernels/host/winograd_loops.h"
#if defined __clang__
#pragma clang attribute pop
#endif
#endif
