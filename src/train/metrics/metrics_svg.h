/* Training curves as one SVG picture: loss, accuracy, and the breakdown of the step time. Thread safety: no state. */
#ifndef GN_TRAIN_METRICS_METRICS_SVG_H
#define GN_TRAIN_METRICS_METRICS_SVG_H

#include "src/base/strbuf.h"
#include "src/train/metrics/chart.h"
#include "src/train/metrics/metrics_reader.h"

/* Sets low, high and logarithmic for a non-negative field (offsetof in gn_curve_step) of all runs. Losses and gradient norms of a
 * run that diverged may be beyond the axis; returns their number: values are cut when the largest exceeds ten thousand times the
 * 90th percentile of a run. The axis is logarithmic where a run would otherwise be flat, or, with prefer_log, where values differ
 * by more than a factor of 20. high is 0 without positive values, else a round mark. */
size_t gn_curve_axis(const struct gn_curve *curves, size_t count, size_t field, int prefer_log, struct gn_axis *y);
/* Appends a whole SVG document. The runs share axes; each has its colour. The time panel shows the first run. */
void gn_curve_svg(const struct gn_curve *curves, size_t count, struct gn_strbuf *out);

#endif
