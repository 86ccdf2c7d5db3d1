/* The log of a run: one JSON object a line, appended, so that a requeued job goes on where it was.
 *
 *     {"event": "start", ...}   what runs: model, precision ("bf16 (emulated)" where rank 0's processor has to), data, ranks,
 *      options, and what a recipe chose of them
 *     {"event": "resume", ...}  from which checkpoint and step
 *     {"event": "step", "step", "epoch", "loss", "lr", "grad_norm", "skipped", "images_per_s", "time_ms": {"step", "data",
 *      "forward", "backward", "communication_exposed", "communication_in_backward", "optimizer"}, "ranks": {"data": [min, mean,
 *      max], ..., "compute", "slowest", "slowest_host", "each_compute"}, "efficiency": {"measured", "predicted", "costs", or
 *      "unpredicted": why there is no prediction}}
 *      means over the interval that ends with this step: time_ms of rank 0, ranks (with several) of all of them, in ms, as
 *      scaling_report.h says. skipped counts the interval's steps without an update, which loss and grad_norm (before clipping) leave
 *      out; both are null when there was none with one
 *     {"event": "exchange", "step", "bucket_bytes", "buckets", "overlap", "tried": [{"buckets", "overlap", "step_ms"}], "exact"}
 *      what was chosen by measuring; exact: another bucket size would give the same bits
 *     {"event": "eval", "step", "epoch", "images", "top1", "top5", "loss", "nonfinite", "ema": {"top1", "top5", "loss",
 *      "nonfinite"}}   nonfinite: images whose logits are not, which are wrong; ema: of the moving average, with --ema
 *     {"event": "checkpoint", "step", "path", "seconds"}
 *     {"event": "stop" | "end", "step", ...}
 *     {"event": "failed", "step", "epoch", "status", "reason"}   as rank 0 knows it; status: gn_status_text(), which train.sbatch reads.
 *      A run that is killed has no such line
 *
 * Only rank 0 has one; every call on NULL does nothing. Each line is one write. A line that cannot be written (a full
 * disk) is lost: a warning says so, and another how many were lost when lines can be written again. Thread safety: one thread.
 */
#ifndef GN_TRAIN_METRICS_METRICS_LOG_H
#define GN_TRAIN_METRICS_METRICS_LOG_H

#include "src/base/json.h"
#include "src/base/log.h"
#include "src/base/status.h"

#include <stdint.h>

struct gn_metrics_log;

/* Appends to path; "-" is standard output. warnings is borrowed and may be NULL. */
enum gn_status gn_metrics_log_open(const char *path, struct gn_log *warnings, struct gn_metrics_log **out, struct gn_err *err);
void gn_metrics_log_close(struct gn_metrics_log *log);
/* Whether the run that path logs (NULL: none does) has an evaluation of this step: since its last "start". A file that cannot be
 * read has none, nor has standard output. */
int gn_metrics_log_has_eval(const char *path, uint64_t step);
/* Whether the file had anything in it when it was opened: an earlier run's lines, unless this one resumes it. */
int gn_metrics_log_had_lines(const struct gn_metrics_log *log);
/* Begins a line: returns the writer with an open object that holds "event" and "time" (UTC), or NULL when log is NULL. */
struct gn_json *gn_metrics_log_begin(struct gn_metrics_log *log, const char *event);
/* Closes the object and writes the line. Fails only for lack of memory. */
enum gn_status gn_metrics_log_end(struct gn_metrics_log *log, struct gn_err *err);

#endif
