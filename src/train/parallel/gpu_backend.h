/* Sums in GPU memory for training and its benchmarks: gives a communicator the GPU of this rank (transport/coll/coll_device.h) with NCCL,
 * and with our kernel for additions, which transport cannot include.
 *
 * Thread safety: one thread at a time, the communicator's.
 */
#ifndef GN_TRAIN_PARALLEL_GPU_BACKEND_H
#define GN_TRAIN_PARALLEL_GPU_BACKEND_H

#include "transport/coll/coll_device.h"

/* gn_comm_attach() of a GPU. how: "nccl", "ucx", "auto". Collective, blocking; failures are agreed on. */
enum gn_status gn_gpu_attach(struct gn_comm *comm, struct gn_device *gpu, const char *how, struct gn_log *log, struct gn_err *err);

#endif
