/* The parts of a line chart in SVG: axes with round marks, lines, bands, and text that cannot break out of its element.
 *
 * Everything is appended to a string buffer, in the pixels of the SVG element that the caller has begun. Values beyond an axis
 * are drawn at its end, but lines are cut there; NaN leaves a gap. Thread safety: no state.
 */
#ifndef GN_TRAIN_METRICS_CHART_H
#define GN_TRAIN_METRICS_CHART_H

#include "src/base/strbuf.h"

/* From low at pixel_low to high at pixel_high; y axes have pixel_low below pixel_high's place, so as the larger number. */
struct gn_axis {
	double low, high;
	int pixel_low, pixel_high;
	int logarithmic; /* low is above 0 */
};

/* Colours of series, for white paper, distinguishable also for most colour-blind readers (Okabe and Ito); any index. */
const char *gn_chart_colour(size_t index);
double gn_axis_place(const struct gn_axis *a, double value);
/* Above the axis: 1; below it: -1; on it: 0. NaN is on it. */
int gn_axis_side(const struct gn_axis *a, double value);
/* Moves high up to a round mark, and both apart where they are one. Logarithmic: both ends to powers of ten. */
void gn_axis_widen(struct gn_axis *a);
/* <, >, &, quotes and control characters cannot harm. */
void gn_chart_escape(struct gn_strbuf *out, const char *text);
/* Title, grid, marks and axes. title and unit are not escaped. */
void gn_chart_frame(struct gn_strbuf *out, const struct gn_axis *x, const struct gn_axis *y, const char *title,
		    const char *unit);
/* "3 points beyond the axis", at the right of the title; nothing for 0. */
void gn_chart_beyond(struct gn_strbuf *out, const struct gn_axis *x, const struct gn_axis *y, size_t count);
/* A triangle marks where a line leaves the axis at the top. style: further attributes, such as "stroke-dasharray='5 4'"; "" for
 * none. */
void gn_chart_line(struct gn_strbuf *out, const struct gn_axis *x, const struct gn_axis *y, const char *colour,
		   const char *style, const double *at, const double *values, size_t count);
/* Between low and high. Without gaps. */
void gn_chart_band(struct gn_strbuf *out, const struct gn_axis *x, const struct gn_axis *y, const char *colour,
		   const char *style, const double *at, const double *low, const double *high, size_t count);
/* A square and what it stands for; returns where the next one may begin. */
int gn_chart_legend(struct gn_strbuf *out, int left, int baseline, const char *colour, const char *text);

#endif
