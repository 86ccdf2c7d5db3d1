/* How a run is doing, for gannet top: from its log, the status file beside it (src/train/metrics/run_status.h), and what Slurm says of its
 * job, put together as text for a terminal or as JSON.
 *
 * Slurm is asked for a job that waits or whose log is silent, at most every GN_RUN_VIEW_SLURM_S seconds. Blocks on the file system.
 * Thread safety: one thread.
 */
#ifndef GN_JOBS_RUN_VIEW_H
#define GN_JOBS_RUN_VIEW_H

#include "src/jobs/account.h"
#include "src/jobs/slurm_job.h"
#include "src/train/metrics/usage.h"

#define GN_RUN_VIEW_SLURM_S 30
#define GN_RUN_VIEW_NODES 256
#define GN_RUN_VIEW_RANKS 8

struct gn_run_view_node {
	char host[64];
	struct gn_node_load load;
	double rss_bytes; /* of the run's ranks on it */
};

struct gn_run_view_rank {
	int rank;
	char host[64];
	double value;
};

struct gn_run_view {
	char log[4096];
	struct gn_account a;	/* if has_log */
	struct gn_slurm_job job; /* if has_job */
	int has_log, has_job, has_status;

	/* of the status file */
	char doing[64];
	double status_time;
	uint64_t status_step;
	int slow_count, silent_count, node_count, more_silent, more_nodes; /* more_: that are not listed */
	struct gn_run_view_rank slow[GN_RUN_VIEW_RANKS];   /* value: compute_ms */
	struct gn_run_view_rank silent[GN_RUN_VIEW_RANKS]; /* of which rank 0 heard nothing since value, seconds since 1970, when it wrote the file */
	struct gn_run_view_node node[GN_RUN_VIEW_NODES];
};

struct gn_run_source;

/* name: a log, or a job's number, of which the script of gannet submit names the log. GN_ERR_NOT_FOUND: neither. */
enum gn_status gn_run_source_open(const char *name, struct gn_run_source **out, struct gn_err *err);
/* Reads what is new. now: seconds since 1970. A job that has no log yet is no failure. */
enum gn_status gn_run_source_read(struct gn_run_source *s, double now, struct gn_run_view *out, struct gn_err *err);
/* NULL is fine. */
void gn_run_source_close(struct gn_run_source *s);

/* Seconds since the last sign of life. */
double gn_run_view_silent_s(const struct gn_run_view *v, double now);
/* Lines of at most columns; lists are cut so that there are at most rows (0: no limit). */
void gn_run_view_text(const struct gn_run_view *v, double now, int columns, int rows, struct gn_strbuf *out);
void gn_run_view_json(const struct gn_run_view *v, double now, struct gn_json *out);

#endif
