/* The executor: runs any schedule on buffers in host memory, or in memory of the communicator's device (coll_device_internal.h).
 * Messages go over UCX, or, between ranks of one node with buffers in shared memory, are read from the sender's buffer in place
 * (shm.h).
 *
 * Persistent: created once, run any number of times, one run at a time. No call blocks. The tag of a message consists of sender,
 * run number and message number, mixed with a signature of the operation: messages of different operations never match as long as
 * all ranks number their runs alike.
 *
 * Files: exec_create.c (and steps in device memory), exec.c (runs, steps in shared memory).
 *
 * Thread safety: one thread at a time for all executors of one struct gn_ucx.
 */
#ifndef GN_TRANSPORT_COLL_EXEC_INTERNAL_H
#define GN_TRANSPORT_COLL_EXEC_INTERNAL_H

#include "src/device/device.h"
#include "transport/schedule/schedule.h"
#include "transport/schedule/types.h"
#include "transport/shm/shm.h"
#include "transport/ucx/ucx.h"

struct gn_exec;
struct gn_coll_device;

struct gn_exec_buffers {
	const void *in; /* NULL: in place */
	size_t in_shift_bytes; /* the offset of `in` in the whole buffer: an allgather's input is one block */
	void *out;
	size_t count, element_bytes;
	/* NULL: chunks divide `count` evenly. Else the first element of each block, and the total last: chunks divide each block
	 * into the same number of slices. Borrowed until destroy. */
	const size_t *block_first;
	const size_t *in_first; /* the same of `in`, if its blocks are others than those of out; NULL: block_first. Borrowed, too. */
	uint32_t blocks;
	gn_reduce_fn reduce; /* NULL: the schedule has no reductions */
	/* Borrowed. Reduces and copies instead of the host, because the buffers are in its memory; without shm flags. NULL: host
	 * memory. */
	struct gn_coll_device *device;
	enum gn_dtype type;
	enum gn_reduction reduction;
};

struct gn_exec_where {
	struct gn_world *world;
	struct gn_ucx *ucx;
	struct gn_shm_flags *flags; /* ownership passes to the executor; NULL: messages only */
	const char *name;	    /* of the operation, for errors; borrowed until destroy */
	uint64_t signature; /* mixed into tags: messages of ranks that run different operations never match */
	int group;	    /* number of the group */
	const int *ranks;   /* world rank of each rank in the schedule, borrowed until destroy; NULL: identity */
};

/* Local. Takes ownership of schedule and flags, also on failure. Connects to the peers in the schedule. */
enum gn_status gn_exec_create(const struct gn_exec_where *where, struct gn_schedule *schedule,
			      const struct gn_exec_buffers *buffers, struct gn_exec **out, struct gn_err *err);
/* During a run messages may still arrive in its buffers: call gn_exec_release_messages() or gn_ucx_abandon() before. NULL is fine.
 * */
void gn_exec_destroy(struct gn_exec *e);

/* comm_progress.c. Fails the run with why, of a lost rank, and cancels its receives. Does not block. */
void gn_exec_cancel(struct gn_exec *e, const struct gn_err *why);
/* After that: blocks until no message touches the buffers, for less than a second unless one is partly through, five seconds at
 * most. What UCX cannot cancel is left to it. 0: a message to or from a living rank is still under way; only gn_ucx_abandon() can
 * follow. */
int gn_exec_release_messages(struct gn_exec *e);

void gn_exec_start(struct gn_exec *e, uint32_t sequence);
/* Advances the run by what has arrived; call gn_ucx_progress() in between. Returns non-zero when any step advanced. */
int gn_exec_advance(struct gn_exec *e);
int gn_exec_done(const struct gn_exec *e);
/* Whether the failure is local, so that other ranks do not know of it. */
int gn_exec_failed_alone(const struct gn_exec *e);
/* Whether any steps use shared memory (or a device, which has to be polled, too), and any use messages. */
void gn_exec_transports(const struct gn_exec *e, int *by_memory, int *by_message);
/* GN_OK, or the first failure of the run. */
enum gn_status gn_exec_check(const struct gn_exec *e, struct gn_err *err);

/* What a run waits for: the first posted receive that is not complete, else a send, and the number of steps left. peer -1:
 * neither. */
struct gn_exec_wait {
	int peer, sends;
	int rail; /* as gn_ucx_blocking_rail() */
	uint32_t message;
	size_t steps_left, steps;
};
void gn_exec_waits_for(const struct gn_exec *e, struct gn_exec_wait *out);

/* --- state, shared by exec*.c --- */

/* Bits of a tag. */
/* The 64 bits of a UCX tag, from high to low: world rank of the sender (20), number of the group (10), number of the operation within
 * the group (14), number of the message within the operation (20); all of it is mixed with the operation's signature.
 *
 * The last operation number is that of messages between two ranks (p2p.h): their message number is the caller's tag, and a constant takes
 * the place of the signature.
 *
 * Group numbers are those of existing groups; groups that share a number share no rank. Operation numbers wrap before the
 * last one. Two operations of a group with the same number after a wrap have equal tags only if they are
 * alike (signature). Their messages from one sender then take the same rail and endpoint, and receives are posted in the order of the
 * operations. UCX matches equal tags of one sender in order, so a wrapped number cannot take another operation's message. Message
 * numbers do not wrap: a schedule with more is refused. */
#define GN_MESSAGE_BITS 20
#define GN_SEQUENCE_BITS 14
#define GN_GROUP_BITS 10
#define GN_GROUPS (1 << GN_GROUP_BITS)
#define GN_SEQUENCES ((1u << GN_SEQUENCE_BITS) - 1)
#define GN_P2P_SIGNATURE UINT64_C(0x9e3779b97f4a7c15)

static inline uint64_t gn_coll_tag(int sender, int group, uint32_t sequence, uint32_t message)
{
	return (((uint64_t)sender << GN_GROUP_BITS | (uint64_t)group) << GN_SEQUENCE_BITS | sequence) << GN_MESSAGE_BITS | message;
}

static inline uint64_t gn_p2p_tag(int sender, int group, uint32_t tag)
{
	return gn_coll_tag(sender, group, GN_SEQUENCES, tag) ^ GN_P2P_SIGNATURE;
}

/* Those bits of a tag that say the sender, and the sender of such a tag. */
#define GN_SENDER_BITS (~UINT64_C(0) << (GN_GROUP_BITS + GN_SEQUENCE_BITS + GN_MESSAGE_BITS))

static inline int gn_p2p_sender(uint64_t tag)
{
	return (int)((tag ^ GN_P2P_SIGNATURE) >> (GN_GROUP_BITS + GN_SEQUENCE_BITS + GN_MESSAGE_BITS));
}

struct gn_step_state {
	struct gn_ucx_request request; /* first member: completion casts it to the step */
	struct gn_exec *exec;
	size_t offset, len; /* bytes of the buffer */
	size_t in_offset;   /* of a step that reads the input: there */
	uint32_t index, missing, slot;
	int16_t shm_peer; /* gn_shm_flags_peer(); -1: the step uses a message */
	uint8_t arrived, posted, done; /* arrived: in a scratch slot, not reduced yet */
};

struct gn_exec {
	struct gn_world *world;
	struct gn_ucx *ucx;
	struct gn_shm_flags *flags;
	const char *name;
	int group;
	const int *ranks;
	uint64_t signature;
	struct gn_schedule *schedule;
	const struct gn_step *steps;
	size_t step_count;
	struct gn_exec_buffers buffers;

	struct gn_step_state *states;
	uint32_t *dependents, *first_dependent; /* step i's dependents begin at first_dependent[i] */
	uint32_t *reductions;			/* RECV_REDUCE steps in order */
	size_t reduction_count;
	uint32_t *queue;     /* steps whose dependencies are met */
	uint32_t *completed; /* steps whose message is complete */
	uint32_t *polled;    /* steps that wait for a flag in shared memory */
	char *scratch;	     /* slots for messages that arrive before they can be reduced */
	size_t slot_bytes;
	struct gn_exec_work *works; /* queued on the device, oldest first */
	struct gn_buffer device_scratch;

	int by_memory, by_message; /* see gn_exec_transports() */
	uint32_t sequence;
	size_t remaining, next_reduction, queue_head, queue_tail, completed_count, polled_count, work_head, work_tail;
	uint32_t free_slots[GN_SLOTS_MAX], free_count, slot_count;
	enum gn_status status;
	struct gn_err why;
	int failed_alone;
	uint64_t cancelled_ns; /* when gn_exec_cancel() was called; 0: it was not */
};

/* A step's work on the device: complete when the mark is reached. */
struct gn_exec_work {
	uint64_t mark;
	uint32_t index;
};

/* Queues the step's reduction or copy from `from` (the message, or the input), or fails the run. */
void gn_exec_queue_work(struct gn_exec *e, uint32_t index, const void *from);
/* Sets *index to the step of the oldest work, if that is complete; returns 0 if not. */
int gn_exec_take_work(struct gn_exec *e, uint32_t *index);
/* Fails the run; the first failure is kept. */
void gn_exec_fail(struct gn_exec *e, enum gn_status status, const struct gn_err *why);

#define GN_NO_SLOT UINT32_MAX

static inline char *gn_exec_output(const struct gn_exec *e, const struct gn_step_state *s)
{
	return (char *)e->buffers.out + s->offset;
}

static inline char *gn_exec_slot_of(const struct gn_exec *e, const struct gn_step_state *s)
{
	return e->scratch + s->slot * e->slot_bytes;
}

/* Completion callback of a step's message. */
void gn_exec_message_done(struct gn_ucx_request *r);

static inline int gn_exec_world_rank(const struct gn_exec *e, int rank)
{
	return e->ranks ? e->ranks[rank] : rank;
}

#endif
