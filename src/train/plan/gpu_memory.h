/* What sums gradients on GPUs: a carrier, and for UCX that reaches a GPU's memory, that (transport/coll/reduce_executor.h), whose sums are our own
 * kernel's on a stream of its own. In builds without CUDA GN_ERR_UNSUPPORTED. */
#ifndef GN_TRAIN_PLAN_GPU_MEMORY_H
#define GN_TRAIN_PLAN_GPU_MEMORY_H

#include "transport/coll/coll_backend.h"

/* Of cuda:ordinal. Sums of f32, f16 and bf16. */
enum gn_status gn_gpu_memory_create(int ordinal, struct gn_reduce_executor **out, struct gn_err *err);
/* Collective. how: as transport/nccl/coll_backend_cuda.h has it. */
enum gn_status gn_gpu_carrier_create(struct gn_comm *comm, const char *how, int ordinal, struct gn_log *log,
				     struct gn_coll_backend **out, struct gn_err *err);

#endif
