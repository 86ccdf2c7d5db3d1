#include "src/train/metrics/chart.h"

#include "src/base/sort.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* limit of marks per axis */
enum { MARKS_MAX = 40 };

const char *gn_chart_colour(size_t index)
{
	static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"};

	return colours[index % (sizeof colours / sizeof *colours)];
}

/* 0 at low, 1 at high; may be outside 0..1. */
static double share_of(const struct gn_axis *a, double value)
{
	if (!a->logarithmic)
		return (value - a->low) / (a->high - a->low);
	return value > 0 ? log(value / a->low) / log(a->high / a->low) : -1;
}

double gn_axis_place(const struct gn_axis *a, double value)
{
	double share = share_of(a, value);

	share = share >= 0 ? share > 1 ? 1 : share : 0;
	return a->pixel_low + share * (a->pixel_high - a->pixel_low);
}

int gn_axis_side(const struct gn_axis *a, double value)
{
	double share = share_of(a, value);

	return share > 1 + 1e-9 ? 1 : share < -1e-9 ? -1 : 0;
}

/* A step of 1, 2 or 5 times a power of ten that gives four to ten marks. */
static double tick(double span)
{
	double power = pow(10, floor(log10(span / 4)));

	if (span / power <= 8)
		return power;
	if (span / (2 * power) <= 8)
		return 2 * power;
	return 5 * power;
}

void gn_axis_widen(struct gn_axis *a)
{
	if (a->logarithmic) {
		a->low = pow(10, floor(log10(a->low) + 1e-9));
		a->high = pow(10, ceil(log10(a->high) - 1e-9));
		if (!(a->high > a->low))
			a->high = a->low * 10;
		return;
	}
	/* a span below the resolution of double counts as empty */
	if (!(a->high - a->low > 1e-12 * (fabs(a->low) + fabs(a->high)) + 1e-290))
		a->high = a->low + (fabs(a->low) > 1 ? fabs(a->low) : 1);
	a->high = a->low + ceil((a->high - a->low) / tick(a->high - a->low) - 1e-9) * tick(a->high - a->low);
}

void gn_chart_escape(struct gn_strbuf *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '<')
			gn_strbuf_puts(out, "&lt;");
		else if (*text == '>')
			gn_strbuf_puts(out, "&gt;");
		else if (*text == '&')
			gn_strbuf_puts(out, "&amp;");
		else if (*text == '\'')
			gn_strbuf_puts(out, "&#39;");
		else if (*text == '"')
			gn_strbuf_puts(out, "&quot;");
		else if ((unsigned char)*text < ' ' || *text == 127)
			gn_strbuf_puts(out, " ");
		else
			gn_strbuf_append(out, text, 1);
	}
}

/* Number of marks; mark i is at mark(i). */
static int marks(const struct gn_axis *a, double *first, double *step)
{
	double count;

	if (a->logarithmic) {
		*first = log10(a->low);
		*step = ceil((log10(a->high) - *first) / 8);
		count = floor((log10(a->high) - *first) / *step + 1e-6) + 1;
	} else {
		*step = tick(a->high - a->low);
		*first = ceil(a->low / *step) * *step;
		count = floor((a->high - *first) / *step + 1e-6) + 1;
	}
	return count > MARKS_MAX ? MARKS_MAX : (int)count;
}

static double mark(const struct gn_axis *a, double first, double step, int i)
{
	double value = first + i * step;

	if (a->logarithmic)
		return pow(10, value);
	return fabs(value) < step / 1e6 ? 0 : value;
}

void gn_chart_frame(struct gn_strbuf *out, const struct gn_axis *x, const struct gn_axis *y, const char *title,
		    const char *unit)
{
	double first, step;
	int count = marks(y, &first, &step);

	gn_strbuf_printf(out, "<text x='%d' y='%d' class='title'>%s</text>\n", x->pixel_low, y->pixel_high - 10, title);
	for (int i = 0; i < count; i++) {
		double v = mark(y, first, step, i), at = gn_axis_place(y, v);

		gn_strbuf_printf(out, "<path d='M%d %.1fH%d' class='grid'/><text x='%d' y='%.1f' class='left'>%g%s</text>\n",
				 x->pixel_low, at, x->pixel_high, x->pixel_low - 8, at + 4, v, unit);
	}
	count = marks(x, &first, &step);
	for (int i = 0; i < count; i++) {
		double v = mark(x, first, step, i), at = gn_axis_place(x, v);

		gn_strbuf_printf(out, "<path d='M%.1f %dv5' class='axis'/><text x='%.1f' y='%d' class='below'>%g</text>\n", at,
				 y->pixel_low, at, y->pixel_low + 18, v);
	}
	gn_strbuf_printf(out, "<path d='M%d %dV%dH%d' class='axis'/>\n", x->pixel_low, y->pixel_high, y->pixel_low,
			 x->pixel_high);
}

static void append_point(struct gn_strbuf *out, const struct gn_axis *x, const struct gn_axis *y, double at, double value)
{
	gn_strbuf_printf(out, "%.1f,%.1f ", gn_axis_place(x, at), gn_axis_place(y, value));
}

/* Appends the point where the line between two points crosses the limit that the outer point exceeds. Returns its x. */
static double append_crossing(struct gn_strbuf *out, const struct gn_axis *x, const struct gn_axis *y, const double *at,
			   const double *values, size_t inside, size_t outside)
{
	double from = share_of(y, values[inside]), to = share_of(y, values[outside]), end = to > 1 ? 1 : 0;
	double way = fmax(0, fmin(1, (end - from) / (to - from)));
	double left = gn_axis_place(x, at[inside]), right = gn_axis_place(x, at[outside]);

	gn_strbuf_printf(out, "%.1f,%d ", left + way * (right - left), to > 1 ? y->pixel_high : y->pixel_low);
	return left + way * (right - left);
}

void gn_chart_beyond(struct gn_strbuf *out, const struct gn_axis *x, const struct gn_axis *y, size_t count)
{
	if (count)
		gn_strbuf_printf(out, "<text x='%d' y='%d' class='left'>%zu point%s beyond the axis</text>\n", x->pixel_high,
				 y->pixel_high - 10, count, count == 1 ? "" : "s");
}

void gn_chart_line(struct gn_strbuf *out, const struct gn_axis *x, const struct gn_axis *y, const char *colour,
		   const char *style, const double *at, const double *values, size_t count)
{
	int open = 0;

	for (size_t i = 0; i < count; i++) {
		int side = gn_axis_side(y, values[i]), known = i && !isnan(values[i - 1]);
		int before = known ? gn_axis_side(y, values[i - 1]) : 0;

		if (side || isnan(values[i])) {
			double where = open && side ? append_crossing(out, x, y, at, values, i - 1, i) : gn_axis_place(x, at[i]);

			gn_strbuf_puts(out, open ? "'/>\n" : "");
			if (side > 0 && before <= 0)
				gn_strbuf_printf(out, "<path d='M%.1f %dl4 7h-8z' fill='%s'/>\n", where, y->pixel_high - 7,
						 colour);
			open = 0;
			continue;
		}
		if (!open)
			gn_strbuf_printf(out, "<polyline fill='none' stroke-linejoin='round' stroke='%s' %s points='", colour, style);
		if (before)
			append_crossing(out, x, y, at, values, i, i - 1);
		open = 1;
		append_point(out, x, y, at[i], values[i]);
	}
	gn_strbuf_puts(out, open ? "'/>\n" : "");
}

void gn_chart_band(struct gn_strbuf *out, const struct gn_axis *x, const struct gn_axis *y, const char *colour,
		   const char *style, const double *at, const double *low, const double *high, size_t count)
{
	gn_strbuf_printf(out, "<polygon fill='%s' %s points='", colour, style);
	for (size_t i = 0; i < count; i++)
		append_point(out, x, y, at[i], high[i]);
	for (size_t i = count; i-- > 0;)
		append_point(out, x, y, at[i], low[i]);
	gn_strbuf_puts(out, "'/>\n");
}

int gn_chart_legend(struct gn_strbuf *out, int left, int baseline, const char *colour, const char *text)
{
	gn_strbuf_printf(out, "<rect x='%d' y='%d' width='10' height='10' fill='%s'/><text x='%d' y='%d'>", left, baseline - 9,
			 colour, left + 14, baseline);
	gn_chart_escape(out, text);
	gn_strbuf_puts(out, "</text>\n");
	return left + 34 + 7 * (int)strlen(text);
}

double gn_curve_quantile(const struct gn_curve *c, size_t offset, double share)
{
	double *values = malloc((c->step_count + 1) * sizeof *values), result = NAN;
	size_t count = 0;

	for (size_t i = 0; values && i < c->step_count; i++)
		if (gn_curve_field(&c->steps[i], offset) > 0)
			values[count++] = gn_curve_field(&c->steps[i], offset);
	if (count) {
		gn_sort_doubles(values, count);
		result = values[(size_t)(share * (double)(count - 1))];
	}
	free(values);
	return result;
}

void gn_curve_range(const struct gn_curve *curves, size_t count, size_t offset, double limit, double *low, double *high)
{
	*low = *high = 0;
	for (size_t c = 0; c < count; c++)
		for (size_t i = 0; i < curves[c].step_count; i++) {
			double v = gn_curve_field(&curves[c].steps[i], offset);

			if (!(v > 0) || v > limit)
				continue;
			*high = fmax(*high, v);
			*low = *low > 0 ? fmin(*low, v) : v;
		}
}

size_t gn_curve_axis(const struct gn_curve *curves, size_t count, size_t field, int prefer_log, struct gn_axis *y)
{
	int diverges = field == offsetof(struct gn_curve_step, loss) || field == offsetof(struct gn_curve_step, grad_norm);
	double least = 0, low, high, one;
	size_t beyond = 0;

	for (size_t c = 0; c < count; c++) {
		one = gn_curve_quantile(&curves[c], field, 0.9);
		if (one > 0 && (one < least || !(least > 0)))
			least = one;
	}
	gn_curve_range(curves, count, field, INFINITY, &low, &high);
	if (diverges && least > 0 && high / least > 1e4)
		gn_curve_range(curves, count, field, prefer_log ? 1e3 * least : 4 * least, &low, &high);
	y->low = 0;
	y->high = high;
	y->logarithmic = low > 0 && ((prefer_log && high / low > 20) || high / least > 20);
	if (y->logarithmic)
		y->low = fmax(low, high / 1e5);
	if (!(high > 0))
		return 0;
	gn_axis_widen(y);
	for (size_t c = 0; c < count; c++)
		for (size_t i = 0; i < curves[c].step_count; i++)
			beyond += gn_axis_side(y, gn_curve_field(&curves[c].steps[i], field)) > 0;
	return beyond;
}
