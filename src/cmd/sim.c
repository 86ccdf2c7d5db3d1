#include "src/cmd/sim.h"

#include "src/base/clock.h"
#include "src/base/json.h"
#include "src/base/text.h"
#include "src/train/parallel/pipe_schedule.h"
#include "transport/schedule/verify.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* bus bandwidth divided by algorithm bandwidth, as in nccl-tests */
static double bus_factor(enum gn_collective what, int ranks)
{
	double n = ranks;

	switch (what) {
	case GN_COLLECTIVE_ALLREDUCE:
		return 2 * (n - 1) / n;
	case GN_COLLECTIVE_REDUCE_SCATTER:
	case GN_COLLECTIVE_ALLGATHER:
	case GN_COLLECTIVE_ALL_TO_ALL:
		return (n - 1) / n;
	default:
		return 1;
	}
}

static void print_row(const struct gn_sim_options *o, const struct gn_sim_topology *t, const struct gn_algorithm *a,
		      size_t bytes, const struct gn_sim_result *r)
{
	int ranks = t->nodes * t->ranks_per_node;
	double algbw = r->time_s > 0 ? (double)bytes / r->time_s / 1e9 : 0;
	struct gn_json j;

	if (!o->json) {
		printf("%12zu %-20s %12.2f %9.3f %9.3f %6u %12llu %14llu %9d\n", bytes, a->name, r->time_s * 1e6, algbw,
		       algbw * bus_factor(a->what, ranks), r->pieces, (unsigned long long)r->messages,
		       (unsigned long long)r->network_bytes, r->simulated_ranks);
		fflush(stdout);
		return;
	}
	gn_json_begin(&j);
	gn_json_put(&j, "op %s bytes %lu algo %s ranks %d nodes %d time_us %g first_us %g algbw_gb_per_s %g busbw_gb_per_s %g pieces %u "
		    "messages %lu network_bytes %lu simulated_ranks %d", gn_collective_name(a->what), bytes, a->name, ranks, t->nodes,
		    r->time_s * 1e6, r->fastest_s * 1e6, algbw, algbw * bus_factor(a->what, ranks), r->pieces, r->messages,
		    r->network_bytes, r->simulated_ranks);
	gn_cmd_print_json(&j);
}

static int is_chosen(const struct gn_sim_options *o, const struct gn_algorithm *a)
{
	return (!strcmp(o->collective, "all") || !strcmp(o->collective, gn_collective_name(a->what))) &&
	       (!strcmp(o->algo, "all") || !strcmp(o->algo, a->name));
}

static enum gn_status time_all(const struct gn_sim_options *o, const struct gn_sim_topology *t, struct gn_err *err)
{
	size_t count;
	const struct gn_algorithm *all = gn_algorithms(&count);
	enum gn_status status = GN_OK;

	if (!o->json)
		printf("# %d node%s of %d rank%s, simulated\n#%11s %-20s %12s %9s %9s %6s %12s %14s %9s\n", t->nodes,
		       gn_text_plural((uint64_t)t->nodes), t->ranks_per_node, gn_text_plural((uint64_t)t->ranks_per_node), "size "
		       	"(B)", "algo", "time (us)", "algbw", "busbw", "pieces", "messages", "network (B)",
		       "simulated");
	for (int64_t bytes = o->min_bytes; bytes <= o->max_bytes && !status; bytes *= o->factor)
		for (size_t i = 0; i < count && !status; i++) {
			struct gn_sim_result r;

			if (!is_chosen(o, &all[i]))
				continue;
			status = gn_sim_run(t, &all[i], (size_t)bytes, (uint32_t)o->pieces, (uint64_t)o->memory, &r, err);
			if (!status)
				print_row(o, t, &all[i], (size_t)bytes, &r);
			/* with --algo all, an algorithm that needs too much memory is skipped with a message */
			if (status == GN_ERR_UNSUPPORTED && !strcmp(o->algo, "all")) {
				fprintf(stderr, "gannet sim: skipped: %s\n", err->text);
				status = GN_OK;
			}
		}
	return status;
}

static enum gn_status verify_one(const struct gn_algorithm *a, int size, int *proved, struct gn_err *err)
{
	static const uint32_t pieces[] = {1, 3};
	struct gn_node_map *map = NULL;
	int *node_of = calloc((size_t)size, sizeof *node_of);
	enum gn_status status;

	if (!node_of)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", size);
	/* nodes of four ranks and a last one of the remainder: sizes differ */
	for (int r = 0; r < size; r++)
		node_of[r] = (r + 1) / 4;
	status = gn_node_map_create(node_of, size, &map, err);
	free(node_of);
	for (size_t k = 0; k < 2 && !status; k++)
		for (int with_map = 0; with_map < 2 && !status; with_map++) {
			struct gn_algo_args args = {.size = size, .root = size / 2, .pieces = pieces[k]};

			args.map = with_map ? map : NULL;
			if (with_map && !strstr(a->name, "hierarchical"))
				continue;
			status = gn_verify_algorithm(a, &args, err);
			*proved += !status;
		}
	gn_node_map_destroy(map);
	return status;
}

static enum gn_status verify_all(const struct gn_sim_options *o, struct gn_err *err)
{
	size_t count;
	const struct gn_algorithm *all = gn_algorithms(&count);
	enum gn_status status = GN_OK;

	for (size_t i = 0; i < count && !status; i++) {
		double began = gn_clock_s();
		int proved = 0;

		if (!is_chosen(o, &all[i]))
			continue;
		for (int size = 1; size <= (int)o->verify_ranks && !status; size++)
			status = verify_one(&all[i], size, &proved, err);
		if (!status)
			printf("verified %-12s %-20s 1 to %lld ranks: %d cases in %.2f s\n", gn_collective_name(all[i].what),
			       all[i].name, (long long)o->verify_ranks, proved, gn_clock_s() - began);
		fflush(stdout);
	}
	return status;
}

static int any_chosen(const struct gn_sim_options *o)
{
	size_t count;
	const struct gn_algorithm *all = gn_algorithms(&count);

	for (size_t i = 0; i < count; i++)
		if (is_chosen(o, &all[i]))
			return 1;
	return 0;
}

static int run(const void *options, const struct gn_text_list *positional)
{
	const struct gn_sim_options *o = options;
	struct gn_sim_topology t;
	struct gn_err err = {.status = GN_ERR_USAGE};
	enum gn_status status = gn_sim_machine_read(o, &t, &err);

	(void)positional;
	if (!status && !any_chosen(o))
		status = gn_err_set(&err, GN_ERR_USAGE, "no algorithm %s for %s; --algo all lists them", o->algo, o->collective);
	if (!status && o->verify)
		status = verify_all(o, &err);
	else if (!status && (o->compute_ms > 0 || o->log || o->step || o->pipeline > 1))
		status = gn_sim_train(o, &t, &err);
	else if (!status)
		status = time_all(o, &t, &err);
	return status ? gn_cmd_fail("sim", &err) : GN_EXIT_DONE;
}

#define FIELD(name) offsetof(struct gn_sim_options, name)
#define MACHINE(text, field, value, sentence)                                                                          \
	{.name = text, .kind = GN_OPTION_REAL, .offset = FIELD(machine.field), .value_name = value, .initial = "-1",    \
	 .help = sentence, .min = 0, .max = 1e12}

static const struct gn_option options_table[] = {
	GN_OPT_TEXT("topology", FIELD(topology), "FILE", "JSON file whose keys are the machine options below, with underscores",
		    .letter = 't'),
	GN_OPT_TEXT("tuning", FIELD(tuning), "FILE", "tuning table of gannet tune with measured latencies, overheads and rates"),
	GN_OPT_TEXT("fabric", FIELD(fabric), "TEXT", "the line of --tuning whose signature contains TEXT"),
	MACHINE("nodes", nodes, "N", "nodes (4)"),
	MACHINE("ranks-per-node", ranks_per_node, "N", "ranks per node (1)"),
	MACHINE("rails", rails, "N", "network ports per node (1)"),
	MACHINE("link-gbit", link_gbit, "X", "Gbit/s per port (100)"),
	MACHINE("link-us", link_us, "X", "latency between nodes in us (1.5)"),
	MACHINE("node-gb", node_gb, "X", "GB/s between the ranks of a node (10)"),
	MACHINE("node-us", node_us, "X", "latency within a node in us (0.5)"),
	MACHINE("leaf-nodes", leaf_nodes, "N", "nodes per leaf switch; 0: one switch for all (0)"),
	MACHINE("oversubscription", oversubscription, "X", "ratio of a leaf switch's downlink to uplink bandwidth (1)"),
	MACHINE("send-us", send_us, "X", "processor time to send a message in us (0.3)"),
	MACHINE("receive-us", receive_us, "X", "processor time to receive a message in us (0.3)"),
	MACHINE("gap-us", gap_us, "X", "least time between messages of a port in us (0.1)"),
	MACHINE("reduce-gb", reduce_gb, "X", "GB/s at which a rank reduces or copies; 0: no time (10)"),
	MACHINE("eager-bytes", eager_bytes, "N", "longest eager message in bytes; longer ones use a rendezvous (8192)"),
	MACHINE("jitter", jitter, "X", "jitter: every time is multiplied by 1 + X |normal| (0)"),
	MACHINE("stragglers", stragglers, "N", "number of ranks that start late (0)"),
	MACHINE("straggler-us", straggler_us, "X", "delay of stragglers in us (1000)"),
	GN_OPT_INT("repeats", FIELD(repeats), "N", "1", 1, 100000, "timed operations, back to back; the mean is printed"),
	GN_OPT_INT("warmup", FIELD(warmup), "N", "0", 0, 100000, "untimed operations before those"),
	GN_OPT_FLAG("streams", FIELD(streams), "messages between two ranks form a byte stream, and streams share a port evenly, as TCP; "
		    "the default with a --tuning of tcp"),
	GN_OPT_INT("seed", FIELD(seed), "N", "1", 0, 1LL << 52, "seed of jitter and stragglers"),
	GN_OPT_CHOICE("collective", FIELD(collective), "NAME", "allreduce",
		    "all|allreduce|reduce-scatter|allgather|broadcast|reduce|barrier|all-to-all", "collective to simulate"),
	GN_OPT_TEXT("algo", FIELD(algo), "NAME", "algorithm, or all", .initial = "all"),
	GN_OPT_SIZE("min-bytes", FIELD(min_bytes), "N", "64K", 4, 1LL << 36, "smallest message", .letter = 'b'),
	GN_OPT_SIZE("max-bytes", FIELD(max_bytes), "N", "64M", 4, 1LL << 36, "largest message", .letter = 'e'),
	GN_OPT_INT("factor", FIELD(factor), "N", "4", 2, 1 << 20, "factor between successive message sizes", .letter = 'f'),
	GN_OPT_INT("pieces", FIELD(pieces), "N", "0", 0, 4096, "number of pipelined slices; 0: slices of 256 KiB"),
	GN_OPT_SIZE("memory", FIELD(memory), "N", "8G", 1 << 20, 1e15, "most memory of the simulation"),
	GN_OPT_REAL("compute-ms", FIELD(compute_ms), "X", "0", 0, 1e9, "predict training: time of a step on a single rank"),
	GN_OPT_REAL("batch", FIELD(batch), "N", "64", 1, 1e9, "images per rank and step"),
	GN_OPT_REAL("gradient-bytes", FIELD(step_bytes), "N", "102228128", 4, 1e12, "bytes of gradient per step (ResNet-50)"),
	GN_OPT_REAL("buckets", FIELD(buckets), "N", "25", 1, 10000, "number of equal gradient buckets"),
	GN_OPT_REAL("backward", FIELD(backward), "X", "0.66", 0, 1, "time of the backward pass, during which buckets become ready"),
	GN_OPT_REAL("after-ms", FIELD(after_ms), "X", "0", 0, 1e9, "time of the end of a step that needs all sums (the optimizer)"),
	GN_OPT_TEXT("log", FIELD(log), "FILE.jsonl", "predict training from a log of gannet train, preferably of one rank: times, batch, "
		    "gradient and buckets"),
	GN_OPT_TEXT("step", FIELD(step), "FILE.json", "predict training from {\"compute_ms\": X, \"after_ms\": X, \"batch\": N, "
		    "\"buckets\": [{\"bytes\": N, \"ready_ms\": X}, ...]}"),
	GN_OPT_INT("pipeline", FIELD(pipeline), "P", "1", 1, 1 << 20, "predict training in pipelines of P equal stages, as gannet train "
		    "--parallel pipeline=P"),
	GN_OPT_INT("micro-batches", FIELD(micro_batches), "N", "4", 1, 4096, "with --pipeline: parts of a batch"),
	GN_OPT_CHOICE("pipe-schedule", FIELD(schedule), "NAME", "1f1b", GN_PIPE_SYNC_CHOICES, "with --pipeline: order of forwards and "
		    "backwards"),
	GN_OPT_REAL("activation-bytes", FIELD(activation_bytes), "N", "1e6", 0, 1e12, "with --pipeline: bytes of a micro-batch from stage "
		    "to stage, and of the gradient that comes back"),
	GN_OPT_FLAG("verify", FIELD(verify), "verify the schedules instead"),
	GN_OPT_INT("verify-ranks", FIELD(verify_ranks), "N", "130", 1, 4096, "with --verify: 1 to N ranks"),
	GN_OPT_FLAG("json", FIELD(json), "print one JSON object per line"),
};

static const struct gn_command command = {
	.name = "sim",
	.summary = "predict communication on another machine",
	.positional = "",
	.description =
		"Simulates the schedules of Gannet's collectives on the described machine, message by message (LogGP), with up to "
		"131072 ranks, and prints how long they take. Bandwidths are defined as in gannet bench.\n\n"
		"All ranks are simulated, unless an algorithm treats them alike and nothing is random: then the ranks of one node "
		"or leaf switch represent all. Not modelled: congestion within switches, packet loss, ranks that share a "
		"processor.\n\n"
		"With --tuning, the costs of messages are those that gannet tune measured; the numbers of nodes and ranks are "
		"free.\n\n"
		"With --compute-ms, --log or --step it predicts training: gradient buckets become ready during the backward pass "
		"and are reduced one after the other. With --pipeline, too, the passes and messages of all stages are simulated; "
		"gannet info --plan MODEL --parallel does so with the network's own stages. With --verify it verifies that each "
		"schedule sums every contribution exactly once, without data race, deadlock or unread message.",
	.examples = "  # all allreduces, 64 KiB to 64 MiB; images/s of ResNet-50; verification\n"
		    "  gannet sim --nodes 16 --ranks-per-node 4 --link-gbit 100\n"
		    "  gannet sim --nodes 8 --ranks-per-node 4 --compute-ms 180 --batch 64\n"
		    "  gannet sim --nodes 8 --compute-ms 180 --pipeline 4 --micro-batches 8\n"
		    "  gannet sim --verify --collective all\n",
	GN_OPTIONS(options_table),
};

const struct gn_cmd gn_cmd_sim = {.command = &command, .run = run, .options_size = sizeof(struct gn_sim_options)};
