/* The metrics log of a run: one JSON object per line, appended, so that a requeued job continues the same file.
 *
 *     {"event": "start", ...}   the run: model, precision ("bf16 (emulated)" if rank 0's processor emulates it), on
 *      processors convolution and winograd (how many of rank 0's at the first side are such; absent until 0.2.0), data, ranks,
 *      options, and those set by a recipe
 *     {"event": "resume", ...}  the checkpoint and the step
 *     {"event": "step", "step", "epoch", "loss", "lr", "grad_norm", "skipped", "images_per_s", "time_ms": {"step", "data",
 *      "forward", "backward", "communication_exposed", "communication_in_backward", "optimizer"}, "ranks": {"data": [min, mean,
 *      max], ..., "compute", "slowest", "slowest_host", "each_compute"}, "efficiency": {"measured", "predicted", "costs", or
 *      "unpredicted": why there is no prediction}, "usage": as in "end"}
 *      means over the interval that ends with this step: time_ms of rank 0, ranks (with several) of all of them, in ms, as
 *      scaling_report.h defines them. usage is there every few seconds. skipped counts the interval's steps without an update, which loss and grad_norm (before clipping) leave
 *      out; both are null when there was none with one
 *     {"event": "exchange", "step", "bucket_bytes", "buckets", "overlap", "tried": [{"buckets", "overlap", "step_ms"}], "exact"}
 *      the result of autotuning; exact: all bucket sizes give the same bits
 *     {"event": "eval", "step", "epoch", "images", "top1", "top5", "loss", "nonfinite", "seconds", "ema": {"top1", "top5",
 *      "loss", "nonfinite"}}   nonfinite: images with non-finite logits, which count as wrong; ema: of the moving average, with --ema
 *     {"event": "checkpoint", "step", "path", "seconds", "blocked_seconds", "cpu_seconds"}   when it is there, which may be steps after its own;
 *      seconds: from the copy of the state on; blocked_seconds: of these, those in which training waited (absent until 0.2.0: all);
 *      cpu_seconds: processor time of the threads of this rank that wrote it (absent until 0.2.0)
 *     {"event": "stop" | "end", "step", "epoch", "params_sha256", "usage": {"ranks", "cpu_s", "age_s", "processors", "max_rss_bytes",
 *      "max_rss_rank"}}   usage: of all ranks since their processes started, as usage.h says.
 *      "halving", in "end": the run was stopped before its last step, because other trials of its sweep are better
 *      "patience", in "end": the run was stopped before its last step, because its evaluations no longer improved
 *     {"event": "failed", "step", "epoch", "status", "reason"}   rank 0's error; status: gn_status_text(), which train.sbatch reads.
 *      A killed run has no such line
 *     {"event": "recovered", "step", "world", "ranks", "ranks_before", "seconds", "steps_redone", "unlogged_steps", "unlogged_seconds",
 *      "after"}   with --elastic, when the first step of a later world begins, after its "resume": the world's number, seconds since the last
 *      finished step before it, finished steps that are done again, and those before that, with their time, that no "step" counts; after:
 *      the loss, or that others join
 *     {"event": "slow", "step", "rank", "host", "factor", "steps"}   a rank has computed at least --slow-factor times as long as the median
 *      for so many steps
 *
 * Only rank 0 has a log; every call on NULL does nothing. Each line is one write(2). A line that cannot be written (a full
 * disk) is lost: one warning reports the first, another the number of lost lines after the next success. Thread safety: one thread.
 */
#ifndef GN_TRAIN_METRICS_METRICS_LOG_H
#define GN_TRAIN_METRICS_METRICS_LOG_H

#include "src/base/json.h"
#include "src/base/log.h"
#include "src/base/status.h"

#include <stdint.h>

struct gn_metrics_log;

/* Opens path for appending, and locks it (flock) until it is closed, where the file system has locks: GN_ERR_USAGE when another run
 * has it for three more seconds. "-" is standard output. warnings is borrowed and may be NULL. goes_on:
 * the one that has it is a process of this run which is known to be out of it, stopped perhaps: without a lock, then. */
enum gn_status gn_metrics_log_open(const char *path, int goes_on, struct gn_log *warnings, struct gn_metrics_log **out, struct gn_err *err);
void gn_metrics_log_close(struct gn_metrics_log *log);
/* Whether the log at path (NULL: no log) has an evaluation of this step since its last "start". 0 for a file that cannot be read
 * and for standard output. */
int gn_metrics_log_has_eval(const char *path, uint64_t step);
/* Of the log's last run, if no line says that it has ended: its world, 1 before losses with --elastic. 0: it has, or as above. */
uint64_t gn_metrics_log_running_world(const char *path);
/* The best top-1 of the log's last run, a share, without evaluations that a resume went back behind; -1 when there is none, as for a file
 * that cannot be read and for standard output. */
double gn_metrics_log_best_top1(const char *path);
/* Whether the file was not empty when it was opened: it holds lines of an earlier run, unless this run resumes it. */
int gn_metrics_log_had_lines(const struct gn_metrics_log *log);
/* Asked before each line whether this process may write: with GN_OK, else the line is dropped and gn_metrics_log_end() returns the status. log may
 * be NULL. */
void gn_metrics_log_set_guard(struct gn_metrics_log *log, enum gn_status (*may_write)(void *context, struct gn_err *err), void *context);
/* Starts a line: returns a writer with an open object that holds "event" and "time" (UTC), or NULL when log is NULL. */
struct gn_json *gn_metrics_log_begin(struct gn_metrics_log *log, const char *event);
/* The line of a failure. Nothing else can be done where it cannot be written. */
void gn_metrics_log_failure(struct gn_metrics_log *log, uint64_t step, double epoch, const struct gn_err *why);
/* Closes the object and writes the line. Fails only when out of memory, or by the guard. */
enum gn_status gn_metrics_log_end(struct gn_metrics_log *log, struct gn_err *err);

#endif
