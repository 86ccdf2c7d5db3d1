/* Training curves as one SVG picture: loss, accuracy, and where the step's time went. */
#ifndef GN_TRAIN_METRICS_METRICS_SVG_H
#define GN_TRAIN_METRICS_METRICS_SVG_H

#include "src/base/strbuf.h"
#include "src/train/metrics/chart.h"
#include "src/train/metrics/metrics_reader.h"

/* Sets low, high and logarithmic for a field (offsetof in gn_curve_step) of all runs, which is not below 0. Of losses and norms of
 * gradients those of a run that diverged may be beyond the axis: returned is how many. They are where the largest is more than ten
 * thousand times what nine of ten values of some run do not exceed. The axis is logarithmic where it
 * would press a run flat otherwise, or, with prefer_log, where values differ by more than a factor of 20. Without any value above 0,
 * high is 0, else a round mark. */
size_t gn_curve_axis(const struct gn_curve *curves, size_t count, size_t field, int prefer_log, struct gn_axis *y);
/* Appends a whole SVG document; the runs share axes, each has its colour. The time panel shows the first run. */
void gn_curve_svg(const struct gn_curve *curves, size_t count, struct gn_strbuf *out);

#endif
