/* A simulation in progress: executes the schedules of all simulated ranks, event by event. Private to sim/. */
#ifndef GN_TRANSPORT_SIM_SIM_RUN_H
#define GN_TRANSPORT_SIM_SIM_RUN_H

#include "src/base/status.h"
#include "transport/schedule/algo.h"
#include "transport/sim/sim_net.h"

#include <stddef.h>
#include <stdint.h>

/* Byte streams, as TCP's: messages from one rank to another are sent in order, and the streams of an output port share it evenly.
 * No message waits for rendezvous (see transport/ucx/ucx_rail.c). Private to sim/.
 *
 * A message is sent in fragments of 64 KiB (the largest segment that the kernel passes to a port), or larger ones when it is very
 * long. A window limits the fragments of a stream in flight: when the receiver's port is busy with other streams, the stream is
 * blocked and the sender's port is free for its other streams. Input ports serve fragments in the order of arrival. */

/* The queue of events of a simulation, ordered by time: a binary heap. */

/* The comment names what `what` is. Events at the same time are handled in this order. */
enum gn_sim_kind {
	GN_SIM_START,		  /* rank: begins a round */
	GN_SIM_READY,		  /* step: its dependencies are met */
	GN_SIM_RTS_ARRIVED,	  /* send: its request to send is at the receiver */
	GN_SIM_SEND_BEGIN,	  /* send: the message goes to the port */
	GN_SIM_HEAD_ARRIVED,	  /* receive: the message's first byte is at the receiver's port */
	GN_SIM_RECEIVED,	  /* receive: the last byte has passed the port */
	GN_SIM_COMPLETED,	  /* step */
	GN_SIM_FRAGMENT_ARRIVED,  /* fragment of a stream: its first byte is at the receiver's port */
	GN_SIM_FRAGMENT_RECEIVED, /* fragment of a stream: its last byte has passed the port */
	GN_SIM_PORT_FREE,	  /* output port */
};

struct gn_sim_event {
	double at; /* s */
	uint32_t what, kind;
};

struct gn_sim_events {
	struct gn_sim_event *heap;
	size_t count, room;
	enum gn_status status; /* GN_ERR_NO_MEMORY: an event was lost */
};

void gn_sim_events_push(struct gn_sim_events *e, double at, enum gn_sim_kind kind, uint32_t what);
/* The queue must not be empty. */
struct gn_sim_event gn_sim_events_pop(struct gn_sim_events *e);
void gn_sim_events_release(struct gn_sim_events *e);

struct gn_sim_streams;

/* net and events are borrowed and outlive it. size: ranks of the whole machine. */
enum gn_status gn_sim_streams_create(struct gn_sim_net *net, struct gn_sim_events *events, int size,
				     struct gn_sim_streams **out, struct gn_err *err);
/* NULL is fine. */
void gn_sim_streams_destroy(struct gn_sim_streams *s);

struct gn_sim_message {
	int from, to; /* ranks of the whole machine */
	uint32_t send, receive; /* its steps */
	double bytes, stretch;
};
/* Queues a message. Pushes GN_SIM_COMPLETED for the send when all of it has left the output port, and GN_SIM_RECEIVED for the
 * receive when all of it has passed the input port. */
void gn_sim_streams_send(struct gn_sim_streams *s, const struct gn_sim_message *m, double now);
/* The handlers of GN_SIM_FRAGMENT_ARRIVED, GN_SIM_FRAGMENT_RECEIVED and GN_SIM_PORT_FREE. */
void gn_sim_streams_fragment_arrived(struct gn_sim_streams *s, uint32_t fragment, double now);
void gn_sim_streams_fragment_received(struct gn_sim_streams *s, uint32_t fragment, double now);
void gn_sim_streams_port_free(struct gn_sim_streams *s, uint32_t port, double now);

/* The schedules of all simulated ranks in one table, with the two ends of each message paired. */

struct gn_sim_plan_step {
	uint32_t partner; /* the step at the other end of the message */
	uint32_t missing; /* dependencies that are not met */
	uint32_t first_dependent;
	int32_t rank, peer; /* rank: a simulated one; peer: of the whole machine */
	float bytes;
	uint8_t op, state;
	uint16_t early; /* messages received for later rounds */
};

struct gn_sim_plan {
	int ranks;	/* simulated */
	size_t *first;	/* [rank]: its first step; [ranks]: the number of steps */
	struct gn_sim_plan_step *steps; /* one more at the end, for its first_dependent */
	uint32_t *dependents;
};

/* Writes the schedules of ranks 0 .. ranks - 1; ranks divides args->size. GN_ERR_UNSUPPORTED when they need more than max_bytes. */
enum gn_status gn_sim_plan_create(const struct gn_algorithm *a, const struct gn_algo_args *args, int ranks, size_t bytes,
				  uint64_t max_bytes, struct gn_sim_plan *out, struct gn_err *err);
void gn_sim_plan_release(struct gn_sim_plan *p);

/* A rank in one of its rounds. A round is one run of the schedule; a rank that completes a round begins the next at once. */
struct gn_sim_rank {
	uint32_t next_reduction, free_slots, round;
	size_t left;	/* steps of this round */
	double done_at; /* when its last step so far completed */
};

struct gn_sim_state {
	const struct gn_sim_topology *t;
	struct gn_sim_net net;
	struct gn_sim_plan plan;
	struct gn_sim_streams *streams; /* NULL: each message goes by itself, as with RDMA */
	struct gn_sim_events events;
	struct gn_sim_rank *ranks;
	uint32_t slots;
	uint32_t *missing; /* [step]: its dependencies at the start of a round; NULL with a single round */
	uint32_t rounds;
	size_t left; /* steps of all rounds and ranks */
	double now;
};

/* Runs `rounds` rounds, the first of which all ranks begin at time `from`, until no event is left or an event is lost
 * (events.status). Steps that are left then are in a deadlock. */
void gn_sim_run_rounds(struct gn_sim_state *m, uint32_t rounds, double from);

#endif
