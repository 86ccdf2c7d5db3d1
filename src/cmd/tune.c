#include "src/cmd/cmd.h"

#include "src/base/file.h"
#include "src/base/json.h"
#include "src/cmd/world_options.h"
#include "transport/coll/comm.h"
#include "transport/select/tuning_table.h"
#include "transport/tune/tune.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

struct tune_options {
	const char *out, *transport;
	double seconds;
	int64_t max_bytes, pairs, rails;
	int json, samples, transport_strict;
	struct gn_world_options world;
};

static void print_path(const char *name, const struct gn_cost_path *p, const struct gn_tune_path *t, int samples)
{
	if (!t->sample_count) {
		printf("%s: no two ranks in this relation; estimated\n", name);
		return;
	}
	printf("%s: %s, %d pair%s; a port carries %.4g MB/s", name, p->lanes, t->pairs, t->pairs > 1 ? "s" : "",
	       p->bytes_per_s / 1e6);
	if (p->burst_bytes > 0)
		printf(", after an idle time %.4g MB/s for the first %.0f KiB", p->burst_bytes_per_s / 1e6,
		       p->burst_bytes / 1024);
	printf("; rendezvous above %.0f bytes\n", p->path.eager_bytes);
	printf("  %12s %12s %12s %10s %10s | %8s %8s %8s\n", "from (B)", "latency (us)", "(us/KiB)", "send (us)",
	       "recv (us)", "rms", "worst", "lengths");
	for (int i = 0; i < p->path.count; i++) {
		const struct gn_sim_range *r = &p->path.ranges[i];

		printf("  %12.0f %12.3f %12.4f %10.3f %10.3f | %6.1f %% %6.1f %% %8d\n", r->from_bytes, r->latency_s * 1e6,
		       r->s_per_byte * 1024 * 1e6, r->send_s * 1e6, r->receive_s * 1e6, t->fits[i].rms * 100,
		       t->fits[i].worst * 100, t->fits[i].samples);
	}
	if (samples)
		printf("  %12s %12s %12s %8s\n", "length (B)", "measured", "fitted (us)", "residual");
	for (int i = 0; samples && i < t->sample_count; i++) {
		double fitted = gn_cost_message_s(p, t->samples[i].bytes);

		printf("  %12.0f %12.2f %12.2f %+6.1f %%\n", t->samples[i].bytes, t->samples[i].one_way_s * 1e6, fitted * 1e6,
		       (fitted / t->samples[i].one_way_s - 1) * 100);
	}
}

static void print_picks(const struct gn_cost *c)
{
	if (c->pick_count)
		printf("allreduce, measured:\n  %12s %12s  %s\n", "length (B)", "time (us)", "fastest");
	for (int i = 0; i < c->pick_count; i++) {
		const struct gn_cost_pick *p = &c->picks[i];

		printf("  %12.0f %12.1f  %s", p->bytes, p->seconds * 1e6, p->algorithm);
		if (p->piece_bytes > 0)
			printf(p->piece_bytes < p->bytes ? ", in slices of %.0f KiB" : ", in one slice", p->piece_bytes / 1024);
		printf("\n");
	}
}

static void print_all(const struct tune_options *o, const struct gn_tune_result *r)
{
	struct gn_json j;

	if (o->json) {
		gn_json_init(&j);
		gn_tuning_table_json(r, &j);
		gn_cmd_print_json(&j);
		return;
	}
	printf("# %s\n", r->signature);
	print_path("within a node", &r->cost.node, &r->node, o->samples);
	print_path("between nodes", &r->cost.link, &r->link, o->samples);
	printf("reduction: %.3g GB/s per rank, all ranks at once\n", r->cost.reduce_bytes_per_s / 1e9);
	print_picks(&r->cost);
}

/* Rank 0 only: appends the result to the tuning table. */
static enum gn_status write_table(const struct tune_options *o, const struct gn_tune_result *r, struct gn_err *err)
{
	char path[PATH_MAX];
	int named;
	enum gn_status status = gn_tuning_table_path(o->out, path, sizeof path, &named, err);

	if (!status && *path)
		status = gn_tuning_table_write(path, r, err);
	if (!status && *path)
		fprintf(stderr, "gannet tune: written to %s\n", path);
	else if (!status)
		fprintf(stderr, "gannet tune: not written; give --out FILE to write it\n");
	return status;
}

/* What would fail after all was measured. */
static enum gn_status check_table(const struct tune_options *o, struct gn_world *world, struct gn_err *err)
{
	char path[PATH_MAX], folder[PATH_MAX];
	int named;
	enum gn_status status = gn_tuning_table_path(o->out, path, sizeof path, &named, err);

	if (status || !*path || gn_world_rank(world))
		return status;
	gn_path_parent(path, folder);
	status = gn_make_dirs(folder, err);
	if (!status && access(folder, W_OK))
		status = gn_err_errno(err, errno, "cannot write %s", path);
	if (status)
		gn_world_abort(world, status, err->text);
	return status;
}

/* With the costs known, measures the most promising algorithms. */
static enum gn_status try_all(const struct tune_options *o, struct gn_world *world, struct gn_log *log, struct gn_cost *cost,
			      struct gn_err *err)
{
	struct gn_comm_options options = {.transport = o->transport, .rails = (int)o->rails, .cost = cost,
					  .strict = o->transport_strict};
	struct gn_comm *comm = NULL;
	enum gn_status status = gn_comm_create(world, &options, log, &comm, err);

	if (!status)
		status = gn_tune_trials(comm, o->seconds, (size_t)o->max_bytes, cost, err);
	gn_comm_destroy(comm);
	return status;
}

static enum gn_status tune(const struct tune_options *o, struct gn_world *world, struct gn_log *log, struct gn_err *err)
{
	struct gn_tune_options how = {.transport = o->transport, .seconds = o->seconds, .max_bytes = (size_t)o->max_bytes,
				      .pairs = (int)o->pairs, .rails = (int)o->rails};
	struct gn_tune_result r;
	enum gn_status status = GN_OK;

	if (gn_world_size(world) == 1)
		return gn_err_set(err, GN_ERR_USAGE, "a single rank has nothing to measure; start it with srun --mpi=pmix, mpirun "
				  "or gannet launch");
	/* fitting and simulation on rank 0 take time without collective calls */
	gn_world_set_phase(world, "measuring", 60000);
	status = check_table(o, world, err);
	if (!status)
		status = gn_tune_measure(world, &how, &r, err);
	if (!status)
		status = try_all(o, world, log, &r.cost, err);
	if (!status && gn_world_rank(world) == 0) {
		print_all(o, &r);
		status = write_table(o, &r, err);
	}
	return status;
}

static int run(const void *options, const struct gn_text_list *positional)
{
	struct gn_log *log = gn_cmd_log();
	struct gn_world *world = NULL;
	const struct tune_options *o = options;
	struct gn_err err;
	enum gn_status status = gn_world_create(&o->world, log, &world, &err);
	int code;

	(void)positional;
	if (!status)
		status = tune(o, world, log, &err);
	code = status ? gn_cmd_fail("tune", &err) : GN_EXIT_DONE;
	gn_world_destroy(world);
	gn_log_destroy(log);
	return code;
}

#define FIELD(name) offsetof(struct tune_options, name)

static const struct gn_option options_table[] = {
	GN_OPT_TEXT("out", FIELD(out), "FILE", "tuning table to append to; none: do not write (default: the table that runs read)",
		    .letter = 'o'),
	GN_OPT_CHOICE("transport", FIELD(transport), "NAME", "auto", "auto|tcp|shm|rc|ud", "allowed transport (sets UCX_TLS)"),
	GN_OPT_FLAG("transport-strict", FIELD(transport_strict), "fail instead of warn when nodes use different transports, or a node does "
		    "not use its fastest device"),
	GN_OPT_REAL("seconds", FIELD(seconds), "X", "0.1", 0.001, 3600, "samples per length and pair of ranks"),
	GN_OPT_SIZE("max-bytes", FIELD(max_bytes), "N", "4M", 64, 1LL << 30, "longest message", .letter = 'e'),
	GN_OPT_INT("rails", FIELD(rails), "N", "0", 0, GN_RAILS_MAX, "most network devices (rails) per node, as in later runs; 0: all that "
		    "are equally fast"),
	GN_OPT_INT("pairs", FIELD(pairs), "N", "3", 1, 4096, "most pairs of nodes, and of ranks of a node, to measure"),
	GN_OPT_FLAG("samples", FIELD(samples), "also print each length"),
	GN_OPT_FLAG("json", FIELD(json), "print the line of the table as one JSON object"),
	GN_CMD_WORLD_OPTIONS(struct tune_options, world),
};

static const struct gn_command command = {
	.name = "tune",
	.summary = "measure the fabric for the choice of algorithms",
	.positional = "",
	.description =
		"Measures between the ranks that started it what a message costs within a node and between nodes: latency, time "
		"per byte, and processor time to send and receive, by ranges of lengths; the rate of a port, and what it transmits "
		"faster after an idle time; the longest eager message; and how fast ranks reduce. The model is LogGP with "
		"parameters per range; residuals show how well it fits. Then the likely algorithms for an allreduce are measured "
		"in turn, and the fastest for each length is recorded, too.\n\n"
		"The result becomes a line of a table, in the file of --out, else of GANNET_TUNING, else "
		"$XDG_CONFIG_HOME/gannet/tuning.jsonl, else ~/.config/gannet/tuning.jsonl. Runs look there for a line of their "
		"fabric: the same devices, link rates, UCX version, number of nodes and ranks per node; host names do not matter. "
		"Without one they use the line with the nearest number of nodes by ratio that differs in nothing else: its costs "
		"for any number, and its fastest algorithms for up to four times fewer or more nodes, unless they are 1.5 times "
		"slower by these costs; the log then says 'tuned on N nodes, used on M'. A link that is shaped by tc looks like "
		"any other: give such a run a separate file.",
	.examples = "  # for this user's runs; of this machine's shared memory\n"
		    "  srun -N4 --ntasks-per-node=2 --mpi=pmix gannet tune\n"
		    "  gannet launch -n 2 -- gannet tune --samples --out shm.jsonl\n",
	GN_OPTIONS(options_table),
};

const struct gn_cmd gn_cmd_tune = {.command = &command, .run = run, .options_size = sizeof(struct tune_options), .joins = 1};
