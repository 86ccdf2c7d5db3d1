/* Shared by nccl.c (operations) and nccl_create.c. Only in builds with CUDA and NCCL. */
#ifndef GN_TRANSPORT_NCCL_NCCL_INTERNAL_H
#define GN_TRANSPORT_NCCL_NCCL_INTERNAL_H

#include "transport/nccl/gpu_call.h"
#include "transport/nccl/nccl.h"
#include "transport/nccl/nccl_api.h"

/* The time limit of NCCL's initialization on all ranks. */
#define GN_NCCL_START_NS 120000000000u

struct gn_nccl_backend {
	struct gn_coll_backend base;
	struct gn_world *world;
	struct gn_nccl_api api;
	int ordinal;
	cudaStream_t stream;
	ncclComm_t native; /* NULL before initialization and when aborted */
	enum gn_status status; /* the first failure, kept */
	struct gn_err why; /* of status */
};

extern const struct gn_coll_backend_ops gn_nccl_ops;

/* Makes the GPU the current device of the calling thread. */
enum gn_status gn_nccl_enter(const struct gn_nccl_backend *c, struct gn_err *err);
/* An error with rank, host, GPU, NCCL's text and advice. */
enum gn_status gn_nccl_fail(const struct gn_nccl_backend *c, ncclResult_t rc, const char *call, struct gn_err *err);
/* Waits for the end of a call of a non-blocking communicator that returned rc; checks the world meanwhile. GN_ERR_STALL after
 * limit_ns. */
enum gn_status gn_nccl_wait(const struct gn_nccl_backend *c, ncclResult_t rc, const char *call, uint64_t limit_ns,
			    struct gn_err *err);
/* To be called with the result of every operation, including GN_OK, and its error in c->why: the first failure aborts the communicator
 * and is returned from then on. */
enum gn_status gn_nccl_end_operation(struct gn_nccl_backend *c, enum gn_status status, struct gn_err *err);

#endif
