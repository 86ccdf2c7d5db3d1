/* The one executor: runs any schedule on host buffers, or others (memory.h), by messages over the fabric, or between ranks of
 * one node straight from the sender's memory where the buffer is shared (lane.h). Private to coll*.c.
 *
 * Persistent: created once, run as often as wanted, one run at a time. Nothing blocks. A message's tag is (sender, number of
 * the run, number of the message), mixed with a signature of the operation, so operations never mix as long as all ranks number
 * their runs alike.
 *
 * Thread safety: one thread at a time, with all executions on one fabric.
 */
#ifndef GN_TRANSPORT_COLL_EXEC_INTERNAL_H
#define GN_TRANSPORT_COLL_EXEC_INTERNAL_H

#include "transport/ucx/ucx.h"
#include "transport/shm/shm_flags.h"
#include "transport/coll/reduce_executor.h"
#include "transport/schedule/schedule.h"
#include "transport/schedule/types.h"

struct gn_exec;

struct gn_exec_buffers {
	const void *in; /* NULL: in place */
	size_t in_shift_bytes; /* in begins that far into the whole buffer: an allgather's input is one block */
	void *out;
	size_t count, element_bytes;
	/* NULL: the chunks cut count evenly. Else the first element of each block and, last, the end of all: chunks are blocks
	 * cut into equally many pieces. Read during creation and runs. */
	const size_t *block_first;
	uint32_t blocks;
	gn_reduce_fn reduce; /* NULL when the schedule has no reductions */
	/* Borrowed; the buffers lie there, it reduces instead, and there is no lane. NULL: the host's. */
	struct gn_reduce_executor *memory;
	enum gn_dtype type;
	enum gn_reduction reduction;
};

struct gn_exec_where {
	struct gn_world *world;
	struct gn_ucx *fabric;
	struct gn_shm_flags *lane; /* taken over; NULL: messages only */
	const char *name;     /* of the operation, for errors; kept by the caller */
	uint64_t signature;   /* mixed into tags: ranks that run different things never take each other's messages */
};

/* Takes schedule and lane over, also on failure. Connects this rank to the peers that the schedule names. */
enum gn_status gn_exec_create(const struct gn_exec_where *where, struct gn_schedule *schedule,
			      const struct gn_exec_buffers *buffers, struct gn_exec **out, struct gn_err *err);
/* Messages of a run under way may still arrive in its buffers: abandon the fabric first. NULL is fine. */
void gn_exec_destroy(struct gn_exec *e);

void gn_exec_start(struct gn_exec *e, uint32_t sequence);
/* Goes on with what has arrived. Returns non-zero when something was done; call gn_ucx_progress() in between. */
int gn_exec_advance(struct gn_exec *e);
int gn_exec_done(const struct gn_exec *e);
/* What failed concerns this rank alone: the others do not know yet. */
int gn_exec_failed_alone(const struct gn_exec *e);
/* Whether some of its messages pass through neighbours' memory (or it works in memory that has to be asked), and some through the
 * fabric. */
void gn_exec_ways(const struct gn_exec *e, int *by_memory, int *by_message);
/* GN_OK, or why the run cannot go on. */
enum gn_status gn_exec_check(const struct gn_exec *e, struct gn_err *err);

/* What a run waits for: the first unfinished step whose turn it is, and how many are left. peer is -1 when it is this rank's
 * own work. */
struct gn_exec_wait {
	int peer, sends;
	int rail; /* the only one by which parts of that message are still under way; -1: there is no one such */
	uint32_t message;
	size_t steps_left, steps;
};
void gn_exec_waits_for(const struct gn_exec *e, struct gn_exec_wait *out);

/* --- state, shared by exec*.c --- */

#define GN_MESSAGE_BITS 20
#define GN_SEQUENCE_BITS 24
struct gn_step_state {
	struct gn_ucx_request request; /* first: the request leads back to its step */
	struct gn_exec *exec;
	size_t offset, len; /* bytes of the buffer */
	uint32_t index, missing, slot;
	int16_t lane; /* the peer's number there; -1: a message */
	uint8_t arrived, posted, done;
};

struct gn_exec {
	struct gn_world *world;
	struct gn_ucx *fabric;
	struct gn_shm_flags *lane;
	const char *name;
	uint64_t signature;
	struct gn_schedule *schedule;
	const struct gn_step *steps;
	size_t step_count;
	struct gn_exec_buffers buffers;

	struct gn_step_state *states;
	uint32_t *dependents, *first_dependent; /* the dependencies turned around */
	uint32_t *reductions;			/* RECV_REDUCE steps in order */
	size_t reduction_count;
	uint32_t *queue;  /* steps whose dependencies are met */
	uint32_t *landed; /* steps whose message is through */
	uint32_t *polled; /* steps that wait for a neighbour's word in the lane */
	char *scratch;
	size_t slot_bytes;
	struct gn_exec_work *works; /* queued in memory that is not the host's, oldest first */

	int by_memory, by_message; /* whether any message goes that way */
	uint32_t sequence;
	size_t remaining, next_reduction, queue_head, queue_tail, landed_count, polled_count, work_head, work_tail;
	uint32_t free_slots[GN_SLOTS_MAX], free_count, slot_count;
	enum gn_status status;
	struct gn_err why;
	int failed_alone;
};

/* What memory that is not the host's does for a step: through when the mark is reached. */
struct gn_exec_work {
	uint64_t mark;
	uint32_t index;
};

/* exec_memory.c: queues the step's reduction or copy, or fails the run. from: what arrived, or the input. */
void gn_exec_queue_work(struct gn_exec *e, uint32_t index, const void *from);
/* *index: a step whose work is through, the oldest; 0 when there is none. */
int gn_exec_take_work(struct gn_exec *e, uint32_t *index);
/* The run cannot go on; the first reason is kept. */
void gn_exec_fail(struct gn_exec *e, enum gn_status status, const struct gn_err *why);

/* exec_lane.c: the step waits for a neighbour's word; looks at all that do, in the order in which they became possible, and says
 * whether anything happened. */
void gn_exec_poll_later(struct gn_exec *e, uint32_t index);
int gn_exec_poll_lane(struct gn_exec *e);

#define GN_NO_SLOT UINT32_MAX

static inline char *gn_exec_mine(const struct gn_exec *e, const struct gn_step_state *s)
{
	return (char *)e->buffers.out + s->offset;
}

static inline char *gn_exec_slot_of(const struct gn_exec *e, const struct gn_step_state *s)
{
	return e->scratch + s->slot * e->slot_bytes;
}

/* What depends on the step may begin; after a reduction, its slot serves another as well. */
void gn_exec_done_step(struct gn_exec *e, uint32_t index);
void gn_exec_reduced(struct gn_exec *e, uint32_t index);
/* A step's message is through. */
void gn_exec_landed(struct gn_ucx_request *r);

#endif
