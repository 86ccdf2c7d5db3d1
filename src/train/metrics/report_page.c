#include "src/train/metrics/report_page.h"

#include "src/base/option.h"
#include "src/base/sort.h"
#include "src/base/text.h"
#include "src/train/metrics/chart.h"
#include "src/train/metrics/report_internal.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOW_LISTED = 5 };

static const char style[] =
	"body{font:14px/1.45 system-ui,sans-serif;color:#222;background:#fff;max-width:1500px;margin:0 auto;padding:16px 24px}\n"
	"h1{font-size:22px;margin:0 0 12px}h2{font-size:17px;margin:28px 0 8px;border-bottom:1px solid #ccc}h2,p{overflow-wrap:anywhere}\n"
	".charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,560px),1fr));gap:14px 20px}\n"
	"svg{width:100%;height:auto;display:block}svg text{font:12px system-ui,sans-serif;fill:#222}svg .title{font-weight:600}\n"
	"svg .left{text-anchor:end}svg .below{text-anchor:middle}svg .grid{stroke:#e2e2e2}svg .axis{stroke:#444;fill:none}\n"
	"table{border-collapse:collapse;margin:8px 0}th,td{padding:3px 12px 3px 0;text-align:left;vertical-align:top;"
	"border-bottom:1px solid #eee}th{font-weight:600}td.n,th.n{text-align:right}td{white-space:nowrap}\n"
	/* only long cells break within words, and only below a readable width */
	"td.long,th.long{white-space:normal;overflow-wrap:anywhere;min-width:150px}\n"
	".swatch{display:inline-block;width:11px;height:11px;margin-right:6px;border-radius:2px}\n"
	".differs{background:#fff3d6}p.note{color:#555;margin:4px 0}.wide{overflow-x:auto}\n"
	/* on a phone, charts scroll sideways instead of shrinking their text */
	"@media(max-width:640px){body{padding:12px}.charts{overflow-x:auto}.charts svg{min-width:600px}}\n";

/* Allows line breaks after slashes. */
static void append_path(struct gn_strbuf *out, const char *path)
{
	char part[PATH_MAX];

	for (size_t len; *path; path += len) {
		len = strcspn(path, "/");
		len += strspn(path + len, "/");
		snprintf(part, sizeof part, "%.*s", (int)len, path);
		gn_chart_escape(out, part);
		gn_strbuf_puts(out, path[len] ? "<wbr>" : "");
	}
}

/* Names run number index: its log, and its number if the log has several runs. */
static void append_name(struct gn_strbuf *out, const struct gn_curve *c, size_t index)
{
	gn_strbuf_printf(out, "<span class='swatch' style='background:%s'></span>", gn_chart_colour(index));
	append_path(out, c->path);
	if (c->runs > 1)
		gn_strbuf_printf(out, " (run %zu of %zu)", c->run, c->runs);
}

static void append_number(struct gn_strbuf *out, const char *format_class, double value, int digits, const char *unit)
{
	if (isnan(value))
		gn_strbuf_printf(out, "<td class='%s'>&ndash;</td>", format_class);
	else
		gn_strbuf_printf(out, "<td class='%s'>%.*f%s</td>", format_class, digits, value, unit);
}

/* Median of a field over the steps that have it; NaN if none has, or when out of memory. */
static double median(const struct gn_curve *c, size_t offset)
{
	double *values = malloc(c->step_count * sizeof *values), result = NAN;
	size_t count = 0;

	for (size_t i = 0; values && i < c->step_count; i++) {
		double v = *(const double *)(const void *)((const char *)&c->steps[i] + offset);

		if (!isnan(v))
			values[count++] = v;
	}
	if (count) {
		gn_sort_doubles(values, count);
		result = values[count / 2];
	}
	free(values);
	return result;
}

#define MEDIAN(curve, field) median(curve, offsetof(struct gn_curve_step, field))

static void put_summary_row(struct gn_strbuf *out, const struct gn_curve *c, size_t index)
{
	const struct gn_curve_step *last = &c->steps[c->step_count - 1];
	double best = NAN, average = NAN;
	char source[32];

	for (size_t i = 0; i < c->eval_count; i++) {
		best = fmax(best, c->evals[i].top1);
		average = fmax(average, c->evals[i].average_top1);
	}
	gn_strbuf_puts(out, "<tr><td class='long'>");
	append_name(out, c, index);
	gn_strbuf_puts(out, "</td><td>");
	gn_chart_escape(out, c->model);
	gn_strbuf_puts(out, "</td>");
	append_number(out, "n", c->ranks, 0, "");
	append_number(out, "n", c->nodes, 0, "");
	append_number(out, "n", c->global_batch, 0, "");
	append_number(out, "n", last->step, 0, "");
	append_number(out, "n", last->epoch, 2, "");
	append_number(out, "n", last->loss, 4, "");
	append_number(out, "n", 100 * best, 2, " %");
	append_number(out, "n", 100 * average, 2, " %");
	append_number(out, "n", MEDIAN(c, images_per_s), 1, "");
	append_number(out, "n", 100 * MEDIAN(c, efficiency), 1, " %");
	snprintf(source, sizeof source, " %%%s%s%s", c->costs[0] ? " (" : "", c->costs, c->costs[0] ? ")" : "");
	append_number(out, "n", 100 * MEDIAN(c, predicted), 1, source);
	append_number(out, "n", c->skipped, 0, "");
	gn_strbuf_printf(out, "<td class='n'>%zu</td>", c->resumes);
	if (!strcmp(c->ended, "failed")) {
		gn_strbuf_printf(out, "<td class='long'>failed%s", c->reason ? ": " : "");
		gn_chart_escape(out, c->reason ? c->reason : "");
		gn_strbuf_puts(out, "</td></tr>\n");
		return;
	}
	gn_strbuf_printf(out, "<td>%s</td></tr>\n",
			 !strcmp(c->ended, "end") ? "done" : c->ended[0] ? "stopped" : "no end in the log");
}

static void append_summary(struct gn_strbuf *out, const struct gn_curve *curves, size_t count)
{
	size_t bad = 0;
	gn_strbuf_puts(out, "<div class='wide'><table><tr><th>run</th><th>network</th><th class='n'>ranks</th><th class='n'>nodes</th>"
		       "<th class='n'>global batch</th><th class='n'>steps</th><th class='n'>epochs</th><th class='n'>last loss</th>"
		       "<th class='n'>best top-1</th><th class='n'>of the average</th><th class='n'>images/s</th>"
		       "<th class='n'>efficiency</th><th class='n'>predicted</th><th class='n'>skipped</th><th class='n'>resumes</th>"
		       "<th>end</th></tr>\n");
	for (size_t c = 0; c < count; c++) {
		put_summary_row(out, &curves[c], c);
		bad += curves[c].bad_lines;
	}
	gn_strbuf_puts(out, "</table></div>\n"
		       "<p class='note'>Images/s and efficiencies are medians over the log's lines. Efficiency: mean compute time "
		       "of the ranks divided by the step time; predicted: the same from the costs of communication on this fabric "
		       "(tried or measured by gannet tune, or guessed), for ranks of equal speed.</p>\n");
	if (bad)
		gn_strbuf_printf(out, "<p class='note'>%zu line%s of the logs %s no JSON, such as the last one of a run that was "
				 "killed.</p>\n", bad, gn_text_plural(bad), bad == 1 ? "is" : "are");
}

static void append_configurations(struct gn_strbuf *out, const struct gn_curve *c)
{
	if (!c->way_count)
		return;
	gn_strbuf_puts(out, "<table><tr><th>gradient buckets</th><th class='n'>ms per step, in the first steps</th></tr>\n");
	for (int i = 0; i < c->way_count; i++)
		gn_strbuf_printf(out, "<tr%s><td>in %.0f bucket%s, %s backward%s</td><td class='n'>%.2f</td></tr>\n",
				 i == c->chosen ? " class='differs'" : "", c->ways[i].buckets, c->ways[i].buckets > 1 ? "s" : "",
				 c->ways[i].overlap ? "during" : "after", i == c->chosen ? " (chosen)" : "", c->ways[i].step_ms);
	gn_strbuf_puts(out, "</table>\n");
}

struct slow {
	int rank;
	size_t times;
	double longer; /* sum of shares above the mean */
};

static int by_times(const void *left, const void *right)
{
	const struct slow *a = left, *b = right;

	if (a->times != b->times)
		return a->times > b->times ? -1 : 1;
	return (a->rank > b->rank) - (a->rank < b->rank);
}

/* How often each rank was the slowest. */
static void append_slowest(struct gn_strbuf *out, const struct gn_curve *c)
{
	size_t known = 0, ranks = c->host_count;
	struct slow *list = calloc(ranks + 1, sizeof *list);

	for (size_t i = 0; list && i < c->step_count; i++) {
		const struct gn_curve_step *s = &c->steps[i];

		if (s->slowest < 0 || (size_t)s->slowest >= ranks || !(s->compute_mean_ms > 0))
			continue;
		known++;
		list[s->slowest].times++;
		list[s->slowest].longer += s->compute_high_ms / s->compute_mean_ms - 1;
	}
	for (size_t r = 0; list && r < ranks; r++)
		list[r].rank = (int)r;
	if (known) {
		qsort(list, ranks, sizeof *list, by_times);
		gn_strbuf_puts(out, "<table><tr><th>slowest rank</th><th>host</th><th class='n'>of the log's lines</th>"
			       "<th class='n'>longer than the mean</th></tr>\n");
	}
	for (size_t i = 0; known && i < ranks && i < SLOW_LISTED && list[i].times; i++) {
		gn_strbuf_printf(out, "<tr><td>%d</td><td>", list[i].rank);
		gn_chart_escape(out, c->hosts[list[i].rank] ? c->hosts[list[i].rank] : "?");
		gn_strbuf_printf(out, "</td><td class='n'>%.0f %%</td><td class='n'>%.1f %%</td></tr>\n",
				 100 * (double)list[i].times / (double)known, 100 * list[i].longer / (double)list[i].times);
	}
	gn_strbuf_puts(out, known ? "</table>\n" : "");
	free(list);
}

static void append_run(struct gn_strbuf *out, const struct gn_curve *c, size_t index)
{
	gn_strbuf_puts(out, "<h2>");
	append_name(out, c, index);
	gn_strbuf_puts(out, "</h2>\n");
	if (c->recipe) {
		gn_strbuf_puts(out, "<p class='note'>Recipe ");
		gn_chart_escape(out, c->recipe);
		gn_strbuf_puts(out, "</p>\n");
	}
	if (c->checkpoints)
		gn_strbuf_printf(out, "<p class='note'>%zu checkpoint%s, %.2f s each.</p>\n", c->checkpoints,
				 gn_text_plural(c->checkpoints), c->checkpoint_s / (double)c->checkpoints);
	gn_strbuf_puts(out, "<div class='charts'>\n");
	gn_report_split(c, out);
	gn_report_efficiency(c, out);
	gn_report_skew(c, out);
	gn_report_sent(c, out);
	gn_report_map(c, out);
	gn_strbuf_puts(out, "</div>\n<div class='charts'><div>\n");
	append_slowest(out, c);
	gn_strbuf_puts(out, "</div><div>\n");
	append_configurations(out, c);
	gn_report_staleness(c, out);
	gn_report_stages(c, out);
	gn_report_losses(c, out);
	gn_strbuf_puts(out, "</div></div>\n");
}

/* The value of an option in "name=value name=value", whose values may contain spaces; NULL if absent. */
static const char *find_option(const char *options, const char *name, size_t name_len, size_t *len)
{
	for (const char *at = options; at && *at;) {
		size_t word = strcspn(at, " "), equals = strcspn(at, "= ");

		if (equals == name_len && at[equals] == '=' && !strncmp(at, name, name_len)) {
			const char *end = at + word;

			/* words without = belong to the value */
			while (*end && strcspn(end + 1, " ") == strcspn(end + 1, " ="))
				end += 1 + strcspn(end + 1, " ");
			*len = (size_t)(end - at) - equals - 1;
			return at + equals + 1;
		}
		at += word + (at[word] == ' ');
	}
	return NULL;
}

static void append_option(struct gn_strbuf *out, const struct gn_curve *curves, size_t count, const char *name, size_t name_len)
{
	const char *first = NULL;
	size_t first_len = 0;
	int differs = 0;
	struct gn_strbuf text = {0};
	double number;

	for (size_t c = 0; c < count; c++) {
		size_t len = 0;
		const char *value = find_option(curves[c].options, name, name_len, &len);

		if (!c) {
			first = value;
			first_len = len;
		}
		differs |= !value != !first || (value && first && (len != first_len || strncmp(value, first, len)));
	}
	gn_strbuf_printf(out, "<tr%s><td>", differs ? " class='differs'" : "");
	for (size_t c = 0; c <= count; c++) {
		size_t len = name_len;
		const char *value = c ? find_option(curves[c - 1].options, name, name_len, &len) : name;

		gn_strbuf_clear(&text);
		if (value)
			gn_strbuf_append(&text, value, len);
		/* shortest form: the log has enough digits to read a number back, as in 0.10000000000000001 */
		if (c && !gn_parse_real(gn_strbuf_text(&text), &number, NULL)) {
			gn_strbuf_clear(&text);
			gn_strbuf_printf(&text, "%.15g", number);
		}
		gn_chart_escape(out, gn_strbuf_text(&text));
		gn_strbuf_puts(out, c < count ? "</td><td class='long'>" : "</td></tr>\n");
	}
	gn_strbuf_release(&text);
}

/* The options of all runs, in the order of first occurrence. */
static void append_options(struct gn_strbuf *out, const struct gn_curve *curves, size_t count)
{
	gn_strbuf_puts(out, "<h2>Configuration</h2>\n<div class='wide'><table><tr><th>option</th>");
	for (size_t c = 0; c < count; c++) {
		gn_strbuf_puts(out, "<th class='long'>");
		append_name(out, &curves[c], c);
		gn_strbuf_puts(out, "</th>");
	}
	gn_strbuf_puts(out, "</tr>\n");
	for (size_t c = 0; c < count; c++)
		for (const char *at = curves[c].options; at && *at;) {
			size_t word = strcspn(at, " "), equals = strcspn(at, "= "), len, earlier = 0;

			for (size_t k = 0; k < c; k++)
				earlier += find_option(curves[k].options, at, equals, &len) != NULL;
			if (at[equals] == '=' && !earlier)
				append_option(out, curves, count, at, equals);
			at += word + (at[word] == ' ');
		}
	gn_strbuf_puts(out, "</table></div>\n");
}

void gn_report_page_begin(const char *what, const char *name, struct gn_strbuf *out)
{
	gn_strbuf_puts(out, "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>\n"
		       "<meta name='viewport' content='width=device-width'>\n"
		       "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
		       "<title>Gannet: ");
	for (int heading = 0; heading < 2; heading++) {
		gn_chart_escape(out, what);
		gn_strbuf_puts(out, *name ? " " : "");
		gn_chart_escape(out, name);
		if (!heading)
			gn_strbuf_printf(out, "</title>\n<style>\n%s</style></head>\n<body>\n<h1>", style);
	}
	gn_strbuf_puts(out, "</h1>\n");
}

void gn_report_page(const struct gn_curve *curves, size_t count, const char *more, struct gn_strbuf *out)
{
	gn_report_page_begin("Training runs", "", out);
	append_summary(out, curves, count);
	gn_strbuf_puts(out, "<h2>Curves by epoch</h2>\n<div class='charts'>\n");
	gn_report_loss(curves, count, out);
	gn_report_accuracy(curves, count, out);
	gn_report_series(curves, count, offsetof(struct gn_curve_step, top1), "Training top-1 (fraction)", "", 0, out);
	gn_report_series(curves, count, offsetof(struct gn_curve_step, grad_norm), "Norm of the gradient, before clipping", "", 1, out);
	gn_report_series(curves, count, offsetof(struct gn_curve_step, lr), "Learning rate", "", 0, out);
	gn_report_series(curves, count, offsetof(struct gn_curve_step, images_per_s), "Images per second", "", 0, out);
	gn_report_series(curves, count, offsetof(struct gn_curve_step, skipped), "Steps without an update, per line of the log", "", 0,
			 out);
	gn_strbuf_puts(out, "</div>\n");
	gn_strbuf_puts(out, more);
	for (size_t c = 0; c < count; c++)
		append_run(out, &curves[c], c);
	append_options(out, curves, count);
	gn_strbuf_puts(out, "</body></html>\n");
}
