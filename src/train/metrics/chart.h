/* Elements of a line chart in SVG: axes with round marks, lines, bands, and escaped text.
 *
 * Everything is appended to a string buffer, in the pixels of the caller's SVG element. Lines are clipped at the axes, and single
 * values beyond an axis are drawn at its end; NaN leaves a gap. Thread safety: no state.
 */
#ifndef GN_TRAIN_METRICS_CHART_H
#define GN_TRAIN_METRICS_CHART_H

#include "src/base/strbuf.h"
#include "src/train/metrics/metrics_reader.h"

/* Maps low to pixel_low and high to pixel_high. For a y axis pixel_low is the larger number. */
struct gn_axis {
	double low, high;
	int pixel_low, pixel_high;
	int logarithmic; /* low must be above 0 */
};

/* Colours of series on white (Okabe and Ito, distinguishable with most colour-vision deficiencies); any index. */
const char *gn_chart_colour(size_t index);
double gn_axis_place(const struct gn_axis *a, double value);
/* 1: above the axis; -1: below; 0: on it, or NaN. */
int gn_axis_side(const struct gn_axis *a, double value);
/* Moves high up to a round mark, and separates equal limits. Logarithmic: both limits to powers of ten. */
void gn_axis_widen(struct gn_axis *a);
/* Appends text with <, >, &, quotes and control characters escaped. */
void gn_chart_escape(struct gn_strbuf *out, const char *text);
/* Appends title, grid, marks and axes. title and unit are not escaped. */
void gn_chart_frame(struct gn_strbuf *out, const struct gn_axis *x, const struct gn_axis *y, const char *title,
		    const char *unit);
/* Appends "3 points beyond the axis", to the right of the title; nothing for 0. */
void gn_chart_beyond(struct gn_strbuf *out, const struct gn_axis *x, const struct gn_axis *y, size_t count);
/* A triangle marks where a line leaves the axis at the top. style: additional attributes, such as "stroke-dasharray='5 4'", or
 * "". */
void gn_chart_line(struct gn_strbuf *out, const struct gn_axis *x, const struct gn_axis *y, const char *colour,
		   const char *style, const double *at, const double *values, size_t count);
/* Between low and high, which must not contain NaN. */
void gn_chart_band(struct gn_strbuf *out, const struct gn_axis *x, const struct gn_axis *y, const char *colour,
		   const char *style, const double *at, const double *low, const double *high, size_t count);
/* Appends a coloured square and its label. Returns the left edge for the next one. */
int gn_chart_legend(struct gn_strbuf *out, int left, int baseline, const char *colour, const char *text);

/* The axis of a curve's values. */

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
