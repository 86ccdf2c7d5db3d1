#if defined __x86_64__
#if defined __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512")
#endif
#define GN_LAYER_LOOPS gn_layer_loops_avx512
#include "kernels/host/layer_loops.h"
#if defined __clang__
#pragma clang attribute pop
#endif
#endif
