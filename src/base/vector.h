/* Function multiversioning for plain loops over arrays: GN_VECTOR compiles a function for several instruction sets, and the dynamic
 * linker selects one at load time. Results are bitwise equal for all of them as long as a loop only adds, compares or divides
 * element by element.
 *
 *     GN_VECTOR static void add(float *restrict a, const float *restrict b, size_t count) { for (...) a[i] += b[i]; }
 *
 * GN_INDEPENDENT before a loop asserts that no iteration reads what another one writes, where restrict cannot.
 */
#ifndef GN_BASE_VECTOR_H
#define GN_BASE_VECTOR_H

/* Sanitizers do not work with ifunc resolvers. Clang vectorises at -O2 for the baseline processor. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define GN_VECTOR __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#elif defined(__GNUC__) && !defined(__clang__)
#define GN_VECTOR __attribute__((optimize("O3")))
#else
#define GN_VECTOR
#endif

#if defined(__clang__)
#define GN_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define GN_INDEPENDENT _Pragma("GCC ivdep")
#endif

#endif
