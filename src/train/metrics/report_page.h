/* Logs of runs as one static HTML page: no scripts, no external resources, all text escaped.
 *
 * The curves of all runs share axes; each run has its step breakdown, efficiency and ranks; a table lists the options, with
 * differing ones marked and those folded that have their defaults. Curves are averaged down to some hundred points.
 */
#ifndef GN_TRAIN_METRICS_REPORT_PAGE_H
#define GN_TRAIN_METRICS_REPORT_PAGE_H

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

#endif
