/* Measures one peer: usage PROGRAM [--min-bytes N] [--max-bytes N] [--factor N] [--iters N] [--warmup N] [--row-ms N]
 * [--place both|in|out] [--nodes N] [--ranks N], in plain bytes. JSON rows as gannet bench allreduce --json. */
#include "bench/peers/peer.h"
#include "src/cmd/bench_row.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct settings {
	long long min_bytes, max_bytes, factor, iters, warmup, row_ms, nodes, ranks;
	const char *place;
};

struct measured {
	struct peer peer;
	size_t count;
	int in_place;
};

void peer_fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

static struct settings parse(int argc, char **argv)
{
	struct settings s = {8, 64 << 20, 2, 20, 5, 0, 1, 1, "both"};
	struct {
		const char *name;
		long long *value;
	} numbers[] = {{"--min-bytes", &s.min_bytes}, {"--max-bytes", &s.max_bytes}, {"--factor", &s.factor},
		       {"--iters", &s.iters}, {"--warmup", &s.warmup}, {"--row-ms", &s.row_ms}, {"--nodes", &s.nodes},
		       {"--ranks", &s.ranks}};

	for (int i = 1; i < argc; i += 2) {
		size_t n = 0;

		if (i + 1 == argc)
			peer_fail("%s: %s needs a value", argv[0], argv[i]);
		if (!strcmp(argv[i], "--place")) {
			s.place = argv[i + 1];
			continue;
		}
		while (n < sizeof numbers / sizeof *numbers && strcmp(numbers[n].name, argv[i]))
			n++;
		if (n == sizeof numbers / sizeof *numbers)
			peer_fail("%s: what is %s?", argv[0], argv[i]);
		*numbers[n].value = atoll(argv[i + 1]);
	}
	if (s.min_bytes < 4 || s.max_bytes < s.min_bytes || s.factor < 2 || s.iters < 1)
		peer_fail("%s: numbers make no sense", argv[0]);
	return s;
}

static enum gn_status sum(void *context, struct gn_err *err)
{
	struct measured *m = context;

	(void)err;
	peer_sum(&m->peer, m->in_place ? NULL : m->peer.in, m->peer.out, m->count);
	return GN_OK;
}

static enum gn_status largest(void *context, double *values, size_t count, struct gn_err *err)
{
	struct measured *m = context;

	(void)err;
	peer_max(&m->peer, values, count);
	return GN_OK;
}

/* As gannet bench does it: in place the timed sums would grow without bound; zeros stay, and one more operation is checked. */
static void measure(struct measured *m, const struct settings *s, double *times, struct gn_timing *t)
{
	struct gn_bench_plan plan = {s->warmup, s->iters, s->row_ms};
	struct gn_bench_op op = {sum, largest, m};
	struct gn_pattern pattern = {GN_F32, GN_SUM, m->peer.size};
	double wrong;

	gn_pattern_fill(&pattern, m->peer.in, 0, m->count, m->peer.rank);
	memset(m->peer.out, m->in_place ? 0 : 0xff, m->count * sizeof(float));
	gn_bench_loop(&plan, &op, times, t, NULL);
	if (m->in_place) {
		gn_pattern_fill(&pattern, m->peer.out, 0, m->count, m->peer.rank);
		sum(m, NULL);
	}
	wrong = (double)gn_pattern_wrong(&pattern, m->peer.out, 0, m->count, -1);
	peer_max(&m->peer, &wrong, 1);
	t->wrong = (int64_t)wrong;
	t->algo = "its own";
}

int main(int argc, char **argv)
{
	struct settings s = parse(argc, argv);
	double *times = calloc((size_t)s.iters, sizeof *times);
	struct measured m = {0};
	int64_t wrong = 0;

	if (!times)
		peer_fail("no memory");
	peer_open(&argc, &argv, (int)s.ranks, (size_t)s.max_bytes, &m.peer);
	for (long long bytes = s.min_bytes; bytes <= s.max_bytes; bytes *= s.factor) {
		struct gn_bench_row row = {.op = "allreduce", .type = "float", .redop = "sum", .transport = "", .root = -1,
					   .bytes = (uint64_t)bytes, .count = (uint64_t)bytes / sizeof(float),
					   .ranks = m.peer.size, .nodes = (int)s.nodes,
					   .bus_factor = 2.0 * (m.peer.size - 1) / m.peer.size};

		m.count = row.count;
		m.in_place = 0;
		if (strcmp(s.place, "in"))
			measure(&m, &s, times, &row.out_of_place);
		m.in_place = 1;
		if (strcmp(s.place, "out"))
			measure(&m, &s, times, &row.in_place);
		wrong += row.out_of_place.wrong + row.in_place.wrong;
		if (m.peer.rank == 0)
			gn_bench_print_json(&row);
	}
	peer_close(&m.peer);
	free(times);
	if (wrong)
		peer_fail("wrong results");
	return 0;
}
