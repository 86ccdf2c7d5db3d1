/* Byte streams, as TCP's: messages from one rank to another are sent in order, and the streams of an output port share it evenly.
 * No message waits for rendezvous (see transport/ucx/ucx_rail.c). Private to sim/.
 *
 * A message is sent in fragments of 64 KiB (the largest segment that the kernel passes to a port), or larger ones when it is very
 * long. A window limits the fragments of a stream in flight: when the receiver's port is busy with other streams, the stream is
 * blocked and the sender's port is free for its other streams. Input ports serve fragments in the order of arrival.
 */
#ifndef GN_TRANSPORT_SIM_SIM_STREAM_H
#define GN_TRANSPORT_SIM_SIM_STREAM_H

#include "transport/sim/sim_events.h"
#include "transport/sim/sim_net.h"

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
