/* NCCL as what runs allreduces of device memory (transport/coll/coll_device.h); only in builds with CUDA and NCCL.
 *
 * Thread safety: one thread at a time, the communicator's.
 */
#ifndef GN_TRANSPORT_NCCL_NCCL_H
#define GN_TRANSPORT_NCCL_NCCL_H

#include "transport/coll/coll_device.h"

/* Collective, blocking: library of struct gn_comm_device. Creates an NCCL communicator of all ranks of the world; NCCL's unique ID is
 * distributed over comm. Failures that a rank can detect beforehand (no library, no GPU, two ranks on one GPU) are agreed on by all ranks.
 * When the world loses a rank or NCCL reports an asynchronous error, the communicator is aborted, which ends its kernels. */
enum gn_status gn_nccl_create(struct gn_comm *comm, struct gn_device *device, struct gn_coll_backend **out, struct gn_err *err);

#endif
