/* What creating and running an execution share. Private to exec.c and exec_create.c. */
#ifndef GN_TRANSPORT_EXEC_INTERNAL_H
#define GN_TRANSPORT_EXEC_INTERNAL_H

#include "transport/exec.h"

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
	struct gn_fabric *fabric;
	struct gn_lane *lane;
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

	int by_memory, by_message; /* whether any message goes that way */
	uint32_t sequence;
	size_t remaining, next_reduction, queue_head, queue_tail, landed_count, polled_count;
	uint32_t free_slots[GN_SLOTS_MAX], free_count, slot_count;
	enum gn_status status;
	struct gn_err why;
};

/* A step's message is through. */
void gn_exec_landed(struct gn_request *r);

#endif
