#include "src/train/curve_svg.h"

#include <math.h>

enum { WIDTH = 900, LEFT = 70, RIGHT = 24, PANEL = 210, GAP = 58, TOP = 56 };

/* Distinguishable also for most colour-blind readers (Okabe and Ito). */
static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"};
enum { COLOURS = sizeof colours / sizeof *colours };

struct axis {
	double low, high;
	int pixel_low, pixel_high;
};

static double place(const struct axis *a, double value)
{
	double share = (value - a->low) / (a->high - a->low);

	share = share < 0 ? 0 : share > 1 ? 1 : share;
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

/* A little air, and never an empty span. */
static void widen(struct axis *a)
{
	if (!(a->high > a->low))
		a->high = a->low + 1;
	a->high = ceil(a->high / tick(a->high - a->low)) * tick(a->high - a->low);
}

static void put_text(struct gn_strbuf *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '<')
			gn_strbuf_puts(out, "&lt;");
		else if (*text == '&')
			gn_strbuf_puts(out, "&amp;");
		else
			gn_strbuf_append(out, text, 1);
	}
}

static void frame(struct gn_strbuf *out, const struct axis *x, const struct axis *y, const char *title, const char *unit)
{
	double x_tick = tick(x->high - x->low), y_tick = tick(y->high - y->low);

	gn_strbuf_printf(out, "<text x='%d' y='%d' class='title'>%s</text>\n", LEFT, y->pixel_high - 10, title);
	for (double v = ceil(y->low / y_tick) * y_tick; v <= y->high + y_tick / 1e6; v += y_tick)
		gn_strbuf_printf(out, "<path d='M%d %.1fH%d' class='grid'/><text x='%d' y='%.1f' class='left'>%g%s</text>\n",
				 LEFT, place(y, v), WIDTH - RIGHT, LEFT - 8, place(y, v) + 4,
				 fabs(v) < y_tick / 1e6 ? 0 : v, unit);
	for (double v = ceil(x->low / x_tick) * x_tick; v <= x->high + x_tick / 1e6; v += x_tick)
		gn_strbuf_printf(out, "<path d='M%.1f %dv5' class='axis'/><text x='%.1f' y='%d' class='below'>%g</text>\n",
				 place(x, v), y->pixel_low, place(x, v), y->pixel_low + 18, v);
	gn_strbuf_printf(out, "<path d='M%d %dV%dH%d' class='axis'/>\n", LEFT, y->pixel_high, y->pixel_low,
			 WIDTH - RIGHT);
}

static struct axis y_axis(int panel, double low, double high)
{
	int top = TOP + panel * (PANEL + GAP);

	return (struct axis){low, high, top + PANEL, top};
}

static void loss_panel(struct gn_strbuf *out, const struct gn_curve *curves, size_t count, const struct axis *x)
{
	struct axis y = y_axis(0, 0, 0);

	for (size_t c = 0; c < count; c++)
		for (size_t i = 0; i < curves[c].step_count; i++)
			y.high = fmax(y.high, curves[c].steps[i].loss);
	widen(&y);
	frame(out, x, &y, "loss: training (line), evaluation (dots)", "");
	for (size_t c = 0; c < count; c++) {
		const char *colour = colours[c % COLOURS];

		gn_strbuf_printf(out, "<polyline fill='none' stroke-width='1.5' stroke='%s' points='", colour);
		for (size_t i = 0; i < curves[c].step_count; i++)
			gn_strbuf_printf(out, "%.1f,%.1f ", place(x, curves[c].steps[i].epoch),
					 place(&y, curves[c].steps[i].loss));
		gn_strbuf_puts(out, "'/>\n");
		for (size_t i = 0; i < curves[c].eval_count; i++)
			gn_strbuf_printf(out, "<circle cx='%.1f' cy='%.1f' r='3.5' fill='%s'/>\n",
					 place(x, curves[c].evals[i].epoch), place(&y, curves[c].evals[i].loss), colour);
	}
}

static void accuracy_panel(struct gn_strbuf *out, const struct gn_curve *curves, size_t count, const struct axis *x)
{
	double low = 1;
	struct axis y;

	for (size_t c = 0; c < count; c++)
		for (size_t i = 0; i < curves[c].eval_count; i++)
			low = fmin(low, curves[c].evals[i].top1);
	/* From the lowest point on, so that the last percent can be seen. */
	y = y_axis(1, floor(low * 20) * 5, 100);
	if (y.low >= 100)
		y.low = 95;
	frame(out, x, &y, "evaluation: top-1 (line), top-5 (dashed)", "%");
	for (size_t c = 0; c < count; c++) {
		for (int five = 0; five < 2; five++) {
			gn_strbuf_printf(out, "<polyline fill='none' stroke-width='%s' stroke='%s'%s points='",
					 five ? "1" : "2", colours[c % COLOURS], five ? " stroke-dasharray='5 4'" : "");
			for (size_t i = 0; i < curves[c].eval_count; i++)
				gn_strbuf_printf(out, "%.1f,%.1f ", place(x, curves[c].evals[i].epoch),
						 place(&y, 100 * (five ? curves[c].evals[i].top5
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
static void band(struct gn_strbuf *out, const struct gn_curve *c, const struct axis *x, const struct axis *y, int part)
{
	gn_strbuf_printf(out, "<polygon fill='%s' points='", colours[part]);
	for (size_t i = 0; i < c->step_count; i++)
		gn_strbuf_printf(out, "%.1f,%.1f ", place(x, c->steps[i].epoch), place(y, stacked(&c->steps[i], part + 1)));
	for (size_t i = c->step_count; i-- > 0;)
		gn_strbuf_printf(out, "%.1f,%.1f ", place(x, c->steps[i].epoch), place(y, stacked(&c->steps[i], part)));
	gn_strbuf_puts(out, "'/>\n");
}

static void time_panel(struct gn_strbuf *out, const struct gn_curve *c, const struct axis *x)
{
	static const struct {
		const char *name;
		int left;
	} legend[GN_PARTS] = {{"data wait", 340}, {"forward", 432}, {"backward", 518}, {"exposed communication", 610},
			      {"optimizer", 772}};
	struct axis y = y_axis(2, 0, 0);

	for (size_t i = 0; i < c->step_count; i++)
		y.high = fmax(y.high, stacked(&c->steps[i], GN_PARTS));
	widen(&y);
	frame(out, x, &y, "milliseconds of a step on rank 0", "");
	for (int k = 0; k < GN_PARTS; k++) {
		band(out, c, x, &y, k);
		gn_strbuf_printf(out, "<rect x='%d' y='%d' width='10' height='10' fill='%s'/><text x='%d' y='%d'>%s</text>\n",
				 legend[k].left, y.pixel_high - 19, colours[k], legend[k].left + 14, y.pixel_high - 10,
				 legend[k].name);
	}
}

void gn_curve_svg(const struct gn_curve *curves, size_t count, struct gn_strbuf *out)
{
	struct axis x = {0, 0, LEFT, WIDTH - RIGHT};
	int height = TOP + 3 * (PANEL + GAP);

	for (size_t c = 0; c < count; c++)
		x.high = fmax(x.high, curves[c].steps[curves[c].step_count - 1].epoch);
	if (!(x.high > 0))
		x.high = 1;
	gn_strbuf_printf(out, "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' viewBox='0 0 %d %d'>\n"
			 "<style>text{font:12px sans-serif;fill:#222}.title{font-weight:bold}.left{text-anchor:end}"
			 ".below{text-anchor:middle}.grid{stroke:#ddd}.axis{stroke:#444;fill:none}</style>\n"
			 "<rect width='100%%' height='100%%' fill='white'/>\n", WIDTH, height, WIDTH, height);
	for (size_t c = 0; c < count; c++) {
		gn_strbuf_printf(out, "<text x='%d' y='18' style='fill:%s'>", LEFT + (int)c * 280, colours[c % COLOURS]);
		put_text(out, curves[c].label);
		gn_strbuf_puts(out, "</text>\n");
	}
	loss_panel(out, curves, count, &x);
	accuracy_panel(out, curves, count, &x);
	time_panel(out, &curves[0], &x);
	gn_strbuf_printf(out, "<text x='%d' y='%d' class='below'>epoch</text>\n</svg>\n", (LEFT + WIDTH - RIGHT) / 2,
			 height - 8);
}
