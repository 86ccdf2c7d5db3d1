/* The simulated machine: nodes, network, and the costs of messages.
 *
 * Thread safety: any thread, no shared state.
 */
#ifndef GN_TRANSPORT_SIM_SIM_TOPOLOGY_H
#define GN_TRANSPORT_SIM_SIM_TOPOLOGY_H

#include "src/base/status.h"
#include "transport/schedule/algo.h"

#include <stdint.h>

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

#endif
