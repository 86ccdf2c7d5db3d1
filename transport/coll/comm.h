/* Communicators and collectives over UCX and shared memory.
 *
 * A communicator covers all ranks of a world, or a group of them (gn_comm_split). All its ranks call every collective in the same
 * order with the same sizes.
 *
 * Failures: when a rank is lost, the operations of each group that it is in fail with GN_ERR_PEER_LOST on every other rank of that
 * group, within the world's limits, and no operation of the group can start any more. The text names rank, host, reason and group.
 * Operations of groups without that rank complete, whatever their ranks wait for elsewhere; so does an operation that was complete
 * before the loss was known (but see gn_comm_end_with_world()). The world's communicator, and with it gn_comm_split() and
 * gn_comm_alloc() of it, contains every rank.
 * A rank that was lost because it was stopped, and that continues, may for an instant go on with what it did: do not use buffers of
 * gn_comm_alloc() for another group after an operation with that rank has failed in them.
 * The loss of rank 0, and any other failure (GN_ERR_STALL, GN_ERR_MISMATCH, an operation freed while other ranks run it), ends all
 * groups: they can only be destroyed.
 *
 * Progress is made inside of the calls below, or also by a progress thread between them; blocking calls make progress themselves
 * either way. Without the thread the tail of a message over TCP may stay queued in UCX after its collective has completed, until
 * the next call.
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

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct gn_comm;
struct gn_cost;
struct gn_event;
struct gn_coll;
struct gn_node_map;

struct gn_comm_options {
	const char *transport; /* "auto", "tcp", "shm", "rc", "ud": the allowed transports; sets UCX_TLS unless it is set */
	const char *tuning;    /* tuning table, read on rank 0; NULL: the default of tuning_table.h; "none" */
	const struct gn_cost *cost; /* the same on all ranks; copied; NULL: of the tuning table, or estimated */
	int rails;	       /* at most that many rails; 0: all, see rails.h */
	int strict;	       /* the warnings of lanes_check.c are errors; the same on all ranks */
	const char *progress;  /* "caller" (NULL) or "thread"; may differ between ranks */
};

/* Collective; blocks. options: NULL for defaults; not kept. world and log are borrowed until destroy. Connects neighbours in rank
 * order (other peers connect when an operation needs them) and logs one line: nodes, ranks, devices and transports in use with link
 * rate, and unused devices. Burst parameters of the costs are dropped, because operations follow each other without idle times. */
enum gn_status gn_comm_create(struct gn_world *world, const struct gn_comm_options *options, struct gn_log *log,
			      struct gn_comm **out, struct gn_err *err);
/* Collective over parent, which may itself be a group, and has to outlive the new one. Ranks that give the same color >= 0 form a group,
 * ordered by key, equal keys by their rank in parent; a rank with a negative color gets *out = NULL. name ("data"): at most 31
 * characters, the same on all ranks, for logs and diagnoses, which add the color. Several groups may be in use at once, each with its
 * own order of operations. Fails on all ranks of parent alike. GN_ERR_UNSUPPORTED: too many groups of these ranks exist. */
enum gn_status gn_comm_split(struct gn_comm *parent, int color, int key, const char *name, struct gn_comm **out, struct gn_err *err);
/* Collective over the listed ranks of parent alone: the others do not call it, and may be busy. ranks: `count` different ones, in the order
 * of the new group, the same on all of them. The name as above. Messages go over parent with the tag GN_P2P_TAGS - 1.
 * GN_ERR_USAGE: this rank is not listed; GN_ERR_MISMATCH: the lists differ. */
enum gn_status gn_comm_of_ranks(struct gn_comm *parent, const int *ranks, int count, const char *name, struct gn_comm **out,
				struct gn_err *err);
/* Local, on all ranks of a group before its first operation: the loss of any rank of the world ends this group's operations, too, because those
 * that are left are to leave it. */
void gn_comm_end_with_world(struct gn_comm *c);
/* Local; blocks for at most a second or so. After all operations were freed; of a group, none may be in flight. NULL is fine. */
void gn_comm_destroy(struct gn_comm *c);
/* Local. Takes the device that gn_comm_attach() gave it, after operations on its memory were freed. Without a device: nothing. */
void gn_comm_detach(struct gn_comm *c);
int gn_comm_rank(const struct gn_comm *c);
int gn_comm_size(const struct gn_comm *c);
/* The world's rank of a rank of this group. */
int gn_comm_world_rank(const struct gn_comm *c, int rank);
/* "data[2]"; of the world's communicator "". Borrowed. */
const char *gn_comm_name(const struct gn_comm *c);
struct gn_world *gn_comm_world(const struct gn_comm *c);
/* Local, borrowed: which node each rank is on, and the communication costs in use, the same on all ranks. */
const struct gn_node_map *gn_comm_map(const struct gn_comm *c);
const struct gn_cost *gn_comm_cost(const struct gn_comm *c);
/* Local. Whether all ranks are on one node and share memory, so that collectives send no messages. */
int gn_comm_all_share(const struct gn_comm *c);
/* Payload bytes that this rank has sent since creation, to ranks of its own node and of others. Bytes that other ranks read from
 * shared memory do not count. */
void gn_comm_sent_bytes(const struct gn_comm *c, uint64_t *same_node, uint64_t *other_node);
/* Fills in out[GN_RAILS_MAX] and returns the number of rails. device: as gn_ucx_rail_device(); borrowed. */
struct gn_comm_rail {
	const char *device;
	uint64_t sent_bytes; /* this rank's payload to other nodes on this rail, since creation */
};
int gn_comm_rails(const struct gn_comm *c, struct gn_comm_rail *out);
/* Local. GN_OK; GN_ERR_PEER_LOST if a rank of this group, or rank 0, is lost; another failure of the job. Texts of groups name the group.
 * started_ns: as for gn_world_check_ranks(). Any thread. */
enum gn_status gn_comm_check(const struct gn_comm *c, uint64_t started_ns, struct gn_err *err);
/* Collective; blocks. Whether UCX supports messages in GPU memory on all ranks. */
enum gn_status gn_comm_takes_gpu_memory(struct gn_comm *c, int *yes, struct gn_err *err);
/* Local. Makes progress, on tails of messages, too; nonblocking. Without a progress thread, for a program that may not call for long. */
void gn_comm_poll(struct gn_comm *c);
/* Local. Without a progress thread. Blocks until something in flight may advance, wake_fd is readable, gn_comm_interrupt(), or limit_ns, or
 * less, have passed. woken: not 0, set before gn_comm_interrupt(): does not block. Returns 0 when it cannot block because something has advanced or UCX
 * cannot tell when it will. */
int gn_comm_idle(struct gn_comm *c, const atomic_int *woken, int wake_fd, uint64_t limit_ns);
/* Ends gn_comm_idle() if that waits for shared memory. Any thread. */
void gn_comm_interrupt(const struct gn_comm *c);
/* Local. Appends the lanes to a rank, "posix/memory cma/memory" or "tcp/eth0"; nothing when not connected. */
void gn_comm_lanes(const struct gn_comm *c, int rank, struct gn_strbuf *out);

/* Collective, with the same size and in the same order on all ranks; blocks. Zeroed, page-aligned memory for buffers of
 * collectives. Where the system allows it, the group's ranks on a node share it and read each other's buffers directly, which makes
 * collectives several times faster; elsewhere it is private memory. It serves all groups whose ranks on this node are among those
 * that share it: memory of the world, or of a parent, serves its subgroups. All ranks of an operation pass memory of the same
 * allocation, at the same offset. Free it by gn_comm_free of the same communicator, before that is destroyed. */
enum gn_status gn_comm_alloc(struct gn_comm *c, size_t len_bytes, void **out, struct gn_err *err);
/* Local. After all operations on the memory were freed. Memory NULL is fine, without a communicator, too. */
void gn_comm_free(struct gn_comm *c, void *memory);

/* --- any collective: prepared once, then started and waited for as often as wanted --- */

/* The buffers are the caller's and stay allocated until gn_coll_free. in and out do not overlap unless they are the same, or in is
 * NULL.
 *
 *   collective      count is of       in                    out
 *   allreduce       the buffer        count                 count
 *   broadcast       the buffer        count, root only      count
 *   reduce          the buffer        count                 count, root only
 *   reduce-scatter  one rank's block  size * count          count; in place: size * count, the result is at rank * count,
 *                                                           the rest is overwritten
 *   allgather       one rank's block  count                 size * count; in place: the input is at rank * count
 *   all-to-all      one rank's block  size * count          size * count; never in place
 *                   with counts: -    sum of counts         sum of counts_from: blocks lie one after the other, by rank
 *   barrier         nothing           -                     -
 *
 * An in-place reduction overwrites the buffer of a rank that gets no result; out of place, out may be NULL there. */
enum gn_memory { GN_MEMORY_HOST, GN_MEMORY_DEVICE };

struct gn_coll_args {
	enum gn_collective what;
	const void *in; /* NULL: in place, in out */
	void *out;
	size_t count;
	/* `size` counts each, not kept; NULL: count. Allgather: of each rank. All-to-all: of what this rank sends to each, and gets
	 * from each, in place of count; 0 is allowed. counts_from[r] is counts[this rank] of rank r: a block that is longer than
	 * expected fails the operation on its receiver. */
	const size_t *counts, *counts_from;
	enum gn_dtype type;
	enum gn_reduction reduction;
	gn_reduce_fn reduce;	/* NULL: the built-in one for reduction and type. May run in the progress thread. */
	int root;		/* broadcast, reduce */
	const char *algorithm;	/* a name of gn_algorithms(), or "shared"; NULL or "auto": selected */
	size_t piece_bytes;	/* the slice size of messages; 0: selected */
	enum gn_memory memory;	/* where in and out are; device memory: allreduce in place only, see coll_device.h */
	int priority;		/* operations in flight advance by descending priority */
};

/* What was selected. */
struct gn_coll_info {
	const char *algorithm; /* "none" when there is nothing to do */
	uint32_t pieces, chunks; /* slices per message, chunks per buffer */
	int direct; /* ranks of one node read each other's buffers */
};

/* Local, but with the same arguments and in the same order on all ranks. The first of each length selects an algorithm, which takes
 * some 10 us on 8 ranks and milliseconds on hundreds. The result of a reduction is bit-identical on all ranks, and from run to run
 * for the same number of ranks and algorithm. GN_ERR_USAGE: invalid arguments. */
enum gn_status gn_coll_prepare(struct gn_comm *c, const struct gn_coll_args *args, struct gn_coll **out,
			       struct gn_err *err);
void gn_coll_describe(const struct gn_coll *coll, struct gn_coll_info *out);
/* The basis of a prediction of an allreduce. */
enum gn_coll_source {
	GN_COLL_GUESSED,  /* costs estimated from devices and link rates */
	GN_COLL_MEASURED, /* costs measured by gannet tune */
	GN_COLL_TRIED	  /* and the prediction is scaled by gannet tune's time of this algorithm within a factor of 4 in length */
};
struct gn_coll_forecast {
	double seconds;	    /* with nothing else in flight */
	double processor_s; /* a lower bound of this rank's CPU time in it */
	enum gn_coll_source source;
};
/* Local. Predicts the time by the critical path of the schedule with the costs (select.h), as quickly as a selection; for algorithm
 * "shared" by the rate of reductions. GN_ERR_UNSUPPORTED: not an allreduce. */
enum gn_status gn_coll_predict(const struct gn_coll *coll, struct gn_coll_forecast *out, struct gn_err *err);
/* Nonblocking. Several operations may be in flight, started in the same order on all ranks. after: the operation begins when this is
 * done; NULL: now. Of device memory, an event of its device, which may be recorded again after the call; of host memory it is borrowed
 * until the operation is complete. Operations started later begin after it. GN_ERR_USAGE: the previous run was not completed by a test or
 * wait. */
enum gn_status gn_coll_start(struct gn_coll *coll, const struct gn_event *after, struct gn_err *err);
/* Nonblocking; makes progress unless a thread does. Sets *done when the operation is complete. */
enum gn_status gn_coll_test(struct gn_coll *coll, int *done, struct gn_err *err);
/* Whether the last run is complete; a test or wait has to follow before the next start. Neither makes progress nor reports
 * failures. */
int gn_coll_done(const struct gn_coll *coll);
/* Blocks until the operation is complete. */
enum gn_status gn_coll_wait(struct gn_coll *coll, struct gn_err *err);
/* Local, but in the same order on all ranks, relative to gn_coll_prepare, too. NULL is fine. */
void gn_coll_free(struct gn_coll *coll);
/* Collective; blocks: prepare, start, wait, free. */
enum gn_status gn_comm_run(struct gn_comm *c, const struct gn_coll_args *args, struct gn_err *err);

/* --- shorthands; collective, blocking --- */

enum gn_status gn_comm_barrier(struct gn_comm *c, struct gn_err *err);
enum gn_status gn_comm_broadcast(struct gn_comm *c, void *buffer, size_t len_bytes, int root, struct gn_err *err);
/* In place. reduce NULL: sum of `count` elements of type. */
enum gn_status gn_comm_allreduce(struct gn_comm *c, void *buffer, size_t count, enum gn_dtype type, gn_reduce_fn reduce,
				 struct gn_err *err);
/* gn_coll_prepare() of an allreduce in place. */
enum gn_status gn_coll_allreduce(struct gn_comm *c, void *buffer, size_t count, enum gn_dtype type, gn_reduce_fn reduce,
				 const char *algorithm, struct gn_coll **out, struct gn_err *err);

#endif
