/* How a run is doing now, for others to look at: the status file beside the log, which gannet top reads, and a metrics file in
 * Prometheus' text format, which the textfile collector of node_exporter reads.
 *
 * --metrics names a file, which stays when the run ends, or a folder, in which the run has gannet-USER-JOBID-RUN.prom until then: so runs of many
 * users share the folder of a collector. No two samples in it have the same labels: run, user, jobid, host.
 *
 * Both are replaced as a whole, without fsync, on rank 0 alone and at most every few seconds; a failure to write them is a warning,
 * once. The status file is LOG.status:
 *
 *     {"time": seconds since 1970, "doing": "training", "running": true, "step", "total_steps", "epoch", "loss", "lr", "images_per_s",
 *      "top1", "host", "job", "slow": [{"rank", "host", "compute_ms"}, ...],
 *      "nodes": [{"host", "cpu", "memory_bytes", "memory_used_bytes", "rss_bytes", "receive_bytes_per_s", "send_bytes_per_s"}, ...]}
 *      and on several ranks "silent": [{"rank", "host", "since": seconds since 1970}, ...], "silent_count"
 *      slow: the ranks with the longest compute time in the last interval, the longest first; nodes: usage.h
 *      silent: the ranks of which rank 0 hears nothing (2.5 s without a message), the first 8; since: their last message
 *
 * Thread safety: one thread.
 */
#ifndef GN_TRAIN_METRICS_RUN_STATUS_H
#define GN_TRAIN_METRICS_RUN_STATUS_H

#include "src/base/log.h"
#include "src/train/metrics/usage.h"
#include "transport/bootstrap/world.h"

#include <stdint.h>

#define GN_RUN_STATUS_SLOW 8
#define GN_RUN_STATUS_PARTS 5
/* Seconds between two writings while nothing but the step changes. */
#define GN_RUN_STATUS_S 5 /* 1 after a change of what it does */

struct gn_run_status {
	char model[64], job[64], run[128], host[64]; /* run: a name for labels */
	char user[64], jobid[32]; /* for labels, too: the effective user; SLURM_JOB_ID, or pidN outside of Slurm */
	const char *doing;		/* "training", "evaluating", "writing a checkpoint", "done", ...; static */
	int running, ranks, nodes;
	uint64_t step, total_steps, skipped, checkpoints, evaluations;
	double epoch, loss, lr, images_per_s, top1; /* of the last interval and evaluation; NaN: none yet */
	double step_s, part_s[GN_RUN_STATUS_PARTS]; /* data, forward, backward, communication, optimizer */
	struct {
		int rank;
		const char *host;	/* borrowed */
		double compute_s;
	} slow[GN_RUN_STATUS_SLOW];
	int slow_count;
	const struct gn_usage *usage;	/* borrowed */
};

struct gn_status_files;

/* status_path and metrics (see above): NULL for none; copied. s: names the file in a folder. world, whose silent ranks the status names, and warnings are borrowed. */
enum gn_status gn_status_files_create(const char *status_path, const char *metrics, const struct gn_run_status *s,
				      const struct gn_world *world, struct gn_log *warnings, struct gn_status_files **out, struct gn_err *err);
/* NULL is fine. */
void gn_status_files_destroy(struct gn_status_files *f);
/* Writes both files when that is due, or when force is set. Does nothing on NULL. Blocks on their file systems. */
void gn_status_files_write(struct gn_status_files *f, const struct gn_run_status *s, int force);

#endif
