#include "src/cmd/bench_row.h"

#include "src/base/json.h"

#include <stdio.h>

double gn_bench_algbw(const struct gn_bench_row *row, const struct gn_timing *t)
{
	return t->iters && t->mean_us > 0 ? (double)row->bytes / t->mean_us / 1e3 : 0;
}

static void json_timing(struct gn_json *j, const char *key, const struct gn_bench_row *row, const struct gn_timing *t)
{
	if (!t->iters)
		return;
	gn_json_object(j, key);
	gn_json_fixed(j, "time_us", t->mean_us, 3);
	gn_json_fixed(j, "p50_us", t->p50_us, 3);
	gn_json_fixed(j, "p99_us", t->p99_us, 3);
	gn_json_double(j, "algbw_gb_per_s", gn_bench_algbw(row, t));
	gn_json_double(j, "busbw_gb_per_s", gn_bench_algbw(row, t) * row->bus_factor);
	gn_json_int(j, "iters", t->iters);
	gn_json_int(j, "wrong", t->wrong);
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
	gn_json_string(&j, "algo", row->algo);
	gn_json_string(&j, "transport", row->transport);
	gn_json_int(&j, "ranks", row->ranks);
	gn_json_int(&j, "nodes", row->nodes);
	json_timing(&j, "in_place", row, &row->in_place);
	json_timing(&j, "out_of_place", row, &row->out_of_place);
	gn_json_end(&j);
	puts(gn_json_text(&j));
	fflush(stdout);
	gn_json_release(&j);
}

void gn_bench_print_heading(void)
{
	printf("#%50s| out of place %38s| in place\n", "", "");
	printf("#%11s %11s %6s %6s %-11s | %9s %9s %9s %7s %7s %6s | %9s %9s %9s %7s %7s %6s\n", "size", "count", "type",
	       "redop", "algo", "time", "p50", "p99", "algbw", "busbw", "#wrong", "time", "p50", "p99", "algbw", "busbw",
	       "#wrong");
	printf("#%11s %11s %6s %6s %-11s | %9s %9s %9s %7s %7s %6s | %9s %9s %9s %7s %7s %6s\n", "(B)", "(elements)", "",
	       "", "", "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", "");
}

static void print_timing(const struct gn_bench_row *row, const struct gn_timing *t)
{
	double algbw = gn_bench_algbw(row, t);

	if (!t->iters)
		printf(" | %9s %9s %9s %7s %7s %6s", "-", "-", "-", "-", "-", "-");
	else
		printf(" | %9.2f %9.2f %9.2f %7.3f %7.3f %6lld", t->mean_us, t->p50_us, t->p99_us, algbw,
		       algbw * row->bus_factor, (long long)t->wrong);
}

void gn_bench_print_row(const struct gn_bench_row *row)
{
	printf(" %11llu %11llu %6s %6s %-11.11s", (unsigned long long)row->bytes, (unsigned long long)row->count, row->type,
	       row->redop, row->algo);
	print_timing(row, &row->out_of_place);
	print_timing(row, &row->in_place);
	putchar('\n');
	fflush(stdout);
}
