/* Allreduce of memory that UCX cannot reach (a GPU's, when UCX was built without CUDA): through the host's memory, in chunks.
 *
 * A chunk is copied down into one of a few slots of pinned host memory, summed there by an allreduce of the communicator's,
 * and copied up again; several are under way at a time, so that the three overlap. The result is bit-identical to allreduces
 * of the same chunks in the host's memory.
 *
 * Chunks enter in the order in which operations are started, which is the same on all ranks. Progress is made by the calls
 * below. An operation fails as one of the communicator's does: GN_ERR_PEER_LOST on every surviving rank when a rank is lost.
 * After any failure only free and destroy remain, of these and of the communicator.
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

/* Collective, with the same options. comm and copier are borrowed. */
enum gn_status gn_stager_create(struct gn_comm *comm, struct gn_copy_engine *copier, const struct gn_stager_options *options,
				struct gn_stager **out, struct gn_err *err);
/* After all of its operations were freed. Waits for copies under way, which end by themselves. NULL is fine. */
void gn_stager_destroy(struct gn_stager *s);
/* Whether its slots are pinned: without, copies are slower. */
int gn_stager_pinned(const struct gn_stager *s);
/* Appends "staged in 4 pinned slots of 1024 KiB". */
void gn_stager_describe(const struct gn_stager *s, struct gn_strbuf *out);

/* Local, but alike on all ranks and in the same order, communicator's preparations included. In place, of count elements at
 * device, which is the caller's until free. algorithm as in gn_coll_args. */
enum gn_status gn_staged_prepare(struct gn_stager *s, void *device, size_t count, enum gn_dtype type,
				 enum gn_reduction reduction, const char *algorithm, struct gn_staged **out,
				 struct gn_err *err);
/* Several may be in flight, started in the same order everywhere. after: as gn_copy_engine_ops.down. Does not block. */
enum gn_status gn_staged_start(struct gn_staged *op, void *after, struct gn_err *err);
/* Makes progress for all in flight; does not block. */
enum gn_status gn_staged_test(struct gn_staged *op, int *done, struct gn_err *err);
enum gn_status gn_staged_wait(struct gn_staged *op, struct gn_err *err);
/* One in flight ends the stager and the communicator as a failure would. NULL is fine. */
void gn_staged_free(struct gn_staged *op);

#endif
