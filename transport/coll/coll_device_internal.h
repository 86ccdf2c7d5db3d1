/* What a communicator holds for memory of its device, once gn_comm_attach() has given it one (coll_device.c): streams, the backend in
 * use, and slots for staging. Used by operations (coll.c, coll_prepare.c), by schedules in device memory (exec_create.c) and by staging
 * (staged.c).
 *
 * Thread safety: the caller holds the communicator (gn_comm_enter). No call blocks but create and destroy.
 */
#ifndef GN_TRANSPORT_COLL_COLL_DEVICE_INTERNAL_H
#define GN_TRANSPORT_COLL_COLL_DEVICE_INTERNAL_H

#include "transport/coll/coll_device.h"

struct gn_coll;
struct gn_coll_ops;
struct gn_stager;

/* An event is recorded again after so many marks: a mark that old has been reached when the newer one has. */
enum { GN_DEVICE_MARKS = 256 };

struct gn_coll_device {
	struct gn_comm_device options;
	const struct gn_coll_ops *selected; /* what runs an allreduce: schedules in device memory, staging, or the library */
	struct gn_coll_backend *library;    /* NULL: not available, or not selected */
	struct gn_stager *stager;	    /* NULL: not in use */
	struct gn_stream *gate;		    /* no work but waits: an event in it is done when the one it follows is */
	struct gn_stream *work;		    /* reductions and copies of schedules */
	struct gn_event *marks[GN_DEVICE_MARKS];
	uint64_t marked;
};

/* Queues a mark in the stream of work. reached: whether all work before the mark is complete; marks are reached in order. */
enum gn_status gn_coll_device_mark(struct gn_coll_device *d, uint64_t *mark, struct gn_err *err);
enum gn_status gn_coll_device_reached(const struct gn_coll_device *d, uint64_t mark, int *yes, struct gn_err *err);

/* --- staging (staged.c): an allreduce in chunks, which are copied into slots of pinned host memory, reduced there by collectives of the
 * communicator, and copied back; several chunks are in flight. The result is bit-identical to allreduces of the same chunks in host
 * memory. --- */

/* Collective; blocks. chunk_bytes, slots: as in struct gn_comm_device. */
enum gn_status gn_stager_create(struct gn_comm *comm, const struct gn_comm_device *options, struct gn_stager **out, struct gn_err *err);
/* Blocks until copies in flight are complete. NULL is fine. */
void gn_stager_destroy(struct gn_stager *s);
/* Appends "staged in 4 pinned slots of 1024 KiB". */
void gn_stager_describe(const struct gn_stager *s, struct gn_strbuf *out);
/* Makes c a staged operation. */
enum gn_status gn_staged_prepare(struct gn_coll *c, struct gn_err *err);

#endif
