#if defined __x86_64__
#if defined __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#define GN_LAYER_LOOPS gn_layer_loops_avx2
#include "kernels/host/layer_loops.h"
#if defined __clang__
#pragma clang attribute pop
#endif
#endif
