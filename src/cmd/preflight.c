#include "src/cmd/cmd.h"
#include "src/cmd/world_options.h"

#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/text.h"
#include "src/jobs/preflight.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct preflight_options {
	const char *local, *baseline, *out, *transport;
	struct gn_text_list mounts;
	double max_skew, seconds;
	int64_t min_free;
	int json;
	struct gn_world_options world;
};

/* What rank 0 has in the end. */
struct result {
	struct gn_preflight_host *hosts;
	int nodes;
	double *rate, *latency, seconds;
	struct gn_preflight_problem *problems;
	size_t count;
};

static void release_result(struct result *r)
{
	free(r->hosts);
	free(r->rate);
	free(r->latency);
	free(r->problems);
}

static enum gn_status allocate(struct result *r, struct gn_err *err)
{
	size_t n = (size_t)r->nodes;

	r->hosts = calloc(n, sizeof *r->hosts);
	r->rate = calloc(n * n, sizeof *r->rate);
	r->latency = calloc(n * n, sizeof *r->latency);
	r->problems = calloc(GN_PREFLIGHT_PROBLEMS_MAX, sizeof *r->problems);
	if (r->hosts && r->rate && r->latency && r->problems)
		return GN_OK;
	return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu nodes", n);
}

/* --- measuring --- */

static enum gn_status measure_network(const struct preflight_options *o, struct gn_world *w, struct gn_preflight_host *mine,
				      struct result *r, struct gn_log *log, struct gn_err *err)
{
	struct gn_comm_options options = {.transport = o->transport, .tuning = "none"};
	struct gn_comm *comm = NULL;
	enum gn_status status = gn_comm_create(w, &options, log, &comm, err);

	if (!status)
		status = gn_preflight_clocks(comm, mine, err);
	if (!status)
		status = gn_preflight_network(comm, o->seconds, r->rate, r->latency, err);
	gn_comm_destroy(comm);
	return status;
}

/* What check_options() compares. */
struct absent {
	uint64_t mounts;
	int64_t local; /* 1: no such folder */
};

/* A folder or mount that no node has is a wrong option, not a fault of each node. Collective, and in place of a barrier. */
static enum gn_status check_options(const struct preflight_options *o, const char *local, struct gn_world *w,
				    const struct gn_preflight_host *mine, struct gn_err *err)
{
	const struct absent here = {mine->mounts_missing, local && (mine->local_errno == ENOENT || mine->local_errno == ENOTDIR)};
	struct absent everywhere = {UINT64_MAX, 1}, its;
	struct gn_gathered all = {0};
	enum gn_status status = gn_world_exchange(w, &here, gn_world_local_rank(w) ? 0 : sizeof here, &all, err);

	for (size_t i = 0; !status && i < all.size; i++) {
		if (all.lens[i] != sizeof its)
			continue;
		memcpy(&its, all.items[i], sizeof its);
		everywhere.mounts &= its.mounts;
		everywhere.local &= its.local;
	}
	gn_gathered_release(&all);
	if (status)
		return status;
	if (everywhere.local)
		return gn_err_set(err, GN_ERR_USAGE, "%s %.200s: no such folder on any of the nodes%s", o->local ? "--local" : "GANNET_LOCAL", local,
				  o->local ? "" : " (gannet.conf may set it, as local; --local '' measures no disk)");
	for (size_t i = 0; i < o->mounts.count && i < 64; i++)
		if (everywhere.mounts >> i & 1)
			return gn_err_set(err, GN_ERR_USAGE, "--mount %.200s: nothing is mounted there on any of the nodes", o->mounts.items[i]);
	return GN_OK;
}

/* Of each node, from its first rank. */
static enum gn_status gather(struct gn_world *w, const struct gn_preflight_host *mine, struct result *r, struct gn_err *err)
{
	struct gn_gathered all = {0};
	enum gn_status status = gn_world_exchange(w, mine, gn_world_local_rank(w) ? 0 : sizeof *mine, &all, err);

	for (size_t i = 0; !status && i < all.size; i++)
		if (all.lens[i] == sizeof *mine)
			memcpy(&r->hosts[gn_world_node_of(w, (int)i)], all.items[i], sizeof *mine);
	gn_gathered_release(&all);
	return status;
}

static enum gn_status check(const struct preflight_options *o, struct gn_world *w, struct result *r, struct gn_log *log, struct gn_err *err)
{
	struct gn_preflight_options options = {.local = o->local ? o->local : getenv("GANNET_LOCAL"), .mounts = o->mounts.items,
		.mount_count = o->mounts.count, .window_s = o->seconds, .max_skew_s = o->max_skew, .min_free_gb = (double)o->min_free / 1e9};
	struct gn_preflight_host *mine = calloc(1, sizeof *mine), baseline;
	double started = gn_clock_s();
	enum gn_status status = mine ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a result");

	r->nodes = gn_world_nodes(w);
	options.local = options.local && *options.local ? options.local : NULL;
	if (!status)
		status = allocate(r, err);
	if (!status && o->baseline)
		status = gn_preflight_baseline(o->baseline, &baseline, err);
	gn_world_set_phase(w, "measuring its host", 120000);
	if (!status && gn_world_local_rank(w) == 0)
		gn_preflight_host_measure(&options, mine);
	/* all at once: what processors and disks do not share between nodes they do not share here */
	if (!status)
		status = check_options(o, options.local, w, mine, err);
	if (!status)
		status = measure_network(o, w, mine, r, log, err);
	if (!status)
		status = gather(w, mine, r, err);
	if (!status)
		r->count = gn_preflight_judge(&options, r->hosts, r->nodes, r->rate, r->latency, o->baseline ? &baseline : NULL, r->problems);
	r->seconds = gn_clock_s() - started;
	free(mine);
	return status;
}

/* --- telling --- */

/* At most 80 columns. */
static void print_table(const struct result *r)
{
	static const char form[] = "%-14.14s %9s %5s %7s %11s %6s %11s %8s\n";

	printf(form, "host", "processor", "share", "memory", "disk w/r", "free", "network o/i", "latency");
	printf(form, "", "Gflop/s", "%", "GB/s", "MB/s", "GB", "Gbit/s", "us");
	for (int i = 0; i < r->nodes; i++) {
		const struct gn_preflight_host *h = &r->hosts[i];
		char flops[32], share[32], memory[32], disk[32] = "-", free_[32] = "-", net[32] = "-", latency[32] = "-", name[64];

		snprintf(flops, sizeof flops, "%.4g", h->gflops);
		snprintf(share, sizeof share, "%.0f", h->share * 100);
		snprintf(memory, sizeof memory, "%.3g", h->memory_gb_per_s);
		if (h->write_mb_per_s > 0)
			snprintf(disk, sizeof disk, "%.0f/%.0f", h->write_mb_per_s, h->read_mb_per_s);
		if (h->free_gb >= 0)
			snprintf(free_, sizeof free_, "%.4g", h->free_gb);
		if (h->out_gbit_per_s > 0)
			snprintf(net, sizeof net, "%.3g/%.3g", h->out_gbit_per_s, h->in_gbit_per_s);
		if (h->latency_us > 0)
			snprintf(latency, sizeof latency, "%.4g", h->latency_us);
		printf(form, gn_text_visible(h->host, name, sizeof name), flops, share, memory, disk, free_, net, latency);
	}
}

static void print_gpus(const struct result *r)
{
	int gpus = 0, without = 0;

	for (int i = 0; i < r->nodes; i++) {
		gpus += r->hosts[i].gpus.count > 0 ? r->hosts[i].gpus.count : 0;
		without += r->hosts[i].gpus.count < 0;
	}
	if (without == r->nodes)
		puts("GPUs: not looked at, no libnvidia-ml");
	else
		printf("GPUs: %d on %d node%s, memory errors and clocks looked at\n", gpus, r->nodes - without, gn_text_plural((uint64_t)(r->nodes - without)));
}

static void print_problems(const struct result *r)
{
	const char **names = calloc(r->count + 1, sizeof *names);
	struct gn_strbuf list = {0};
	size_t n = 0;

	for (size_t i = 0; names && i < r->count; i++) {
		printf("%s: %s\n", r->hosts[r->problems[i].node].host, r->problems[i].text);
		if (!i || r->problems[i].node != r->problems[i - 1].node)
			names[n++] = r->hosts[r->problems[i].node].host;
	}
	if (names)
		gn_hostlist_append(&list, names, n);
	if (n)
		printf("--exclude=%s\n", gn_strbuf_text(&list));
	else
		printf("%d node%s, %.1f s: nothing found\n", r->nodes, gn_text_plural((uint64_t)r->nodes), r->seconds);
	gn_strbuf_release(&list);
	free(names);
}

static enum gn_status tell(const struct preflight_options *o, const struct result *r, struct gn_err *err)
{
	struct gn_json j;
	enum gn_status status = GN_OK;

	gn_json_init(&j);
	gn_preflight_write(r->hosts, r->nodes, r->rate, r->latency, r->problems, r->count, r->seconds, &j);
	gn_strbuf_puts(&j.text, "\n");
	if (gn_json_failed(&j))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the result");
	if (!status && o->json) {
		fputs(gn_json_text(&j), stdout);
	} else if (!status) {
		print_table(r);
		print_gpus(r);
		print_problems(r);
	}
	if (!status && o->out)
		status = gn_file_replace(o->out, gn_json_text(&j), j.text.len, err);
	gn_json_release(&j);
	return status;
}

/* Before the measurements, which take a while. */
static enum gn_status check_out(const char *path, const char *baseline, struct gn_err *err)
{
	char folder[PATH_MAX];

	gn_path_parent(path, folder);
	if (baseline && gn_file_is_same(path, baseline))
		return gn_err_set(err, GN_ERR_USAGE, "--out %s is the file of --baseline, which a bad node's result would replace: name another", path);
	if (access(folder, W_OK))
		return gn_err_set(err, GN_ERR_IO, "--out %s: cannot write in %s: %s", path, folder, strerror(errno));
	return gn_file_check_replaceable(path, err);
}

static int run(const void *options, const struct gn_text_list *positional)
{
	const struct preflight_options *o = options;
	struct gn_log *log = NULL;
	struct gn_world *world = NULL;
	struct result r = {0};
	struct gn_err err;
	int code;
	enum gn_status status;

	(void)positional;
	/* the table says it all */
	if (getenv("GANNET_LOG"))
		log = gn_cmd_log();
	else if (gn_log_create(STDERR_FILENO, GN_LOG_WARN, &log, &err))
		log = NULL;
	status = gn_world_create(&o->world, log, &world, &err);
	if (!status && o->out && gn_world_rank(world) == 0)
		status = check_out(o->out, o->baseline, &err);
	if (!status)
		status = check(o, world, &r, log, &err);
	if (!status && gn_world_rank(world) == 0)
		status = tell(o, &r, &err);
	code = status ? gn_cmd_fail("preflight", &err) : r.count ? GN_EXIT_CHECK : GN_EXIT_DONE;
	if (status && world)
		gn_world_abort(world, status, err.text);
	release_result(&r);
	gn_world_destroy(world);
	gn_log_destroy(log);
	return code;
}

#define FIELD(name) offsetof(struct preflight_options, name)

static const struct gn_option options_table[] = {
	GN_OPT_TEXT("local", FIELD(local), "DIR", "measure the disk with this folder, too (default: GANNET_LOCAL, which gannet.conf may "
		    "set, or none)"),
	GN_OPT_SIZE("min-free", FIELD(min_free), "SIZE", "1G", 0, 0, "bytes that have to be free there"),
	GN_OPT_LIST("mount", FIELD(mounts), "DIR", "a mount point that each node must have; those of more than half of the nodes are "
		    "compared anyway"),
	GN_OPT_REAL("max-skew", FIELD(max_skew), "S", "0.1", 0.0001, 1e6, "seconds that a clock may be off the others'"),
	GN_OPT_TEXT("baseline", FIELD(baseline), "FILE", "compare with an earlier result, too: what all nodes have lost shows in no other "
		    "way"),
	GN_OPT_TEXT("out", FIELD(out), "FILE", "write the result as JSON", .letter = 'o'),
	GN_OPT_FLAG("json", FIELD(json), "print it as JSON instead of a table"),
	GN_OPT_CHOICE("transport", FIELD(transport), "NAME", "auto", "auto|tcp|rc|ud", "what carries messages between nodes"),
	GN_OPT_REAL("seconds", FIELD(seconds), "X", "0.25", 0.01, 60, "for each measurement of a host; half of it for each pair of nodes "
		    "and direction, and for all pairs 12 at most"),
	GN_CMD_WORLD_OPTIONS(struct preflight_options, world),
};

static const struct gn_command command = {
	.name = "preflight",
	.summary = "find the bad node before the job starts",
	.positional = "",
	.description =
		"Measures, on all nodes at once, processors, memory bandwidth, the disk of --local, the rate and latency of the network "
		"between every two nodes, and clocks; compares versions, hardware, mounts and limits; asks NVIDIA's NVML for memory errors and reduced clocks of GPUs; prints a table, what is "
		"wrong with which node, and an --exclude line for sbatch. One task a node is enough.\n\n"
		"A measurement counts as wrong when it is a quarter below the job's median (a disk's: half; a latency: three "
		"times it) and three times the others' scatter away from it, or as much worse than --baseline. A fact counts as wrong when most "
		"nodes have another.\n\n"
		"The exit code is 6 when something was found, 0 when not.",
	.examples = "  srun -N16 --ntasks-per-node=1 --mpi=pmix gannet preflight --local /nvme\n"
		    "  srun -N16 --ntasks-per-node=1 --mpi=pmix gannet preflight \\\n"
		    "      --out good.json   # a baseline\n"
		    "  srun -N16 --ntasks-per-node=1 --mpi=pmix gannet preflight \\\n"
		    "      --baseline good.json\n",
	GN_OPTIONS(options_table),
};

const struct gn_cmd gn_cmd_preflight = {.command = &command, .run = run, .options_size = sizeof(struct preflight_options), .joins = 1};
