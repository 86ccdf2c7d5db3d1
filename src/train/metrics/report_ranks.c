/* Ranks that do not do the same, in a report: how stale the gradients of parameter servers' workers were when they were applied; what stages of
 * pipelines waited, sent and held; with --elastic losses of ranks, what each change of the world cost, and the goodput. */
#include "src/train/metrics/chart.h"
#include "src/train/metrics/report_internal.h"

#include <math.h>

void gn_report_staleness(const struct gn_curve *c, struct gn_strbuf *out)
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

void gn_report_stages(const struct gn_curve *c, struct gn_strbuf *out)
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
