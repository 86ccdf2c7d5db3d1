/* What nccl.c (operations) and nccl_create.c share. Only in builds with CUDA and NCCL. */
#ifndef GN_TRANSPORT_NCCL_NCCL_INTERNAL_H
#define GN_TRANSPORT_NCCL_NCCL_INTERNAL_H

#include "transport/nccl/coll_backend_cuda.h"
#include "transport/nccl/gpu_call.h"
#include "transport/nccl/nccl_api.h"

/* For everyone to come, find the network and each other. */
#define GN_NCCL_START_NS 120000000000u

struct gn_nccl_backend {
	struct gn_coll_backend base;
	struct gn_world *world;
	struct gn_nccl_api api;
	int ordinal;
	cudaStream_t stream;
	ncclComm_t native; /* NULL when aborted */
	enum gn_status status; /* the first failure stays */
	struct gn_err why;
};

extern const struct gn_coll_backend_ops gn_nccl_ops;

/* The current device belongs to the thread. */
enum gn_status gn_nccl_enter(const struct gn_nccl_backend *c, struct gn_err *err);
/* Names rank, host and GPU, what NCCL says, and what to do. */
enum gn_status gn_nccl_fail(const struct gn_nccl_backend *c, ncclResult_t rc, const char *call, struct gn_err *err);
/* Calls of a communicator that does not block say that they are not through yet: waits for that, watching the world. */
enum gn_status gn_nccl_finish(const struct gn_nccl_backend *c, ncclResult_t rc, const char *call, uint64_t limit_ns,
			      struct gn_err *err);
/* All ends of operations come through here, the good ones, too: the first failure aborts the communicator, is put in the words of
 * the world when that knows better (c->why), and stays. */
enum gn_status gn_nccl_settle(struct gn_nccl_backend *c, enum gn_status status, struct gn_err *err);

#endif
