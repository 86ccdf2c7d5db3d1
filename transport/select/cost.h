/* Communication costs of a fabric: LogGP parameters of messages within a node and between nodes, from which algorithms are selected
 * (select.h) and other clusters are simulated (sim.h). Source of the model: Alexandrov et al., "LogGP", SPAA 1995.
 *
 * gannet tune measures them (tune.h) and stores them in a table (tuning_table.h); without an entry they are estimated from the kind
 * of transport and its link rate. Plain data, which ranks exchange as it is.
 *
 * Thread safety: no state; any thread. Nothing blocks.
 */
#ifndef GN_TRANSPORT_SELECT_COST_H
#define GN_TRANSPORT_SELECT_COST_H

#include "transport/topology/devices.h"
#include "transport/sim/sim.h"

#define GN_COST_LANES_MAX 128

struct gn_cost_path {
	struct gn_sim_path path;
	double bytes_per_s;		       /* all rails together */
	double burst_bytes, burst_bytes_per_s; /* as in sim.h */
	double connect_s;		       /* to connect to a peer, once; from a table by kind of transport, not measured */
	char lanes[GN_COST_LANES_MAX];	       /* "tcp/eth0"; "": no two ranks are so placed */
};

#define GN_COST_PICKS 12
#define GN_COST_NAME_MAX 32

/* The fastest algorithm in measurements of an allreduce of one length, and its time. */
struct gn_cost_pick {
	double bytes, seconds;
	char algorithm[GN_COST_NAME_MAX];
	double piece_bytes; /* the fastest slice size; 0: by the model */
};

struct gn_cost {
	struct gn_cost_path node, link;
	struct gn_cost_pick picks[GN_COST_PICKS]; /* ascending */
	int pick_count;
	double reduce_bytes_per_s;
	int measured;	 /* 0: estimated */
	int tuned_nodes; /* the number of nodes of the measurement; 0: estimated, or unknown */
};

/* Estimates the costs of lanes as gn_ucx_lanes() names them. */
void gn_cost_guess(const struct gn_devices *devices, const char *node_lanes, const char *link_lanes, struct gn_cost *out);
/* Seconds to connect to a peer by such lanes. */
double gn_cost_connect_s(const char *lanes);
/* The cluster to simulate with these costs. */
void gn_cost_topology(const struct gn_cost *c, int nodes, int ranks_per_node, struct gn_sim_topology *out);
/* Seconds that a port needs for so many bytes after it was idle. */
double gn_cost_port_s(const struct gn_cost_path *p, double bytes);
/* Seconds from the send to the completed receive of one message, both ends ready. */
double gn_cost_message_s(const struct gn_cost_path *p, double bytes);
/* Picks are used on up to so many times more or fewer nodes than they were measured on: the order of algorithms changes with the
 * number. */
#define GN_COST_NODES_APART 4
/* Adapts costs measured on c->tuned_nodes to `nodes`: message costs stay; picks lose their times, or are removed when the numbers
 * differ by more than GN_COST_NODES_APART. */
void gn_cost_use_at(struct gn_cost *c, int nodes);
/* The measurement of this algorithm nearest in length; NULL: none. *near: its length is within a factor of 4, near enough to scale
 * its time. Borrowed from c. */
const struct gn_cost_pick *gn_cost_trial(const struct gn_cost *c, const char *algorithm, double bytes, int *near);
/* The pick nearest in length, within a factor of 2; NULL: none. Borrowed from c. */
const struct gn_cost_pick *gn_cost_pick(const struct gn_cost *c, double bytes);
/* GN_ERR_DATA: a value is out of range; the message names it. */
enum gn_status gn_cost_check(const struct gn_cost *c, struct gn_err *err);

#endif
