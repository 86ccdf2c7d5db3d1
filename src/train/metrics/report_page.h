/* Logs of runs as one static HTML page: no scripts, nothing loaded from anywhere, all text escaped.
 *
 * Curves of all runs share axes; each run has its step split, its efficiency and its ranks; a table has the options, with those
 * that differ marked. Points are averaged down to some hundred a curve, whatever the log's length.
 */
#ifndef GN_TRAIN_METRICS_REPORT_PAGE_H
#define GN_TRAIN_METRICS_REPORT_PAGE_H

#include "src/base/strbuf.h"
#include "src/train/metrics/metrics_reader.h"

/* Appends the whole document. Runs are called by their logs' paths. */
void gn_report_page(const struct gn_curve *curves, size_t count, struct gn_strbuf *out);

#endif
