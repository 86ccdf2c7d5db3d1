#include "src/base/progress_bar.h"

#include "src/base/clock.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

void gn_progress_bar_begin(struct gn_progress_bar *p, const char *what, const char *unit, uint64_t total)
{
	if (!p)
		return;
	memset(p, 0, sizeof *p);
	p->what = what;
	p->unit = unit;
	p->total = total;
	p->start_ns = gn_clock_ns();
	atomic_init(&p->done, 0);
	atomic_init(&p->next_draw_ns, 0);
	p->terminal = isatty(STDERR_FILENO);
}

double gn_progress_bar_rate(const struct gn_progress_bar *p)
{
	double elapsed = (double)(gn_clock_ns() - p->start_ns) * 1e-9;

	return elapsed > 0 ? (double)atomic_load(&p->done) / elapsed : 0;
}

static void draw(const struct gn_progress_bar *p)
{
	int bytes = !strcmp(p->unit, "B");
	double scale = bytes ? 1e-6 : 1, rate = gn_progress_bar_rate(p);
	double done = (double)atomic_load(&p->done), total = (double)p->total;
	const char *unit = bytes ? "MB" : p->unit;

	if (p->total)
		fprintf(stderr, "\r\033[K%s %.0f of %.0f %s (%.0f %%), %.1f %s/s, %.0f s left", p->what, done * scale,
			total * scale, unit, 100 * done / total, rate * scale, unit,
			rate > 0 ? (total - done) / rate : 0);
	else
		fprintf(stderr, "\r\033[K%s %.0f %s, %.1f %s/s", p->what, done * scale, unit, rate * scale, unit);
	fflush(stderr);
}

void gn_progress_bar_add(struct gn_progress_bar *p, uint64_t amount)
{
	uint_fast64_t due, now;

	if (!p)
		return;
	atomic_fetch_add(&p->done, amount);
	if (!p->terminal)
		return;
	now = gn_clock_ns();
	due = atomic_load(&p->next_draw_ns);
	if (now >= due && atomic_compare_exchange_strong(&p->next_draw_ns, &due, now + 200000000u))
		draw(p);
}

void gn_progress_bar_end(struct gn_progress_bar *p)
{
	if (!p)
		return;
	if (p->terminal)
		fputs("\r\033[K", stderr);
	p->terminal = 0;
}
