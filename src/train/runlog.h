/* The log of a run: one JSON object a line, appended, so that a requeued job goes on where it was.
 *
 *     {"event": "start", ...}   what runs: model, precision ("bf16 (emulated)" where rank 0's processor has to), data, ranks,
 *      options, and what a recipe chose of them
 *     {"event": "resume", ...}  from which checkpoint and step
 *     {"event": "step", "step", "epoch", "loss", "lr", "grad_norm", "skipped", "images_per_s", "time_ms": {"step", "data",
 *      "forward", "backward", "communication_exposed", "communication_in_backward", "optimizer"}, "ranks": {"data": [min, mean,
 *      max], ..., "compute", "slowest", "slowest_host", "each_compute"}, "efficiency": {"measured", "predicted", "costs"}}
 *      means over the interval that ends with this step: time_ms of rank 0, ranks (with several) of all of them, in ms, as
 *      split.h says. skipped counts the interval's steps without an update, which loss and grad_norm (before clipping) leave
 *      out; both are null when there was none with one
 *     {"event": "exchange", "step", "bucket_bytes", "buckets", "overlap", "tried": [{"buckets", "overlap", "step_ms"}], "exact"}
 *      what was chosen by measuring; exact: another bucket size would give the same bits
 *     {"event": "eval", "step", "epoch", "images", "top1", "top5", "loss", "ema": {"top1", "top5", "loss"}}   ema: of the
 *      moving average, with --ema
 *     {"event": "checkpoint", "step", "path", "seconds"}
 *     {"event": "stop" | "end", "step", ...}
 *
 * Only rank 0 has one; every call on NULL does nothing. Each line is one write. Thread safety: one thread.
 */
#ifndef GN_TRAIN_RUNLOG_H
#define GN_TRAIN_RUNLOG_H

#include "src/base/json.h"
#include "src/base/status.h"

struct gn_runlog;

/* Appends to path; "-" is standard output. */
enum gn_status gn_runlog_open(const char *path, struct gn_runlog **out, struct gn_err *err);
void gn_runlog_close(struct gn_runlog *log);
/* Begins a line: returns the writer with an open object that holds "event" and "time" (UTC), or NULL when log is NULL. */
struct gn_json *gn_runlog_begin(struct gn_runlog *log, const char *event);
/* Closes the object and writes the line. */
enum gn_status gn_runlog_end(struct gn_runlog *log, struct gn_err *err);

#endif
