/* The state of a communicator and of its operations, and the calls between the files that implement them: comm.c (create, destroy,
 * shorthands), coll.c (start, progress, free), coll_wait.c (test, wait), coll_prepare.c and coll_select.c (prepare), coll_device.c
 * (device memory), comm_progress.c (progress thread, blocking waits), affinity_report.c.
 *
 * An operation runs by one of the tables of struct gn_coll_ops: it executes a schedule (exec_internal.h), uses the shared
 * memory of one node directly (shm.h), is staged from device memory (staged.c), or a library's (coll_device.h). Around that it holds work memory,
 * what remains to be done at its end, and its place among the operations in flight.
 */
#ifndef GN_TRANSPORT_COLL_COMM_INTERNAL_H
#define GN_TRANSPORT_COLL_COMM_INTERNAL_H

#include "src/base/strbuf.h"
#include "transport/coll/comm.h"
#include "transport/coll/exec_internal.h"
#include "transport/health/recorder.h"
#include "transport/schedule/algo.h"
#include "transport/select/cost.h"
#include "transport/shm/shm.h"
#include "transport/topology/devices.h"
#include "transport/ucx/ucx.h"

#include <stdatomic.h>

struct gn_coll_backend_op;
struct gn_comm_progress;
struct gn_p2p;
struct gn_staged;

/* What gn_comm_split() made. Groups of one split have no rank in common and share a number. */
struct gn_comm_group {
	int number;	/* 1 .. GN_GROUPS - 1 */
	int color;
	int *ranks;	/* world rank of each rank */
	char name[48];	/* "data[2]", for logs and diagnoses */
};

/* What was selected for buffers of one size class. */
struct gn_coll_selection {
	const char *algorithm; /* NULL: nothing yet */
	uint32_t pieces;       /* slices per message; 0: the algorithm itself decides ("shared") */
	int any;	       /* the caller did not name an algorithm */
	size_t piece_bytes;    /* the slice size that the caller asked for; 0: free */
};
#define GN_COLL_SIZES 48 /* size classes: powers of two */

/* A group of ranks. The world's communicator (root) owns the engine: UCX, shared memory, progress, operations in flight, costs.
 * Groups made by gn_comm_split() (comm_split.c) use it; pointers to what it owns are copied into them. */
struct gn_comm {
	struct gn_comm *root;	     /* of the world's communicator, itself */
	struct gn_comm_group *group; /* NULL: the world */
	int rank, size;
	struct gn_world *world;
	struct gn_ucx *ucx;
	struct gn_shm *shm; /* of the group's own ranks on this node; NULL: not available or not requested */
	struct gn_node_map *map;
	struct gn_log *log;
	struct gn_recorder *recorder;	   /* the world's */
	struct gn_comm_progress *progress; /* the progress thread; NULL: callers make progress */
	uint64_t noted_ns;		   /* when the flight recorder last got the rank that an operation waits for */
	struct gn_coll *active;		   /* operations in flight, by descending priority */
	struct gn_coll *waiting;	   /* this communicator's, in the order of their start: those that have not begun */
	struct gn_p2p *unposted;	   /* this communicator's messages that are not posted yet, in the order of their start */
	struct gn_coll_device *device;	   /* NULL: host memory only */
	struct gn_coll *barrier;	   /* prepared at creation */
	int32_t barrier_word;
	uint32_t sequence;
	int failed;			   /* no operation of this group can start any more */
	int broken;			   /* root: no operation of any group can; UCX is abandoned */
	int independent;		   /* root: there are groups, or messages, that a lost rank need not concern */
	int ends_with_world;		   /* any lost rank ends this group */
	unsigned losses;		   /* root: gn_world_losses() that operations in flight have been checked for */
	int unreported_events;	     /* the last progress call had events that the recorder has not seen, see gn_comm_moved() */
	int oversubscribed;	     /* CPUs are oversubscribed (affinity.h): waits give up the CPU */
	char *transport;     /* as requested */
	unsigned char *groups; /* root: which group numbers this rank uses, GN_GROUPS flags; NULL: none so far */
	struct gn_cost cost; /* the same on all ranks */
	struct gn_coll_selection selected[GN_COLLECTIVE_COUNT][GN_COLL_SIZES];
};

/* How an operation runs. The caller holds the communicator; no call blocks but free. */
struct gn_coll_ops {
	const char *name; /* of those for device memory, see gn_comm_device_backend() */
	int takes_event;  /* start follows c->before on the device; else the operation begins when that is done */
	int long_turn;	  /* operations started later begin only after its gn_coll_end_turn() */
	enum gn_status (*start)(struct gn_coll *c, struct gn_err *err);
	/* *moved: any part of it advanced. */
	enum gn_status (*advance)(struct gn_coll *c, int *moved, int *done, struct gn_err *err);
	/* For the flight recorder: the rank that it waits for. NULL: unknown. */
	void (*waits_for)(const struct gn_coll *c, struct gn_exec_wait *out);
	/* As gn_comm_awaits(). NULL: it is polled. */
	void (*transports)(const struct gn_coll *c, int *by_memory, int *by_message);
	void (*free)(struct gn_coll *c);
};
extern const struct gn_coll_ops gn_coll_by_schedule, gn_coll_by_shm, gn_coll_direct, gn_coll_staged, gn_coll_by_library;

struct gn_coll {
	struct gn_comm *comm;
	struct gn_coll *next_active, *next_waiting;
	struct gn_coll_args args;
	struct gn_coll_info info;
	const struct gn_coll_ops *ops;
	/* One of them. */
	struct gn_exec *exec;
	struct gn_shm_op *shared;
	struct gn_staged *staged;
	struct gn_coll_backend_op *library;
	const struct gn_event *before; /* of the present run: it begins when that is done; NULL: at once */
	struct gn_event *ready;	       /* its own, for device memory */
	uint64_t started_ns, ready_ns; /* for device memory; ready_ns 0: not seen ready yet */
	int begun;

	void *work;	     /* the schedule's buffer when the caller's is too small or must be preserved */
	size_t *block_first, *in_first; /* of blocks of different sizes: in the output and, if other there, in the input */
	/* At the end result_count elements are copied from work memory (NULL: no copy) and divided by `divide` (0: no division). */
	const void *result_from;
	void *result;
	size_t result_count;
	int divide;

	struct gn_recorder_op op; /* the signature that all ranks must start alike */
	uint32_t kind;		  /* the recorder's number of that signature */
	uint64_t record;	  /* the recorder's number of the present run; 0: not recorded, as the parts of a staged operation are */
	uint32_t sequence, numbers; /* sequence numbers that a run takes */
	int in_flight, lost; /* lost: it failed because of a lost rank, or a failure of the job */
	int failed_alone; /* the failure is local, so that other ranks do not know of it */
	atomic_int complete, settled; /* settled: complete or failed. Any thread may read both */
	enum gn_status status;
	struct gn_err why;
};

static inline int gn_comm_world_rank_of(const struct gn_comm *c, int rank)
{
	return c->group ? c->group->ranks[rank] : rank;
}

static inline int gn_coll_is_complete(const struct gn_coll *c)
{
	return atomic_load_explicit(&c->complete, memory_order_acquire);
}

/* --- failures (comm_progress.c) --- */

/* Whether something else may go on after a rank of c is lost. */
int gn_comm_goes_on(const struct gn_comm *c);
/* root: ends the operations in flight that depend on a lost rank. losses: gn_world_losses(), before. */
void gn_comm_end_lost(struct gn_comm *root, unsigned losses);
/* No group can go on: UCX may still use memory that is about to be freed. */
void gn_comm_break(struct gn_comm *c);
/* Records the failure of an operation in flight; the first is kept. */
void gn_coll_fail(struct gn_coll *c, enum gn_status status, const struct gn_err *why);

/* What each rank of the parent contributes to a group; has_room: gn_shm_has_room(). */
struct gn_comm_choice {
	int32_t color, key, has_room; /* a negative color: in no group */
};
/* gn_comm_destroy() of a group. */
void gn_comm_group_destroy(struct gn_comm *c);

/* --- operations (coll.c, coll_wait.c, coll_select.c). The caller holds the communicator: gn_comm_enter() below. None blocks but wait. --- */

/* gn_comm_progress() as the callback of gn_world_set_progress(); comm: struct gn_comm. */
void gn_coll_progress(void *comm);
/* Advances every operation in flight. Returns non-zero when there were events. */
unsigned gn_comm_progress(struct gn_comm *c);
/* Whether the recorder is to note progress after a gn_comm_progress() with or without events. The answer lags one call: only the
 * next call tells whether an event was the end of a connection, which is not progress. */
int gn_comm_moved(struct gn_comm *c, int events);
/* How many operations in flight are neither complete nor failed, and whether any of them waits for shared (or GPU) memory, or for
 * messages. */
int gn_comm_awaits(const struct gn_comm *c, int *by_memory, int *by_message);
enum gn_status gn_coll_prepare_inside(struct gn_comm *c, const struct gn_coll_args *args, struct gn_coll **out, struct gn_err *err);
enum gn_status gn_coll_start_inside(struct gn_coll *c, const struct gn_event *after, struct gn_err *err);
/* Of a part of a staged operation. inner_done: after it was done, the part may be started again. */
void gn_coll_start_inner(struct gn_coll *c, uint32_t sequence);
enum gn_status gn_coll_inner_done(struct gn_coll *c, int *done, struct gn_err *err);
/* Of a message: not in the order of collectives. */
enum gn_status gn_coll_start_outside_order(struct gn_coll *c, const struct gn_event *after, struct gn_err *err);
/* Whether it has begun: operations of a communicator begin in the order in which they were started, the same on all ranks. */
int gn_coll_begin(struct gn_coll *c);
/* Of one that has begun; returns non-zero when there were events. */
int gn_coll_advance(struct gn_coll *c);
/* Copies the result from work memory, divides averages, and marks the operation complete. */
void gn_coll_complete(struct gn_coll *c);
void gn_coll_leave_active(struct gn_coll *c);
/* The flight recorder no longer has the operation in flight: after a loss this rank may do other work. */
void gn_coll_end_record(struct gn_coll *c);
/* The next operation of the communicator may begin. */
void gn_coll_end_turn(struct gn_coll *c);
enum gn_status gn_coll_wait_inside(struct gn_coll *c, struct gn_err *err);
void gn_coll_free_inside(struct gn_coll *c);

/* Whether "shared" can do it, as far as the arguments say. */
int gn_coll_has_shared(const struct gn_coll_args *a);
/* Selects algorithm and slices for a buffer of `bytes` bytes: a function of what is the same on all ranks. args->algorithm NULL or
 * "auto": any. GN_ERR_USAGE: unknown algorithm. */
enum gn_status gn_coll_select(struct gn_comm *c, const struct gn_coll_args *args, size_t bytes,
			      struct gn_coll_selection *out, struct gn_err *err);

/* --- progress thread (comm_progress.c) ---
 *
 * A lock keeps the thread and the program apart. The program has priority: while it is inside a call, or about to enter one, the
 * thread leaves the communicator to it, so that a blocking call runs at full speed and no result is handed over between threads.
 * Between calls the thread advances what is in flight, and blocks in an idle wait when nothing can advance. Over TCP incoming data
 * wakes it even with nothing in flight, because the tail of a completed send may still be queued in UCX (gn_ucx_may_queue); early
 * messages of peers are then drained from the sockets.
 *
 * A failure that the thread finds is kept in the operation and returned by the next call on it.
 */

/* c is complete but for c->progress. */
enum gn_status gn_comm_progress_create(struct gn_comm *c, struct gn_comm_progress **out, struct gn_err *err);
/* Joins the thread. NULL is fine. */
void gn_comm_progress_destroy(struct gn_comm_progress *p);
void gn_comm_progress_lock(struct gn_comm_progress *p);
void gn_comm_progress_unlock(struct gn_comm_progress *p);

/* Every call of the program that touches what is in flight stands between these two. No-ops without a progress thread. */
static inline void gn_comm_enter(const struct gn_comm *c)
{
	if (c->root->progress)
		gn_comm_progress_lock(c->root->progress);
}

static inline void gn_comm_leave(const struct gn_comm *c)
{
	if (c->root->progress)
		gn_comm_progress_unlock(c->root->progress);
}

/* --- blocking wait while the CPUs are oversubscribed (comm_progress.c) ---
 *
 * Messages wake the waiter through UCX's event descriptor, writes to shared memory through a futex (the wakeup of shm.h). While
 * both are awaited, the waiter blocks on the descriptor and looks at memory by the clock.
 *
 * sched_yield() is not enough: the scheduler treats a process that yields in a loop like any other and may let it run for the rest
 * of its time slice of milliseconds while the process that it waits for is runnable.
 */
#define GN_IDLE_WAIT_UNTIL_WOKEN UINT64_MAX

struct gn_idle_wait {
	struct gn_shm *shm; /* whose wakeup may be signalled; NULL: none */
	uint32_t wakeup_state;    /* its state when the wait began */
	int fd;		     /* -1: none */
	uint64_t limit_ns;   /* 0: none */
};

/* The caller holds the communicator. Zero: something has advanced, or may have, and the caller must not block; else
 * gn_idle_wait_sleep() has to follow. */
int gn_idle_wait_begin(struct gn_comm *c, struct gn_idle_wait *r);
/* Blocks until an awaited event, limit_ns, wake_fd is readable (-1: none) or gn_idle_wait_interrupt(). */
void gn_idle_wait_sleep(struct gn_idle_wait *r, uint64_t limit_ns, int wake_fd);

/* Compares the transports between nodes over all ranks. A node whose RDMA device is down silently turns a job, or its own part of
 * it, into one over tcp, and the log line at start shows rank 0's transports only.
 *
 * Suspect are ranks that use different transports, an active device that is faster than those in use but unused, and a UCX_TLS that
 * overrides the named transport. Devices selected by the user (UCX_NET_DEVICES) and transports (--transport, UCX_TLS) are not. */

/* Bits: RC or DC; UD; TCP; something is suspect. */
enum gn_lanes_class { GN_LANES_RC = 1, GN_LANES_UD = 2, GN_LANES_TCP = 4, GN_LANES_SUSPECT = 8 };

/* A rank's part of the exchange. */
struct gn_lanes_record {
	int32_t classes;
	char detail[124]; /* "mlx5_0 is down"; "": none */
};

/* The class of one endpoint's lanes; 0: shared memory, or none. */
int gn_lanes_class(const char *lanes);
/* Adds suspect devices to a record whose classes are set. lanes: those to all ranks of other nodes. free_choice: the user has not
 * selected a transport; any_device: nor devices. */
void gn_lanes_judge(const struct gn_devices *devices, const char *lanes, int free_choice, int any_device,
		    struct gn_lanes_record *record);
/* Appends "tcp on n1, n2 and 3 more; n1: mlx5_0 at 100 Gb/s is up and unused". nodes[r] is rank r's node, by any number below
 * ranks. GN_ERR_NO_MEMORY. */
enum gn_status gn_lanes_describe(const struct gn_lanes_record *records, const int *nodes, const char *const *hosts, int ranks,
				 struct gn_strbuf *out, struct gn_err *err);

/* Collective over the bootstrap; blocks. Checks the present connections. transport: as requested. Rank 0 warns, naming hosts; with
 * strict, the same on all ranks, it is GN_ERR_FAILED on all ranks instead. One exchange of four bytes, a second one if anything is
 * suspect. */
enum gn_status gn_lanes_check(struct gn_world *w, const struct gn_ucx *f, const char *transport, int strict, struct gn_log *log,
			      struct gn_err *err);

#endif
