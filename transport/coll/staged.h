/* Allreduce of device memory that UCX does not support (GPU memory, when UCX is built without CUDA), staged in host memory in
 * chunks.
 *
 * Each chunk is copied down into one of a few slots of pinned host memory, reduced there by an allreduce of the communicator, and
 * copied up; several chunks are in flight, so that the three steps overlap. The result is bit-identical to allreduces of the same
 * chunks in host memory.
 *
 * Chunks are processed in the order in which operations are started, which is the same on all ranks. Progress is made by the calls
 * below. Failures are those of the communicator: GN_ERR_PEER_LOST on every surviving rank when a rank is lost. After a failure only
 * free and destroy may follow, here and of the communicator.
 *
 * Thread safety: one thread at a time, the communicator's.
 */
#ifndef GN_TRANSPORT_COLL_STAGED_H
#define GN_TRANSPORT_COLL_STAGED_H

#include "transport/coll/comm.h"
#include "transport/coll/copy_engine.h"

struct gn_stager;
struct gn_staged;

struct gn_stager_options {
	size_t chunk_bytes; /* 0: 1 MiB */
	int slots;	    /* at most GN_COPY_ENGINE_SLOTS_MAX; 0: 4 */
};

/* Collective, with the same options on all ranks; blocks. comm and engine are borrowed. */
enum gn_status gn_stager_create(struct gn_comm *comm, struct gn_copy_engine *engine, const struct gn_stager_options *options,
				struct gn_stager **out, struct gn_err *err);
/* After all of its operations were freed. Blocks until copies in flight are complete, at most 10 s each. NULL is fine. */
void gn_stager_destroy(struct gn_stager *s);
/* Whether its slots are pinned; copies from and to pageable memory are slower. */
int gn_stager_pinned(const struct gn_stager *s);
/* Appends "staged in 4 pinned slots of 1024 KiB". */
void gn_stager_describe(const struct gn_stager *s, struct gn_strbuf *out);

/* Local, but with the same arguments and in the same order on all ranks, relative to gn_coll_prepare, too. In place, of count
 * elements at `device`, which is borrowed until free. algorithm: as in gn_coll_args. */
enum gn_status gn_staged_prepare(struct gn_stager *s, void *device, size_t count, enum gn_dtype type,
				 enum gn_reduction reduction, const char *algorithm, struct gn_staged **out,
				 struct gn_err *err);
/* Nonblocking. Several may be in flight, started in the same order on all ranks. after: as in gn_copy_engine_ops.down. */
enum gn_status gn_staged_start(struct gn_staged *op, void *after, struct gn_err *err);
/* Nonblocking; makes progress on all in flight. Sets *done when the operation is complete. */
enum gn_status gn_staged_test(struct gn_staged *op, int *done, struct gn_err *err);
/* Blocks until the operation is complete. */
enum gn_status gn_staged_wait(struct gn_staged *op, struct gn_err *err);
/* Freeing an operation in flight fails stager and communicator. NULL is fine. */
void gn_staged_free(struct gn_staged *op);

#endif
