/* Byte streams, as TCP's: what a rank has for another goes in order, and the streams that leave a port share it evenly,
 * part by part. No message waits for its receiver to ask for it (fabric_rail.c). Private to sim*.c.
 *
 * A message goes in parts of 64 KiB (the largest segment that the kernel hands to a port), or more when it is very long.
 * So many parts of a stream are on their way at most: a receiver's port that others use, too, holds a stream up, and the
 * sender's port is free for its other streams. Ports in serve parts in the order in which they come. */
#ifndef GN_TRANSPORT_SIM_SIM_STREAM_H
#define GN_TRANSPORT_SIM_SIM_STREAM_H

#include "transport/sim/sim_events.h"
#include "transport/sim/sim_net.h"

struct gn_sim_streams;

/* Both outlive it. size: ranks of the whole machine. */
enum gn_status gn_sim_streams_create(struct gn_sim_net *net, struct gn_sim_events *events, int size,
				     struct gn_sim_streams **out, struct gn_err *err);
/* NULL is fine. */
void gn_sim_streams_destroy(struct gn_sim_streams *s);

struct gn_sim_message {
	int from, to; /* ranks of the whole machine */
	uint32_t send, receive;
	double bytes, stretch;
};
/* GN_SIM_FINISHED for the send when all of it has left the port, GN_SIM_LANDED for the receive when it is through. */
void gn_sim_streams_send(struct gn_sim_streams *s, const struct gn_sim_message *m, double now);
/* What happens at GN_SIM_PART, GN_SIM_THROUGH and GN_SIM_PORT. */
void gn_sim_streams_part(struct gn_sim_streams *s, uint32_t part, double now);
void gn_sim_streams_through(struct gn_sim_streams *s, uint32_t part, double now);
void gn_sim_streams_port(struct gn_sim_streams *s, uint32_t port, double now);

#endif
