/* Logs of runs as one static HTML page: no scripts, no external resources, all text escaped.
 *
 * The curves of all runs share axes; each run has its step breakdown, efficiency and ranks; a table lists the options, with
 * differing ones marked. Curves are averaged down to some hundred points.
 */
#ifndef GN_TRAIN_METRICS_REPORT_PAGE_H
#define GN_TRAIN_METRICS_REPORT_PAGE_H

#include "src/base/strbuf.h"
#include "src/train/metrics/metrics_reader.h"

/* Appends head, style and heading of such a page: "<!DOCTYPE html>" to "</h1>". The title becomes "Gannet: what name", the heading "what
 * name", both escaped; the caller ends with "</body></html>". Classes: charts, wide, n (numbers), long, differs, note, swatch. */
void gn_report_page_begin(const char *what, const char *name, struct gn_strbuf *out);
/* Appends the whole document. Runs are named by their logs' paths. more: HTML that follows the curves, or "". */
void gn_report_page(const struct gn_curve *curves, size_t count, const char *more, struct gn_strbuf *out);
/* Appends one SVG picture: loss, accuracy, and the breakdown of the step time of the first run. The runs share axes; each has its colour. */
void gn_curve_svg(const struct gn_curve *curves, size_t count, struct gn_strbuf *out);

#endif
