/* Backends for allreduce of device memory: NCCL, UCX with messages in device memory, or UCX with copies staged in host memory
 * (staged.h).
 *
 * An operation is in place; it is prepared once for a buffer, then started and waited for any number of times. Several may be in
 * flight, started in the same order on all ranks. The start takes a device event to wait for; when a wait or test reports
 * completion, the result is in device memory. Failures are those of the communicator: GN_ERR_PEER_LOST on every surviving rank when
 * a rank is lost; after a failure only free and destroy may follow.
 *
 * Thread safety: one thread at a time, the communicator's.
 */
#ifndef GN_TRANSPORT_COLL_COLL_BACKEND_H
#define GN_TRANSPORT_COLL_COLL_BACKEND_H

#include "transport/coll/comm.h"
#include "transport/coll/copy_engine.h"
#include "transport/coll/reduce_executor.h"
#include "transport/coll/staged.h"

struct gn_coll_backend;
struct gn_coll_backend_op;

/* See the functions below. */
struct gn_coll_backend_ops {
	const char *name; /* "nccl", "ucx-direct", "ucx" */
	enum gn_status (*prepare)(struct gn_coll_backend *c, void *device, size_t count, enum gn_dtype type,
				  enum gn_reduction reduction, struct gn_coll_backend_op **out, struct gn_err *err);
	enum gn_status (*start)(struct gn_coll_backend_op *op, void *after, struct gn_err *err);
	enum gn_status (*test)(struct gn_coll_backend_op *op, int *done, struct gn_err *err);
	enum gn_status (*wait)(struct gn_coll_backend_op *op, struct gn_err *err);
	void (*free)(struct gn_coll_backend_op *op);
	void (*describe)(const struct gn_coll_backend *c, struct gn_strbuf *out);
	void (*destroy)(struct gn_coll_backend *c);
};

/* First members of the implementations. */
struct gn_coll_backend {
	const struct gn_coll_backend_ops *ops;
};
struct gn_coll_backend_op {
	struct gn_coll_backend *carrier;
};

/* Collective; blocks. UCX with copies staged in host memory. comm is borrowed; engine is owned by the backend, also on failure. */
enum gn_status gn_coll_backend_staged_create(struct gn_comm *comm, struct gn_copy_engine *engine,
					const struct gn_stager_options *options, struct gn_coll_backend **out,
					struct gn_err *err);
/* Local. UCX with messages in device memory, if it supports that (gn_comm_takes_gpu_memory). comm is borrowed; memory is owned by
 * the backend, also on failure. Types and reductions are those that memory supports. */
enum gn_status gn_coll_backend_direct_create(struct gn_comm *comm, struct gn_reduce_executor *memory, struct gn_coll_backend **out,
					struct gn_err *err);
/* After its operations were freed. NULL is fine. */
void gn_coll_backend_destroy(struct gn_coll_backend *c);
const char *gn_coll_backend_name(const struct gn_coll_backend *c);
/* Appends "nccl 2.28.9", "ucx, staged in 4 pinned slots of 1024 KiB". */
void gn_coll_backend_describe(const struct gn_coll_backend *c, struct gn_strbuf *out);

/* Local, but with the same arguments and in the same order on all ranks. */
enum gn_status gn_coll_backend_prepare(struct gn_coll_backend *c, void *device, size_t count, enum gn_dtype type,
				  enum gn_reduction reduction, struct gn_coll_backend_op **out, struct gn_err *err);
/* Nonblocking. after: a cudaEvent_t that the operation waits for on the device; NULL: none. The caller keeps the event until the
 * operation is complete, and records it again only behind later work of the same stream. */
enum gn_status gn_coll_backend_start(struct gn_coll_backend_op *op, void *after, struct gn_err *err);
/* Nonblocking; makes progress. Sets *done when the operation is complete. */
enum gn_status gn_coll_backend_test(struct gn_coll_backend_op *op, int *done, struct gn_err *err);
/* Blocks until the operation is complete. */
enum gn_status gn_coll_backend_wait(struct gn_coll_backend_op *op, struct gn_err *err);
/* Freeing an operation in flight fails the backend. NULL is fine. */
void gn_coll_backend_free(struct gn_coll_backend_op *op);

/* Collective; blocks. Times allreduces of a few sizes by each backend on `bytes` bytes at `device`, which are overwritten, and sets
 * *out to the index of the fastest by the geometric mean over the sizes of the slowest rank's time: the same on all ranks. Rank 0
 * logs times and selection. */
enum gn_status gn_coll_backend_choose(struct gn_comm *comm, struct gn_coll_backend *const *backends, int count, void *device,
				 size_t bytes, struct gn_log *log, int *out, struct gn_err *err);

/* Checks --comm HOW ("auto", "nccl", "ucx") against --device DEVICE ("host", "cuda"). GN_ERR_USAGE: they conflict.
 * GN_ERR_UNSUPPORTED: this build has no GPU support (built_in 0). */
enum gn_status gn_coll_backend_check(const char *how, const char *device, int built_in, struct gn_err *err);

#endif
