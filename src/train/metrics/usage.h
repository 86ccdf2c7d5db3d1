/* What a run uses of its machines: processor time and memory of all ranks, and how busy their nodes are, for the log, the status file
 * and the metrics file.
 *
 * Processor time and age count from the start of each process, so that reading data and planning are in them.
 */
#ifndef GN_TRAIN_METRICS_USAGE_H
#define GN_TRAIN_METRICS_USAGE_H

#include "src/base/json.h"
#include "src/base/status.h"
#include "transport/coll/comm.h"

/* What a node is busy with as a whole, not only this job: processors, memory, network, from /proc and /sys. Two readings give rates. A
 * reading blocks on these file systems for about 0.1 ms; what cannot be read is 0. */
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
/* An object: host, what the node is busy with, and rss_bytes, the memory of the run's ranks on it. */
void gn_node_load_write(const char *host, const struct gn_node_load *load, double rss_bytes, struct gn_json *out);

struct gn_usage {
	int ranks;	   /* of the communicator; with parameter servers' async and ssp the first worker alone */
	double cpu_s;	   /* user and system time of these ranks (getrusage) */
	double waited_s;   /* in which the main threads of these ranks were ready and had no processor; 0 where Linux does not count it */
	double age_s;	   /* of rank 0's process */
	int processors;	   /* that ranks may run on, each counted once on its node */
	double max_rss_bytes; /* of the rank that has used the most memory */
	int max_rss_rank;
	int nodes;
	struct gn_usage_node {
		const char *host;	   /* the world's */
		struct gn_node_load load;  /* since the gather before */
		double rss_bytes;	   /* now, of all ranks on it */
	} *node;
};

struct gn_usage_meter;

/* Collective, blocking. The meter is created before the first gather and destroyed with the run; it borrows comm. */
enum gn_status gn_usage_create(struct gn_comm *comm, struct gn_usage_meter **out, struct gn_err *err);
void gn_usage_destroy(struct gn_usage_meter *m);
/* Collective, blocking: one allgather of about 100 bytes a rank. */
enum gn_status gn_usage_gather(struct gn_usage_meter *m, struct gn_err *err);
/* What the last gather found, the same on all ranks but for age_s; all 0 before the first. Borrowed. */
const struct gn_usage *gn_usage_last(const struct gn_usage_meter *m);
/* "usage": {"ranks", "cpu_s", "waited_s", "age_s", "processors", "max_rss_bytes", "max_rss_rank"} */
void gn_usage_write(const struct gn_usage *usage, struct gn_json *out);

#endif
