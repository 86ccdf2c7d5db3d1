/* The resources of the simulated machine: processors and ports, each of which serves one request at a time. Private to sim/.
 *
 * Times are in s. Ranks named from and to are ranks of the whole machine; when only one leaf switch or node is simulated their
 * resources are those of the corresponding simulated ranks.
 */
#ifndef GN_TRANSPORT_SIM_SIM_NET_H
#define GN_TRANSPORT_SIM_SIM_NET_H

#include "src/base/status.h"
#include "transport/schedule/algo.h"

#include <stddef.h>
#include <stdint.h>

/* The simulated machine: nodes, network, and the costs of messages. */

/* The cost of a message of some length besides its time at the ports; gannet tune measures it per range of lengths. */
#define GN_SIM_RANGES 6
struct gn_sim_range {
	double from_bytes; /* the range ends where the next one begins */
	double latency_s, s_per_byte; /* between the ports; s_per_byte: copies besides the ports */
	double send_s, receive_s;     /* of the processors */
};

struct gn_sim_path {
	int count; /* 0: the topology's values for all lengths apply */
	double eager_bytes;
	struct gn_sim_range ranges[GN_SIM_RANGES]; /* ascending, the first from 0 */
};

struct gn_sim_topology {
	/* Where ranks are, if nodes have different numbers of them or they are not consecutive; replaces nodes and ranks_per_node.
	 * Borrowed; NULL: by these. Not with leaf switches, and rails are at most the ranks of the smallest node. */
	const struct gn_node_map *map;
	int nodes, ranks_per_node,
			rails; /* local rank l uses rail l modulo rails; with more rails than ranks a rank uses several as one */
	double link_bytes_per_s, link_latency_s;
	double node_bytes_per_s, node_latency_s; /* between two ranks of a node */
	int leaf_nodes;				 /* nodes on a leaf switch; 0: one switch for all */
	double oversubscription;		 /* of a leaf switch: bandwidth down over bandwidth up, >= 1 */
	double send_overhead_s, receive_overhead_s, gap_s; /* LogGP's o and g */
	double reduce_s_per_byte; /* gamma */
	double eager_bytes;
	struct gn_sim_path link, node; /* replace the latencies, overheads and eager_bytes above */
	/* A token bucket, as tc's tbf: a port that was idle sends this many bytes at the burst rate; 0: none. */
	double burst_bytes, burst_bytes_per_s;
	int streams; /* messages between two ranks of different nodes go in a byte stream, as TCP's, without rendezvous */
	/* How often the collective is repeated without a barrier; the first `warmup` repeats are followed by a barrier and not
	 * counted. 0: once */
	int repeats, warmup;
	double jitter;		   /* overheads and transfers are multiplied by 1 + jitter * |normal| */
	int stragglers;		   /* the number of ranks, drawn at random, that start straggler_s late */
	double straggler_s;
	uint64_t seed;
};

/* The range of a path that a message of `bytes` belongs to. */
const struct gn_sim_range *gn_sim_range_of(const struct gn_sim_path *p, double bytes);
int gn_sim_ranks(const struct gn_sim_topology *t);
int gn_sim_node_of(const struct gn_sim_topology *t, int rank);
/* GN_ERR_USAGE when a value is invalid. */
enum gn_status gn_sim_topology_check(const struct gn_sim_topology *t, struct gn_err *err);

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
