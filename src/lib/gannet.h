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

/* --- images: what gannet pack wrote, and the batches of gannet train; without gannet_init() ---
 *
 * Nothing here is collective. Thread safety: gannet_dataset_read(), and what only tells of a dataset, any thread; else one thread at a time of
 * each dataset and of each loader. A fork() has no loader threads: open in the new process. */

typedef struct gannet_dataset gannet_dataset;
typedef struct gannet_loader gannet_loader;

/* key_file: of an encrypted dataset, else NULL. Blocks on the file system. */
gannet_status gannet_dataset_open(const char *folder, const char *key_file, gannet_dataset **dataset);
/* After its loaders. NULL is fine. */
void gannet_dataset_close(gannet_dataset *dataset);
/* As gannet train --stage: copies to this folder of the node's own disk meanwhile, and reads from the copy what is there. Any process of a node
 * may ask for it, one copies; that which tells logs how it goes. Ends with the dataset. */
gannet_status gannet_dataset_stage(gannet_dataset *dataset, const char *folder, int tells);
uint64_t gannet_dataset_count(const gannet_dataset *dataset);
/* SHA-256 over its contents, in hexadecimal. Borrowed. */
const char *gannet_dataset_digest(const gannet_dataset *dataset);
/* NULL behind the last class. Borrowed. */
const char *gannet_dataset_class(const gannet_dataset *dataset, int label);
/* Of an image; -1: there is none of that number. */
int gannet_dataset_label(const gannet_dataset *dataset, uint64_t index);
/* Room for any of its images in gannet_dataset_read(). */
size_t gannet_dataset_max_bytes(const gannet_dataset *dataset);
/* An image as a JPEG file, whose checksum is right. Blocks on the file system. */
gannet_status gannet_dataset_read(const gannet_dataset *dataset, uint64_t index, void *buffer, size_t *len_bytes);

typedef struct gannet_loader_options {
	size_t size_bytes;	  /* sizeof(gannet_loader_options) */
	const char *const *words; /* options of gannet train for images, such as "--side=160" and "--mixup=0.2", ending with NULL; NULL: none */
	int rank, size, batch;	  /* size 0: 1. batch: of each rank */
	int evaluates;		  /* as gannet eval: every image once, in order, the centre of it */
	int in_order, keeps_last; /* without evaluates: not permuted; with an incomplete last batch, which ranks share */
	int threads;		  /* that read and decode; 0: 2 */
	size_t prefetch_bytes;	  /* for batches; at least three are there; 0: 32 MiB for each thread */
	gannet_type type;	  /* GANNET_F32 or GANNET_BF16: normalised; GANNET_BYTES: 0..255 */
	int channels_last;	  /* [batch][height][width][channels], else [batch][channels][height][width] */
} gannet_loader_options;

/* The dataset outlives the loader. */
gannet_status gannet_loader_open(gannet_dataset *dataset, const gannet_loader_options *options, gannet_loader **loader);
/* Ends its threads. NULL is fine. */
void gannet_loader_close(gannet_loader *loader);

typedef struct gannet_loader_facts {
	size_t size_bytes;	/* sizeof(gannet_loader_facts), of the caller */
	uint64_t batches;	/* of this rank in a whole epoch, the same on all ranks */
	size_t batch_bytes;	/* of images */
	int slots;		/* batches in memory */
	int channels, height, width, mixes; /* mixes: batches have pair_labels and lambdas */
} gannet_loader_facts;

gannet_status gannet_loader_shape(const gannet_loader *loader, gannet_loader_facts *facts);
/* Before the first start, for every slot or for none: memory of the caller's (batch_bytes, aligned to 64) for images. It stays there until
 * gannet_loader_next() returns it, or the loader is closed. */
void gannet_loader_lend(gannet_loader *loader, int slot, void *memory);
/* Begins an epoch, behind its first samples_done samples of all ranks. Drops what is in flight. */
gannet_status gannet_loader_start(gannet_loader *loader, uint32_t epoch, uint64_t samples_done);

typedef struct gannet_batch {
	size_t size_bytes;	  /* sizeof(gannet_batch), of the caller */
	void *images;		  /* NULL: the epoch is over */
	const int32_t *labels;	  /* [batch]; -1 past count */
	const int32_t *pair_labels; /* [batch] with mixup or cutmix, else NULL: of the other image */
	const float *lambdas;	  /* [batch] with these: the weight of labels, 0..1 */
	const uint64_t *indices;  /* [batch] in the dataset */
	int count;		  /* images that are there, at most batch; 0 to batch in a last batch that ranks share */
	double wait_s;		  /* that this call blocked */
} gannet_batch;

/* Blocks until the next batch is there, which is valid until the next call. memory: with lent slots, takes the place of images, which are the
 * caller's then; else NULL. An image that is damaged is GANNET_FAILED, with its name; the next call returns the batch behind it. */
gannet_status gannet_loader_next(gannet_loader *loader, void *memory, gannet_batch *batch);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
