/* What gannet top prints. */
#include "src/jobs/run_view.h"

#include "src/base/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct page {
	struct gn_strbuf *out;
	int columns, rows, used; /* of at most columns characters; rows 0: no limit */
};

/* Bytes of the first columns characters of UTF-8 text. */
static size_t fit(const char *text, int columns)
{
	size_t n = 0;

	for (int seen = 0; text[n]; n++)
		if (((unsigned char)text[n] & 0xc0) != 0x80 && seen++ == columns)
			break;
	return n;
}

/* Where text of n bytes is broken: behind its last field or, where it has one only, its last word; n: nowhere. */
static size_t break_at(const char *text, size_t n)
{
	for (const char *blank = "\t "; *blank; blank++)
		for (size_t cut = n; cut > strspn(text, " "); cut--)
			if (text[cut] == *blank)
				return cut;
	return n;
}

/* Fields, which tabs separate, shown as blanks, over as many lines as they need; further lines are indented. No field is broken that fits on a
 * line. */
static void __attribute__((format(printf, 2, 3))) put(struct page *p, const char *format, ...)
{
	char text[2048];
	const char *at = text;
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	while (*at && (!p->rows || p->used < p->rows)) {
		size_t n = fit(at, p->columns - (at > text ? 2 : 0)), len = at[n] ? break_at(at, n) : n;

		gn_strbuf_puts(p->out, at > text ? "  " : "");
		n = len + strspn(at + len, " \t");
		while (len && strchr(" \t", at[len - 1]))
			len--;
		for (size_t i = 0; i < len; i++)
			gn_strbuf_append(p->out, at[i] == '\t' ? " " : at + i, 1);
		gn_strbuf_puts(p->out, "\n");
		p->used++;
		at += n;
	}
}

/* As many of the last values as fit. */
static void put_sparkline(struct page *p, const char *name, const double *values, int count)
{
	static const char *const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
	const int room = p->columns - 33, first = room < 1 ? count : count > room ? count - room : 0;
	double low = INFINITY, high = -INFINITY;
	char text[512] = "";
	size_t n = 0;

	for (int i = first; i < count; i++) {
		low = values[i] < low ? values[i] : low;
		high = values[i] > high ? values[i] : high;
	}
	if (!isfinite(low) || !isfinite(high))
		return;
	for (int i = first; i < count; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, "%s",
				      isfinite(values[i]) ? bars[(int)(high > low ? (values[i] - low) / (high - low) * 7.999 : 3)] : " ");
	put(p, "%-9s %s %.4g to %.4g", name, text, low, high);
}

static void put_bytes(char out[16], double bytes)
{
	static const char units[] = "kMGTP";
	int u = 0;

	for (bytes /= 1e3; bytes >= 999.5 && u < 4; u++)
		bytes /= 1e3;
	snprintf(out, 16, bytes < 10 ? "%.1f %cB" : "%.0f %cB", bytes, units[u]);
}

/* Before the first line of the log there is none: "-". */
static void put_number(char out[24], double value, int decimals)
{
	if (isfinite(value))
		snprintf(out, 24, fabs(value) < 1e6 ? "%.*f" : "%.*e", decimals, value);
	else
		snprintf(out, 24, "-");
}

static void put_left(const struct gn_account *a, char *out, size_t size)
{
	double left = gn_account_left_s(a);
	unsigned long long s = isfinite(left) && left > 0 && left < 1e12 ? (unsigned long long)left : 0;

	*out = 0;
	if (!strcmp(a->state, "running") && isfinite(left))
		snprintf(out, size, ",\t%llu:%02llu:%02llu to the end", s / 3600, s / 60 % 60, s % 60);
}

static void put_state(struct page *p, const struct gn_run_view *v, double now)
{
	const struct gn_account *a = &v->a;
	double silent = gn_run_view_silent_s(v, now);
	char state[160], left[64], top1[64] = "", loss[24], rate[24];
	uint64_t step = v->has_status && v->status_step > a->step && !strcmp(a->state, "running") ? v->status_step : a->step;
	int is_silent = silent > 60 && silent > 10 * a->interval_s && (!*v->doing || !strcmp(v->doing, "training") || silent > 900);

	snprintf(state, sizeof state, "%s", a->state);
	if (!strcmp(a->state, "running"))
		snprintf(state, sizeof state, "running%s%s,\tlast line %.0f s ago%s", v->has_status ? ", " : "", v->has_status ? v->doing : "",
			 silent, is_silent ? ": silent" : "");
	put(p, "%s \t%d rank%s on %d node%s%s%s \t%s", a->model, a->ranks, gn_text_plural((uint64_t)a->ranks), a->nodes,
	    gn_text_plural((uint64_t)a->nodes), *a->job ? " \tjob " : "", a->job, state);
	put_left(a, left, sizeof left);
	put(p, "step %llu of %llu (%.0f %%) \tepoch %.2f%s", (unsigned long long)step, (unsigned long long)a->total_steps,
	    a->total_steps ? 100.0 * (double)step / (double)a->total_steps : 0, isfinite(a->epoch) ? a->epoch : 0, left);
	if (isfinite(a->top1))
		snprintf(top1, sizeof top1, " \ttop-1 %.2f %%", 100 * a->top1);
	put_number(loss, fabs(a->loss), 4);
	put_number(rate, a->images_per_s, 1);
	put(p, "loss %s \t%s images/s \tstarts %d \tcheckpoints %llu%s", loss, rate, a->starts, (unsigned long long)a->checkpoints, top1);
	if (a->world_count)
		put(p, "world %llu of %d rank%s\tsince step %llu \tlosses %d,\t%.2f s between worlds \tgoodput %.0f %%",
		    (unsigned long long)a->worlds[a->world_count - 1].world, a->ranks, gn_text_plural((uint64_t)a->ranks),
		    (unsigned long long)a->worlds[a->world_count - 1].step, a->losses, a->recovery_s, 100 * gn_account_goodput(a));
	put_sparkline(p, "loss", a->recent_loss, a->recent);
	put_sparkline(p, "images/s", a->recent_rate, a->recent);
}

static void put_step(struct page *p, const struct gn_account *a)
{
	static const char *const parts[] = {"data", "forward", "backward", "gradients", "optimizer"};
	char text[256] = "";
	size_t n = 0;

	if (!(a->step_ms > 0))
		return;
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, "%s\t%s %.0f", i ? "," : "", parts[i], 100 * a->part_ms[i] / a->step_ms);
	put(p, "step %.4g ms, in %%:%s", a->step_ms, text);
}

/* The status file may be of a later interval than the log's last line: what it names is named alone. */
static void put_ranks(struct page *p, const struct gn_run_view *v)
{
	const struct gn_account *a = &v->a;
	int listed = v->slow_count < 5 ? v->slow_count : 5, rank = listed ? v->slow[0].rank : a->slowest;
	double high = listed ? v->slow[0].value : a->compute_high_ms;
	double low = listed ? fmin(a->compute_low_ms, v->slow[v->slow_count - 1].value) : a->compute_low_ms;

	if (rank < 0 || !isfinite(low))
		return;
	put(p, "ranks compute %.4g to %.4g ms a step;\tslowest: rank %d on %s", low, high, rank, listed ? v->slow[0].host : a->slowest_host);
	for (int i = 1; i < listed && a->ranks > 2; i++)
		put(p, "  rank %d on %s\t%.4g ms", v->slow[i].rank, v->slow[i].host, v->slow[i].value);
}

static void put_silent(struct page *p, const struct gn_run_view *v, double now)
{
	if (strcmp(v->a.state, "running"))
		return;
	for (int i = 0; i < v->silent_count; i++)
		put(p, "silent: rank %d on %s,\tno heartbeat for %.0f s", v->silent[i].rank, v->silent[i].host, fmax(now - v->silent[i].value, 0));
	if (v->more_silent)
		put(p, "silent: %d more rank%s", v->more_silent, gn_text_plural((uint64_t)v->more_silent));
}

enum { NODE_CELLS = 5 };

/* A row of as many columns as fit beside the host; they stand in the order of their importance. */
static void put_row(struct page *p, int width, const char *host, char cells[NODE_CELLS][40])
{
	static const int widths[NODE_CELLS] = {6, 18, 8, 8, 8};
	char text[256];
	int n = snprintf(text, sizeof text, "%-*s", width, host);

	for (int i = 0; i < NODE_CELLS && n + widths[i] <= p->columns; i++)
		n += snprintf(text + n, sizeof text - (size_t)n, "%*s", widths[i], cells[i]);
	put(p, "%s", text);
}

static void put_nodes(struct page *p, const struct gn_run_view *v)
{
	/* what comes below has two lines */
	int room = p->rows ? p->rows - p->used - 3 : v->node_count, listed, width = 2;
	char cells[NODE_CELLS][40] = {"cpu", "memory", "ranks'", "in/s", "out/s"};

	if (!v->node_count || room < 1 || strcmp(v->a.state, "running"))
		return;
	listed = v->node_count <= room ? v->node_count : room - 1;
	for (int i = 0; i < listed; i++)
		width = (int)strlen(v->node[i].host) > width ? (int)strlen(v->node[i].host) : width;
	put_row(p, width + 2, "node", cells);
	for (int i = 0; i < listed; i++) {
		const struct gn_run_view_node *n = &v->node[i];
		char used[16], all[16], host[72];

		put_bytes(used, n->load.memory_used_bytes);
		put_bytes(all, n->load.memory_bytes);
		snprintf(host, sizeof host, "  %s", n->host);
		snprintf(cells[0], sizeof *cells, "%.0f %%", 100 * n->load.cpu);
		snprintf(cells[1], sizeof *cells, "%s of %s", used, all);
		put_bytes(cells[2], n->rss_bytes);
		put_bytes(cells[3], n->load.receive_bytes_per_s);
		put_bytes(cells[4], n->load.send_bytes_per_s);
		put_row(p, width + 2, host, cells);
	}
	if (v->node_count + v->more_nodes > listed)
		put(p, "  and %d more", v->node_count + v->more_nodes - listed);
}

static void put_time(double t, char *out, size_t size)
{
	time_t whole = (time_t)t;
	struct tm tm;

	localtime_r(&whole, &tm);
	strftime(out, size, "%Y-%m-%d %H:%M", &tm);
}

static void put_job(struct page *p, const struct gn_run_view *v)
{
	const struct gn_slurm_job *j = &v->job;
	char text[512], when[32];
	size_t n;

	if (!v->has_job || (v->has_log && !strcmp(v->a.state, "running") && !strcmp(j->state, "RUNNING")))
		return;
	n = (size_t)snprintf(text, sizeof text, "job %s is %s%s%s%s", j->id, j->state, *j->reason ? " (" : "", j->reason, *j->reason ? ")" : "");
	if (j->start_time > 0 && !strcmp(j->state, "PENDING")) {
		put_time(j->start_time, when, sizeof when);
		n += (size_t)snprintf(text + n, sizeof text - n, ",\texpected to start at %s", when);
	}
	if (j->restarts)
		snprintf(text + n, sizeof text - n, ",\tqueued again %d time%s", j->restarts, gn_text_plural((uint64_t)j->restarts));
	put(p, "%s", text);
}

void gn_run_view_text(const struct gn_run_view *v, double now, int columns, int rows, struct gn_strbuf *out)
{
	struct page p = {out, columns, rows, 0};

	if (v->has_log) {
		put_state(&p, v, now);
		put_step(&p, &v->a);
		put_silent(&p, v, now);
		put_ranks(&p, v);
		put_nodes(&p, v);
		if (*v->a.patience) {
			put(&p, "ended by --patience:");
			put(&p, "%s", v->a.patience);
		}
		put(&p, "%s", v->a.reason);
	}
	put_job(&p, v);
	if (!v->has_log)
		put(&p, *v->log ? "no step yet, or it was submitted without --log: %s is not there or empty" : "its log is not known", v->log);
}

/* --- JSON --- */

/* since 0: their values; else the seconds from a value to that time. */
static void write_ranks(const char *name, const struct gn_run_view_rank *list, int count, const char *key, int decimals, double since,
			struct gn_json *j)
{
	gn_json_array(j, name);
	for (int i = 0; i < count; i++) {
		gn_json_put(j, "{ rank %d host %s", list[i].rank, list[i].host);
		gn_json_fixed(j, key, since > 0 ? fmax(since - list[i].value, 0) : list[i].value, decimals);
		gn_json_end(j);
	}
	gn_json_end(j);
}

void gn_run_view_json(const struct gn_run_view *v, double now, struct gn_json *j)
{
	gn_json_object(j, NULL);
	if (v->has_log)
		gn_account_write_state(&v->a, v->log, gn_run_view_silent_s(v, now), j);
	if (v->has_status) {
		gn_json_put(j, "doing %s status_step %lu", v->doing, v->status_step);
		write_ranks("slow", v->slow, v->slow_count, "compute_ms", 3, 0, j);
		write_ranks("silent", v->silent, v->silent_count, "silent_s", 1, now, j);
		gn_json_put(j, "silent_count %d node_load [", v->silent_count + v->more_silent);
		for (int i = 0; i < v->node_count; i++)
			gn_node_load_write(v->node[i].host, &v->node[i].load, v->node[i].rss_bytes, j);
		gn_json_end(j);
	}
	if (v->has_job)
		gn_json_put(j, "slurm_job %s slurm_state %s slurm_reason %s slurm_restarts %d", v->job.id, v->job.state, v->job.reason,
			    v->job.restarts);
	gn_json_end(j);
}
