#include "src/cmd/bench.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	int (*run)(const struct gn_bench_options *o);
} modes[] = {
	{"allreduce", gn_bench_allreduce},
};

static int run(const void *options, const struct gn_text_list *positional)
{
	const struct gn_bench_options *o = options;
	char mode[64];

	if (o->min_bytes > o->max_bytes) {
		fprintf(stderr, "gannet bench: --min-bytes is above --max-bytes\n");
		return GN_EXIT_USAGE;
	}
	for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
		if (!strcmp(modes[i].name, positional->items[0]))
			return modes[i].run(o);
	fprintf(stderr, "gannet bench: no mode '%s'; there is: allreduce\n",
		gn_text_visible(positional->items[0], mode, sizeof mode));
	return GN_EXIT_USAGE;
}

#define FIELD(name) offsetof(struct gn_bench_options, name)

static const struct gn_option options_table[] = {
	{.name = "min-bytes", .letter = 'b', .kind = GN_OPTION_SIZE, .offset = FIELD(min_bytes), .value_name = "N",
	 .initial = "8", .help = "smallest message", .min = 4, .max = 1LL << 36},
	{.name = "max-bytes", .letter = 'e', .kind = GN_OPTION_SIZE, .offset = FIELD(max_bytes), .value_name = "N",
	 .initial = "16M", .help = "largest message", .min = 4, .max = 1LL << 36},
	{.name = "factor", .letter = 'f', .kind = GN_OPTION_INT, .offset = FIELD(factor), .value_name = "N",
	 .initial = "2", .help = "each message is so many times the one before", .min = 2, .max = 1024},
	{.name = "iters", .letter = 'n', .kind = GN_OPTION_INT, .offset = FIELD(iters), .value_name = "N",
	 .initial = "20", .help = "timed operations for each size", .min = 1, .max = 1000000},
	{.name = "warmup", .letter = 'w', .kind = GN_OPTION_INT, .offset = FIELD(warmup), .value_name = "N",
	 .initial = "5", .help = "operations before those", .min = 0, .max = 1000000},
	{.name = "row-ms", .kind = GN_OPTION_INT, .offset = FIELD(row_ms), .value_name = "N", .initial = "0",
	 .help = "roughly the time for one row: fewer operations where they are slow, but 5; 0: no limit", .min = 0,
	 .max = 1000000},
	{.name = "place", .kind = GN_OPTION_CHOICE, .offset = FIELD(place), .value_name = "WHICH", .initial = "both",
	 .help = "measure in place, out of place, or both", .choices = "both|in|out"},
	{.name = "algo", .kind = GN_OPTION_CHOICE, .offset = FIELD(algo), .value_name = "NAME", .initial = "auto",
	 .help = "algorithm", .choices = "auto|shared|ring|recursive-doubling|halving-doubling|double-tree|hierarchical|hierarchical-ring"},
	{.name = "foreign", .kind = GN_OPTION_FLAG, .offset = FIELD(foreign),
	 .help = "ordinary memory instead of memory that ranks of one node share"},
	{.name = "transport", .kind = GN_OPTION_CHOICE, .offset = FIELD(transport), .value_name = "NAME",
	 .initial = "auto", .help = "what has to carry the bytes; fails when the devices' counters say otherwise",
	 .choices = "auto|tcp|shm|rc|ud"},
	{.name = "json", .kind = GN_OPTION_FLAG, .offset = FIELD(json), .help = "one JSON object a line"},
};

static const struct gn_command command = {
	.name = "bench",
	.summary = "measure communication",
	.positional = "allreduce",
	.description =
		"Measures between the ranks that started it (srun --mpi=pmix, mpirun, gannet launch), in the columns of "
		"nccl-tests: algorithm bandwidth is message size by time, bus bandwidth that times 2(n-1)/n, GB are 10^9 bytes. "
		"Times are those of the slowest rank: the mean over the iterations, and their 50th and 99th percentile.\n\n"
		"Results are checked in every row, for all elements: out of place those of the last timed operation, in "
		"place those of one more. A wrong one makes the exit code 1.\n\n"
		"With --transport, the counters of the network devices are read before and after each row, and the command "
		"fails with code 1 when they do not bear the named transport out.",
	.examples = "  gannet launch -n 4 gannet bench allreduce --transport shm   # on this machine\n"
		    "  srun -N2 --mpi=pmix gannet bench allreduce --json            # JSON lines\n",
	.options = options_table,
	.option_count = sizeof options_table / sizeof *options_table,
	.positional_min = 1,
	.positional_max = 1,
};

const struct gn_cmd gn_cmd_bench = {&command, run, sizeof(struct gn_bench_options)};
