/* A group of ranks that can do collectives over UCX.
 *
 * Created over all of a world. Every collective must be called by all ranks in the same order with the same sizes. A call
 * that waits also watches the world: it returns GN_ERR_PEER_LOST on every surviving rank rather than wait for a dead peer.
 * After a failure the communicator can only be destroyed.
 *
 * Progress is made by the caller, inside of the calls below, or also by a thread of the communicator's while the caller is
 * elsewhere; calls that wait do the work themselves either way. Without the thread, the end of a message over TCP for which
 * the socket had no room when its collective was done leaves with the next call.
 *
 * Thread safety: one thread at a time; gn_coll_done from any.
 */
#ifndef GN_TRANSPORT_COLL_COMM_H
#define GN_TRANSPORT_COLL_COMM_H

#include "src/base/log.h"
#include "src/base/strbuf.h"
#include "transport/topology/rails.h"
#include "transport/schedule/types.h"
#include "transport/bootstrap/world.h"

#include <stddef.h>
#include <stdint.h>

struct gn_comm;
struct gn_cost;
struct gn_reduce_executor;
struct gn_coll;
struct gn_shm_map;

struct gn_comm_options {
	const char *transport; /* "auto", "tcp", "shm", "rc", "ud": what may carry data; becomes UCX_TLS unless set */
	const char *tuning;    /* file of gannet tune, on rank 0; NULL: where tuning.h says; "none" */
	const struct gn_cost *cost; /* instead of a table's, alike on all ranks; NULL: the table's. Not kept. */
	int rails;	       /* network devices to use side by side at most; 0: all equal ones, see rails.h */
	int strict;	       /* what lanes_check.h warns of is an error; alike on all ranks */
	const char *progress;  /* "caller" (NULL), or "thread"; each rank as it likes */
};

/* Collective. Connects all pairs that the schedules need and logs one line: nodes, ranks, devices and transports in use with
 * link rate, and what was left unused. */
enum gn_status gn_comm_create(struct gn_world *world, const struct gn_comm_options *options, struct gn_log *log,
			      struct gn_comm **out, struct gn_err *err);
void gn_comm_destroy(struct gn_comm *c);
int gn_comm_rank(const struct gn_comm *c);
int gn_comm_size(const struct gn_comm *c);
struct gn_world *gn_comm_world(const struct gn_comm *c);
/* Local, borrowed: which node each rank is on, and the communication costs in use, the same on all ranks (without bursts: see
 * gn_comm_create). */
const struct gn_shm_map *gn_comm_map(const struct gn_comm *c);
const struct gn_cost *gn_comm_cost(const struct gn_comm *c);
/* Local. Whether all ranks are on one node and share memory, so that collectives send no messages. */
int gn_comm_all_share(const struct gn_comm *c);
/* Payload bytes that this rank has sent since creation, to ranks of its own node and to others. What neighbours read
 * straight from its memory does not count. */
void gn_comm_sent_bytes(const struct gn_comm *c, uint64_t *same_node, uint64_t *other_node);
/* Fills in out[GN_RAILS_MAX] and returns how many. device is borrowed, as gn_ucx_rail_device says. */
struct gn_comm_rail {
	const char *device;
	uint64_t sent_bytes; /* this rank's payload to other nodes by it, since creation */
};
int gn_comm_rails(const struct gn_comm *c, struct gn_comm_rail *out);
/* Collective. Whether messages of all ranks may lie in GPUs' memory. */
enum gn_status gn_comm_takes_gpu_memory(struct gn_comm *c, int *yes, struct gn_err *err);
/* Appends what carries data to a rank, "posix/memory cma/memory" or "tcp/eth0"; nothing when there is no connection. */
void gn_comm_lanes(const struct gn_comm *c, int rank, struct gn_strbuf *out);

/* Collective, with the same size and in the same order on all ranks. Zeroed memory, page-aligned, for buffers of collectives:
 * where the system allows it, ranks of one node reach each other's directly, which makes collectives on it several times
 * faster. Elsewhere it is memory like any other. Freed by gn_comm_free, before the communicator. */
enum gn_status gn_comm_alloc(struct gn_comm *c, size_t len_bytes, void **out, struct gn_err *err);
/* Local; no collective on the memory may be in flight or be kept. NULL is fine. */
void gn_comm_free(struct gn_comm *c, void *memory);

/* --- any collective: prepared once, then started and waited for as often as wanted --- */

/* Buffers are kept by the caller until gn_coll_free. in and out do not overlap unless they are the same, or in is NULL.
 *
 *   collective      count is of       in                    out
 *   allreduce       the buffer        count                 count
 *   broadcast       the buffer        count, root only      count
 *   reduce          the buffer        count                 count, root only
 *   reduce-scatter  one rank's block  size * count          count; in place: size * count, the block ends up at its place
 *                                                           (rank * count), the rest is used up
 *   allgather       one rank's block  count                 size * count; in place: the block stands at its place
 *   all-to-all      one rank's block  size * count          size * count; never in place
 *   send-recv       the message       count, to rank `to`   count, from rank `from`; either -1: none
 *   barrier         nothing           -                     -
 *
 * Reductions in place use up the buffer of a rank that gets no result; a NULL out there is fine out of place. */
struct gn_coll_args {
	enum gn_collective what;
	const void *in; /* NULL: in place, in out */
	void *out;
	size_t count;
	const size_t *counts; /* allgather: each rank's own count, `size` of them, read during preparation; NULL: count */
	enum gn_dtype type;
	enum gn_reduction reduction;
	gn_reduce_fn reduce;	/* instead of the built-in one for reduction and type; NULL: that. May run in the thread that
				 * makes progress. */
	int root;		/* broadcast, reduce */
	int to, from;		/* send-recv */
	const char *algorithm;	/* by name, as gn_algorithms() and "shared"; NULL or "auto": chosen */
	size_t piece_bytes;	/* into what its messages are cut; 0: chosen */
	struct gn_reduce_executor *memory; /* where out lies, borrowed, see memory.h: allreduces in place alone; NULL: the host's */
	int priority;		/* of several in flight, those with the highest go on first */
};

/* What was chosen. */
struct gn_coll_info {
	const char *algorithm; /* "none" when there is nothing to do */
	uint32_t pieces, chunks;
	int direct; /* ranks of one node reach each other's buffers */
};

/* Local, but alike on all ranks and in the same order. The result of a reduction is bit-identical on all ranks, and from run
 * to run for the same number of ranks and algorithm. GN_ERR_USAGE: arguments that make no sense. */
enum gn_status gn_coll_prepare(struct gn_comm *c, const struct gn_coll_args *args, struct gn_coll **out,
			       struct gn_err *err);
void gn_coll_describe(const struct gn_coll *coll, struct gn_coll_info *out);
/* What is known of an allreduce before it runs. */
enum gn_coll_source {
	GN_COLL_GUESSED,  /* costs are a guess from devices and link rates */
	GN_COLL_MEASURED, /* gannet tune measured the costs, and the schedule is simulated with them */
	GN_COLL_TRIED	  /* and timed this algorithm on a quarter of this length to four times it: the simulation is scaled by that */
};
struct gn_coll_forecast {
	double seconds;	    /* when nothing else is under way */
	double processor_s; /* of it, at least, what this rank's processors copy, sum and do for messages */
	enum gn_coll_source source;
};
/* For the algorithm shared: what a rank reads, sums and writes at the rate that it sums, all of it its processor's time. May take
 * milliseconds; local. GN_ERR_UNSUPPORTED: no allreduce. */
enum gn_status gn_coll_predict(const struct gn_coll *coll, struct gn_coll_forecast *out, struct gn_err *err);
/* Several may be in flight, started in the same order everywhere. */
enum gn_status gn_coll_start(struct gn_coll *coll, struct gn_err *err);
/* *done says whether this operation is complete. Makes progress, unless a thread does. Does not block. */
enum gn_status gn_coll_test(struct gn_coll *coll, int *done, struct gn_err *err);
/* Whether the last run is complete, or will be seen to be by the next test or wait, which has to come before another start.
 * Neither makes progress nor finds failures. */
int gn_coll_done(const struct gn_coll *coll);
enum gn_status gn_coll_wait(struct gn_coll *coll, struct gn_err *err);
/* Local, but in the same order on all ranks, also as to gn_coll_prepare. NULL is fine. */
void gn_coll_free(struct gn_coll *coll);
/* Prepare, start, wait, free. */
enum gn_status gn_comm_run(struct gn_comm *c, const struct gn_coll_args *args, struct gn_err *err);

/* --- shorthands --- */

enum gn_status gn_comm_barrier(struct gn_comm *c, struct gn_err *err);
enum gn_status gn_comm_broadcast(struct gn_comm *c, void *buffer, size_t len_bytes, int root, struct gn_err *err);
/* In place, sum of count elements unless another reduction is given (NULL: sum of type). */
enum gn_status gn_comm_allreduce(struct gn_comm *c, void *buffer, size_t count, enum gn_dtype type, gn_reduce_fn reduce,
				 struct gn_err *err);
/* A prepared allreduce in place. */
enum gn_status gn_coll_allreduce(struct gn_comm *c, void *buffer, size_t count, enum gn_dtype type, gn_reduce_fn reduce,
				 const char *algorithm, struct gn_coll **out, struct gn_err *err);

#endif
