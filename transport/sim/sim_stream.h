/* Byte streams, as TCP's: messages from one rank to another are sent in order, and the streams of an output port share it evenly.
 * No message waits for rendezvous (see transport/ucx/ucx_rail.c). Private to sim/.
 *
 * A message is sent in fragments of 64 KiB (the largest segment that the kernel passes to a port), or larger ones when it is very
 * long. A window limits the fragments of a stream in flight: when the receiver's port is busy with other streams, the stream is
 * blocked and the sender's port is free for its other streams. Input ports serve fragments in the order of arrival.
 */
#ifndef GN_TRANSPORT_SIM_SIM_STREAM_H
#define GN_TRANSPORT_SIM_SIM_STREAM_H

#include "src/base/status.h"
#include "transport/sim/sim_net.h"

#include <stddef.h>
#include <stdint.h>

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

#endif
