#include "src/cmd/bench_row.h"

#include "src/base/clock.h"
#include "src/base/json.h"
#include "src/base/sort.h"
#include "src/cmd/cmd.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ITERS_MIN 5

void gn_timing_summarise(double *times, int64_t n, double mean_us, struct gn_timing *t)
{
	gn_sort_doubles(times, (size_t)n);
	t->mean_us = mean_us;
	t->p50_us = times[n / 2];
	t->p99_us = times[(size_t)(0.99 * (double)(n - 1) + 0.5)];
	t->iters = n;
}

/* Doubles the number of operations until plan->warmup is reached or half of the row's time is used. All ranks decide by the same
 * clock, the slowest rank's. */
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
		gn_timing_summarise(times, n, mean_us, out);
	return status;
}

/* from the mean time; GB = 10^9 bytes */
static double gb_per_s(double bytes, const struct gn_timing *t)
{
	return t->mean_us > 0 ? bytes / t->mean_us / 1e3 : 0;
}

static double share(const struct gn_bench_row *row, const struct gn_timing *t)
{
	return row->limit_gb_per_s > 0 ? gb_per_s(row->limit_bytes, t) / row->limit_gb_per_s : 0;
}

static void json_timing(struct gn_json *j, const char *key, const struct gn_bench_row *row, const struct gn_timing *t)
{
	if (!t->iters)
		return;
	gn_json_object(j, key);
	gn_json_put(j, "time_us %.3f p50_us %.3f p99_us %.3f algbw_gb_per_s %g busbw_gb_per_s %g", t->mean_us, t->p50_us, t->p99_us,
		    gb_per_s((double)row->bytes, t), gb_per_s((double)row->bytes, t) * row->bus_factor);
	if (row->limit_gb_per_s > 0)
		gn_json_fixed(j, "limit_share", share(row, t), 4);
	gn_json_put(j, "algo %s pieces %d chunks %d iters %ld wrong %ld }", t->algo, t->pieces, t->chunks, t->iters, t->wrong);
}

static void json_limit(struct gn_json *j, const struct gn_bench_row *row)
{
	if (!(row->limit_gb_per_s > 0))
		return;
	gn_json_put(j, "limit { of %s gb_per_s %g needed_bytes %g }", row->limit_of, row->limit_gb_per_s, row->limit_bytes);
}

void gn_bench_print_json(const struct gn_bench_row *row)
{
	struct gn_json j;

	gn_json_begin(&j);
	gn_json_put(&j, "op %s bytes %lu count %lu type %s redop %s root %d", row->op, row->bytes, row->count, row->type, row->redop,
		    row->root);
	if (row->direction)
		gn_json_string(&j, "direction", row->direction);
	if (row->device)
		gn_json_string(&j, "device", row->device);
	gn_json_put(&j, "algo %s transport %s ranks %d nodes %d", (row->in_place.iters ? &row->in_place : &row->out_of_place)->algo,
		    row->transport, row->ranks, row->nodes);
	if (row->groups > 1)
		gn_json_int(&j, "groups", row->groups);
	gn_json_int(&j, "rails", row->rails);
	json_limit(&j, row);
	json_timing(&j, "in_place", row, &row->in_place);
	json_timing(&j, "out_of_place", row, &row->out_of_place);
	gn_cmd_print_json(&j);
}

static void heading_timing(int units)
{
	if (units)
		printf(" | %9s %9s %9s %7s %7s %5s %6s", "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", "(%)", "");
	else
		printf(" | %9s %9s %9s %7s %7s %5s %6s", "time", "p50", "p99", "algbw", "busbw", "limit", "#wrong");
}

void gn_bench_print_heading(void)
{
	printf("#%47s | %-58s | %-58s |\n", "", "out of place", "in place");
	for (int units = 0; units < 2; units++) {
		printf("#%11s %11s %8s %9s %4s", units ? "(B)" : "size", units ? "(elements)" : "count", units ? "" : "type",
		       units ? "" : "redop", units ? "" : "root");
		heading_timing(units);
		heading_timing(units);
		puts(units ? " |" : " | algorithm, chunks, transport, rails");
	}
}

static void print_timing(const struct gn_bench_row *row, const struct gn_timing *t)
{
	double algbw = gb_per_s((double)row->bytes, t);
	char limit[16];

	if (!t->iters) {
		printf(" | %9s %9s %9s %7s %7s %5s %6s", "-", "-", "-", "-", "-", "-", "-");
		return;
	}
	snprintf(limit, sizeof limit, row->limit_gb_per_s > 0 ? "%.1f" : "-", 100 * share(row, t));
	printf(" | %9.2f %9.2f %9.2f %7.3f %7.3f %5s %6lld", t->mean_us, t->p50_us, t->p99_us, algbw, algbw * row->bus_factor,
	       limit, (long long)t->wrong);
}

/* One column when out of place and in place agree. */
static void print_algorithm(const struct gn_bench_row *row)
{
	const struct gn_timing *out = &row->out_of_place, *in = &row->in_place;

	if (out->iters)
		printf("| %s, %d", out->algo, out->chunks);
	if (in->iters && (!out->iters || strcmp(in->algo, out->algo) || in->chunks != out->chunks))
		printf("%s%s, %d", out->iters ? "; in place " : "| ", in->algo, in->chunks);
}

void gn_bench_print_row(const struct gn_bench_row *row)
{
	printf(" %11llu %11llu %8s %9s %4d", (unsigned long long)row->bytes, (unsigned long long)row->count, row->type,
	       row->direction ? row->direction : row->redop, row->root);
	print_timing(row, &row->out_of_place);
	print_timing(row, &row->in_place);
	putchar(' ');
	print_algorithm(row);
	printf(", %s, %d\n", row->transport, row->rails);
	fflush(stdout);
}

#define PERIOD 61
#define ELEMENT_MAX 8

size_t gn_pattern_bytes(enum gn_dtype type)
{
	switch (type) {
	case GN_F64:
	case GN_I64:
		return 8;
	case GN_F16:
	case GN_BF16:
		return 2;
	case GN_BYTES:
		return 1;
	default:
		return 4;
	}
}

/* Integers up to this are exact, and so are their sums. */
static int exact_to(enum gn_dtype type)
{
	return type == GN_BF16 ? 256 : type == GN_F16 ? 2048 : type == GN_BYTES ? 30 : 1 << 24;
}

/* The value of element i of rank. Small enough that the sum over all ranks stays exact; ranks beyond that count contribute 0. */
static int value_of(const struct gn_pattern *p, int rank, size_t i)
{
	int most = exact_to(p->type) / (p->type == GN_BYTES ? 1 : p->size),
		value = (int)((i * 7 + (size_t)rank * 13) % PERIOD) - 30;

	if (p->type == GN_BYTES)
		return value + 30;
	if (most < 1)
		return rank < exact_to(p->type) ? value % 2 : 0;
	return most < 30 ? value % (most + 1) : value;
}

static double reduced(const struct gn_pattern *p, size_t i)
{
	double result = value_of(p, 0, i);

	for (int r = 1; r < p->size; r++) {
		double v = value_of(p, r, i);

		if (p->reduction == GN_MAX)
			result = v > result ? v : result;
		else if (p->reduction == GN_MIN)
			result = v < result ? v : result;
		else
			result += v;
	}
	return p->reduction == GN_AVERAGE ? result / p->size : result;
}

/* Integers up to 2048 are exact in binary16; larger results are rounded and compared with a tolerance. */
static uint16_t half_of(double value)
{
	uint16_t sign = value < 0 ? 0x8000 : 0;
	int exponent;
	double fraction = frexp(fabs(value), &exponent);

	return fraction > 0 ? (uint16_t)(sign | (uint16_t)((exponent + 14) << 10 | ((int)(fraction * 2048) & 0x3ff))) : sign;
}

static double of_half(uint16_t h)
{
	int exponent = h >> 10 & 31, fraction = h & 0x3ff;
	double value = exponent == 31 ? NAN : exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);

	return h & 0x8000 ? -value : value;
}

static void encode(enum gn_dtype type, double value, void *out)
{
	float single = (float)value;
	int32_t whole = (int32_t)value;
	int64_t wide = (int64_t)value;
	uint16_t half = half_of(value);
	uint32_t bits;
	uint8_t byte = (uint8_t)wide;

	memcpy(&bits, &single, sizeof bits);
	switch (type) {
	case GN_F64:
		memcpy(out, &value, sizeof value);
		break;
	case GN_I64:
		memcpy(out, &wide, sizeof wide);
		break;
	case GN_I32:
		memcpy(out, &whole, sizeof whole);
		break;
	case GN_BF16:
		half = (uint16_t)(bits >> 16);
		/* fall through */
	case GN_F16:
		memcpy(out, &half, sizeof half);
		break;
	case GN_BYTES:
		memcpy(out, &byte, sizeof byte);
		break;
	default:
		memcpy(out, &single, sizeof single);
	}
}

static double decode(enum gn_dtype type, const void *data)
{
	uint64_t bits = 0;
	uint32_t upper;
	float single;
	double wide;

	memcpy(&bits, data, gn_pattern_bytes(type));
	switch (type) {
	case GN_F64:
		memcpy(&wide, &bits, sizeof wide);
		return wide;
	case GN_I64:
		return (double)(int64_t)bits;
	case GN_I32:
		return (double)(int32_t)bits;
	case GN_F16:
		return of_half((uint16_t)bits);
	case GN_BYTES:
		return (double)bits;
	default:
		upper = (uint32_t)(type == GN_BF16 ? bits << 16 : bits);
		memcpy(&single, &upper, sizeof single);
		return single;
	}
}

static int differs(const struct gn_pattern *p, const void *data, double wanted)
{
	double got = decode(p->type, data), relative;

	if (p->type == GN_I32 || p->type == GN_I64 || p->type == GN_BYTES)
		return got != trunc(wanted);
	if (p->reduction != GN_AVERAGE)
		return got != wanted;
	/* two units in the last place */
	relative = p->type == GN_F64 ? 4e-16 : p->type == GN_F16 ? 2e-3 : p->type == GN_BF16 ? 1.6e-2 : 2.4e-7;
	return !(fabs(got - wanted) <= relative * fabs(wanted));
}

void gn_pattern_fill(const struct gn_pattern *p, void *data, size_t first, size_t count, int rank)
{
	size_t bytes = gn_pattern_bytes(p->type), done = count < PERIOD ? count : PERIOD, more;
	char *to = data;

	for (size_t i = 0; i < done; i++)
		encode(p->type, value_of(p, rank, first + i), to + i * bytes);
	/* copies whole periods, doubling the filled part */
	for (; done < count; done += more) {
		more = count - done < done ? count - done : done;
		memcpy(to + done * bytes, to, more * bytes);
	}
}

int64_t gn_pattern_wrong(const struct gn_pattern *p, const void *data, size_t first, size_t count, int rank)
{
	size_t bytes = gn_pattern_bytes(p->type);
	char wanted[PERIOD * ELEMENT_MAX];
	double values[PERIOD];
	int64_t wrong = 0;

	for (size_t i = 0; i < PERIOD; i++) {
		values[i] = rank < 0 ? reduced(p, first + i) : value_of(p, rank, first + i);
		encode(p->type, values[i], wanted + i * bytes);
	}
	for (size_t at = 0; at < count; at += PERIOD) {
		const char *block = (const char *)data + at * bytes;
		size_t n = count - at < PERIOD ? count - at : PERIOD;

		if (!memcmp(block, wanted, n * bytes))
			continue;
		for (size_t i = 0; i < n; i++)
			wrong += differs(p, block + i * bytes, values[i]);
	}
	return wrong;
}
