/* The axis of a curve's values. Thread safety: no state. */
#ifndef GN_TRAIN_METRICS_CURVE_AXIS_H
#define GN_TRAIN_METRICS_CURVE_AXIS_H

#include "src/train/metrics/chart.h"
#include "src/train/metrics/metrics_reader.h"

/* A double of a step: field is its offset in gn_curve_step. */
static inline double gn_curve_field(const struct gn_curve_step *step, size_t field)
{
	return *(const double *)(const void *)((const char *)step + field);
}
/* A quantile of a run's positive values, share 0.5: their median; NaN when there are none, or no memory. */
double gn_curve_quantile(const struct gn_curve *c, size_t field, double share);
/* The largest value up to limit, and the smallest positive one; 0 if there is none. */
void gn_curve_range(const struct gn_curve *curves, size_t count, size_t field, double limit, double *low, double *high);
/* Sets low, high and logarithmic for a non-negative field (offsetof in gn_curve_step) of all runs. Losses and gradient norms of a
 * run that diverged may be beyond the axis; returns their number: values are cut when the largest exceeds ten thousand times the
 * 90th percentile of a run. The axis is logarithmic where a run would otherwise be flat, or, with prefer_log, where values differ
 * by more than a factor of 20. high is 0 without positive values, else a round mark. */
size_t gn_curve_axis(const struct gn_curve *curves, size_t count, size_t field, int prefer_log, struct gn_axis *y);

#endif
