/* Which node is not like the others. Measurements: against the job's upper median, by a share that each may lack and by three times the
 * scatter of the others (median absolute deviation, which outliers do not move). Facts: against what most nodes have. */
#include "src/jobs/preflight.h"

#include "src/base/sort.h"
#include "src/base/text.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* MAD to standard deviation of a normal distribution, three times */
#define SCATTER (3 * 1.4826)
#define LATENCY_MIN_US 50.0

struct judge {
	const struct gn_preflight_options *o;
	struct gn_preflight_host *hosts;
	int count;
	struct gn_preflight_problem *out;
	size_t problems;
};

/* Where nodes get less than this of their processors, the machine is busy with other work, and what each gets is chance. */
#define SHARE_MIN 0.3

/* may_lack: of the median, before it counts. median_min: below, nodes are not compared. */
static const struct metric {
	const char *what, *name, *unit;
	size_t offset;
	double may_lack;
	int high_is_bad;
	double median_min;
} metrics[] = {
	{"processors", "processors", "Gflop/s", offsetof(struct gn_preflight_host, gflops), 0.25, 0, 0},
	{"share", "share of its processors", "of 1", offsetof(struct gn_preflight_host, share), 0.35, 0, SHARE_MIN},
	{"memory", "memory", "GB/s", offsetof(struct gn_preflight_host, memory_gb_per_s), 0.25, 0, 0},
	{"disk", "disk, writing", "MB/s", offsetof(struct gn_preflight_host, write_mb_per_s), 0.5, 0, 0},
	{"disk", "disk, reading", "MB/s", offsetof(struct gn_preflight_host, read_mb_per_s), 0.5, 0, 0},
	{"network", "network out", "Gbit/s", offsetof(struct gn_preflight_host, out_gbit_per_s), 0.25, 0, 0},
	{"network", "network in", "Gbit/s", offsetof(struct gn_preflight_host, in_gbit_per_s), 0.25, 0, 0},
	{"latency", "network latency", "us", offsetof(struct gn_preflight_host, latency_us), 2.0, 1, 0},
};
#define METRICS (sizeof metrics / sizeof *metrics)

static const struct fact {
	const char *what, *name;
	size_t offset;
} facts[] = {
	{"version", "gannet", offsetof(struct gn_preflight_host, gannet)},
	{"version", "gannet's program file", offsetof(struct gn_preflight_host, binary)},
	{"version", "UCX", offsetof(struct gn_preflight_host, ucx)},
	{"version", "PMIx", offsetof(struct gn_preflight_host, pmix)},
	{"version", "libc", offsetof(struct gn_preflight_host, libc)},
	{"version", "kernel", offsetof(struct gn_preflight_host, kernel)},
	{"version", "NVIDIA driver", offsetof(struct gn_preflight_host, driver)},
	{"hardware", "processor model", offsetof(struct gn_preflight_host, model)},
};

static double *value_at(struct gn_preflight_host *h, size_t offset)
{
	return (double *)(void *)((char *)h + offset);
}

__attribute__((format(printf, 4, 5))) static void blame(struct judge *j, int node, const char *what, const char *format, ...)
{
	struct gn_preflight_problem *p = &j->out[j->problems];
	va_list args;

	if (j->problems == GN_PREFLIGHT_PROBLEMS_MAX)
		return;
	p->node = node;
	p->what = what;
	va_start(args, format);
	vsnprintf(p->text, sizeof p->text, format, args);
	va_end(args);
	j->problems++;
}

/* Of values above 0, sorted in place; upper: of two in the middle the higher. 0: there is none. */
static double median_of(double *values, int count, int upper)
{
	int n = 0;

	for (int i = 0; i < count; i++)
		if (values[i] > 0)
			values[n++] = values[i];
	gn_sort_doubles(values, (size_t)n);
	return n ? values[upper ? n / 2 : (n - 1) / 2] : 0;
}

/* --- measurements --- */

/* Each node's over its pairs: one bad pair is not a bad node. */
static void fill_network(struct judge *j, const double *rate, const double *latency, double *scratch)
{
	int n = j->count;

	for (int i = 0; i < n; i++) {
		for (int k = 0; k < n; k++)
			scratch[k] = rate[i * n + k];
		j->hosts[i].out_gbit_per_s = median_of(scratch, n, 1);
		for (int k = 0; k < n; k++)
			scratch[k] = rate[k * n + i];
		j->hosts[i].in_gbit_per_s = median_of(scratch, n, 1);
		for (int k = 0; k < n; k++)
			scratch[k] = latency[i * n + k];
		j->hosts[i].latency_us = median_of(scratch, n, 0);
	}
}

/* Of the values that are there: the middle, and the scatter about it. */
static void middle(struct judge *j, const struct metric *m, double *scratch, double *median, double *scatter)
{
	int n = 0;

	for (int i = 0; i < j->count; i++)
		scratch[i] = *value_at(&j->hosts[i], m->offset);
	*median = median_of(scratch, j->count, !m->high_is_bad);
	for (int i = 0; i < j->count; i++) {
		double v = *value_at(&j->hosts[i], m->offset);

		if (v > 0)
			scratch[n++] = fabs(v - *median);
	}
	gn_sort_doubles(scratch, (size_t)n);
	*scatter = n ? SCATTER * scratch[(n - 1) / 2] : 0;
}

static void judge_metric(struct judge *j, const struct metric *m, const struct gn_preflight_host *baseline, double *scratch)
{
	double median, scatter, expected = baseline ? *value_at((struct gn_preflight_host *)(uintptr_t)baseline, m->offset) : 0;

	middle(j, m, scratch, &median, &scatter);
	for (int i = 0; i < j->count; i++) {
		double v = *value_at(&j->hosts[i], m->offset), off = m->high_is_bad ? v - median : median - v;
		double least = m->high_is_bad ? LATENCY_MIN_US : 0;

		if (v <= 0)
			continue;
		if (off > m->may_lack * median && off > scatter && off > least && median >= m->median_min)
			blame(j, i, m->what, "%s %.3g %s, others %.3g", m->name, v, m->unit, median);
		else if (expected > 0 && (m->high_is_bad ? v - expected : expected - v) > m->may_lack * expected &&
			 (!m->high_is_bad || v - expected > least))
			blame(j, i, m->what, "%s %.3g %s, %.3g by the baseline", m->name, v, m->unit, expected);
	}
}

/* A pair of nodes that are well otherwise: a cable, or a port of a switch. */
static void judge_pairs(struct judge *j, const double *rate, double *scratch)
{
	int n = j->count;

	for (int a = 0; a < n; a++)
		for (int b = 0; b < n; b++) {
			double own = j->hosts[a].out_gbit_per_s, theirs = j->hosts[b].in_gbit_per_s, least = own < theirs ? own : theirs;

			if (a == b || rate[a * n + b] <= 0 || rate[a * n + b] > 0.5 * least || n < 4)
				continue;
			for (int k = 0; k < n; k++)
				scratch[k] = rate[a * n + k];
			blame(j, a, "pair", "network to %.60s %.3g Gbit/s, to others %.3g", j->hosts[b].host, rate[a * n + b], own);
		}
}

/* The clock that most agree with is right. */
static void judge_clocks(struct judge *j, double *scratch)
{
	double shift;

	for (int i = 0; i < j->count; i++)
		scratch[i] = j->hosts[i].ahead_s;
	gn_sort_doubles(scratch, (size_t)j->count);
	shift = scratch[(j->count - 1) / 2];
	for (int i = 0; i < j->count; i++) {
		double ahead = j->hosts[i].ahead_s - shift;

		if (fabs(ahead) > j->o->max_skew_s + j->hosts[i].uncertain_s)
			blame(j, i, "clock", "clock %.3g s %s the others'", fabs(ahead), ahead > 0 ? "ahead of" : "behind");
	}
}

/* --- facts --- */

/* The text that most hosts have; the first of those that are equally frequent. */
static const char *most_frequent(const struct judge *j, size_t offset, int *times)
{
	const char *best = "";

	*times = 0;
	for (int i = 0; i < j->count; i++) {
		const char *text = (const char *)&j->hosts[i] + offset;
		int n = 0;

		for (int k = 0; k < j->count; k++)
			n += !strcmp(text, (const char *)&j->hosts[k] + offset);
		if (n > *times) {
			*times = n;
			best = text;
		}
	}
	return best;
}

static void judge_fact(struct judge *j, const struct fact *f)
{
	char mine[GN_PREFLIGHT_TEXT], usual[GN_PREFLIGHT_TEXT];
	int times;
	const char *most = most_frequent(j, f->offset, &times);

	for (int i = 0; i < j->count; i++) {
		const char *text = (const char *)&j->hosts[i] + f->offset;

		if (strcmp(text, most))
			blame(j, i, f->what, "%s is %.60s, %.60s on %s", f->name,
			      *text ? gn_text_visible(text, mine, sizeof mine) : "not there",
			      *most ? gn_text_visible(most, usual, sizeof usual) : "not there",
			      2 * times > j->count ? "most others" : "others");
	}
}

static void judge_number(struct judge *j, const char *what, const char *name, uint64_t (*read)(const struct gn_preflight_host *h),
			 double may_lack, const char *advice)
{
	uint64_t most = 0;

	for (int i = 0; i < j->count; i++)
		most = read(&j->hosts[i]) > most ? read(&j->hosts[i]) : most;
	for (int i = 0; i < j->count; i++) {
		uint64_t v = read(&j->hosts[i]);

		if ((double)v < (1 - may_lack) * (double)most && most == UINT64_MAX)
			blame(j, i, what, "%s %llu, unlimited on others%s", name, (unsigned long long)v, advice);
		else if ((double)v < (1 - may_lack) * (double)most)
			blame(j, i, what, "%s %llu, %llu on others%s", name, (unsigned long long)v, (unsigned long long)most, advice);
	}
}

static uint64_t processors_of(const struct gn_preflight_host *h) { return (uint64_t)h->processors; }
static uint64_t memory_of(const struct gn_preflight_host *h) { return h->memory_bytes; }
static uint64_t memlock_of(const struct gn_preflight_host *h) { return h->memlock_bytes; }
static uint64_t nofile_of(const struct gn_preflight_host *h) { return h->nofile; }

static uint64_t gpus_of(const struct gn_preflight_host *h) { return h->gpus.count > 0 ? (uint64_t)(h->gpus.count - h->gpus.lost) : 0; }

/* nvmlClocksThrottleReason bits that a healthy GPU does not have: 0x8 hardware slowdown, 0x20 and 0x40 heat, 0x80 power brake. */
static void judge_gpus(struct judge *j, int i)
{
	const struct gn_preflight_gpus *g = &j->hosts[i].gpus;
	int expected = 0;

	for (int k = 0; k < j->count; k++)
		expected |= j->hosts[k].gpus.count > 0;
	/* nodes without GPUs may have the library, but not the driver */
	if (*g->why && expected)
		blame(j, i, "gpu", "%.100s", g->why);
	if (g->ecc_errors)
		blame(j, i, "gpu", "GPUs: %llu uncorrected memory errors (ECC) since the driver was loaded", (unsigned long long)g->ecc_errors);
	if (g->throttle & 0xe8)
		blame(j, i, "gpu", "GPUs: clocks are reduced by%s%s%s", g->throttle & 0x60 ? " heat" : "", g->throttle & 0x80 ? " power brake" : "",
		      g->throttle & 0x8 ? " hardware slowdown" : "");
}

static int mounts_it(const struct gn_preflight_host *h, const char *path, size_t len)
{
	for (const char *m = h->mounts; *m; m = strchr(m, '\n') + 1)
		if (strcspn(m, "\n") == len && !strncmp(m, path, len))
			return 1;
	return 0;
}

/* What more than half of the nodes have. A path is looked at on the first node that has it. */
static void judge_mounts(struct judge *j)
{
	for (int i = 0; i < j->count; i++)
		for (const char *m = j->hosts[i].mounts; *m; m = strchr(m, '\n') + 1) {
			size_t len = strcspn(m, "\n");
			int have = 0, seen = 0;

			for (int k = 0; k < j->count; k++) {
				int here = mounts_it(&j->hosts[k], m, len);

				have += here;
				seen += k < i && here;
			}
			for (int k = 0; k < j->count && !seen && 2 * have > j->count; k++)
				if (!mounts_it(&j->hosts[k], m, len))
					blame(j, k, "mount", "nothing is mounted on %.*s, as on others", (int)(len < 100 ? len : 100), m);
		}
}

/* --- all --- */

static int by_node(const void *a, const void *b)
{
	const struct gn_preflight_problem *x = a, *y = b;

	return x->node != y->node ? (x->node > y->node) - (x->node < y->node) : (x > y) - (x < y);
}

size_t gn_preflight_judge(const struct gn_preflight_options *o, struct gn_preflight_host *hosts, int count, const double *rate,
			  const double *latency, const struct gn_preflight_host *baseline, struct gn_preflight_problem *out)
{
	struct judge j = {o, hosts, count, out, 0};
	double *scratch = calloc((size_t)count, sizeof *scratch);

	if (!scratch)
		return 0;
	for (int i = 0; i < count; i++) {
		if (hosts[i].problem[0])
			blame(&j, i, "measurement", "%.190s", hosts[i].problem);
		if (o->local && hosts[i].free_gb >= 0 && hosts[i].free_gb < o->min_free_gb)
			blame(&j, i, "disk", "%.100s has %.3g GB free, --min-free is %.3g GB", o->local, hosts[i].free_gb, o->min_free_gb);
	}
	if (rate)
		fill_network(&j, rate, latency, scratch);
	for (size_t m = 0; m < METRICS; m++)
		judge_metric(&j, &metrics[m], baseline, scratch);
	if (rate)
		judge_pairs(&j, rate, scratch);
	judge_clocks(&j, scratch);
	for (size_t f = 0; f < sizeof facts / sizeof *facts; f++)
		judge_fact(&j, &facts[f]);
	for (int i = 0; i < count; i++)
		judge_gpus(&j, i);
	judge_number(&j, "gpu", "GPUs", gpus_of, 0, "");
	judge_number(&j, "hardware", "processors", processors_of, 0, "");
	judge_number(&j, "hardware", "bytes of memory", memory_of, 0.03, "");
	judge_number(&j, "limit", "locked memory (ulimit -l)", memlock_of, 0, "; see PropagateResourceLimits in slurm.conf");
	judge_number(&j, "limit", "open files (ulimit -n)", nofile_of, 0, "");
	judge_mounts(&j);
	free(scratch);
	qsort(out, j.problems, sizeof *out, by_node);
	return j.problems;
}
