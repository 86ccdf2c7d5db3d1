/* The worlds of a run with --elastic in a report: losses of ranks, what each change of the world cost, and the goodput. */
#include "src/train/metrics/chart.h"
#include "src/train/metrics/report_internal.h"

#include <math.h>

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
