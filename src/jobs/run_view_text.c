/* What gannet top prints. */
#include "src/jobs/run_view.h"

#include "src/base/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Collects lines of at most columns characters. */
struct page {
	struct gn_strbuf *out;
	int columns, rows, used; /* rows 0: no limit */
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

static void put_line(struct page *p, const char *text)
{
	if (p->rows && p->used >= p->rows)
		return;
	gn_strbuf_append(p->out, text, fit(text, p->columns));
	gn_strbuf_puts(p->out, "\n");
	p->used++;
}

static void __attribute__((format(printf, 2, 3))) put(struct page *p, const char *format, ...)
{
	char text[2048];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	put_line(p, text);
}

/* A long text over several lines, broken between words; further lines are indented. */
static void put_wrapped(struct page *p, const char *text)
{
	for (int first = 1; *text; first = 0) {
		int room = p->columns - (first ? 0 : 2);
		size_t n = fit(text, room), cut = n;
		char line[1024];

		while (text[n] && cut && text[cut] != ' ')
			cut--;
		n = text[n] && cut ? cut : n;
		snprintf(line, sizeof line, "%s%.*s", first ? "" : "  ", (int)n, text);
		put_line(p, line);
		text += n;
		text += strspn(text, " ");
	}
}

static void put_sparkline(struct page *p, const char *name, const double *values, int count)
{
	static const char *const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
	double low = INFINITY, high = -INFINITY;
	char text[512];
	size_t n;

	for (int i = 0; i < count; i++) {
		low = values[i] < low ? values[i] : low;
		high = values[i] > high ? values[i] : high;
	}
	if (!isfinite(low) || !isfinite(high))
		return;
	n = (size_t)snprintf(text, sizeof text, "%-9s ", name);
	for (int i = 0; i < count; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, "%s",
				      isfinite(values[i]) ? bars[(int)(high > low ? (values[i] - low) / (high - low) * 7.999 : 3)] : " ");
	snprintf(text + n, sizeof text - n, " %.4g to %.4g", low, high);
	put_line(p, text);
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
		snprintf(out, size, ", %llu:%02llu:%02llu to the end", s / 3600, s / 60 % 60, s % 60);
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
		snprintf(state, sizeof state, "running%s%s, last line %.0f s ago%s", v->has_status ? ", " : "", v->has_status ? v->doing : "", silent,
			 is_silent ? ": silent" : "");
	put(p, "%s  %d rank%s on %d node%s%s%s  %s", a->model, a->ranks, gn_text_plural((uint64_t)a->ranks), a->nodes,
	    gn_text_plural((uint64_t)a->nodes), *a->job ? "  job " : "", a->job, state);
	put_left(a, left, sizeof left);
	put(p, "step %llu of %llu (%.0f %%)  epoch %.2f%s", (unsigned long long)step, (unsigned long long)a->total_steps,
	    a->total_steps ? 100.0 * (double)step / (double)a->total_steps : 0, isfinite(a->epoch) ? a->epoch : 0, left);
	if (isfinite(a->top1))
		snprintf(top1, sizeof top1, "  top-1 %.2f %%", 100 * a->top1);
	put_number(loss, fabs(a->loss), 4);
	put_number(rate, a->images_per_s, 1);
	put(p, "loss %s  %s images/s  starts %d  checkpoints %llu%s", loss, rate, a->starts,
	    (unsigned long long)a->checkpoints, top1);
	if (a->world_count)
		put(p, "world %llu of %d rank%s since step %llu  losses %d, %.2f s between worlds  goodput %.0f %%",
		    (unsigned long long)a->worlds[a->world_count - 1].world, a->ranks, gn_text_plural((uint64_t)a->ranks),
		    (unsigned long long)a->worlds[a->world_count - 1].step, a->losses, a->recovery_s, 100 * gn_account_goodput(a));
	put_sparkline(p, "loss", a->recent_loss, a->recent);
	put_sparkline(p, "images/s", a->recent_rate, a->recent);
}

static void put_step(struct page *p, const struct gn_account *a)
{
	static const char *const parts[] = {"data", "forward", "backward", "gradients", "optimizer"};
	char text[256];
	size_t n;

	if (!(a->step_ms > 0))
		return;
	n = (size_t)snprintf(text, sizeof text, "step %.4g ms, in %%:", a->step_ms);
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, "%s %s %.0f", i ? "," : "", parts[i], 100 * a->part_ms[i] / a->step_ms);
	put_line(p, text);
}

/* The status file may be of a later interval than the log's last line: what it names is named alone. */
static void put_ranks(struct page *p, const struct gn_run_view *v)
{
	const struct gn_account *a = &v->a;
	int listed = v->slow_count < 5 ? v->slow_count : 5, rank = listed ? v->slow[0].rank : a->slowest;
	double high = listed ? v->slow[0].compute_ms : a->compute_high_ms;
	double low = listed ? fmin(a->compute_low_ms, v->slow[v->slow_count - 1].compute_ms) : a->compute_low_ms;

	if (rank < 0 || !isfinite(low))
		return;
	put(p, "ranks compute %.4g to %.4g ms a step; slowest: rank %d on %s", low, high, rank, listed ? v->slow[0].host : a->slowest_host);
	for (int i = 1; i < listed && a->ranks > 2; i++)
		put(p, "  rank %d on %.40s %.4g ms", v->slow[i].rank, v->slow[i].host, v->slow[i].compute_ms);
}

static void put_silent(struct page *p, const struct gn_run_view *v, double now)
{
	if (strcmp(v->a.state, "running"))
		return;
	for (int i = 0; i < v->silent_count; i++)
		put(p, "silent: rank %d on %.40s, no heartbeat for %.0f s", v->silent[i].rank, v->silent[i].host, fmax(now - v->silent[i].since, 0));
	if (v->more_silent)
		put(p, "silent: %d more rank%s", v->more_silent, gn_text_plural((uint64_t)v->more_silent));
}

static void put_nodes(struct page *p, const struct gn_run_view *v)
{
	/* what comes below has two lines */
	int room = p->rows ? p->rows - p->used - 3 : v->node_count, listed;

	if (!v->node_count || room < 1 || strcmp(v->a.state, "running"))
		return;
	put(p, "%-24s %6s %18s %8s %9s %9s", "node", "cpu", "memory", "ranks'", "in/s", "out/s");
	listed = v->node_count <= room ? v->node_count : room - 1;
	for (int i = 0; i < listed; i++) {
		const struct gn_run_view_node *n = &v->node[i];
		char used[16], all[16], own[16], in[16], out[16], memory[40];

		put_bytes(used, n->load.memory_used_bytes);
		put_bytes(all, n->load.memory_bytes);
		put_bytes(own, n->rss_bytes);
		put_bytes(in, n->load.receive_bytes_per_s);
		put_bytes(out, n->load.send_bytes_per_s);
		snprintf(memory, sizeof memory, "%s of %s", used, all);
		put(p, "  %-22.22s %4.0f %% %18s %8s %9s %9s", n->host, 100 * n->load.cpu, memory, own, in, out);
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
		n += (size_t)snprintf(text + n, sizeof text - n, ", expected to start at %s", when);
	}
	if (j->restarts)
		snprintf(text + n, sizeof text - n, ", queued again %d time%s", j->restarts, gn_text_plural((uint64_t)j->restarts));
	put_wrapped(p, text);
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
			put_line(&p, "ended by --patience:");
			put_wrapped(&p, v->a.patience);
		}
		if (*v->a.reason)
			put_wrapped(&p, v->a.reason);
	}
	put_job(&p, v);
	if (!v->has_log)
		put_wrapped(&p, *v->log ? "no step yet: its log is not there or empty" : "its log is not known");
}

/* --- JSON --- */

void gn_run_view_json(const struct gn_run_view *v, double now, struct gn_json *j)
{
	gn_json_object(j, NULL);
	if (v->has_log)
		gn_account_write_state(&v->a, v->log, gn_run_view_silent_s(v, now), j);
	if (v->has_status) {
		gn_json_string(j, "doing", v->doing);
		gn_json_uint(j, "status_step", v->status_step);
		gn_json_array(j, "slow");
		for (int i = 0; i < v->slow_count; i++) {
			gn_json_object(j, NULL);
			gn_json_int(j, "rank", v->slow[i].rank);
			gn_json_string(j, "host", v->slow[i].host);
			gn_json_fixed(j, "compute_ms", v->slow[i].compute_ms, 3);
			gn_json_end(j);
		}
		gn_json_end(j);
		gn_json_array(j, "silent");
		for (int i = 0; i < v->silent_count; i++) {
			gn_json_object(j, NULL);
			gn_json_int(j, "rank", v->silent[i].rank);
			gn_json_string(j, "host", v->silent[i].host);
			gn_json_fixed(j, "silent_s", fmax(now - v->silent[i].since, 0), 1);
			gn_json_end(j);
		}
		gn_json_end(j);
		gn_json_int(j, "silent_count", v->silent_count + v->more_silent);
		gn_json_array(j, "node_load");
		for (int i = 0; i < v->node_count; i++)
			gn_node_load_write(v->node[i].host, &v->node[i].load, v->node[i].rss_bytes, j);
		gn_json_end(j);
	}
	if (v->has_job) {
		gn_json_string(j, "slurm_job", v->job.id);
		gn_json_string(j, "slurm_state", v->job.state);
		gn_json_string(j, "slurm_reason", v->job.reason);
		gn_json_int(j, "slurm_restarts", v->job.restarts);
	}
	gn_json_end(j);
}
