/* Sums in GPU memory for training and its benchmarks: chooses a backend of transport/coll/coll_backend.h and gives UCX our kernel for
 * additions, which transport cannot include.
 *
 * Thread safety: one thread at a time, the communicator's.
 */
#ifndef GN_TRAIN_PARALLEL_GPU_BACKEND_H
#define GN_TRAIN_PARALLEL_GPU_BACKEND_H

#include "transport/coll/coll_backend.h"

/* Collective, blocking. For memory of cuda:ordinal. how: "nccl"; "ucx", directly from GPU memory if UCX supports it, else staged through
 * host memory; or "auto", the faster of the two where ranks can have NCCL. Rank 0 logs the choice and the reason. comm is borrowed;
 * gn_coll_backend_destroy ends it. In builds without CUDA GN_ERR_UNSUPPORTED. */
enum gn_status gn_gpu_backend_create(struct gn_comm *comm, const char *how, int ordinal, struct gn_log *log,
				     struct gn_coll_backend **out, struct gn_err *err);

#endif
