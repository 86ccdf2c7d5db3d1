/* Runs of a log in the formats of other tools: CSV, and TensorBoard's event files.
 *
 * Both hold the points of a struct gn_curve as they are, without averaging. Thread safety: no state.
 */
#ifndef GN_TRAIN_METRICS_CURVE_EXPORT_H
#define GN_TRAIN_METRICS_CURVE_EXPORT_H

#include "src/base/status.h"
#include "src/base/strbuf.h"
#include "src/train/metrics/metrics_reader.h"

/* With which such a file begins. */
#define GN_CURVES_CSV_BEGINNING "log,run,event"
/* Appends a header line, and one line for each "step" and "eval" line of the logs, in the order of steps (RFC 4180, but lines end with
 * "\n"). A value that the log does not have is empty. */
void gn_curves_csv(const struct gn_curve *curves, size_t count, struct gn_strbuf *out);
/* Writes DIRECTORY/RUN/events.out.tfevents.TIME.gannet for each run, atomically; TIME is that of the run's first line, so that a second
 * conversion replaces the first. RUN is the log's name without folder and ".jsonl", with "-runN" when the log has several runs, and
 * "-N" when an earlier curve has that name. Blocks on the file system. */
enum gn_status gn_curves_write_events(const char *directory, const struct gn_curve *curves, size_t count, struct gn_err *err);

#endif
