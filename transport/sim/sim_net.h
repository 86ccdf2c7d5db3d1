/* The simulated machine behind sim.h: processors and ports that serve one thing after another. Private to sim*.c. */
#ifndef GN_TRANSPORT_SIM_SIM_NET_H
#define GN_TRANSPORT_SIM_SIM_NET_H

#include "transport/sim/sim_topology.h"

#include <stddef.h>

struct gn_sim_port {
	double free_at, tokens, filled_at; /* tokens: bytes that may go at the burst's rate, as of filled_at */
};

struct gn_sim_net {
	const struct gn_sim_topology *t;
	int ranks;			    /* simulated: all, or those of one leaf or node */
	double *processor, *in_node;	    /* per rank: free from */
	struct gn_sim_port *port_out, *port_in; /* per node and rail */
	double *leaf_up, *leaf_down;	    /* per leaf */
};

enum gn_status gn_sim_net_create(const struct gn_sim_topology *t, int ranks, struct gn_sim_net *n, struct gn_err *err);
void gn_sim_net_release(struct gn_sim_net *n);
/* How much longer something takes; draw names it. 1 without jitter. */
double gn_sim_net_jitter(const struct gn_sim_net *n, int rank, uint32_t draw);
/* The rank's processor is wanted at now for so long; returns when it is done. */
double gn_sim_net_work(struct gn_sim_net *n, int rank, double now, double seconds);
int gn_sim_net_same_node(const struct gn_sim_net *n, int from, int to);
/* The port out that a rank of the whole machine uses. */
size_t gn_sim_net_port(const struct gn_sim_net *n, int rank);
/* Of a message's first byte, from port to port. */
double gn_sim_net_latency(const struct gn_sim_net *n, int from, int to, double bytes);
/* So many bytes of a message set off at now. from and to are ranks of the whole machine. Sets when they have left the
 * sender and when the first reaches the receiver's port. */
void gn_sim_net_send(struct gn_sim_net *n, int from, int to, double message, double bytes, double now, double stretch,
		     double *left, double *head);
/* The first is at the receiver's port at now; returns when the last is through. */
double gn_sim_net_arrive(struct gn_sim_net *n, int from, int to, double bytes, double now, double stretch);
/* What the message costs the processors of its ends, and on its way. */
double gn_sim_net_send_cost(const struct gn_sim_net *n, int from, int to, double bytes);
double gn_sim_net_receive_cost(const struct gn_sim_net *n, int from, int to, double bytes);
/* Whether it waits for its receiver. */
int gn_sim_net_is_eager(const struct gn_sim_net *n, int from, int to, double bytes);
/* A request or an answer, without length, sets off at now; returns when it is there. */
double gn_sim_net_signal(const struct gn_sim_net *n, int from, int to, double bytes, double now);

#endif
