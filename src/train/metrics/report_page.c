#include "src/train/metrics/report_page.h"

#include "src/base/option.h"
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
	"border-bottom:1px solid #eee}th{font-weight:600}td.n,th.n{text-align:right}\n"
	/* only long cells break within words, and only below a readable width */
	"td.long,th.long{overflow-wrap:anywhere;min-width:150px}\n"
	".runs{font-size:13px}.runs th{font-size:12px}.runs th,.runs td{padding-right:8px}.runs td.long{min-width:110px}\n"
	".pair{display:flex;flex-wrap:wrap;gap:14px 40px}summary{cursor:pointer}\n"
	".swatch{display:inline-block;width:11px;height:11px;margin-right:6px;border-radius:2px}\n"
	".differs{background:#fff3d6}p.note{color:#555;margin:4px 0}.wide{overflow-x:auto}\n"
	/* on a phone, charts scroll sideways instead of shrinking their text */
	"@media(max-width:640px){body{padding:12px}.charts{overflow-x:auto}.charts svg{min-width:600px}}\n";

/* Ranks that do not do the same, in a report: how stale the gradients of parameter servers' workers were when they were applied; what stages of
 * pipelines waited, sent and held; with --elastic losses of ranks, what each change of the world cost, and the goodput. */

/* A table of parameter servers' async and ssp; nothing of others. */
static void report_staleness(const struct gn_curve *c, struct gn_strbuf *out)
{
	const struct gn_curve_staleness *s = &c->staleness;
	double sum = 0;

	for (int i = 0; i < s->count; i++)
		sum += s->pushes[i];
	if (!(sum > 0))
		return;
	gn_strbuf_puts(out, "<table><tr><th>staleness of a push, in updates</th><th class='n'>pushes</th></tr>\n");
	for (int i = 0; i < s->count; i++)
		if (s->pushes[i] > 0)
			gn_strbuf_printf(out, "<tr><td>%d%s</td><td class='n'>%.0f (%.1f %%)</td></tr>\n", i, i + 1 == s->count ? " and more" : "",
					 s->pushes[i], 100 * s->pushes[i] / sum);
	gn_strbuf_printf(out, "</table>\n<p class='note'>Mean %.2f, at most %.0f; a worker was ahead of the slowest by at most %.0f step%s.</p>\n",
			 s->mean, s->most, s->ahead_most, s->ahead_most > 1 ? "s" : "");
	for (int i = 0; i < s->lost_count; i++)
		gn_strbuf_printf(out, "<p class='note'>Worker %.0f was lost at step %.0f.</p>\n", s->lost[i].rank, s->lost[i].step);
}

static void report_stages(const struct gn_curve *c, struct gn_strbuf *out)
{
	if (!c->stage_count)
		return;
	gn_strbuf_puts(out, "<table><tr><th class='n'>stage</th><th class='n'>waited, of its steps</th><th class='n'>sent a step, MB</th>"
		       "<th class='n'>parameters, MB</th><th class='n'>versions of them, MB</th><th class='n'>activations, MB</th></tr>\n");
	for (int i = 0; i < c->stage_count; i++) {
		const struct gn_curve_stage *s = &c->stages[i];

		gn_strbuf_printf(out, "<tr><td class='n'>%d</td><td class='n'>%.1f %%</td><td class='n'>%.4g</td><td class='n'>%.4g</td>"
				 "<td class='n'>%.4g</td><td class='n'>%.4g</td></tr>\n", i, 100 * s->bubble, s->sent_bytes * 1e-6,
				 s->parameter_bytes * 1e-6, s->version_bytes * 1e-6, s->activation_bytes * 1e-6);
	}
	gn_strbuf_printf(out, "</table>\n<p class='note'>By formula a stage waits %.1f %%.</p>\n", 100 * c->bubble_formula);
}

/* Share of the time from the start to the last line of steps that finished steps took; NaN: the log does not tell. */
static double goodput(const struct gn_curve *c)
{
	double wall = c->step_count ? c->steps[c->step_count - 1].time - c->start_time : 0, finished = c->unlogged_s, between = 0;

	for (size_t i = 0; i < c->step_count; i++)
		finished += c->steps[i].seconds;
	for (int i = 0; i < c->world_count; i++)
		between += c->worlds[i].seconds;
	/* times of lines are whole seconds: of a run of less than one they are all the same */
	wall = fmax(wall, finished + between);
	return c->step_count && c->start_time > 0 && wall > 0 ? finished / wall : NAN;
}

void gn_report_losses(const struct gn_curve *c, struct gn_strbuf *out)
{
	double seconds = 0, share = goodput(c);

	if (!c->world_count)
		return;
	gn_strbuf_puts(out, "<table><tr><th class='n'>world</th><th class='n'>from step</th><th class='n'>ranks</th><th class='n'>after</th>"
		       "<th class='n'>s to the next step</th><th class='n'>steps redone</th><th>why</th></tr>\n");
	for (int i = 0; i < c->world_count; i++) {
		const struct gn_curve_world *w = &c->worlds[i];

		gn_strbuf_printf(out, "<tr><td class='n'>%.0f</td><td class='n'>%.0f</td><td class='n'>%.0f</td><td class='n'>%.0f</td>"
				 "<td class='n'>%.2f</td><td class='n'>%.0f</td><td class='long'>", w->world, w->step, w->ranks, w->before,
				 w->seconds, w->redone);
		gn_chart_escape(out, w->after);
		gn_strbuf_puts(out, "</td></tr>\n");
		seconds += w->seconds;
	}
	gn_strbuf_printf(out, "</table>\n<p class='note'>Losses of ranks: %d, %.2f s between worlds.", c->losses, seconds);
	if (isfinite(share))
		gn_strbuf_printf(out, " Goodput: %.1f %% of the time from the start to the last line of steps was spent in finished steps.", 100 * share);
	gn_strbuf_puts(out, "</p>\n");
}

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

#define MEDIAN(curve, field) gn_curve_quantile(curve, offsetof(struct gn_curve_step, field), 0.5)

enum { COLUMNS = 13, PREDICTED = 10 };

/* 0 in all runs says nothing in the optional ones, NaN in any. */
static const struct {
	const char *head, *unit;
	int digits, is_optional;
} columns[COLUMNS] = {
	{"ranks", "", 0, 0}, {"nodes", "", 0, 0}, {"global batch", "", 0, 0}, {"steps", "", 0, 0}, {"epochs", "", 2, 0}, {"last loss", "", 4, 0},
	{"best top-1", "&nbsp;%", 2, 0}, {"of the average", "&nbsp;%", 2, 0}, {"images/s", "", 1, 0}, {"efficiency", "&nbsp;%", 1, 0},
	{"predicted", "&nbsp;%", 1, 0}, {"skipped", "", 0, 1}, {"resumes", "", 0, 1},
};

static void summarise(const struct gn_curve *c, double v[COLUMNS])
{
	const struct gn_curve_step *last = &c->steps[c->step_count - 1];
	double best = NAN, average = NAN;

	for (size_t i = 0; i < c->eval_count; i++) {
		best = fmax(best, c->evals[i].top1);
		average = fmax(average, c->evals[i].average_top1);
	}
	memcpy(v, (const double[COLUMNS]){c->ranks, c->nodes, c->global_batch, last->step, last->epoch, last->loss, 100 * best, 100 * average,
		MEDIAN(c, images_per_s), 100 * MEDIAN(c, efficiency), 100 * MEDIAN(c, predicted), c->skipped, (double)c->resumes},
	       COLUMNS * sizeof *v);
}

static void put_summary_row(struct gn_strbuf *out, const struct gn_curve *c, size_t index, const int shown[COLUMNS])
{
	double v[COLUMNS];

	summarise(c, v);
	gn_strbuf_puts(out, "<tr><td class='long'>");
	append_name(out, c, index);
	gn_strbuf_puts(out, "</td><td>");
	gn_chart_escape(out, c->model);
	gn_strbuf_puts(out, "</td>");
	for (int i = 0; i < COLUMNS; i++) {
		if (shown[i] && isnan(v[i]))
			gn_strbuf_puts(out, "<td class='n'>&ndash;</td>");
		else if (shown[i])
			gn_strbuf_printf(out, i == PREDICTED && *c->costs ? "<td class='n'>%.*f%s (%s)</td>" : "<td class='n'>%.*f%s</td>",
					 columns[i].digits, v[i], columns[i].unit, c->costs);
	}
	gn_strbuf_printf(out, "<td>%s</td></tr>\n", !strcmp(c->ended, "end") ? "done" : !strcmp(c->ended, "failed") ? "failed" :
			 *c->ended ? "stopped" : "no end in the log");
}

static void append_summary(struct gn_strbuf *out, const struct gn_curve *curves, size_t count)
{
	size_t bad = 0;
	int shown[COLUMNS] = {0};
	double v[COLUMNS];

	for (size_t c = 0; c < count; c++) {
		summarise(&curves[c], v);
		for (int i = 0; i < COLUMNS; i++)
			shown[i] |= !isnan(v[i]) && !(columns[i].is_optional && v[i] < 1);
	}
	gn_strbuf_puts(out, "<div class='wide'><table class='runs'><tr><th>run</th><th>network</th>");
	for (int i = 0; i < COLUMNS; i++)
		if (shown[i])
			gn_strbuf_printf(out, "<th class='n'>%s</th>", columns[i].head);
	gn_strbuf_puts(out, "<th>end</th></tr>\n");
	for (size_t c = 0; c < count; c++) {
		put_summary_row(out, &curves[c], c, shown);
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

/* How often each rank was the slowest. */
static void append_slowest(struct gn_strbuf *out, const struct gn_curve *c)
{
	size_t known = 0, ranks = c->host_count;
	struct slow {
		size_t times;
		double longer; /* sum of shares above the mean */
	} *list = calloc(ranks + 1, sizeof *list);

	for (size_t i = 0; list && i < c->step_count; i++) {
		const struct gn_curve_step *s = &c->steps[i];

		if (s->slowest < 0 || (size_t)s->slowest >= ranks || !(s->compute_mean_ms > 0))
			continue;
		known++;
		list[s->slowest].times++;
		list[s->slowest].longer += s->compute_high_ms / s->compute_mean_ms - 1;
	}
	if (known)
		gn_strbuf_puts(out, "<table><tr><th>slowest rank</th><th>host</th><th class='n'>of the log's lines</th>"
			       "<th class='n'>longer than the mean</th></tr>\n");
	for (int i = 0; known && i < SLOW_LISTED; i++) {
		size_t most = 0;

		for (size_t r = 1; r < ranks; r++)
			most = list[r].times > list[most].times ? r : most;
		if (!list[most].times)
			break;
		gn_strbuf_printf(out, "<tr><td>%zu</td><td>", most);
		gn_chart_escape(out, c->hosts[most] ? c->hosts[most] : "?");
		gn_strbuf_printf(out, "</td><td class='n'>%.0f %%</td><td class='n'>%.1f %%</td></tr>\n",
				 100 * (double)list[most].times / (double)known, 100 * list[most].longer / (double)list[most].times);
		list[most].times = 0;
	}
	gn_strbuf_puts(out, known ? "</table>\n" : "");
	free(list);
}

/* text NULL: nothing */
static void append_note(struct gn_strbuf *out, const char *what, const char *text)
{
	if (!text)
		return;
	gn_strbuf_printf(out, "<p class='note'>%s", what);
	gn_chart_escape(out, text);
	gn_strbuf_puts(out, "</p>\n");
}

static void append_run(struct gn_strbuf *out, const struct gn_curve *c, size_t index)
{
	gn_strbuf_puts(out, "<h2>");
	append_name(out, c, index);
	gn_strbuf_puts(out, "</h2>\n");
	append_note(out, "Failed: ", strcmp(c->ended, "failed") ? NULL : c->reason);
	append_note(out, "Recipe ", c->recipe);
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
	report_staleness(c, out);
	report_stages(c, out);
	gn_report_losses(c, out);
	gn_strbuf_puts(out, "</div></div>\n");
}

static int is_same(const struct gn_option_value *a, const struct gn_option_value *b)
{
	return a->value_len == b->value_len && !memcmp(a->value, b->value, a->value_len);
}

static void put_value(struct gn_strbuf *out, const struct gn_option_value *value)
{
	struct gn_strbuf text = {0};

	gn_options_value(value, &text);
	gn_chart_escape(out, gn_strbuf_text(&text));
	gn_strbuf_release(&text);
}

/* A row of the option: to the folded ones where all runs have its default. */
static void append_option(struct gn_strbuf *out, struct gn_strbuf *folded, const struct gn_curve *curves, size_t count,
			  const struct gn_option_value *o, const char *defaults)
{
	struct gn_option_value value, first, usual;
	const struct gn_option_value name = {.value = o->name, .value_len = o->name_len};
	int has_default = gn_options_find(defaults, o->name, o->name_len, &usual), has_first = 0, differs = 0;

	for (size_t c = 0; c < count; c++) {
		int has = gn_options_find(curves[c].options, o->name, o->name_len, &value);

		if (!c) {
			has_first = has;
			first = value;
		}
		differs |= has != has_first || (has && !is_same(&value, &first));
		has_default &= has && is_same(&value, &usual);
	}
	out = has_default ? folded : out;
	gn_strbuf_printf(out, "<tr%s><td>", differs ? " class='differs'" : "");
	put_value(out, &name);
	for (size_t c = 0; c < count; c++) {
		gn_strbuf_puts(out, "</td><td class='long'>");
		if (gn_options_find(curves[c].options, o->name, o->name_len, &value))
			put_value(out, &value);
	}
	gn_strbuf_puts(out, "</td></tr>\n");
}

static void append_options_head(struct gn_strbuf *out, const struct gn_curve *curves, size_t count)
{
	gn_strbuf_puts(out, "<div class='wide'><table><tr><th>option</th>");
	for (size_t c = 0; c < count; c++) {
		gn_strbuf_puts(out, "<th class='long'>");
		append_name(out, &curves[c], c);
		gn_strbuf_puts(out, "</th>");
	}
	gn_strbuf_puts(out, "</tr>\n");
}

/* The options of all runs, in the order of first occurrence. */
static void append_options(struct gn_strbuf *out, const struct gn_curve *curves, size_t count, const char *defaults)
{
	struct gn_strbuf folded = {0};
	struct gn_option_value o, other;

	gn_strbuf_puts(out, "<h2>Configuration</h2>\n");
	append_options_head(out, curves, count);
	append_options_head(&folded, curves, count);
	for (size_t c = 0; c < count; c++)
		for (const char *at = curves[c].options; at && *at;) {
			size_t earlier = 0;

			at = gn_options_next(at, &o);
			for (size_t k = 0; k < c; k++)
				earlier += (size_t)gn_options_find(curves[k].options, o.name, o.name_len, &other);
			if (o.name_len && !earlier)
				append_option(out, &folded, curves, count, &o, defaults);
		}
	gn_strbuf_puts(out, "</table></div>\n");
	if (defaults)
		gn_strbuf_printf(out, "<details><summary>Options with their default values</summary>\n%s</table></div></details>\n",
				 gn_strbuf_text(&folded));
	out->failed |= folded.failed;
	gn_strbuf_release(&folded);
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

void gn_report_page(const struct gn_curve *curves, size_t count, const char *more, const char *defaults, struct gn_strbuf *out)
{
	gn_report_page_begin("Training runs", "", out);
	append_summary(out, curves, count);
	gn_strbuf_puts(out, "<h2>Curves by epoch</h2>\n<div class='charts'>\n");
	gn_report_loss(curves, count, out);
	gn_report_accuracy(curves, count, out);
	gn_report_series(curves, count, offsetof(struct gn_curve_step, top1), "Training top-1", " %", 0, out);
	gn_report_series(curves, count, offsetof(struct gn_curve_step, grad_norm), "Norm of the gradient, before clipping", "", 1, out);
	gn_report_series(curves, count, offsetof(struct gn_curve_step, lr), "Learning rate", "", 0, out);
	gn_report_series(curves, count, offsetof(struct gn_curve_step, images_per_s), "Images per second", "", 0, out);
	gn_report_series(curves, count, offsetof(struct gn_curve_step, skipped), "Steps without an update, per line of the log", "", 0,
			 out);
	gn_strbuf_puts(out, "</div>\n");
	gn_strbuf_puts(out, more);
	for (size_t c = 0; c < count; c++)
		append_run(out, &curves[c], c);
	append_options(out, curves, count, defaults);
	gn_strbuf_puts(out, "</body></html>\n");
}
