/* What sums a device's memory over all ranks: NCCL, UCX straight from there, or UCX through the host's memory (staged.h), behind one
 * interface.
 *
 * An operation is prepared once for a buffer, then started and waited for as often as wanted; several may be in flight,
 * started in the same order on all ranks. It is in place. A start names what has to have happened on the device before;
 * when a wait or test says that it is done, the result is in the device's memory. Operations fail as the communicator's do:
 * GN_ERR_PEER_LOST on every surviving rank when a rank is lost; after a failure only free and destroy remain.
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

/* The first members of what implements them. */
struct gn_coll_backend {
	const struct gn_coll_backend_ops *ops;
};
struct gn_coll_backend_op {
	struct gn_coll_backend *carrier;
};

/* Collective. UCX through the host's memory. comm is borrowed, copier from now on the carrier's, also when this fails. */
enum gn_status gn_coll_backend_staged_create(struct gn_comm *comm, struct gn_copy_engine *copier,
					const struct gn_stager_options *options, struct gn_coll_backend **out,
					struct gn_err *err);
/* Local. UCX without the host's memory, where it can reach the device's (gn_comm_takes_gpu_memory). comm is borrowed, memory from now
 * on the carrier's, also when this fails. Sums, and what memory can do besides. */
enum gn_status gn_coll_backend_direct_create(struct gn_comm *comm, struct gn_reduce_executor *memory, struct gn_coll_backend **out,
					struct gn_err *err);
/* After its operations. NULL is fine. */
void gn_coll_backend_destroy(struct gn_coll_backend *c);
const char *gn_coll_backend_name(const struct gn_coll_backend *c);
/* Appends "nccl 2.28.9", "ucx, staged in 4 pinned slots of 1024 KiB". */
void gn_coll_backend_describe(const struct gn_coll_backend *c, struct gn_strbuf *out);

/* Local, but alike on all ranks and in the same order. */
enum gn_status gn_coll_backend_prepare(struct gn_coll_backend *c, void *device, size_t count, enum gn_dtype type,
				  enum gn_reduction reduction, struct gn_coll_backend_op **out, struct gn_err *err);
/* after: CUDA's cudaEvent_t; NULL: nothing. Does not wait for it. The caller keeps it until the operation is done, and records it anew only
 * behind later work of the same stream. */
enum gn_status gn_coll_backend_start(struct gn_coll_backend_op *op, void *after, struct gn_err *err);
/* Makes progress; does not block. */
enum gn_status gn_coll_backend_test(struct gn_coll_backend_op *op, int *done, struct gn_err *err);
enum gn_status gn_coll_backend_wait(struct gn_coll_backend_op *op, struct gn_err *err);
/* One in flight ends the carrier as a failure would. NULL is fine. */
void gn_coll_backend_free(struct gn_coll_backend_op *op);

/* Collective. Sums a few sizes of the device's memory, of bytes that may be used up, by each of them in turns, and gives the
 * index of the one that takes the least time over all sizes (geometric mean, each by its slowest rank): alike on all ranks. Rank
 * 0 logs what was measured and what was chosen. */
enum gn_status gn_coll_backend_choose(struct gn_comm *comm, struct gn_coll_backend *const *carriers, int count, void *device,
				 size_t bytes, struct gn_log *log, int *out, struct gn_err *err);

/* Whether --comm HOW ("auto", "nccl", "ucx") makes sense with --device DEVICE ("host", "cuda"): GN_ERR_USAGE says why not.
 * built_in: this build can use GPUs; where that is what is missing, GN_ERR_UNSUPPORTED. */
enum gn_status gn_coll_backend_check(const char *how, const char *device, int built_in, struct gn_err *err);

#endif
