#include "src/cmd/cmd.h"
#include "src/cmd/world_options.h"

#include "src/jobs/exec_meet.h"
#include "src/jobs/exec_run.h"
#include "transport/bootstrap/launcher_detect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct exec_options {
	const char *as, *bind;
	int64_t grace, ps;
	int per_node, label, dry_run, single;
	struct gn_world_options world;
};

static const char *set_or_null(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

/* Of one process in a job that has more, each started alone would be a world of one. */
static enum gn_status check_launcher(const struct exec_options *o, struct gn_err *err)
{
	struct gn_launcher d;
	enum gn_status status = gn_launcher_detect(gn_launcher_environ, NULL, &d, err);

	if (status || !d.job_name || o->single)
		return status;
	return gn_err_set(err, GN_ERR_USAGE, "%s=%d, but this is one process outside of a job step: start it with 'srun --mpi=pmix gannet "
			  "exec ...', or say --single if one is meant", d.job_name, d.job_count);
}

static enum gn_status check_ps(const struct exec_options *o, const struct gn_world *w, struct gn_err *err)
{
	if (o->ps && o->ps > gn_world_size(w) - 2)
		return gn_err_set(err, GN_ERR_USAGE, "--ps %lld leaves no chief and worker among %d ranks", (long long)o->ps,
				  gn_world_size(w));
	return GN_OK;
}

static unsigned frameworks_of(const struct exec_options *o, const struct gn_text_list *program, struct gn_strbuf *why)
{
	unsigned bits = strcmp(o->as, "auto") ? gn_exec_framework_find(o->as) : 0;
	char shown[256];
	int script;

	if (bits)
		return bits;
	bits = gn_exec_framework_guess(program->items, program->count, &script);
	if (script >= 0)
		gn_strbuf_printf(why, "%s %s ", gn_text_visible(program->items[script], shown, sizeof shown),
				 bits == GN_EXEC_ALL ? "imports no framework itself, so for" : "imports");
	if (bits == GN_EXEC_ALL)
		gn_strbuf_puts(why, "any framework");
	else
		gn_exec_framework_names(bits, why);
	return bits;
}

/* --- what is said --- */

/* Values as a shell reads them. */
static void quote(const char *value, struct gn_strbuf *out)
{
	if (*value && !value[strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.,:/=+-[]")]) {
		gn_strbuf_puts(out, value);
		return;
	}
	gn_strbuf_puts(out, "'");
	for (; *value; value++)
		gn_strbuf_printf(out, *value == '\'' ? "'\\''" : "%c", *value);
	gn_strbuf_puts(out, "'");
}

static void describe(const struct gn_world *w, const struct gn_exec_meeting *m, const struct gn_exec_environment *e, int starts,
		     struct gn_strbuf *out)
{
	int rank = gn_world_rank(w);

	gn_strbuf_printf(out, "# rank %d of %d on %s%s\n", rank, m->place.size, gn_world_host_of(w, rank),
			 starts ? "" : ": starts nothing (--per-node)");
	for (size_t i = 0; starts && i < e->count; i++) {
		gn_strbuf_printf(out, "export %s=", e->items[i].name);
		quote(e->items[i].value, out);
		if (e->items[i].computed) {
			gn_strbuf_puts(out, "   # set before, and kept: would be ");
			quote(e->items[i].computed, out);
		}
		gn_strbuf_puts(out, "\n");
	}
}

/* All ranks', on rank 0. */
static enum gn_status print_all(struct gn_world *w, const struct gn_strbuf *mine, struct gn_err *err)
{
	struct gn_gathered all = {0};
	enum gn_status status = gn_world_exchange(w, gn_strbuf_text(mine), mine->len, &all, err);

	for (size_t r = 0; !status && r < all.size && gn_world_rank(w) == 0; r++)
		fwrite(all.items[r], 1, all.lens[r], stdout);
	gn_gathered_release(&all);
	return status;
}

/* One line of rank 0 at start, and one of what is kept. */
static void say_start(const struct gn_exec_meeting *m, const struct gn_exec_environment *e, const char *as, struct gn_log *log)
{
	struct gn_strbuf kept = {0};

	for (size_t i = 0; i < e->count; i++)
		if (e->items[i].computed)
			gn_strbuf_printf(&kept, "%s%s=%s (not %s)", kept.len ? ", " : "", e->items[i].name, e->items[i].value,
					 e->items[i].computed);
	gn_log_info(log, "exec: %d %s%s on %d node%s, rank 0 at %s port %d%s%s", m->place.per_node ? m->place.nodes : m->place.size,
		    m->place.per_node ? "launcher" : "process", (m->place.per_node ? m->place.nodes : m->place.size) == 1 ? ""
		    : m->place.per_node ? "s" : "es", m->place.nodes, gn_text_plural((uint64_t)m->place.nodes), m->place.master_addr,
		    m->place.master_port, *as ? "; " : "", as);
	if (gn_cmd_lost_folder())
		gn_log_warn(log, "exec: %s", gn_cmd_lost_folder());
	if (kept.len)
		gn_log_info(log, "exec: set before, and kept: %s", gn_strbuf_text(&kept));
	gn_strbuf_release(&kept);
}

static void say_failure(const struct gn_world *w, const struct gn_exec_outcome *f)
{
	const char *line = gn_strbuf_text(&f->last_lines), *end;
	char shown[512];

	if (f->lost) {
		fprintf(stderr, "gannet exec: %s\n", gn_strbuf_text(&f->reason));
		return;
	}
	fprintf(stderr, "gannet exec: rank %d on %s failed first, after %.1f s: %s%s\n", f->rank, gn_world_host_of(w, f->rank), f->seconds,
		gn_strbuf_text(&f->reason), *line ? "; its last lines:" : "");
	for (; *line; line = *end ? end + 1 : end) {
		char part[512];

		end = line + strcspn(line, "\n");
		snprintf(part, sizeof part, "%.*s", (int)(end - line), line);
		fprintf(stderr, "gannet exec:   %s\n", gn_text_visible(part, shown, sizeof shown));
	}
}

/* --- the run --- */

static enum gn_status supervise(const struct exec_options *o, struct gn_world *w, struct gn_exec_meeting *m,
				const struct gn_exec_environment *e, int starts, char *const *argv, int *code, struct gn_err *err)
{
	const cpu_set_t none = {{0}};
	struct gn_exec_run_options run = {
		.child = {argv, &m->place, e, strcmp(o->bind, "near") || o->per_node ? &none : &m->cores, o->label},
		.starts = starts, .grace_s = (int)o->grace};
	struct gn_exec_outcome outcome;
	struct gn_exec_horovod *store = NULL;
	enum gn_status status = GN_OK;

	if (m->horovod_listener >= 0)
		status = gn_exec_horovod_start(m->horovod_listener, &store, err);
	if (status)
		return status;
	status = gn_exec_run(w, &run, &outcome, err);
	/* where rank 0 is gone, one rank of each node tells */
	if (!status && (outcome.rank >= 0 || outcome.lost) &&
	    (gn_world_rank(w) == 0 || (outcome.lost && outcome.rank == 0 && gn_world_local_rank(w) == 0)))
		say_failure(w, &outcome);
	if (!status)
		*code = outcome.code;
	gn_exec_outcome_release(&outcome);
	gn_exec_horovod_stop(store);
	return status;
}

static enum gn_status prepare_and_run(const struct exec_options *o, const struct gn_text_list *program, char *const *argv,
				      struct gn_world *w, struct gn_log *log, int *code, struct gn_err *err)
{
	int starts = !o->per_node || gn_world_local_rank(w) == 0;
	struct gn_exec_environment e = {.count = 0};
	struct gn_exec_meeting m = {.horovod_listener = -1};
	struct gn_strbuf as = {0}, text = {0};
	unsigned bits;
	enum gn_status status = check_ps(o, w, err);

	bits = frameworks_of(o, program, &as);
	struct gn_exec_request request = {.program = program->items[0], .ifnames = o->world.ifnames ? o->world.ifnames
					  : getenv(GN_WORLD_IFNAMES), .master_addr = set_or_null("MASTER_ADDR"),
					  .master_port = set_or_null("MASTER_PORT"), .per_node = o->per_node, .ps = (int)o->ps,
					  .horovod = bits & GN_EXEC_HOROVOD && !o->per_node};
	if (!status)
		status = gn_exec_meet(w, &request, &m, err);
	if (!status)
		status = gn_exec_environment_create(&m.place, bits, gn_launcher_environ, NULL, &e, err);
	if (!status && o->dry_run) {
		describe(w, &m, &e, starts, &text);
		status = print_all(w, &text, err);
	} else if (!status) {
		if (gn_world_rank(w) == 0)
			say_start(&m, &e, gn_strbuf_text(&as), log);
		status = supervise(o, w, &m, &e, starts, argv, code, err);
	}
	gn_exec_environment_release(&e);
	gn_exec_meeting_release(&m);
	gn_strbuf_release(&as);
	gn_strbuf_release(&text);
	return status;
}

static int run(const void *options, const struct gn_text_list *positional)
{
	const struct exec_options *o = options;
	char **argv = calloc(positional->count + 1, sizeof *argv);
	struct gn_log *log = gn_cmd_log(), *quiet = NULL;
	struct gn_world *world = NULL;
	struct gn_err err;
	int code = GN_EXIT_DONE;
	enum gn_status status = argv ? check_launcher(o, &err) : gn_err_set(&err, GN_ERR_NO_MEMORY, "no memory for arguments");

	for (size_t i = 0; argv && i < positional->count; i++)
		argv[i] = (char *)(uintptr_t)positional->items[i];
	/* heartbeats and limits are no news here, unless somebody asks */
	if (!getenv("GANNET_LOG") && gn_log_create(STDERR_FILENO, GN_LOG_WARN, &quiet, NULL))
		quiet = NULL;
	if (!status)
		status = gn_world_create(&o->world, getenv("GANNET_LOG") ? log : quiet, &world, &err);
	if (!status)
		gn_log_set_rank(log, gn_world_rank(world));
	if (!status)
		status = prepare_and_run(o, positional, argv, world, log, &code, &err);
	if (status) {
		/* the same refusal on all ranks is told once */
		err.told |= world && gn_world_rank(world) && (err.status == GN_ERR_USAGE || err.status == GN_ERR_MISMATCH);
		code = gn_cmd_fail("exec", &err);
	}
	gn_world_destroy(world);
	gn_log_destroy(quiet);
	gn_log_destroy(log);
	free(argv);
	return code;
}

#define FIELD(name) offsetof(struct exec_options, name)

static const struct gn_option options_table[] = {
	GN_OPT_CHOICE("as", FIELD(as), "FRAMEWORK", "auto", "auto|torch|tf|horovod|deepspeed|mpi|lightning", "whose variables to set; "
		    "auto: of what a Python script imports, of all where that tells nothing"),
	GN_OPT_FLAG("per-node", FIELD(per_node), "start one launcher on each node (torchrun, accelerate, Lightning), which starts the "
		    "processes itself"),
	GN_OPT_INT("ps", FIELD(ps), "N", "0", 0, 4096, "the last N ranks are parameter servers of TensorFlow, and rank 0 is the chief"),
	GN_OPT_FLAG("label", FIELD(label), "begin each line of output with the rank, as srun --label", .letter = 'l'),
	GN_OPT_CHOICE("bind", FIELD(bind), "HOW", "near", "near|none", "give each process its share of the processors near its GPU or "
		    "network device, if nobody has bound it yet, or leave it as it is"),
	GN_OPT_INT("grace", FIELD(grace), "S", "10", 0, 3600, "seconds from SIGTERM to SIGKILL for the others after one has failed"),
	GN_OPT_FLAG("dry-run", FIELD(dry_run), "print every rank's variables, as a shell reads them, and start nothing", .letter = 'n'),
	GN_OPT_FLAG("single", FIELD(single), "one process is meant, although the Slurm job has more tasks"),
	GN_CMD_WORLD_OPTIONS(struct exec_options, world),
};

static const struct gn_command command = {
	.name = "exec",
	.summary = "start a program of any framework on all tasks of a job",
	.positional = "PROGRAM [ARG]...",
	.description =
		"Started in every task by srun --mpi=pmix, mpirun or gannet launch, or alone, exec finds the other tasks, agrees with them "
		"on an address of rank 0 that all nodes reach and on a port that is free there, sets the variables that the program's "
		"framework reads, and starts it: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, NODE_RANK, "
		"TF_CONFIG, HOROVOD_*, OMPI_COMM_WORLD_*, GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME, UCX_NET_DEVICES, "
		"CUDA_VISIBLE_DEVICES and more (--dry-run prints them). A variable that is set already is kept, and the log says so.\n\n"
		"A world that would come out wrong is refused with code 2 before anything starts: tasks without PMIx, variables that "
		"contradict the launcher, a MASTER_ADDR that leads elsewhere or that a node does not resolve, a MASTER_PORT that is taken, a "
		"program that a node does not have, or its interpreter, one process in a job of several tasks.\n\n"
		"SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 are passed on. When a program fails, the others are ended, and one line "
		"says which rank failed first, on which host, and why, with its last lines. All tasks then end with its exit code, "
		"128+S when signal S killed it; with 4 when a rank was lost, with its node for example.",
	.examples = "  srun -N4 --ntasks-per-node=8 --mpi=pmix gannet exec python train.py\n"
		    "  srun -N4 --ntasks-per-node=1 --mpi=pmix gannet exec --per-node \\\n"
		    "      torchrun --nproc-per-node 8 train.py\n"
		    "  gannet launch -n 4 -- gannet exec --label python train.py\n",
	GN_OPTIONS(options_table),
	.positional_min = 1,
	.positional_max = SIZE_MAX,
	.keeps_rest = 1,
};

const struct gn_cmd gn_cmd_exec = {.command = &command, .run = run, .options_size = sizeof(struct exec_options), .joins = 1};
