/* gannet bench train --profile: steps whose operators are timed by events on the device's clock, one after the other without graphs. */
#include "src/cmd/bench_train_internal.h"

#include "src/base/sort.h"
#include "src/train/plan/device.h"
#include "src/train/plan/plan_cost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Operators that a table names, the slowest first. */
enum { SLOWEST = 12, KINDS_MAX = 64 };

/* An operator's pass, or a part of it, of the step under way. */
struct interval {
	int op, backward;
	struct gn_event *at[2];
};

/* Times are in ms. */
struct gn_bench_profile {
	struct gn_stream *stream;
	int ops; /* the loss is one */
	int64_t steps, step;
	struct interval *intervals;
	int used, made;
	double *times;		/* [ops][2][steps]; after the steps the median is at [0] */
	double *whole;		/* [steps], by the host's clock; the same */
	enum gn_status status;	/* of marks */
	struct gn_err err;
};

static double *times_of(const struct gn_bench_profile *f, int op, int backward)
{
	return f->times + ((size_t)op * 2 + (size_t)backward) * (size_t)f->steps;
}

/* --- measuring --- */

static enum gn_status begin_interval(struct gn_bench_profile *f, const struct gn_plan_mark *m)
{
	struct interval *more = f->intervals;
	enum gn_status status = GN_OK;

	if (f->used == f->made) {
		if (!(more = realloc(more, ((size_t)f->made + 1) * sizeof *more)))
			return gn_err_set(&f->err, GN_ERR_NO_MEMORY, "no memory for a profile");
		f->intervals = more;
		more[f->made] = (struct interval){.at = {NULL, NULL}};
		for (int i = 0; i < 2 && !status; i++)
			status = gn_event_create_timed(gn_stream_device(f->stream), &more[f->made].at[i], &f->err);
		f->made++;
	}
	more[f->used].op = m->op;
	more[f->used++].backward = m->backward;
	return status;
}

static void mark(void *context, const struct gn_plan_mark *m)
{
	struct gn_bench_profile *f = context;

	if (!f->status && !m->ended)
		f->status = begin_interval(f, m);
	if (!f->status)
		f->status = gn_event_record(f->intervals[f->used - 1].at[m->ended], f->stream, &f->err);
}

static enum gn_status add_up(struct gn_bench_profile *f, struct gn_err *err)
{
	enum gn_status status = gn_stream_wait(f->stream, err);
	double ms;

	for (int i = 0; i < f->used && !status; i++) {
		const struct interval *x = &f->intervals[i];

		status = gn_event_between(x->at[0], x->at[1], &ms, err);
		if (!status)
			times_of(f, x->op, x->backward)[f->step] += ms;
	}
	return status;
}

/* One step; the first ones, below 0, are not counted. */
static enum gn_status profile_step(struct train_bench *b, struct gn_bench_profile *f, int64_t k, struct gn_err *err)
{
	double parts[PARTS] = {0};
	enum gn_status status;

	f->used = 0;
	status = gn_bench_train_step(b, (uint64_t)(b->o->warmup + b->o->iters + GN_BENCH_PROFILE_WARMUP + k), parts, err);
	if (!status && f->status)
		status = gn_err_set(err, f->status, "%s", f->err.text);
	if (status || k < 0)
		return status;
	f->step = k;
	f->whole[k] = parts[STEP] * 1e3;
	return add_up(f, err);
}

static void take_medians(struct gn_bench_profile *f)
{
	double *t;

	for (int i = 0; i <= 2 * f->ops; i++) {
		t = i < 2 * f->ops ? times_of(f, i / 2, i % 2) : f->whole;
		gn_sort_doubles(t, (size_t)f->steps);
		t[0] = t[(f->steps - 1) / 2];
	}
}

enum gn_status gn_bench_profile(struct train_bench *b, struct gn_err *err)
{
	struct gn_bench_profile *f = b->profile = calloc(1, sizeof *f);
	struct gn_plan_profiler profiler = {mark, f};
	enum gn_status status = GN_OK;

	if (!f)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a profile");
	f->stream = gn_plan_device(b->plan)->stream;
	f->ops = gn_plan_op_count(b->plan) + 1;
	f->steps = b->o->iters < GN_BENCH_PROFILE_STEPS ? b->o->iters : GN_BENCH_PROFILE_STEPS;
	f->times = calloc((size_t)f->ops * 2 * (size_t)f->steps, sizeof *f->times);
	f->whole = calloc((size_t)f->steps, sizeof *f->whole);
	if (!f->times || !f->whole)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a profile of %d operators", f->ops);
	gn_plan_profile(b->plan, &profiler);
	for (int64_t k = -GN_BENCH_PROFILE_WARMUP; k < f->steps && !status; k++)
		status = profile_step(b, f, k, err);
	gn_plan_profile(b->plan, NULL);
	take_medians(f);
	return status;
}

void gn_bench_profile_destroy(struct gn_bench_profile *f)
{
	if (!f)
		return;
	for (int i = 0; i < 2 * f->made; i++)
		gn_event_destroy(f->intervals[i / 2].at[i % 2]);
	free(f->intervals);
	free(f->times);
	free(f->whole);
	free(f);
}

/* --- what was measured --- */

/* Operators of one kind, or one of them, both passes. */
struct row {
	struct gn_plan_cost cost;
	int op; /* in the order of forward */
	int count;
	double ms[2];
};

static struct row row_of(const struct train_bench *b, int op)
{
	struct row r = {.cost = {.kind = "loss", .name = ""}, .op = op, .count = 1, .ms = {times_of(b->profile, op, 0)[0], times_of(b->profile, op, 1)[0]}};

	if (op < gn_plan_op_count(b->plan))
		gn_plan_op_cost(b->plan, op, &r.cost);
	return r;
}

static double ms_of(const struct row *r)
{
	return r->ms[0] + r->ms[1];
}

static int slowest_first(const void *a, const void *b)
{
	const double x = ms_of(a), y = ms_of(b);

	return (x < y) - (x > y);
}

static void add_kind(struct row *kinds, int *count, const struct row *r)
{
	int i = 0;

	while (i < *count && strcmp(kinds[i].cost.kind, r->cost.kind) != 0)
		i++;
	if (i == KINDS_MAX)
		return;
	if (i == *count) {
		kinds[(*count)++] = *r;
		return;
	}
	kinds[i].count++;
	for (int k = 0; k < 2; k++) {
		kinds[i].ms[k] += r->ms[k];
		kinds[i].cost.bytes[k] += r->cost.bytes[k];
		kinds[i].cost.flops[k] += r->cost.flops[k];
	}
}

/* Rows of operators and of kinds, the slowest first; returns the operators' total. rows: [ops]; kinds: [KINDS_MAX]. */
static double make_rows(const struct train_bench *b, struct row *rows, struct row *kinds, int *kind_count)
{
	double all = 0;

	*kind_count = 0;
	for (int i = 0; i < b->profile->ops; i++) {
		rows[i] = row_of(b, i);
		all += ms_of(&rows[i]);
		add_kind(kinds, kind_count, &rows[i]);
	}
	qsort(rows, (size_t)b->profile->ops, sizeof *rows, slowest_first);
	qsort(kinds, (size_t)*kind_count, sizeof *kinds, slowest_first);
	return all;
}

static double per_s(double amount, double ms)
{
	return ms > 0 ? amount / ms * 1e3 : 0;
}

/* Members of the object that is open, which it ends. */
static void row_json(struct gn_json *j, const struct row *r)
{
	gn_json_string(j, "kind", r->cost.kind);
	for (int k = 0; k < 2; k++) {
		gn_json_object(j, k ? "backward" : "forward");
		gn_json_put(j, "ms %.4f bytes %.0f flops %.0f gb_per_s %.1f tflop_per_s %.2f }", r->ms[k], r->cost.bytes[k],
			    r->cost.flops[k], per_s(r->cost.bytes[k], r->ms[k]) / 1e9, per_s(r->cost.flops[k], r->ms[k]) / 1e12);
	}
	gn_json_end(j);
}

void gn_bench_profile_json(const struct train_bench *b, struct gn_json *j)
{
	const struct gn_bench_profile *f = b->profile;
	struct row *rows = calloc((size_t)f->ops, sizeof *rows), kinds[KINDS_MAX];
	int count;
	double all;

	if (!rows)
		return;
	all = make_rows(b, rows, kinds, &count);
	gn_json_put(j, "profile { steps %ld step_ms %.3f operators_ms %.3f kinds [", f->steps, f->whole[0], all);
	for (int i = 0; i < count; i++) {
		gn_json_put(j, "{ operators %d", kinds[i].count);
		row_json(j, &kinds[i]);
	}
	gn_json_put(j, "] operators [");
	for (int i = 0; i < f->ops; i++) {
		const struct gn_layout *out = &rows[i].cost.out;

		gn_json_put(j, "{ op %d name %s out [", rows[i].op, rows[i].cost.name);
		for (int k = 0; k < 4; k++)
			gn_json_int(j, NULL, (int[]){out->n, out->c, out->h, out->w}[k]);
		gn_json_end(j);
		row_json(j, &rows[i]);
	}
	gn_json_end(j);
	gn_json_end(j);
	free(rows);
}

static void row_print(FILE *to, const struct row *r, const char *name, double step_ms)
{
	const size_t len = strlen(name);

	/* of a long name the end tells more */
	fprintf(to, "%-44s", len > 44 ? name + len - 44 : name);
	for (int k = 0; k < 2; k++)
		fprintf(to, " %9.3f %7.0f %7.1f", r->ms[k], per_s(r->cost.bytes[k], r->ms[k]) / 1e9, per_s(r->cost.flops[k], r->ms[k]) / 1e12);
	fprintf(to, " %5.1f %%\n", step_ms > 0 ? 100 * ms_of(r) / step_ms : 0);
}

void gn_bench_profile_print(const struct train_bench *b, FILE *to)
{
	const struct gn_bench_profile *f = b->profile;
	struct row *rows = calloc((size_t)f->ops, sizeof *rows), kinds[KINDS_MAX];
	char name[160];
	int count;
	double all;

	if (!rows)
		return;
	all = make_rows(b, rows, kinds, &count);
	fprintf(to, "\n# by kind of operator, medians of %lld steps without graphs; a step took %.3f ms, of it operators %.3f\n%-44s %9s %7s %7s %9s "
	       "%7s %7s %7s\n", (long long)f->steps, f->whole[0], all, "", "forward", "GB/s", "TFLOP/s", "backward", "GB/s", "TFLOP/s", "share");
	for (int i = 0; i < count; i++) {
		snprintf(name, sizeof name, "%d x %s", kinds[i].count, kinds[i].cost.kind);
		row_print(to, &kinds[i], name, f->whole[0]);
	}
	fprintf(to, "%-44s %9.3f ms: the batch, the update, sums over ranks, and gaps\n\n# the slowest operators\n", "the rest", f->whole[0] - all);
	for (int i = 0; i < f->ops && i < SLOWEST; i++) {
		snprintf(name, sizeof name, "%s %s %dx%dx%d", rows[i].cost.name, rows[i].cost.kind, rows[i].cost.out.c, rows[i].cost.out.h,
			 rows[i].cost.out.w);
		row_print(to, &rows[i], name, f->whole[0]);
	}
	free(rows);
}
