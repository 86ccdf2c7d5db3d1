/* What creating and running an execution share. Private to exec*.c. */
#ifndef GN_TRANSPORT_COLL_EXEC_INTERNAL_H
#define GN_TRANSPORT_COLL_EXEC_INTERNAL_H

#include "transport/coll/exec.h"

#define GN_MESSAGE_BITS 20
#define GN_SEQUENCE_BITS 24
struct gn_step_state {
	struct gn_request request; /* first: the request leads back to its step */
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
void gn_exec_landed(struct gn_request *r);

#endif
