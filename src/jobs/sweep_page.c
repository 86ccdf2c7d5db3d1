#include "src/jobs/sweep_status.h"

#include "src/base/option.h"
#include "src/base/text.h"
#include "src/train/metrics/chart.h"
#include "src/train/metrics/report_page.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 720, HEIGHT = 300, LEFT = 62, RIGHT = 16, TOP = 30, BOTTOM = 30, COLOURED = 6, PARAMETERS = 16 };

/* colour of the trials behind the first COLOURED */
static const char grey[] = "#c4c4c4";

struct trial {
	const struct gn_sweep_state *s;
	struct gn_curve *curves; /* of its log, NULL: none yet */
	size_t count;
	double result;		 /* top-1, or the loss; NaN: none */
};

struct sweep {
	struct trial *trials;	 /* from the best to the worst */
	size_t count;
	int by_top1;
	char names[PARAMETERS][64];
	int parameters;
};

static const struct gn_curve *last_run(const struct trial *t)
{
	return t->count ? &t->curves[t->count - 1] : NULL;
}

static const char *colour_of(size_t place)
{
	return place < COLOURED ? gn_chart_colour(place) : grey;
}

/* --- parameters, "lr=0.01 weight-decay=0.0001" --- */

/* 0: not there */
static int parameter(const char *text, const char *name, char *out, size_t size)
{
	struct gn_option_value value;

	if (!gn_options_find(text, name, strlen(name), &value))
		return 0;
	snprintf(out, size, "%.*s", (int)value.value_len, value.value);
	return 1;
}

/* Of the first trial: all have the same. */
static void find_names(struct sweep *w)
{
	struct gn_option_value value;

	for (const char *text = w->count ? w->trials[0].s->parameters : ""; *text && w->parameters < PARAMETERS;) {
		text = gn_options_next(text, &value);
		snprintf(w->names[w->parameters++], sizeof *w->names, "%.*s", (int)value.name_len, value.name);
	}
}

/* --- trials --- */

static int is_whole(const struct trial *t)
{
	return !strcmp(t->s->state, "end") || !strcmp(t->s->state, "running");
}

/* Trials that have ended or still run come first, those that were stopped or failed after them; a result that is none is the last. */
static int by_result(const void *left, const void *right)
{
	const struct trial *a = left, *b = right;

	if (!isnan(a->result) != !isnan(b->result))
		return isnan(a->result) ? 1 : -1;
	if (is_whole(a) != is_whole(b))
		return is_whole(b) - is_whole(a);
	return gn_sweep_compare(a->s, b->s);
}

static enum gn_status read_trials(const struct gn_sweep_state *states, size_t count, struct sweep *w, struct gn_err *err)
{
	w->trials = calloc(count + 1, sizeof *w->trials);
	if (!w->trials)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu trials", count);
	w->count = count;
	for (size_t i = 0; i < count; i++)
		w->by_top1 |= isfinite(states[i].top1);
	for (size_t i = 0; i < count; i++) {
		struct trial *t = &w->trials[i];

		t->s = &states[i];
		/* larger is better */
		t->result = w->by_top1 ? states[i].top1 : -states[i].loss;
		if (states[i].step && gn_curves_read(states[i].log, &t->curves, &t->count, NULL))
			t->count = 0;
	}
	find_names(w);
	qsort(w->trials, count, sizeof *w->trials, by_result);
	return GN_OK;
}

static void release(struct sweep *w)
{
	for (size_t i = 0; i < w->count; i++)
		gn_curves_free(w->trials[i].curves, w->trials[i].count);
	free(w->trials);
}

/* --- table --- */

static void put_number(struct gn_strbuf *out, double v, const char *format)
{
	char text[32] = "&ndash;";

	if (isfinite(v))
		snprintf(text, sizeof text, "%.*g", 5, v);
	gn_strbuf_printf(out, format, text);
}

static void put_row(const struct sweep *w, size_t place, struct gn_strbuf *out)
{
	const struct gn_sweep_state *s = w->trials[place].s;

	gn_strbuf_printf(out, "<tr%s><td class='n'><span class='swatch' style='background:%s'></span>%d</td>",
			 !place && isfinite(w->trials[0].result) ? " class='differs'" : "", colour_of(place), s->trial);
	for (int p = 0; p < w->parameters; p++) {
		char value[256] = "";

		parameter(s->parameters, w->names[p], value, sizeof value);
		gn_strbuf_puts(out, "<td class='n'>");
		gn_chart_escape(out, value);
		gn_strbuf_puts(out, "</td>");
	}
	put_number(out, 100 * s->top1, "<td class='n'>%s</td>");
	put_number(out, s->loss, "<td class='n'>%s</td>");
	gn_strbuf_printf(out, "<td class='n'>%llu of %llu</td><td>", (unsigned long long)s->step, (unsigned long long)s->total_steps);
	gn_chart_escape(out, s->state);
	gn_strbuf_puts(out, "</td></tr>\n");
}

static void put_table(const struct sweep *w, struct gn_strbuf *out)
{
	gn_strbuf_puts(out, "<div class='wide'><table><tr><th class='n'>trial</th>");
	for (int p = 0; p < w->parameters; p++) {
		gn_strbuf_puts(out, "<th class='n'>");
		gn_chart_escape(out, w->names[p]);
		gn_strbuf_puts(out, "</th>");
	}
	gn_strbuf_puts(out, "<th class='n'>top-1 %</th><th class='n'>loss</th><th class='n'>steps</th><th>state</th></tr>\n");
	for (size_t i = 0; i < w->count; i++)
		put_row(w, i, out);
	gn_strbuf_puts(out, "</table></div>\n");
}

/* --- curves --- */

static void begin(struct gn_strbuf *out)
{
	gn_strbuf_printf(out, "<svg viewBox='0 0 %d %d' role='img'>\n", WIDTH, HEIGHT);
}

static struct gn_axis y_axis(double low, double high)
{
	return (struct gn_axis){low, high, HEIGHT - BOTTOM, TOP, 0};
}

/* The worst ones first, so that the best lie on top. */
static void put_curves(const struct sweep *w, struct gn_strbuf *out)
{
	struct gn_axis x = {0, 0, LEFT, WIDTH - RIGHT, 0}, y = y_axis(0, 0), accuracy = y_axis(0, 100);
	size_t evaluations = 0;

	for (size_t i = 0; i < w->count; i++) {
		const struct gn_curve *c = last_run(&w->trials[i]);
		struct gn_axis own = y_axis(0, 0);

		if (!c)
			continue;
		x.high = fmax(x.high, c->steps[c->step_count - 1].epoch);
		evaluations += c->eval_count;
		gn_curve_axis(c, 1, offsetof(struct gn_curve_step, loss), 0, &own);
		/* a trial that diverged does not flatten all others: the best half sets the limit */
		if (i <= w->count / 2)
			y.high = fmax(y.high, own.high);
	}
	if (!(x.high > 1e-9))
		return;
	if (!(y.high > 0))
		gn_axis_widen(&y);
	begin(out);
	gn_chart_frame(out, &x, &y, "Training loss by epoch", "");
	for (size_t i = w->count; i-- > 0;)
		if (last_run(&w->trials[i]))
			gn_report_line(last_run(&w->trials[i]), offsetof(struct gn_curve_step, loss), &x, &y, colour_of(i), "stroke-width='1.5'", out);
	gn_strbuf_puts(out, "</svg>\n");
	if (!evaluations)
		return;
	begin(out);
	gn_chart_frame(out, &x, &accuracy, "Top-1 by epoch", " %");
	for (size_t i = w->count; i-- > 0;) {
		const struct gn_curve *c = last_run(&w->trials[i]);

		if (c)
			gn_report_evals(c, offsetof(struct gn_curve_eval, top1), &x, &accuracy, colour_of(i), "stroke-width='1.5'", out);
		for (size_t k = 0; c && k < c->eval_count; k++)
			gn_strbuf_printf(out, "<circle cx='%.1f' cy='%.1f' r='2' fill='%s'/>\n", gn_axis_place(&x, c->evals[k].epoch),
					 gn_axis_place(&accuracy, 100 * c->evals[k].top1), colour_of(i));
	}
	gn_strbuf_puts(out, "</svg>\n");
}

/* --- result by parameter --- */

/* Of the trials with a number there; 0 when one has none, or all have the same. */
static int parameter_axis(const struct sweep *w, const char *name, struct gn_axis *x)
{
	x->low = INFINITY;
	x->high = -INFINITY;
	for (size_t i = 0; i < w->count; i++) {
		char text[256];
		double v;

		if (!parameter(w->trials[i].s->parameters, name, text, sizeof text) || gn_parse_real(text, &v, NULL))
			return 0;
		x->low = fmin(x->low, v);
		x->high = fmax(x->high, v);
	}
	if (!(x->high > x->low))
		return 0;
	x->logarithmic = x->low > 0 && x->high / x->low >= 20;
	gn_axis_widen(x);
	return 1;
}

static double shown_result(const struct sweep *w, const struct trial *t)
{
	return w->by_top1 ? 100 * t->result : -t->result;
}

static void put_scatter(const struct sweep *w, const char *name, struct gn_strbuf *out)
{
	struct gn_axis x = {0, 0, LEFT, WIDTH - RIGHT, 0}, y = y_axis(0, 0);
	struct gn_strbuf title = {0};
	double usual = 0;
	size_t beyond = 0;

	if (!parameter_axis(w, name, &x))
		return;
	for (size_t i = 0; i < w->count; i++)
		if (isfinite(w->trials[i].result) && i <= w->count / 2)
			usual = fmax(usual, shown_result(w, &w->trials[i]));
	/* of losses, those that are far above the better half's are beyond the axis */
	for (size_t i = 0; i < w->count; i++)
		if (isfinite(w->trials[i].result) && (w->by_top1 || shown_result(w, &w->trials[i]) <= 4 * usual))
			y.high = fmax(y.high, shown_result(w, &w->trials[i]));
	gn_axis_widen(&y);
	gn_strbuf_puts(&title, w->by_top1 ? "Top-1 of the last evaluation by " : "Last loss by ");
	gn_chart_escape(&title, name);
	begin(out);
	gn_chart_frame(out, &x, &y, gn_strbuf_text(&title), w->by_top1 ? " %" : "");
	gn_strbuf_release(&title);
	for (size_t i = w->count; i-- > 0;) {
		const struct trial *t = &w->trials[i];
		char text[256];
		double v;

		if (!isfinite(t->result) || !parameter(t->s->parameters, name, text, sizeof text) || gn_parse_real(text, &v, NULL))
			continue;
		beyond += gn_axis_side(&y, shown_result(w, t)) > 0;
		gn_strbuf_printf(out, "<circle cx='%.1f' cy='%.1f' r='4' fill='%s' stroke='#444'><title>trial %d: %.5g</title></circle>\n",
				 gn_axis_place(&x, v), gn_axis_place(&y, fmin(shown_result(w, t), y.high)), colour_of(i), t->s->trial,
				 shown_result(w, t));
	}
	gn_chart_beyond(out, &x, &y, beyond);
	gn_strbuf_puts(out, "</svg>\n");
}

/* --- page --- */

static size_t count_state(const struct sweep *w, const char *state)
{
	size_t n = 0;

	for (size_t i = 0; i < w->count; i++)
		n += !strcmp(w->trials[i].s->state, state);
	return n;
}

static void put_counts(const struct sweep *w, struct gn_strbuf *out)
{
	static const char *const states[] = {"end", "pruned", "running", "pending", "stop", "failed"};
	static const char *const words[] = {"at the end", "pruned", "running", "pending", "stopped", "failed"};

	gn_strbuf_printf(out, "<p>%zu trial%s", w->count, gn_text_plural(w->count));
	for (size_t i = 0; i < sizeof states / sizeof *states; i++)
		if (count_state(w, states[i]))
			gn_strbuf_printf(out, ", %zu %s", count_state(w, states[i]), words[i]);
	gn_strbuf_printf(out, ". Sorted by %s; trials that were pruned, stopped or failed come behind the others. The first %d have colours.</p>\n",
			 w->by_top1 ? "top-1 of the last evaluation" : "the last loss", COLOURED);
}

enum gn_status gn_sweep_page(const char *name, const struct gn_sweep_state *states, size_t count, struct gn_strbuf *out, struct gn_err *err)
{
	struct sweep w = {.count = 0};
	enum gn_status status = read_trials(states, count, &w, err);

	if (status)
		return status;
	gn_report_page_begin("Sweep", name, out);
	put_counts(&w, out);
	put_table(&w, out);
	gn_strbuf_puts(out, "<h2>Curves</h2>\n<div class='charts'>\n");
	put_curves(&w, out);
	gn_strbuf_puts(out, "</div>\n<h2>By parameter</h2>\n<div class='charts'>\n");
	for (int p = 0; p < w.parameters; p++)
		put_scatter(&w, w.names[p], out);
	gn_strbuf_puts(out, "</div>\n</body></html>\n");
	release(&w);
	return gn_strbuf_failed(out) ? gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the page of %zu trials", count) : GN_OK;
}
