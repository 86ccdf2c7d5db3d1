#if defined __x86_64__
#include <immintrin.h>
#if defined __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
typedef __m256 vec;
#define LANES 8
#define ROWS 6
#define TABLE gn_winograd_loops_avx2
#define load(p) _mm256_loadu_ps(p)
#define store(p, x) _mm256_storeu_ps(p, x)
#define set(x) _mm256_set1_ps(x)
#define fma(x, y, z) _mm256_fmadd_ps(x, y, z)
#define larger(x, y) _mm256_max_ps(y, x) /* of NaN and another number the second */
#include "kernels/host/winograd_loops.h"
#if defined __clang__
#pragma clang attribute pop
#endif
#endif
