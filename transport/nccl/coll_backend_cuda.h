/* The collective backends for GPU memory; only in builds with CUDA and NCCL.
 *
 * Thread safety: one thread at a time, the communicator's.
 */
#ifndef GN_TRANSPORT_NCCL_COLL_BACKEND_CUDA_H
#define GN_TRANSPORT_NCCL_COLL_BACKEND_CUDA_H

#include "transport/coll/coll_backend.h"

/* A copy engine between cuda:ordinal and the host, on two streams of its own. Local. */
enum gn_status gn_copy_engine_cuda_create(int ordinal, struct gn_copy_engine **out, struct gn_err *err);
/* Collective, blocking. Creates an NCCL communicator of all ranks; NCCL's unique ID is distributed over comm. Failures that a rank
 * can detect beforehand (no library, no GPU, two ranks on one GPU) are agreed on by all ranks. When the world loses a rank or NCCL
 * reports an asynchronous error, the communicator is aborted, which ends its kernels. */
enum gn_status gn_coll_backend_nccl_create(struct gn_comm *comm, int ordinal, struct gn_coll_backend **out, struct gn_err *err);
/* Collective, blocking; the arguments are the same on all ranks. how: "nccl"; "ucx", directly from GPU memory if UCX supports it,
 * else staged through host memory; or "auto", the faster of the two, UCX if NCCL is not available. Rank 0 logs the choice and the
 * reason. memory: the reduce executor of cuda:ordinal, for UCX with GPU memory; owned by the backend from now on, also on failure;
 * NULL: UCX stages. */
enum gn_status gn_coll_backend_cuda_create(struct gn_comm *comm, const char *how, int ordinal, struct gn_reduce_executor *memory,
					   struct gn_log *log, struct gn_coll_backend **out, struct gn_err *err);

#endif
