/* A GPU's memory for collectives that reach it (transport/memory.h): sums by our own kernel, on a stream of its own. */
#ifndef GN_TRAIN_GPU_MEMORY_H
#define GN_TRAIN_GPU_MEMORY_H

#include "transport/memory.h"

/* Of cuda:ordinal. Sums of f32, f16 and bf16. GN_ERR_UNSUPPORTED in a build without CUDA. */
enum gn_status gn_gpu_memory_create(int ordinal, struct gn_memory **out, struct gn_err *err);

#endif
