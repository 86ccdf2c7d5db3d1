#include "src/cmd/bench_row.h"

#include "src/base/json.h"

#include <stdio.h>
#include <string.h>

/* By the mean time; GB = 10^9. */
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
	gn_json_fixed(j, "time_us", t->mean_us, 3);
	gn_json_fixed(j, "p50_us", t->p50_us, 3);
	gn_json_fixed(j, "p99_us", t->p99_us, 3);
	gn_json_double(j, "algbw_gb_per_s", gb_per_s((double)row->bytes, t));
	gn_json_double(j, "busbw_gb_per_s", gb_per_s((double)row->bytes, t) * row->bus_factor);
	if (row->limit_gb_per_s > 0)
		gn_json_fixed(j, "limit_share", share(row, t), 4);
	gn_json_string(j, "algo", t->algo);
	gn_json_int(j, "pieces", t->pieces);
	gn_json_int(j, "chunks", t->chunks);
	gn_json_int(j, "iters", t->iters);
	gn_json_int(j, "wrong", t->wrong);
	gn_json_end(j);
}

static void json_limit(struct gn_json *j, const struct gn_bench_row *row)
{
	if (!(row->limit_gb_per_s > 0))
		return;
	gn_json_object(j, "limit");
	gn_json_string(j, "of", row->limit_of);
	gn_json_double(j, "gb_per_s", row->limit_gb_per_s);
	gn_json_double(j, "needed_bytes", row->limit_bytes);
	gn_json_end(j);
}

void gn_bench_print_json(const struct gn_bench_row *row)
{
	struct gn_json j;

	gn_json_init(&j);
	gn_json_object(&j, NULL);
	gn_json_string(&j, "op", row->op);
	gn_json_uint(&j, "bytes", row->bytes);
	gn_json_uint(&j, "count", row->count);
	gn_json_string(&j, "type", row->type);
	gn_json_string(&j, "redop", row->redop);
	gn_json_int(&j, "root", row->root);
	if (row->direction)
		gn_json_string(&j, "direction", row->direction);
	if (row->device)
		gn_json_string(&j, "device", row->device);
	gn_json_string(&j, "algo", (row->in_place.iters ? &row->in_place : &row->out_of_place)->algo);
	gn_json_string(&j, "transport", row->transport);
	gn_json_int(&j, "ranks", row->ranks);
	gn_json_int(&j, "nodes", row->nodes);
	gn_json_int(&j, "rails", row->rails);
	json_limit(&j, row);
	json_timing(&j, "in_place", row, &row->in_place);
	json_timing(&j, "out_of_place", row, &row->out_of_place);
	gn_json_end(&j);
	puts(gn_json_text(&j));
	fflush(stdout);
	gn_json_release(&j);
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

/* Once, when both ways have the same. */
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
