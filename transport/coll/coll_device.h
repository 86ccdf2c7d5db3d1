/* Collectives of device memory: how a communicator gets a device, and the interface of a library (NCCL) that reduces in it.
 *
 * gn_comm_attach() gives a communicator the device of this rank. From then on gn_coll_prepare() takes memory of that device
 * (GN_MEMORY_DEVICE). What runs an allreduce is selected once: the library; schedules with messages in device memory, if UCX supports
 * that; or staging, in chunks through pinned host memory.
 *
 * Thread safety: one thread at a time, the communicator's.
 */
#ifndef GN_TRANSPORT_COLL_COLL_DEVICE_H
#define GN_TRANSPORT_COLL_COLL_DEVICE_H

#include "src/device/device.h"
#include "transport/coll/comm.h"

struct gn_coll_backend;
struct gn_coll_backend_op;

/* A library's operations. Each is an allreduce in place. */
struct gn_coll_backend_ops {
	const char *name; /* "nccl" */
	/* Local, but with the same arguments and in the same order on all ranks. Of args: out, count, type, reduction. */
	enum gn_status (*prepare)(struct gn_coll_backend *b, const struct gn_coll_args *args, struct gn_coll_backend_op **out,
				  struct gn_err *err);
	/* Nonblocking, in the same order on all ranks. before: the operation waits for it on the device; NULL: nothing. */
	enum gn_status (*start)(struct gn_coll_backend_op *op, const struct gn_event *before, struct gn_err *err);
	/* Nonblocking. After an error, which may be that of the world, the device does not work on any operation of the backend. */
	enum gn_status (*test)(struct gn_coll_backend_op *op, int *done, struct gn_err *err);
	/* Of an operation in flight: ends those on the device, and the backend fails. */
	void (*free)(struct gn_coll_backend_op *op);
	/* Appends "nccl 2.28.9". */
	void (*describe)(const struct gn_coll_backend *b, struct gn_strbuf *out);
	void (*destroy)(struct gn_coll_backend *b);
};

/* First members of the implementations. */
struct gn_coll_backend {
	const struct gn_coll_backend_ops *ops;
};
struct gn_coll_backend_op {
	struct gn_coll_backend *backend;
};

/* Queues to[i] = to[i] op from[i] on s. GN_ERR_UNSUPPORTED: not for this type or reduction, which a call with count 0 asks. */
typedef enum gn_status (*gn_device_reduce_fn)(struct gn_stream *s, enum gn_dtype type, enum gn_reduction reduction, void *to,
					      const void *from, size_t count, struct gn_err *err);

/* A device for a communicator, alike on all ranks but for which device it is. */
struct gn_comm_device {
	struct gn_device *device; /* borrowed until gn_comm_detach() */
	/* "nccl": the library. "ucx": messages in device memory if UCX supports that, else staging. "auto": what is faster, measured; ucx if the
	 * library is not available. "direct" and "staged": the ways of "ucx", without asking it. */
	const char *how;
	gn_device_reduce_fn reduce; /* NULL: ucx stages */
	/* Collective, blocking. Creates the library's communicator. Failures that a rank can detect beforehand are agreed on: NOT_FOUND,
	 * UNSUPPORTED, MISMATCH: not available. NULL: there is none. */
	enum gn_status (*library)(struct gn_comm *comm, struct gn_device *device, struct gn_coll_backend **out, struct gn_err *err);
	size_t chunk_bytes; /* of staging; 0: 1 MiB */
	int slots;	    /* of staging; 0: 4 */
};

/* Collective, blocking; failures are agreed on. Rank 0 logs what was selected and why. Replaces what was attached before. */
enum gn_status gn_comm_attach(struct gn_comm *c, const struct gn_comm_device *options, struct gn_log *log, struct gn_err *err);
/* What runs allreduces of device memory: "nccl", "ucx-direct", "ucx" (staged). A device is attached. */
const char *gn_comm_device_backend(const struct gn_comm *c);
/* Appends "nccl 2.28.9", "ucx, messages in GPU memory", "ucx, staged in 4 pinned slots of 1024 KiB". */
void gn_comm_device_describe(const struct gn_comm *c, struct gn_strbuf *out);

/* Checks --comm HOW ("auto", "nccl", "ucx") against --device DEVICE ("host", "cuda"). GN_ERR_USAGE: they conflict.
 * GN_ERR_UNSUPPORTED: this build has no GPU support (built_in 0). */
enum gn_status gn_coll_backend_check(const char *how, const char *device, int built_in, struct gn_err *err);

#endif
