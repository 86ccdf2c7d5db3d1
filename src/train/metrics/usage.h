/* What a run has used of its machines: processor time and peak memory of all ranks, for the log's last line.
 *
 * Processor time and age count from the start of each process, so that reading data and planning are in them.
 */
#ifndef GN_TRAIN_METRICS_USAGE_H
#define GN_TRAIN_METRICS_USAGE_H

#include "src/base/json.h"
#include "src/base/status.h"
#include "transport/bootstrap/world.h"

struct gn_usage {
	double cpu_s;	   /* user and system time of all ranks (getrusage) */
	double age_s;	   /* of rank 0's process */
	int processors;	   /* that ranks may run on, each counted once on its node */
	double max_rss_bytes; /* of the rank that has used the most memory */
	int max_rss_rank;
};

/* Collective, blocking; the same on all ranks but for age_s. */
enum gn_status gn_usage_gather(struct gn_world *world, struct gn_usage *out, struct gn_err *err);
/* "usage": {"cpu_s", "age_s", "processors", "max_rss_bytes", "max_rss_rank"} */
void gn_usage_write(const struct gn_usage *usage, struct gn_json *out);

#endif
