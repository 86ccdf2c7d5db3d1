#include "src/train/metrics/report_internal.h"

#include "src/train/metrics/chart.h"
#include "src/train/metrics/report_page.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 720, HEIGHT = 250, LEFT = 62, RIGHT = 16, TOP = 30, BOTTOM = 30, POINTS_MAX = 400 };
enum { CELLS_MAX = 120 };

/* A run's values, averaged over groups of steps. */
struct points {
	double *at, *values;
	size_t count;
};

/* NaN where no step of a group has a value. points->count is 0 when out of memory. */
static void average(const struct gn_curve *c, size_t offset, struct points *p)
{
	size_t groups = c->step_count < POINTS_MAX ? c->step_count : POINTS_MAX;

	p->at = calloc(groups, sizeof *p->at);
	p->values = calloc(groups, sizeof *p->values);
	p->count = p->at && p->values ? groups : 0;
	for (size_t g = 0; g < p->count; g++) {
		size_t begin = g * c->step_count / groups, end = (g + 1) * c->step_count / groups, known = 0;
		double sum = 0;

		for (size_t i = begin; i < end; i++)
			if (!isnan(gn_curve_field(&c->steps[i], offset))) {
				sum += gn_curve_field(&c->steps[i], offset);
				known++;
			}
		p->at[g] = c->steps[end - 1].epoch;
		p->values[g] = known ? sum / (double)known : NAN;
	}
}

static void release(struct points *p)
{
	free(p->at);
	free(p->values);
}

static void begin(struct gn_strbuf *out, int height)
{
	gn_strbuf_printf(out, "<svg width='%d' height='%d' viewBox='0 0 %d %d' role='img'>\n", WIDTH, height, WIDTH, height);
}

static struct gn_axis x_axis(const struct gn_curve *curves, size_t count)
{
	struct gn_axis x = {0, 0, LEFT, WIDTH - RIGHT, 0};

	for (size_t c = 0; c < count; c++)
		x.high = fmax(x.high, curves[c].steps[curves[c].step_count - 1].epoch);
	/* not widened: curves reach the right edge */
	if (!(x.high > 1e-9))
		x.high = 1;
	return x;
}

static struct gn_axis y_axis(double low, double high)
{
	return (struct gn_axis){low, high, HEIGHT - BOTTOM, TOP, 0};
}

void gn_report_line(const struct gn_curve *c, size_t offset, const struct gn_axis *x, const struct gn_axis *y, const char *colour,
		    const char *style, struct gn_strbuf *out)
{
	struct points p;

	average(c, offset, &p);
	gn_chart_line(out, x, y, colour, style, p.at, p.values, p.count);
	release(&p);
}

/* unit " %": values are fractions */
static void frame(struct gn_strbuf *out, const struct gn_axis *x, const struct gn_axis *y, const char *title, const char *unit)
{
	double scale = strcmp(unit, " %") ? 1 : 100;
	struct gn_axis shown = {scale * y->low, scale * y->high, y->pixel_low, y->pixel_high, y->logarithmic};

	gn_chart_frame(out, x, &shown, title, unit);
}

void gn_report_series(const struct gn_curve *curves, size_t count, size_t field, const char *title, const char *unit,
		      int logarithmic, struct gn_strbuf *out)
{
	struct gn_axis x = x_axis(curves, count), y = y_axis(0, 0);
	size_t beyond = gn_curve_axis(curves, count, field, logarithmic, &y);

	if (!(y.high > 0))
		return;
	begin(out, HEIGHT);
	gn_chart_beyond(out, &x, &y, beyond);
	frame(out, &x, &y, title, unit);
	for (size_t c = 0; c < count; c++)
		gn_report_line(&curves[c], field, &x, &y, gn_chart_colour(c), "stroke-width='1.5'", out);
	gn_strbuf_puts(out, "</svg>\n");
}

static void append_dot(struct gn_strbuf *out, double x, double y, const char *colour, const char *what, double value, double step)
{
	gn_strbuf_printf(out, "<circle cx='%.1f' cy='%.1f' r='3' fill='%s'><title>%s %.5g at step %.0f</title></circle>\n", x, y,
			 colour, what, value, step);
}

void gn_report_loss(const struct gn_curve *curves, size_t count, struct gn_strbuf *out)
{
	struct gn_axis x = x_axis(curves, count), y = y_axis(0, 0);
	size_t beyond = gn_curve_axis(curves, count, offsetof(struct gn_curve_step, loss), 0, &y);

	if (!(y.high > 0))
		gn_axis_widen(&y);
	for (size_t c = 0; c < count; c++)
		for (size_t i = 0; i < curves[c].eval_count; i++)
			beyond += gn_axis_side(&y, curves[c].evals[i].loss) > 0;
	begin(out, HEIGHT);
	gn_chart_beyond(out, &x, &y, beyond);
	gn_chart_frame(out, &x, &y, "Loss: training (line), evaluation (dots)", "");
	for (size_t c = 0; c < count; c++) {
		gn_report_line(&curves[c], offsetof(struct gn_curve_step, loss), &x, &y, gn_chart_colour(c), "stroke-width='1.5'", out);
		for (size_t i = 0; i < curves[c].eval_count; i++)
			if (!gn_axis_side(&y, curves[c].evals[i].loss))
				append_dot(out, gn_axis_place(&x, curves[c].evals[i].epoch), gn_axis_place(&y, curves[c].evals[i].loss),
					gn_chart_colour(c), "loss", curves[c].evals[i].loss, curves[c].evals[i].step);
	}
	gn_strbuf_puts(out, "</svg>\n");
}

void gn_report_evals(const struct gn_curve *c, size_t offset, const struct gn_axis *x, const struct gn_axis *y, const char *colour,
		     const char *style, struct gn_strbuf *out)
{
	double *at = calloc(c->eval_count + 1, sizeof *at), *values = calloc(c->eval_count + 1, sizeof *values);

	for (size_t i = 0; at && values && i < c->eval_count; i++) {
		at[i] = c->evals[i].epoch;
		values[i] = 100 * *(const double *)(const void *)((const char *)&c->evals[i] + offset);
	}
	if (at && values)
		gn_chart_line(out, x, y, colour, style, at, values, c->eval_count);
	free(at);
	free(values);
}

void gn_report_accuracy(const struct gn_curve *curves, size_t count, struct gn_strbuf *out)
{
	struct gn_axis x = x_axis(curves, count), y = y_axis(0, 100);
	double low = 1;
	size_t evals = 0;

	for (size_t c = 0; c < count; c++)
		for (size_t i = 0; i < curves[c].eval_count; i++, evals++)
			low = fmin(low, fmin(curves[c].evals[i].top1, curves[c].evals[i].average_top1));
	if (!evals)
		return;
	/* start at the lowest point, so that the last percent is visible */
	y.low = fmax(0, fmin(95, floor(low * 20) * 5));
	begin(out, HEIGHT);
	gn_chart_frame(out, &x, &y, "Evaluation: top-1 (line), top-5 (dashed), top-1 of the moving average (dotted)", " %");
	for (size_t c = 0; c < count; c++) {
		const char *colour = gn_chart_colour(c);

		gn_report_evals(&curves[c], offsetof(struct gn_curve_eval, top5), &x, &y, colour, "stroke-dasharray='6 4'", out);
		gn_report_evals(&curves[c], offsetof(struct gn_curve_eval, average_top1), &x, &y, colour,
			   "stroke-width='2' stroke-dasharray='2 3'", out);
		gn_report_evals(&curves[c], offsetof(struct gn_curve_eval, top1), &x, &y, colour, "stroke-width='2'", out);
		for (size_t i = 0; i < curves[c].eval_count; i++)
			append_dot(out, gn_axis_place(&x, curves[c].evals[i].epoch), gn_axis_place(&y, 100 * curves[c].evals[i].top1),
				colour, "top-1 %", 100 * curves[c].evals[i].top1, curves[c].evals[i].step);
	}
	gn_strbuf_puts(out, "</svg>\n");
}

void gn_report_split(const struct gn_curve *c, struct gn_strbuf *out)
{
	static const char *const names[GN_PARTS] = {"data wait", "forward", "backward", "exposed communication", "optimizer"};
	struct gn_axis x = x_axis(c, 1), y = y_axis(0, 0);
	struct points low, high;
	int left = LEFT;

	for (size_t i = 0; i < c->step_count; i++) {
		double sum = 0;

		for (int k = 0; k < GN_PARTS; k++)
			sum += c->steps[i].ms[k];
		y.high = fmax(y.high, sum);
	}
	gn_axis_widen(&y);
	y.pixel_high += 16;
	begin(out, HEIGHT);
	gn_chart_frame(out, &x, &y, "", "");
	gn_strbuf_printf(out, "<text x='%d' y='14' class='title'>Breakdown of the step time on rank 0, in ms</text>\n", LEFT);
	average(c, offsetof(struct gn_curve_step, ms[0]), &low);
	for (size_t i = 0; i < low.count; i++)
		low.values[i] = 0;
	for (int k = 0; k < GN_PARTS; k++) {
		average(c, offsetof(struct gn_curve_step, ms) + (size_t)k * sizeof(double), &high);
		if (high.count == low.count) {
			for (size_t i = 0; i < high.count; i++)
				high.values[i] += low.values[i];
			gn_chart_band(out, &x, &y, gn_chart_colour((size_t)k), "", low.at, low.values, high.values, low.count);
			for (size_t i = 0; i < high.count; i++)
				low.values[i] = high.values[i];
		}
		release(&high);
		left = gn_chart_legend(out, left, 34, gn_chart_colour((size_t)k), names[k]);
	}
	release(&low);
	gn_strbuf_puts(out, "</svg>\n");
}

void gn_report_efficiency(const struct gn_curve *c, struct gn_strbuf *out)
{
	struct gn_axis x = x_axis(c, 1), y = y_axis(0, 1);
	double low, high;

	gn_curve_range(c, 1, offsetof(struct gn_curve_step, efficiency), INFINITY, &low, &high);
	if (!(high > 0))
		return;
	y.high = fmax(1, high);
	gn_axis_widen(&y);
	begin(out, HEIGHT);
	frame(out, &x, &y, "Scaling efficiency: measured (line), predicted (dashed)", " %");
	gn_report_line(c, offsetof(struct gn_curve_step, predicted), &x, &y, gn_chart_colour(1), "stroke-width='1.5' stroke-dasharray='6 4'", out);
	gn_report_line(c, offsetof(struct gn_curve_step, efficiency), &x, &y, gn_chart_colour(0), "stroke-width='1.5'", out);
	gn_strbuf_puts(out, "</svg>\n");
}

void gn_report_skew(const struct gn_curve *c, struct gn_strbuf *out)
{
	struct gn_axis x = x_axis(c, 1), y = y_axis(0, 0);
	struct points low, high;
	double least;
	size_t known = 0;

	gn_curve_range(c, 1, offsetof(struct gn_curve_step, compute_high_ms), INFINITY, &least, &y.high);
	if (!(y.high > 0))
		return;
	gn_axis_widen(&y);
	begin(out, HEIGHT);
	gn_chart_frame(out, &x, &y, "Compute time of the ranks, in ms: fastest to slowest (band), mean (line)", "");
	average(c, offsetof(struct gn_curve_step, compute_low_ms), &low);
	average(c, offsetof(struct gn_curve_step, compute_high_ms), &high);
	/* logs of earlier versions lack these times, and bands cannot have gaps */
	for (size_t i = 0; i < low.count && i < high.count; i++)
		if (!isnan(low.values[i]) && !isnan(high.values[i])) {
			low.at[known] = low.at[i];
			low.values[known] = low.values[i];
			high.values[known++] = high.values[i];
		}
	gn_chart_band(out, &x, &y, gn_chart_colour(5), "fill-opacity='0.5'", low.at, low.values, high.values, known);
	release(&low);
	release(&high);
	gn_report_line(c, offsetof(struct gn_curve_step, compute_mean_ms), &x, &y, gn_chart_colour(0), "stroke-width='1.5'", out);
	gn_strbuf_puts(out, "</svg>\n");
}

/* Steps of an epoch are alike. */
static double epoch_of(const struct gn_curve *c, double step)
{
	const struct gn_curve_step *s = &c->steps[0];

	for (size_t i = 1; i < c->step_count && s->step < step; i++)
		s++;
	return s->step > 0 ? fmax(0, s->epoch - (s->step - step) * s->epoch / s->step) : 0;
}

/* A line from top to bottom, and above the chart what begins there; names of changes that are close stand in two rows. */
static void append_mode(const struct gn_curve *c, int i, const struct gn_axis *x, const struct gn_axis *y, struct gn_strbuf *out)
{
	double at = gn_axis_place(x, epoch_of(c, c->modes[i].step));
	int is_late = at > (x->pixel_low + 2 * x->pixel_high) / 3.0;

	if (i)
		gn_strbuf_printf(out, "<path class='axis' stroke-dasharray='2 3' d='M%.1f %dV%d'/>\n", at, y->pixel_low, TOP - 4 + 14 * (i % 2));
	gn_strbuf_printf(out, "<text x='%.1f' y='%d'%s>", at + (is_late ? -4 : 4), TOP + 4 + 14 * (i % 2), is_late ? " class='left'" : "");
	gn_chart_escape(out, c->modes[i].name);
	gn_strbuf_puts(out, "</text>\n");
}

void gn_report_sent(const struct gn_curve *c, struct gn_strbuf *out)
{
	struct gn_axis x = x_axis(c, 1), y = y_axis(0, 0);
	double low;

	gn_curve_range(c, 1, offsetof(struct gn_curve_step, sent_mb), INFINITY, &low, &y.high);
	if (!(y.high > 0))
		return;
	gn_axis_widen(&y);
	y.pixel_high += 26;
	begin(out, HEIGHT);
	gn_chart_frame(out, &x, &y, "", "");
	gn_strbuf_printf(out, "<text x='%d' y='14' class='title'>Sent by rank 0 in a step, in MB, and how gradients are shared</text>\n", LEFT);
	for (int i = 0; i < c->mode_count; i++)
		append_mode(c, i, &x, &y, out);
	gn_report_line(c, offsetof(struct gn_curve_step, sent_mb), &x, &y, gn_chart_colour(0), "stroke-width='1.5'", out);
	gn_strbuf_puts(out, "</svg>\n");
}

/* White at the mean, full red at 1.5 times the mean, full blue at half of it. */
static void append_cell(struct gn_strbuf *out, double left, double top, double width, double height, double share)
{
	double away = fmax(-1, fmin(1, 2 * (share - 1)));
	int other = (int)(245 - 200 * fabs(away));

	gn_strbuf_printf(out, "<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f' fill='rgb(%d,%d,%d)'/>\n", left, top, width + 0.3,
			 height + 0.3, away > 0 ? 245 : other, other, away > 0 ? other : 245);
}

void gn_report_map(const struct gn_curve *c, struct gn_strbuf *out)
{
	size_t ranks = c->steps[c->step_count - 1].each_count, cells = c->step_count < CELLS_MAX ? c->step_count : CELLS_MAX;
	double height = ranks ? fmax(3, fmin(18, 240 / (double)ranks)) : 0;
	double width = (double)(WIDTH - LEFT - RIGHT) / (double)cells;

	if (ranks < 2)
		return;
	begin(out, TOP + (int)(height * (double)ranks) + 8);
	gn_strbuf_printf(out, "<text x='%d' y='%d' class='title'>Rank by time: red computes longer than the mean, blue shorter "
			 "(full colour: by half)</text>\n", LEFT, TOP - 12);
	for (size_t g = 0; g < cells; g++) {
		size_t first = g * c->step_count / cells, end = (g + 1) * c->step_count / cells;

		for (size_t r = 0; r < ranks; r++) {
			double sum = 0, mean = 0;

			for (size_t i = first; i < end; i++)
				if (c->steps[i].each_count == ranks) {
					sum += (double)c->each[c->steps[i].each + r];
					mean += c->steps[i].compute_mean_ms;
				}
			if (mean > 0)
				append_cell(out, LEFT + (double)g * width, TOP + (double)r * height, width, height, sum / mean);
		}
	}
	for (size_t r = 0; r < ranks; r += ranks > 16 ? (ranks + 7) / 8 : 1)
		gn_strbuf_printf(out, "<text x='%d' y='%.1f' class='left'>rank %zu</text>\n", LEFT - 8,
				 TOP + ((double)r + 0.5) * height + 4, r);
	gn_strbuf_puts(out, "</svg>\n");
}

/* --- one picture --- */

enum { NAMES = 26, EPOCHS = 24, LETTER = 7 };

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
	const int height = NAMES + 3 * HEIGHT + EPOCHS;

	gn_strbuf_printf(out, "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' viewBox='0 0 %d %d'>\n"
			 "<style>text{font:12px sans-serif;fill:#222}.title{font-weight:bold}.left{text-anchor:end}"
			 ".below{text-anchor:middle}.grid{stroke:#ddd}.axis{stroke:#444;fill:none}</style>\n"
			 "<rect width='100%%' height='100%%' fill='white'/>\n", WIDTH, height, WIDTH, height);
	run_names(out, curves, count);
	gn_strbuf_printf(out, "<g transform='translate(0 %d)'>", NAMES);
	gn_report_loss(curves, count, out);
	gn_strbuf_printf(out, "</g>\n<g transform='translate(0 %d)'>", NAMES + HEIGHT);
	gn_report_accuracy(curves, count, out);
	gn_strbuf_printf(out, "</g>\n<g transform='translate(0 %d)'>", NAMES + 2 * HEIGHT);
	gn_report_split(&curves[0], out);
	gn_strbuf_printf(out, "</g>\n<text x='%d' y='%d' class='below'>epoch</text>\n</svg>\n", (LEFT + WIDTH - RIGHT) / 2, height - 8);
}
