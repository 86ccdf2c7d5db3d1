/* The resources of the simulated machine: processors and ports, each of which serves one request at a time. Private to sim/.
 *
 * Times are in s. Ranks named from and to are ranks of the whole machine; when only one leaf switch or node is simulated their
 * resources are those of the corresponding simulated ranks.
 */
#ifndef GN_TRANSPORT_SIM_SIM_NET_H
#define GN_TRANSPORT_SIM_SIM_NET_H

#include "transport/sim/sim_topology.h"

#include <stddef.h>

struct gn_sim_port {
	double free_at, tokens, filled_at; /* tokens: bytes that may be sent at the burst rate, at time filled_at */
};

struct gn_sim_net {
	const struct gn_sim_topology *t;
	int ranks;			    /* simulated: all, or those of one leaf switch or node */
	double *processor, *in_node;	    /* [rank]: free from this time on */
	struct gn_sim_port *port_out, *port_in; /* [node * rails + rail] */
	double *leaf_up, *leaf_down;	    /* [leaf]: free from this time on */
};

enum gn_status gn_sim_net_create(const struct gn_sim_topology *t, int ranks, struct gn_sim_net *n, struct gn_err *err);
void gn_sim_net_release(struct gn_sim_net *n);
/* The factor by which jitter prolongs an operation; `draw` identifies it. 1 without jitter. */
double gn_sim_net_jitter(const struct gn_sim_net *n, int rank, uint32_t draw);
/* Stragglers start late: their processors are busy at first. */
void gn_sim_net_delay_stragglers(struct gn_sim_net *n);
/* Occupies the rank's processor for `seconds`, from `now` on or when it is free; returns the end. */
double gn_sim_net_work(struct gn_sim_net *n, int rank, double now, double seconds);
int gn_sim_net_same_node(const struct gn_sim_net *n, int from, int to);
/* The index of the output port of a rank. */
size_t gn_sim_net_port(const struct gn_sim_net *n, int rank);
/* The latency of a message's first byte from port to port. */
double gn_sim_net_latency(const struct gn_sim_net *n, int from, int to, double bytes);
/* Sends `bytes` of a message of `message` bytes from `now` on. *left: when they have left the output port; *head: when the first
 * byte reaches the receiver's port. */
void gn_sim_net_send(struct gn_sim_net *n, int from, int to, double message, double bytes, double now, double stretch,
		     double *left, double *head);
/* Receives bytes whose first is at the receiver's port at `now`; returns when the last has passed it. */
double gn_sim_net_arrive(struct gn_sim_net *n, int from, int to, double bytes, double now, double stretch);
/* The processor time of a message at its sender and at its receiver. */
double gn_sim_net_send_cost(const struct gn_sim_net *n, int from, int to, double bytes);
double gn_sim_net_receive_cost(const struct gn_sim_net *n, int from, int to, double bytes);
/* Whether a message is sent without rendezvous. */
int gn_sim_net_is_eager(const struct gn_sim_net *n, int from, int to, double bytes);
/* Sends a message without length (a request to send, or its answer) at `now`; returns when it arrives. */
double gn_sim_net_signal(const struct gn_sim_net *n, int from, int to, double bytes, double now);

#endif
