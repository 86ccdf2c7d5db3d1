/* The machine that is simulated: its nodes, its network, and what a message costs in it. */
#ifndef GN_TRANSPORT_SIM_SIM_TOPOLOGY_H
#define GN_TRANSPORT_SIM_SIM_TOPOLOGY_H

#include "src/base/status.h"

#include <stdint.h>

/* What a message of a length costs beside its time at the ports; measured ones differ with the length (gannet tune). */
#define GN_SIM_RANGES 6
struct gn_sim_range {
	double from_bytes; /* up to the next range's */
	double latency_s, s_per_byte; /* on the way: copies that no port sees */
	double send_s, receive_s;     /* of the processors */
};

struct gn_sim_path {
	int count; /* 0: the topology's single numbers */
	double eager_bytes;
	struct gn_sim_range ranges[GN_SIM_RANGES]; /* ascending, the first from 0 */
};

struct gn_sim_topology {
	int nodes, ranks_per_node, rails; /* local rank l uses rail l modulo rails; of more rails than ranks several as one */
	double link_bytes_per_s, link_latency_s;
	double node_bytes_per_s, node_latency_s; /* between two ranks of a node */
	int leaf_nodes;				 /* nodes on a leaf switch; 0: one switch for all */
	double oversubscription;		 /* a leaf's links down by its links up, >= 1 */
	double send_overhead_s, receive_overhead_s, gap_s;
	double reduce_s_per_byte; /* gamma */
	double eager_bytes;
	struct gn_sim_path link, node; /* instead of latencies, overheads and eager_bytes */
	/* a port that was idle lets so many bytes through faster (a token bucket, as tc's tbf); 0: it does not */
	double burst_bytes, burst_bytes_per_s;
	int streams; /* messages between two ranks go in a byte stream, as TCP's, and wait for nobody */
	/* So many times in a row, whoever is done beginning the next; the first warmup are not counted, and all meet behind them. 0: once */
	int repeats, warmup;
	double jitter;		   /* overheads and transfers take 1 + jitter * |normal| times as long */
	int stragglers;		   /* so many ranks, drawn at random, start straggler_s late */
	double straggler_s;
	uint64_t seed;
};

/* The range that a message between ranks of a node, or of two, falls into. */
const struct gn_sim_range *gn_sim_range_of(const struct gn_sim_path *p, double bytes);
/* GN_ERR_USAGE when numbers make no sense. */
enum gn_status gn_sim_topology_check(const struct gn_sim_topology *t, struct gn_err *err);

#endif
