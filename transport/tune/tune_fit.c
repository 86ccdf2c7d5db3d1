#include "transport/tune/tune_internal.h"

#include <math.h>
#include <stdlib.h>

/* From this length on the overheads are those of the larger of the two measured messages. */
#define LARGE_FROM_BYTES 2048
/* Another split has to reduce the squared residuals to this fraction. */
#define SPLIT_FACTOR 0.3
#define SPLITS_MAX 3

struct line {
	double latency_s, s_per_byte, squares;
};

static const double *overheads_of(const double overheads[2][2], const struct gn_cost_path *p, double bytes)
{
	return overheads[bytes >= LARGE_FROM_BYTES && bytes <= p->path.eager_bytes];
}

/* The measured time minus port time and overheads: what latency and s_per_byte have to explain. */
static double latency_part_s(const struct gn_tune_sample *s, const double overheads[2][2], const struct gn_cost_path *p)
{
	const double *o = overheads_of(overheads, p, s->bytes);

	return s->one_way_s - gn_cost_port_s(p, s->bytes) - o[0] - o[1];
}

/* Least squares of residuals relative to the measured time: y = latencies * latency + bytes * s_per_byte, both at least 0.
 * latencies: 3 for rendezvous, else 1. */
static struct line fit_line(const struct gn_tune_sample *s, int count, const double overheads[2][2],
			    const struct gn_cost_path *p)
{
	double ww = 0, wx = 0, xx = 0, wy = 0, xy = 0, determinant;
	struct line l = {0};

	for (int i = 0; i < count; i++) {
		double t = s[i].one_way_s, w = (s[i].bytes > p->path.eager_bytes ? 3 : 1) / t, x = s[i].bytes / t;
		double y = latency_part_s(&s[i], overheads, p) / t;

		ww += w * w;
		wx += w * x;
		xx += x * x;
		wy += w * y;
		xy += x * y;
	}
	determinant = ww * xx - wx * wx;
	if (count > 1 && determinant > 1e-12 * ww * xx) {
		l.latency_s = (wy * xx - xy * wx) / determinant;
		l.s_per_byte = (ww * xy - wx * wy) / determinant;
	} else {
		l.latency_s = ww > 0 ? wy / ww : 0;
	}
	if (l.s_per_byte < 0) {
		l.s_per_byte = 0;
		l.latency_s = wy / ww;
	}
	if (l.latency_s < 0) {
		l.latency_s = 0;
		l.s_per_byte = xx > 0 ? fmax(0, xy / xx) : 0;
	}
	for (int i = 0; i < count; i++) {
		double latencies = s[i].bytes > p->path.eager_bytes ? 3 : 1;
		double e = latencies * l.latency_s + l.s_per_byte * s[i].bytes - latency_part_s(&s[i], overheads, p);

		l.squares += e * e / s[i].one_way_s / s[i].one_way_s;
	}
	return l;
}

/* The best indices at which to split the samples `splits` times into ranges of at least two. Exhaustive: there are few samples. */
static double best_splits(const struct gn_tune_sample *s, int count, int splits, const double overheads[2][2],
			const struct gn_cost_path *p, int *at)
{
	double best = INFINITY;

	if (!splits)
		return fit_line(s, count, overheads, p).squares;
	for (int i = 2; i <= count - 2 * splits; i++) {
		int rest[SPLITS_MAX] = {0};
		double squares = fit_line(s, i, overheads, p).squares;

		squares += best_splits(s + i, count - i, splits - 1, overheads, p, rest);
		if (squares >= best)
			continue;
		best = squares;
		at[0] = i;
		for (int k = 1; k < splits; k++)
			at[k] = i + rest[k - 1];
	}
	return best;
}

static void add_range(const struct gn_tune_sample *s, int count, const double overheads[2][2], struct gn_cost_path *p,
		      struct gn_tune_fit *fits)
{
	struct gn_sim_range *r = &p->path.ranges[p->path.count];
	struct line l = fit_line(s, count, overheads, p);
	const double *o = overheads_of(overheads, p, s[0].bytes);
	struct gn_tune_fit *f = &fits[p->path.count];
	double from = p->path.count ? s[0].bytes : 0;

	/* the first rendezvous range begins at the threshold */
	if (p->path.count && s[0].bytes > p->path.eager_bytes && r[-1].from_bytes <= p->path.eager_bytes)
		from = p->path.eager_bytes + 1;
	*r = (struct gn_sim_range){from, l.latency_s, l.s_per_byte, o[0], o[1]};
	*f = (struct gn_tune_fit){.samples = count, .rms = sqrt(l.squares / count)};
	for (int i = 0; i < count; i++) {
		double e = (s[i].bytes > p->path.eager_bytes ? 3 : 1) * l.latency_s + l.s_per_byte * s[i].bytes -
			   latency_part_s(&s[i], overheads, p);

		f->worst = fmax(f->worst, fabs(e) / s[i].one_way_s);
	}
	p->path.count++;
}

/* Fits eager or rendezvous samples by at most `most` ranges. */
static void fit_ranges(const struct gn_tune_sample *s, int count, int most, const double overheads[2][2],
		     struct gn_cost_path *p, struct gn_tune_fit *fits)
{
	int splits = 0, at[SPLITS_MAX] = {0}, begin = 0;
	double squares = count ? best_splits(s, count, 0, overheads, p, at) : 0;

	for (int more = 1; more < most && count; more++) {
		int try[SPLITS_MAX] = {0};
		double with = best_splits(s, count, more, overheads, p, try);

		/* a residual of one percent is good enough */
		if (squares / count < 1e-4 || !(with < squares * SPLIT_FACTOR))
			continue;
		squares = with;
		splits = more;
		for (int k = 0; k < more; k++)
			at[k] = try[k];
	}
	for (int k = 0; k <= splits; k++) {
		int end = k < splits ? at[k] : count;

		if (end > begin)
			add_range(s + begin, end - begin, overheads, p, fits);
		begin = end;
	}
}

/* Rate and burst of a shaped link: t = (bytes - burst) / rate, least squares of relative errors over the three longest samples that
 * are well beyond the burst. */
static void refine_shaped(const struct gn_tune_sample *s, int count, struct gn_cost_path *p)
{
	double ww = 0, wx = 0, xx = 0, w1 = 0, x1 = 0, determinant, offset, slope;
	int used = 0;

	for (int i = count > 3 ? count - 3 : 0; i < count; i++) {
		double w = 1 / s[i].one_way_s, x = s[i].bytes / s[i].one_way_s;

		if (s[i].bytes < 1.8 * p->burst_bytes)
			continue;
		ww += w * w;
		wx += w * x;
		xx += x * x;
		w1 += w;
		x1 += x;
		used++;
	}
	determinant = ww * xx - wx * wx;
	if (used < 2 || !(determinant > 1e-12 * ww * xx))
		return;
	slope = (ww * x1 - wx * w1) / determinant;
	offset = (w1 * xx - x1 * wx) / determinant;
	if (slope > 0 && offset < 0) {
		p->bytes_per_s = 1 / slope;
		p->burst_bytes = -offset / slope;
	}
}

/* Raises the port's rate where a message was faster; and the burst's rate for messages within the burst. */
static void refine_rates(const struct gn_tune_sample *s, int count, struct gn_cost_path *p)
{
	if (p->burst_bytes > 0)
		refine_shaped(s, count, p);
	for (int i = 0; i < count; i++) {
		double rate = s[i].bytes / s[i].one_way_s;

		if (p->burst_bytes > 0 && s[i].bytes < p->burst_bytes)
			p->burst_bytes_per_s = fmax(p->burst_bytes_per_s, rate);
		else if (p->burst_bytes <= 0 && s[i].bytes >= s[count - 1].bytes / 4)
			p->bytes_per_s = fmax(p->bytes_per_s, rate);
	}
}

void gn_tune_fit_path(const struct gn_tune_sample *samples, int count, const double overheads[2][2],
		      struct gn_cost_path *p, struct gn_tune_fit fits[GN_SIM_RANGES])
{
	int eager = 0;

	refine_rates(samples, count, p);
	while (eager < count && samples[eager].bytes <= p->path.eager_bytes)
		eager++;
	p->path.count = 0;
	fit_ranges(samples, eager, 3, overheads, p, fits);
	fit_ranges(samples + eager, count - eager, 3, overheads, p, fits);
}

/* The rate between the arrivals of two chunks, in bytes/s. */
static double rate_between(const double *t, int from, int to, double chunk_bytes)
{
	return t[to] > t[from] ? (to - from) * chunk_bytes / (t[to] - t[from]) : 1e15;
}

/* The stream's highest rate over a quarter of its chunks, after the first eighth: stalls of the receiver slow the rest down. */
static double find_rate(const double *t, int chunks, double chunk_bytes)
{
	double best = 0;

	for (int i = chunks / 8; i + chunks / 4 < chunks; i++)
		best = fmax(best, rate_between(t, i, i + chunks / 4, chunk_bytes));
	return best;
}

/* The last chunk of the burst: until it, chunks arrive ever earlier than at the steady rate. Small gains (2 %) do not count,
 * because the steady rate is not exact. */
static int find_knee(const double *arrived_s, int chunks, double s_per_chunk)
{
	int knee = 0;

	for (int k = 1; k < chunks / 2 && k <= 2 * knee + 8; k++) {
		double gained = knee * s_per_chunk - (arrived_s[knee] - arrived_s[0]);

		if (k * s_per_chunk - (arrived_s[k] - arrived_s[0]) > 1.02 * gained)
			knee = k;
	}
	return knee;
}

void gn_tune_fit_stream(const double *arrived_s, int chunks, double chunk_bytes, struct gn_cost_path *p)
{
	double rate = find_rate(arrived_s, chunks, chunk_bytes), fast, burst;
	int knee = find_knee(arrived_s, chunks, chunk_bytes / rate);

	p->bytes_per_s = rate_between(arrived_s, chunks / 2, chunks - 1, chunk_bytes);
	p->burst_bytes = p->burst_bytes_per_s = 0;
	if (knee < 3)
		return;
	/* the burst began one chunk time before the first arrival */
	fast = rate_between(arrived_s, 0, knee, chunk_bytes);
	burst = (knee + 1) * chunk_bytes - rate * (arrived_s[knee] - arrived_s[0] + chunk_bytes / fast);
	if (fast < 1.5 * rate || burst < 2 * chunk_bytes)
		return;
	p->burst_bytes = burst;
	p->burst_bytes_per_s = fast;
}

static int by_burst(const void *a, const void *b)
{
	const struct gn_cost_path *x = a, *y = b;

	return (x->burst_bytes > y->burst_bytes) - (x->burst_bytes < y->burst_bytes);
}

const struct gn_cost_path *gn_tune_middle_stream(struct gn_cost_path *streams, int count)
{
	qsort(streams, (size_t)count, sizeof *streams, by_burst);
	return &streams[count / 2];
}
