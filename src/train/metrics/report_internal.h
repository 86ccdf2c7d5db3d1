/* The charts of a report (report_charts.c), and tables with files of their own, used by the page (report_page.c). */
#ifndef GN_TRAIN_METRICS_REPORT_INTERNAL_H
#define GN_TRAIN_METRICS_REPORT_INTERNAL_H

#include "src/base/strbuf.h"
#include "src/train/metrics/metrics_reader.h"

/* SVG elements. Runs share axes; each has the colour of its number. */
void gn_report_loss(const struct gn_curve *curves, size_t count, struct gn_strbuf *out);
void gn_report_accuracy(const struct gn_curve *curves, size_t count, struct gn_strbuf *out);
/* field: offset of a double in gn_curve_step. unit " %": values are fractions. logarithmic: allow a logarithmic axis where values differ much,
 * else only where runs do. Appends nothing when no run has a value. */
void gn_report_series(const struct gn_curve *curves, size_t count, size_t field, const char *title, const char *unit,
		      int logarithmic, struct gn_strbuf *out);
/* For one run. */
void gn_report_split(const struct gn_curve *c, struct gn_strbuf *out);
void gn_report_efficiency(const struct gn_curve *c, struct gn_strbuf *out);
void gn_report_skew(const struct gn_curve *c, struct gn_strbuf *out);
/* Bytes that rank 0 sends in a step, and where the way to share a step changes; nothing without any. */
void gn_report_sent(const struct gn_curve *c, struct gn_strbuf *out);
/* A table of worlds after the first one, and the goodput; nothing of a run without any. */
void gn_report_losses(const struct gn_curve *c, struct gn_strbuf *out);
/* Rank by time, red where a rank computes longer than the mean. */
void gn_report_map(const struct gn_curve *c, struct gn_strbuf *out);

#endif
