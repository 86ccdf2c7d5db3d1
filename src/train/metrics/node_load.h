/* What a node is busy with as a whole, not only this job: processors, memory, network, from /proc and /sys.
 *
 * Two readings give rates. Blocks on these file systems for about 0.1 ms. Thread safety: no state.
 */
#ifndef GN_TRAIN_METRICS_NODE_LOAD_H
#define GN_TRAIN_METRICS_NODE_LOAD_H

#include "src/base/json.h"

/* A reading; what cannot be read is 0. */
struct gn_node_counters {
	double time_s;			       /* CLOCK_MONOTONIC */
	double busy, total;		       /* processor time since boot, in ticks */
	double memory_bytes, available_bytes;
	double received_bytes, sent_bytes;     /* by network interfaces (without lo and those made of others) and InfiniBand ports */
};

/* Of a node, between two readings. */
struct gn_node_load {
	double cpu;			       /* share of all its processors that was busy, 0..1 */
	double memory_bytes, memory_used_bytes;
	double receive_bytes_per_s, send_bytes_per_s;
};

void gn_node_counters_read(struct gn_node_counters *out);
void gn_node_load_between(const struct gn_node_counters *before, const struct gn_node_counters *now, struct gn_node_load *out);
/* An object: host, what the node is busy with, and rss_bytes, the memory of the run's ranks on it. */
void gn_node_load_write(const char *host, const struct gn_node_load *load, double rss_bytes, struct gn_json *out);

#endif
