#include "src/cmd/bench_loop.h"

#include "src/base/clock.h"

#include <stdlib.h>

#define ITERS_MIN 5

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void summarise(double *times, int64_t n, double mean_us, struct gn_timing *t)
{
	qsort(times, (size_t)n, sizeof *times, by_value);
	t->mean_us = mean_us;
	t->p50_us = times[n / 2];
	t->p99_us = times[(size_t)(0.99 * (double)(n - 1) + 0.5)];
	t->iters = n;
}

/* Twice as many operations each time, until there were enough or half of the row's time is gone. All ranks see the same
 * clock: that of the slowest. */
static enum gn_status warm_up(const struct gn_bench_plan *plan, const struct gn_bench_op *op, double *each_us,
			      struct gn_err *err)
{
	double limit_us = (double)plan->row_ms * 1e3, spent_us = 0, took_us;
	enum gn_status status = GN_OK;
	int64_t n = 1;

	*each_us = 0;
	for (int64_t done = 0; done < plan->warmup && !status; done += n, n *= 2) {
		uint64_t start = gn_clock_ns();

		if (n > plan->warmup - done)
			n = plan->warmup - done;
		for (int64_t i = 0; i < n && !status; i++)
			status = op->run(op->context, err);
		took_us = (double)(gn_clock_ns() - start) / 1e3;
		if (!status)
			status = op->max(op->context, &took_us, 1, err);
		spent_us += took_us;
		*each_us = took_us / (double)n;
		if (plan->row_ms && spent_us + 2 * took_us > limit_us / 2)
			break;
	}
	return status;
}

static int64_t iterations(const struct gn_bench_plan *plan, double each_us)
{
	double fit = each_us > 0 ? (double)plan->row_ms * 1e3 / each_us : (double)plan->iters;

	if (!plan->row_ms || fit >= (double)plan->iters)
		return plan->iters;
	return fit < ITERS_MIN ? (plan->iters < ITERS_MIN ? plan->iters : ITERS_MIN) : (int64_t)fit;
}

enum gn_status gn_bench_loop(const struct gn_bench_plan *plan, const struct gn_bench_op *op, double *times,
			     struct gn_timing *out, struct gn_err *err)
{
	double each_us, meet = 0, mean_us = 0;
	enum gn_status status = warm_up(plan, op, &each_us, err);
	int64_t n = iterations(plan, each_us);
	uint64_t before, now;

	if (!status)
		status = op->max(op->context, &meet, 1, err);
	before = gn_clock_ns();
	for (int64_t i = 0; i < n && !status; i++) {
		status = op->run(op->context, err);
		now = gn_clock_ns();
		times[i] = (double)(now - before) / 1e3;
		mean_us += times[i] / (double)n;
		before = now;
	}
	if (!status)
		status = op->max(op->context, times, (size_t)n, err);
	if (!status)
		status = op->max(op->context, &mean_us, 1, err);
	if (!status)
		summarise(times, n, mean_us, out);
	return status;
}
