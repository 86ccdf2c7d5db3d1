/* Logs of runs as one static HTML page: no scripts, no external resources, all text escaped.
 *
 * The curves of all runs share axes; each run has its step breakdown, efficiency and ranks; a table lists the options, with
 * differing ones marked and those folded that have their defaults. Curves are averaged down to some hundred points.
 */
#ifndef GN_TRAIN_METRICS_REPORT_PAGE_H
#define GN_TRAIN_METRICS_REPORT_PAGE_H

#include "src/base/status.h"
#include "src/base/strbuf.h"
#include "src/train/metrics/chart.h"
#include "src/train/metrics/metrics_reader.h"

/* Appends head, style and heading of such a page: "<!DOCTYPE html>" to "</h1>". The title becomes "Gannet: what name", the heading "what
 * name", both escaped; the caller ends with "</body></html>". Classes: charts, wide, n (numbers), long, differs, note, swatch. */
void gn_report_page_begin(const char *what, const char *name, struct gn_strbuf *out);
/* Appends the whole document. Runs are named by their logs' paths. more: HTML that follows the curves, or "". defaults: of
 * options, as gn_options_describe() has them; those with these values are folded; NULL: none are. */
void gn_report_page(const struct gn_curve *curves, size_t count, const char *more, const char *defaults, struct gn_strbuf *out);
/* Appends one SVG picture: loss, accuracy, and the breakdown of the step time of the first run. The runs share axes; each has its colour. */
void gn_curve_svg(const struct gn_curve *curves, size_t count, struct gn_strbuf *out);
/* Appends a line of a double of gn_curve_step, of which offset is known, averaged over groups of steps; and of a fraction of gn_curve_eval,
 * in per cent. */
void gn_report_line(const struct gn_curve *c, size_t offset, const struct gn_axis *x, const struct gn_axis *y, const char *colour,
		    const char *style, struct gn_strbuf *out);
void gn_report_evals(const struct gn_curve *c, size_t offset, const struct gn_axis *x, const struct gn_axis *y, const char *colour,
		     const char *style, struct gn_strbuf *out);

/* Runs of a log in the formats of other tools: CSV, and TensorBoard's event files.
 *
 * Both hold the points of a struct gn_curve as they are, without averaging. */

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
