#include "src/train/chart.h"

#include <math.h>
#include <string.h>

/* Marks on an axis at most, whatever its numbers. */
enum { MARKS_MAX = 40 };

const char *gn_chart_colour(size_t index)
{
	static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"};

	return colours[index % (sizeof colours / sizeof *colours)];
}

double gn_axis_place(const struct gn_axis *a, double value)
{
	double share = a->logarithmic ? log(value / a->low) / log(a->high / a->low) : (value - a->low) / (a->high - a->low);

	share = share >= 0 ? share > 1 ? 1 : share : 0;
	return a->pixel_low + share * (a->pixel_high - a->pixel_low);
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
	/* What is too near for numbers to have marks in between counts as one. */
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

/* The number of marks, at mark(i). */
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

static void put_point(struct gn_strbuf *out, const struct gn_axis *x, const struct gn_axis *y, double at, double value)
{
	gn_strbuf_printf(out, "%.1f,%.1f ", gn_axis_place(x, at), gn_axis_place(y, value));
}

void gn_chart_line(struct gn_strbuf *out, const struct gn_axis *x, const struct gn_axis *y, const char *colour,
		   const char *style, const double *at, const double *values, size_t count)
{
	int open = 0;

	for (size_t i = 0; i < count; i++) {
		if (isnan(values[i])) {
			gn_strbuf_puts(out, open ? "'/>\n" : "");
			open = 0;
			continue;
		}
		if (!open)
			gn_strbuf_printf(out, "<polyline fill='none' stroke-linejoin='round' stroke='%s' %s points='", colour, style);
		open = 1;
		put_point(out, x, y, at[i], values[i]);
	}
	gn_strbuf_puts(out, open ? "'/>\n" : "");
}

void gn_chart_band(struct gn_strbuf *out, const struct gn_axis *x, const struct gn_axis *y, const char *colour,
		   const char *style, const double *at, const double *low, const double *high, size_t count)
{
	gn_strbuf_printf(out, "<polygon fill='%s' %s points='", colour, style);
	for (size_t i = 0; i < count; i++)
		put_point(out, x, y, at[i], high[i]);
	for (size_t i = count; i-- > 0;)
		put_point(out, x, y, at[i], low[i]);
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
