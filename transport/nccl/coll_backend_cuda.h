/* What sums a GPU's memory over all ranks; only in builds with CUDA and NCCL.
 *
 * Thread safety: one thread at a time, the communicator's.
 */
#ifndef GN_TRANSPORT_NCCL_COLL_BACKEND_CUDA_H
#define GN_TRANSPORT_NCCL_COLL_BACKEND_CUDA_H

#include "transport/coll/coll_backend.h"

/* Copies between cuda:ordinal and the host, on two streams of their own. */
enum gn_status gn_copy_engine_cuda_create(int ordinal, struct gn_copy_engine **out, struct gn_err *err);
/* Collective. An NCCL communicator of all ranks, by way of comm: no MPI, no network of NCCL's own to be told who is there.
 * Failures that a rank knows of beforehand (no library, no GPU, one GPU for two ranks) are agreed on by all. When the world
 * loses a rank, or NCCL reports that something has broken, the communicator is aborted, which ends its kernels. */
enum gn_status gn_coll_backend_nccl_create(struct gn_comm *comm, int ordinal, struct gn_coll_backend **out, struct gn_err *err);
/* Collective. how: "nccl", "ucx" (straight from GPU memory where UCX can, staged where not), or "auto": NCCL where ranks can have it,
 * and whichever is faster. Rank 0 logs which it is and why. memory: cuda:ordinal's, for UCX that reaches it, from now on the carrier's,
 * also when this fails; NULL: UCX stages. Alike on all ranks. */
enum gn_status gn_coll_backend_cuda_create(struct gn_comm *comm, const char *how, int ordinal, struct gn_reduce_executor *memory,
				      struct gn_log *log, struct gn_coll_backend **out, struct gn_err *err);

#endif
