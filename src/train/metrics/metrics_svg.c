#include "src/train/metrics/metrics_svg.h"

#include "src/base/sort.h"
#include "src/train/metrics/chart.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 900, LEFT = 70, RIGHT = 24, PANEL = 210, GAP = 58, TOP = 56, LETTER = 7 };

static struct gn_axis y_axis(int panel, double low, double high)
{
	int top = TOP + panel * (PANEL + GAP);

	return (struct gn_axis){low, high, top + PANEL, top, 0};
}

static double field_of(const struct gn_curve_step *step, size_t offset)
{
	return *(const double *)(const void *)((const char *)step + offset);
}

/* The 90th percentile of a run's positive values; 0 if there are none, or when out of memory. */
static double usual(const struct gn_curve *c, size_t offset)
{
	double *values = malloc((c->step_count + 1) * sizeof *values), result = 0;
	size_t count = 0;

	for (size_t i = 0; values && i < c->step_count; i++)
		if (field_of(&c->steps[i], offset) > 0)
			values[count++] = field_of(&c->steps[i], offset);
	if (count) {
		gn_sort_doubles(values, count);
		result = values[(count - 1) * 9 / 10];
	}
	free(values);
	return result;
}

/* The largest value up to limit, and the smallest positive one. */
static void range(const struct gn_curve *curves, size_t count, size_t offset, double limit, double *low, double *high)
{
	*low = *high = 0;
	for (size_t c = 0; c < count; c++)
		for (size_t i = 0; i < curves[c].step_count; i++) {
			double v = field_of(&curves[c].steps[i], offset);

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
		one = usual(&curves[c], field);
		if (one > 0 && (one < least || !(least > 0)))
			least = one;
	}
	range(curves, count, field, INFINITY, &low, &high);
	if (diverges && least > 0 && high / least > 1e4)
		range(curves, count, field, prefer_log ? 1e3 * least : 4 * least, &low, &high);
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
			beyond += gn_axis_side(y, field_of(&curves[c].steps[i], field)) > 0;
	return beyond;
}

static void draw_loss(struct gn_strbuf *out, const struct gn_curve *c, const struct gn_axis *x, const struct gn_axis *y,
		      const char *colour)
{
	double *at = calloc(c->step_count + 1, sizeof *at), *values = calloc(c->step_count + 1, sizeof *values);

	for (size_t i = 0; at && values && i < c->step_count; i++) {
		at[i] = c->steps[i].epoch;
		values[i] = c->steps[i].loss;
	}
	if (at && values)
		gn_chart_line(out, x, y, colour, "stroke-width='1.5'", at, values, c->step_count);
	free(at);
	free(values);
}

static void loss_panel(struct gn_strbuf *out, const struct gn_curve *curves, size_t count, const struct gn_axis *x)
{
	struct gn_axis y = y_axis(0, 0, 0);

	size_t beyond = gn_curve_axis(curves, count, offsetof(struct gn_curve_step, loss), 0, &y);

	if (!(y.high > 0))
		gn_axis_widen(&y);
	gn_chart_beyond(out, x, &y, beyond);
	gn_chart_frame(out, x, &y, "loss: training (line), evaluation (dots)", "");
	for (size_t c = 0; c < count; c++) {
		const char *colour = gn_chart_colour(c);

		draw_loss(out, &curves[c], x, &y, colour);
		for (size_t i = 0; i < curves[c].eval_count; i++)
			if (!gn_axis_side(&y, curves[c].evals[i].loss))
				gn_strbuf_printf(out, "<circle cx='%.1f' cy='%.1f' r='3.5' fill='%s'/>\n",
						 gn_axis_place(x, curves[c].evals[i].epoch),
						 gn_axis_place(&y, curves[c].evals[i].loss), colour);
	}
}

static void accuracy_panel(struct gn_strbuf *out, const struct gn_curve *curves, size_t count, const struct gn_axis *x)
{
	double low = 1;
	struct gn_axis y;

	for (size_t c = 0; c < count; c++)
		for (size_t i = 0; i < curves[c].eval_count; i++)
			low = fmin(low, curves[c].evals[i].top1);
	/* start at the lowest point, so that the last percent is visible */
	y = y_axis(1, floor(low * 20) * 5, 100);
	if (y.low >= 100)
		y.low = 95;
	gn_chart_frame(out, x, &y, "evaluation: top-1 (line), top-5 (dashed)", "%");
	for (size_t c = 0; c < count; c++) {
		for (int five = 0; five < 2; five++) {
			gn_strbuf_printf(out, "<polyline fill='none' stroke-width='%s' stroke='%s'%s points='",
					 five ? "1" : "2", gn_chart_colour(c), five ? " stroke-dasharray='5 4'" : "");
			for (size_t i = 0; i < curves[c].eval_count; i++)
				gn_strbuf_printf(out, "%.1f,%.1f ", gn_axis_place(x, curves[c].evals[i].epoch),
						 gn_axis_place(&y, 100 * (five ? curves[c].evals[i].top5
								       : curves[c].evals[i].top1)));
			gn_strbuf_puts(out, "'/>\n");
		}
	}
}

/* Sum of the parts below `part` at a point. */
static double stacked(const struct gn_curve_step *step, int part)
{
	double sum = 0;

	for (int k = 0; k < part; k++)
		sum += step->ms[k];
	return sum;
}

/* The band of one part: along its upper edge, and back along the lower one. */
static void band(struct gn_strbuf *out, const struct gn_curve *c, const struct gn_axis *x, const struct gn_axis *y, int part)
{
	gn_strbuf_printf(out, "<polygon fill='%s' points='", gn_chart_colour((size_t)part));
	for (size_t i = 0; i < c->step_count; i++)
		gn_strbuf_printf(out, "%.1f,%.1f ", gn_axis_place(x, c->steps[i].epoch), gn_axis_place(y, stacked(&c->steps[i], part + 1)));
	for (size_t i = c->step_count; i-- > 0;)
		gn_strbuf_printf(out, "%.1f,%.1f ", gn_axis_place(x, c->steps[i].epoch), gn_axis_place(y, stacked(&c->steps[i], part)));
	gn_strbuf_puts(out, "'/>\n");
}

static void time_panel(struct gn_strbuf *out, const struct gn_curve *c, const struct gn_axis *x)
{
	static const struct {
		const char *name;
		int left;
	} legend[GN_PARTS] = {{"data wait", 340}, {"forward", 432}, {"backward", 518}, {"exposed communication", 610},
			      {"optimizer", 772}};
	struct gn_axis y = y_axis(2, 0, 0);

	for (size_t i = 0; i < c->step_count; i++)
		y.high = fmax(y.high, stacked(&c->steps[i], GN_PARTS));
	gn_axis_widen(&y);
	gn_chart_frame(out, x, &y, "milliseconds of a step on rank 0", "");
	for (int k = 0; k < GN_PARTS; k++) {
		band(out, c, x, &y, k);
		gn_strbuf_printf(out, "<rect x='%d' y='%d' width='10' height='10' fill='%s'/><text x='%d' y='%d'>%s</text>\n",
				 legend[k].left, y.pixel_high - 19, gn_chart_colour((size_t)k), legend[k].left + 14, y.pixel_high - 10,
				 legend[k].name);
	}
}

/* Beside each other; of those that have too little room, the end, where they differ most. */
static void run_names(struct gn_strbuf *out, const struct gn_curve *curves, size_t count)
{
	int each = (WIDTH - LEFT - RIGHT) / (int)count;
	size_t room;

	each = each < 280 ? each : 280;
	room = (size_t)(each / LETTER > 4 ? each / LETTER : 4);
	for (size_t c = 0; c < count; c++) {
		const char *label = curves[c].label;
		size_t len = strlen(label), skip = len > room ? len - room + 1 : 0;

		while ((label[skip] & 0xc0) == 0x80) /* not within a letter of UTF-8 */
			skip++;
		gn_strbuf_printf(out, "<text x='%d' y='18' style='fill:%s'>%s", LEFT + (int)c * each, gn_chart_colour(c), skip ? "\u2026" : "");
		gn_chart_escape(out, label + skip);
		gn_strbuf_puts(out, "</text>\n");
	}
}

void gn_curve_svg(const struct gn_curve *curves, size_t count, struct gn_strbuf *out)
{
	struct gn_axis x = {0, 0, LEFT, WIDTH - RIGHT, 0};
	int height = TOP + 3 * (PANEL + GAP);

	for (size_t c = 0; c < count; c++)
		x.high = fmax(x.high, curves[c].steps[curves[c].step_count - 1].epoch);
	if (!(x.high > 0))
		x.high = 1;
	gn_strbuf_printf(out, "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' viewBox='0 0 %d %d'>\n"
			 "<style>text{font:12px sans-serif;fill:#222}.title{font-weight:bold}.left{text-anchor:end}"
			 ".below{text-anchor:middle}.grid{stroke:#ddd}.axis{stroke:#444;fill:none}</style>\n"
			 "<rect width='100%%' height='100%%' fill='white'/>\n", WIDTH, height, WIDTH, height);
	run_names(out, curves, count);
	loss_panel(out, curves, count, &x);
	accuracy_panel(out, curves, count, &x);
	time_panel(out, &curves[0], &x);
	gn_strbuf_printf(out, "<text x='%d' y='%d' class='below'>epoch</text>\n</svg>\n", (LEFT + WIDTH - RIGHT) / 2,
			 height - 8);
}
