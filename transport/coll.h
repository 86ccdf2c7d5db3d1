/* The one executor: runs any schedule on host buffers over the fabric. Private to comm.c and coll.c.
 *
 * Operations are persistent and nonblocking; several may be in flight, and every call that makes progress makes it for
 * all. A message's tag is (sender, number of the operation, number of the message), so operations never mix as long as
 * all ranks start them in the same order.
 */
#ifndef GN_TRANSPORT_COLL_H
#define GN_TRANSPORT_COLL_H

#include "transport/comm.h"
#include "transport/fabric.h"
#include "transport/node.h"
#include "transport/schedule.h"

struct gn_comm {
	struct gn_world *world;
	struct gn_fabric *fabric;
	struct gn_node *node; /* shared memory of this node's ranks; NULL where there is none, or it was not wanted */
	struct gn_log *log;
	struct gn_coll *active;	 /* those in flight */
	struct gn_coll *barrier; /* kept ready */
	int32_t barrier_word;
	uint32_t sequence;
	int failed;
	char *transport; /* what was asked for */
};

/* A buffer's part in an operation. */
struct gn_coll_buffers {
	const void *in; /* NULL: in place */
	void *out;
	size_t count, element_bytes;
	gn_reduce_fn reduce; /* NULL when the schedule has no reductions */
};

/* Takes the schedule over, also on failure. Connects this rank to the peers that the schedule names. */
enum gn_status gn_coll_create(struct gn_comm *c, struct gn_schedule *schedule, const struct gn_coll_buffers *buffers,
			      const char *name, struct gn_coll **out, struct gn_err *err);
/* An allreduce in the memory that the ranks of the only node share, without a schedule. GN_ERR_UNSUPPORTED when the buffer
 * is not of gn_comm_alloc() and too large for the mail. */
enum gn_status gn_coll_create_shared(struct gn_comm *c, const struct gn_coll_buffers *buffers, const char *name,
				     struct gn_coll **out, struct gn_err *err);

#endif
