/* What communication costs on this fabric: the parameters of the LogGP model, one set for messages within a node and one for
 * those between nodes, from which algorithms are chosen (choose.h) and other machines are simulated (sim.h).
 *
 * They are measured by gannet tune (tune.h) and kept in a table (tuning.h); where nobody has measured, they are guessed from
 * what kind of device carries the bytes and its link rate. Plain data: ranks send it to each other as it is.
 */
#ifndef GN_TRANSPORT_SELECT_COST_H
#define GN_TRANSPORT_SELECT_COST_H

#include "transport/topology/devices.h"
#include "transport/sim/sim.h"

#define GN_COST_LANES_MAX 128

struct gn_cost_path {
	struct gn_sim_path path;
	double bytes_per_s; /* of all rails together */
	double burst_bytes, burst_bytes_per_s; /* as in sim.h */
	double connect_s; /* until a peer can be sent to, once: by the kind of lanes, not measured */
	char lanes[GN_COST_LANES_MAX];	       /* "tcp/eth0"; "" where no two ranks are so placed */
};

#define GN_COST_PICKS 12
#define GN_COST_NAME_MAX 32

/* The algorithm that was the fastest when an allreduce of so many bytes was tried, and its time. */
struct gn_cost_pick {
	double bytes, seconds;
	char algorithm[GN_COST_NAME_MAX];
	double piece_bytes; /* into what its messages are best cut; 0: as the model says */
};

struct gn_cost {
	struct gn_cost_path node, link;
	struct gn_cost_pick picks[GN_COST_PICKS]; /* ascending */
	int pick_count;
	double reduce_bytes_per_s;
	int measured; /* else guessed */
	int tuned_nodes; /* how many nodes it was measured on; 0: guessed, or a table that does not say */
};

/* A guess for lanes as gn_ucx_lanes() tells them. */
void gn_cost_guess(const struct gn_devices *devices, const char *node_lanes, const char *link_lanes, struct gn_cost *out);
/* What a first connection by such lanes costs. */
double gn_cost_connect_s(const char *lanes);
/* The machine to simulate. */
void gn_cost_topology(const struct gn_cost *c, int nodes, int ranks_per_node, struct gn_sim_topology *out);
/* How long a port that was idle needs for so many bytes. */
double gn_cost_port_s(const struct gn_cost_path *p, double bytes);
/* One message from post to receipt, both ends ready. */
double gn_cost_message_s(const struct gn_cost_path *p, double bytes);
/* How far from the number of nodes that they were tried on picks are taken: the order of algorithms changes with it. */
#define GN_COST_NODES_APART 4
/* What was measured on tuned_nodes, for so many: what messages cost between two ranks stays. Picks stay without their times, or, where
 * the numbers are further than that apart, do not, and the model chooses. */
void gn_cost_use_at(struct gn_cost *c, int nodes);
/* Of what was tried by this algorithm the nearest in length, with its time; NULL when nothing was. *near: so near, a quarter to four
 * times as long, that it says how long this takes. Borrowed from c. */
const struct gn_cost_pick *gn_cost_trial(const struct gn_cost *c, const char *algorithm, double bytes, int *near);
/* Of what was tried the nearest in length, half as long to twice as long; NULL when there is none. Borrowed from c. */
const struct gn_cost_pick *gn_cost_pick(const struct gn_cost *c, double bytes);
/* GN_ERR_DATA when numbers make no sense. */
enum gn_status gn_cost_check(const struct gn_cost *c, struct gn_err *err);

#endif
