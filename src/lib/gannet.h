/* libgannet: Gannet's collectives for any program. Link with `pkg-config --cflags --libs libgannet`.
 *
 *     gannet_group *world;
 *     if (gannet_init(NULL, &world))
 *             return fprintf(stderr, "%s\n", gannet_error()), 1;
 *     gannet_allreduce(world, NULL, data, count, GANNET_F32, GANNET_SUM);
 *     gannet_finalize();
 *
 * The ranks are processes that srun (--mpi=pmix), mpirun, `gannet launch`, `gannet exec` or torchrun has started, or that have RANK,
 * WORLD_SIZE, MASTER_ADDR and MASTER_PORT in their environment; without any of these a process is a world of one rank.
 *
 * Every function that can fail returns a gannet_status and, in this thread, sets the text of gannet_error(): one sentence with rank, host
 * and what to do. Outputs are written only on success.
 *
 * Ranks that die, hang or lose their link are found within seconds (GANNET_HEARTBEAT_TIMEOUT). From then on every operation of each
 * group that the rank is in returns GANNET_PEER_LOST on all other ranks of the group, operations in flight included; other groups go on.
 *
 * Thread safety: one thread at a time, of each process, in all functions but gannet_error(), gannet_version(), gannet_wake() and those of
 * the rank and size, which are for any. One world a process; after gannet_finalize() there is no second one.
 *
 * Stability: within a major version functions, constants and layouts stay as they are; structures with size_bytes grow at their end. */
#ifndef GANNET_H
#define GANNET_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define GANNET_ABI 0

typedef enum gannet_status {
	GANNET_OK = 0,
	GANNET_FAILED = -1,
	GANNET_USAGE = -2,	  /* invalid arguments or variables */
	GANNET_PEER_LOST = -4,	  /* a rank died, hangs, or cannot be reached */
	GANNET_NO_MEMORY = -6,
	GANNET_IO = -7,
	GANNET_UNSUPPORTED = -10,
	GANNET_MISMATCH = -11,	  /* ranks called different operations, or with different sizes */
	GANNET_STALL = -12	  /* all ranks are alive and none goes on */
} gannet_status;

typedef struct gannet_group gannet_group; /* ranks that communicate: the world, or a part of it */
typedef struct gannet_op gannet_op;	  /* a prepared operation */

/* The text of this thread's last failure; "" before the first. Valid until the next call in this thread. */
const char *gannet_error(void);
/* "1.2.3". */
const char *gannet_version(void);

/* --- start and end --- */

typedef struct gannet_options {
	size_t size_bytes;	/* sizeof(gannet_options) */
	const char *transport;	/* "auto" (NULL), "tcp", "shm", "rc", "ud": what UCX may use */
	const char *log_level;	/* "error", "warn" (NULL, and GANNET_LOG is unset), "info", "debug": lines on standard error */
	const char *ifnames;	/* interfaces for start and heartbeats, as NCCL_SOCKET_IFNAME; NULL: GANNET_SOCKET_IFNAME, else all */
	/* "HOST:PORT", where rank 0 listens while the others join, with rank and size, for a program that knows them; NULL: as the
	 * launcher says */
	const char *rendezvous;
	int rank, size;
	int idle_s; /* so long may a rank do something else while others wait for it in an operation, until they get GANNET_STALL; 0: 1800 */
	int keep_going;		/* a lost rank ends operations of its groups only; the same on all ranks */
} gannet_options;

/* Collective; blocks until all ranks have joined (GANNET_JOIN_TIMEOUT). options NULL: defaults. */
gannet_status gannet_init(const gannet_options *options, gannet_group **world);
/* Collective; waits for the other ranks, after a loss only with keep_going. Frees what was not freed: groups, operations, memory. */
void gannet_finalize(void);

/* Nonblocking; makes progress on all that is in flight, and on the tails of messages over tcp, which may outlive their operation: for a
 * program that does not call for long otherwise. */
void gannet_progress(void);

/* For a thread that drives several operations by gannet_test(), when none has advanced. Blocks until one may, gannet_wake(), or timeout_ms
 * (> 0) have passed, or less. Returns 0, without blocking, when it cannot wait: call gannet_progress() or gannet_test(), and again. */
int gannet_idle(int timeout_ms);
/* Ends gannet_idle(), or else the next one. Any thread; not during gannet_init() or gannet_finalize(). */
void gannet_wake(void);

/* Of the calling process in the group. */
int gannet_rank(const gannet_group *group);
int gannet_size(const gannet_group *group);
/* Among the processes of this host, whatever the group. */
int gannet_local_rank(const gannet_group *group);
int gannet_local_size(const gannet_group *group);
/* The host of a rank of the group; NULL for a rank that is none. Valid until gannet_finalize(). */
const char *gannet_host(const gannet_group *group, int rank);

/* Collective over parent: ranks with the same color >= 0 form a group, ordered by key, then by rank in parent; those with a negative
 * color get NULL. name: at most 31 characters, the same on all ranks, for error texts. parent outlives the new group. */
gannet_status gannet_split(gannet_group *parent, int color, int key, const char *name, gannet_group **group);
/* Collective over the listed ranks of parent alone, `count` different ones in the order of the new group; the list is the same on all. */
gannet_status gannet_group_of(gannet_group *parent, const int *ranks, int count, const char *name, gannet_group **group);
/* Local, when no operation of the group is left. Not for the world. NULL is fine. */
void gannet_group_free(gannet_group *group);

/* --- memory that the ranks of a node reach directly: operations in it are several times faster --- */

/* Collective, with the same size on all ranks; blocks. Zeroed and page-aligned. All ranks of an operation pass memory of the same
 * allocation at the same offset, or none does. */
gannet_status gannet_alloc(gannet_group *group, size_t len_bytes, void **memory);
/* Local, after operations on it were freed. NULL is fine. */
void gannet_release(gannet_group *group, void *memory);

/* --- collectives: all ranks of a group call them in the same order with the same arguments, pointers apart --- */

typedef enum gannet_type { GANNET_F32, GANNET_F64, GANNET_I32, GANNET_I64, GANNET_BYTES, GANNET_F16, GANNET_BF16 } gannet_type;
/* Sums of 16-bit types are rounded after each addition, which is made in f32. Bytes have none. GANNET_AVERAGE: the sum divided by the
 * number of ranks; integers round toward zero. */
typedef enum gannet_reduction { GANNET_SUM, GANNET_MAX, GANNET_MIN, GANNET_AVERAGE } gannet_reduction;
/* acc[i] = acc[i] op in[i] for count elements; associative and commutative up to rounding. May be called from another thread. */
typedef void (*gannet_reduce_fn)(void *acc, const void *in, size_t count);

typedef enum gannet_collective {
	GANNET_ALLREDUCE,      /* in, out: count */
	GANNET_REDUCE_SCATTER, /* in: size * count, out: count (in place: out has size * count, the result is at rank * count) */
	GANNET_ALLGATHER,      /* in: count (in place: at rank * count of out), out: size * count; with counts: counts[r] of rank r */
	GANNET_BROADCAST,      /* out: count; in place only */
	GANNET_REDUCE,	       /* in: count, out: count on the root, and may be NULL elsewhere */
	GANNET_BARRIER,	       /* no data */
	GANNET_ALL_TO_ALL      /* in, out: size * count; with counts: counts[r] to r, counts_from[r] from r, one after the other */
} gannet_collective;

typedef struct gannet_args {
	size_t size_bytes; /* sizeof(gannet_args) */
	gannet_collective what;
	const void *in; /* NULL: in place, in out. Otherwise in and out do not overlap. */
	void *out;
	size_t count;			   /* elements, as above */
	const size_t *counts, *counts_from; /* `size` each, or NULL; read during the call only */
	gannet_type type;
	gannet_reduction reduction;
	gannet_reduce_fn reduce; /* NULL: of type and reduction */
	int root;
	int priority; /* operations in flight advance by descending priority */
} gannet_args;

/* Collective; blocks until this rank's part is done. */
gannet_status gannet_run(gannet_group *group, const gannet_args *args);
/* A prepared operation is started as often as wanted; buffers stay allocated until gannet_op_free(). Local, but in the same order on all
 * ranks. */
gannet_status gannet_prepare(gannet_group *group, const gannet_args *args, gannet_op **op);
/* Nonblocking. Several operations may be in flight, started in the same order on all ranks. GANNET_USAGE: the last run is not done. */
gannet_status gannet_start(gannet_op *op);
/* Nonblocking; makes progress. *done: the operation is complete. */
gannet_status gannet_test(gannet_op *op, int *done);
/* Blocks until it is complete. */
gannet_status gannet_wait(gannet_op *op);
/* Local, but in the same order on all ranks. Freeing an operation in flight fails the group. NULL is fine. */
void gannet_op_free(gannet_op *op);

/* Shorthands of gannet_run(). in NULL: in place. */
gannet_status gannet_allreduce(gannet_group *group, const void *in, void *out, size_t count, gannet_type type, gannet_reduction reduction);
gannet_status gannet_broadcast(gannet_group *group, void *data, size_t count, gannet_type type, int root);
gannet_status gannet_allgather(gannet_group *group, const void *in, void *out, size_t count, gannet_type type);
gannet_status gannet_reduce_scatter(gannet_group *group, const void *in, void *out, size_t count, gannet_type type,
				    gannet_reduction reduction);
gannet_status gannet_barrier(gannet_group *group);

/* --- point to point: a message of exactly len_bytes, matched by sender and tag (below GANNET_TAGS) --- */

#define GANNET_TAGS ((1u << 20) - 1)
/* A peer of receives: the first message with the tag that arrives, of any other rank of the group. */
#define GANNET_ANY_SOURCE (-1)

/* The operations are those above: start, test, wait, free. They take no part in the order of collectives. */
gannet_status gannet_prepare_send(gannet_group *group, int peer, uint32_t tag, const void *data, size_t len_bytes, gannet_op **op);
gannet_status gannet_prepare_receive(gannet_group *group, int peer, uint32_t tag, void *data, size_t len_bytes, gannet_op **op);
/* The rank in the group that sent the message of a completed receive, or that the operation names; GANNET_ANY_SOURCE: not known yet, or the
 * operation is a collective. */
int gannet_op_peer(const gannet_op *op);
/* Block. */
gannet_status gannet_send(gannet_group *group, int peer, uint32_t tag, const void *data, size_t len_bytes);
gannet_status gannet_receive(gannet_group *group, int peer, uint32_t tag, void *data, size_t len_bytes);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
