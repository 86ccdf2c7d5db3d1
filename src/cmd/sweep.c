#include "src/cmd/cmd.h"

#include "src/base/file.h"
#include "src/base/json.h"
#include "src/cmd/job_command.h"
#include "src/jobs/submit.h"
#include "src/jobs/sweep_status.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct sweep_options {
	const char *directory, *time, *partition, *snapshot, *name;
	struct gn_text_list grid, random, extra;
	int64_t nodes, ppn, retries, max, seed, halving;
	int dry_run, json, failed;
};

/* --- run --- */

/* The command with checkpoint and log of the trial's own behind it; freed by the caller, with the two texts. */
static const char **trial_command(const struct gn_text_list *p, const char *directory, const char *halving, char **checkpoint, char **log)
{
	const char **command = calloc(p->count + 6, sizeof *command);

	if (asprintf(checkpoint, "%s/trial-%%a", directory) < 0)
		*checkpoint = NULL;
	if (asprintf(log, "%s/trial-%%a.jsonl", directory) < 0)
		*log = NULL;
	if (!command || !*checkpoint || !*log) {
		free(command);
		return NULL;
	}
	for (size_t i = 1; i < p->count; i++)
		command[i - 1] = p->items[i];
	command[p->count - 1] = "--checkpoint";
	command[p->count] = *checkpoint;
	command[p->count + 1] = "--log";
	command[p->count + 2] = *log;
	if (*halving) {
		command[p->count + 3] = "--halving";
		command[p->count + 4] = halving;
	}
	return command;
}

/* Whether an argument is an option that names a file of the run. */
static int is_own(const char *argument)
{
	static const char *const names[] = {"--checkpoint", "--log", "--metrics", "--trace", "--halving"};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		size_t len = strlen(names[i]);

		if (!strncmp(argument, names[i], len) && (!argument[len] || argument[len] == '='))
			return 1;
	}
	return 0;
}

static enum gn_status check_command(const struct gn_text_list *p, struct gn_err *err)
{
	if (p->count < 2 || strcmp(p->items[1], "train"))
		return gn_err_set(err, GN_ERR_USAGE, "what to sweep? gannet sweep run --grid lr=.01,.05 -- train ...");
	for (size_t i = 2; i < p->count; i++)
		if (is_own(p->items[i]))
			return gn_err_set(err, GN_ERR_USAGE, "%s: each trial gets a checkpoint folder and a log of its own in --dir, and would "
					  "share another file with the others", p->items[i]);
	return GN_OK;
}

static enum gn_status check_names(const struct gn_sweep *s, struct gn_err *err)
{
	char option[80];

	for (int p = 0; p < s->parameters; p++) {
		snprintf(option, sizeof option, "--%s", s->names[p]);
		if (is_own(option))
			return gn_err_set(err, GN_ERR_USAGE, "--grid %s=...: each trial gets a checkpoint folder and a log of its own in --dir",
					  s->names[p]);
	}
	return GN_OK;
}

static void print_plan(const struct gn_sweep *s)
{
	for (size_t t = 0; t < s->count; t++) {
		printf("%zu", t + 1);
		for (int p = 0; p < s->parameters; p++)
			printf(" --%s=%s", s->names[p], s->trials[t].values[p]);
		printf("\n");
	}
}

static enum gn_status start(const struct sweep_options *o, const struct gn_text_list *p, struct gn_err *err)
{
	char self[PATH_MAX], directory[PATH_MAX], work[PATH_MAX], array[64], id[64], halving[32] = "", *checkpoint = NULL, *log = NULL;
	const char **command = NULL;
	struct gn_strbuf script = {0}, ledger = {0};
	struct gn_sweep sweep;
	size_t words;
	enum gn_status status = check_command(p, err);

	if (!status && o->halving == 1)
		status = gn_err_set(err, GN_ERR_USAGE, "--halving 1 would stop none: 2 keeps the better half");
	if (!status)
		status = gn_sweep_plan(o->grid.items, o->grid.count, o->random.items, o->random.count, (uint64_t)o->seed, &sweep, err);
	if (status)
		return status;
	status = check_names(&sweep, err);
	if (!status)
		status = gn_path_from_program(NULL, self, sizeof self, err);
	if (!status)
		status = gn_submit_absolute(o->directory, directory, sizeof directory, err);
	if (!status && !getcwd(work, sizeof work))
		status = gn_err_errno(err, errno, "where is this?");
	if (!status && o->halving)
		snprintf(halving, sizeof halving, "%lld:%d", (long long)o->halving, gn_halving_rungs(sweep.count, (int)o->halving));
	if (!status && !(command = trial_command(p, directory, halving, &checkpoint, &log)))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the command");
	words = p->count + (*halving ? 5 : 3);
	if (!status)
		status = gn_job_command_check_trials(command, words, &sweep, o->nodes * o->ppn, o->snapshot, err);
	if (!status && o->dry_run) {
		print_plan(&sweep);
	} else if (!status) {
		gn_sweep_script(&sweep, &script);
		gn_sweep_ledger(&sweep, directory, &ledger);
		snprintf(array, sizeof array, "1-%zu%%%lld", sweep.count, (long long)o->max);
		const struct gn_submit_file files[] = {{"trials.sh", gn_strbuf_text(&script)}, {"ledger.jsonl", gn_strbuf_text(&ledger)}};
		const struct gn_submit s = {.name = o->name, .directory = directory, .gannet = self, .nodes = o->nodes,
			.tasks_per_node = o->ppn, .retries = o->retries, .time = o->time, .partition = o->partition, .array = array,
			.extra = o->extra.items, .extra_count = o->extra.count, .snapshot = o->snapshot != NULL, .work = work,
			.trials = "trials.sh", .command = command, .command_count = words};

		status = gn_strbuf_failed(&script) || gn_strbuf_failed(&ledger)
				 ? gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu trials", sweep.count)
				 : gn_submit_job(&s, o->snapshot, files, 2, id, err);
	}
	if (!status && !o->dry_run) {
		fprintf(stderr, "gannet sweep: %zu trial%s, job %s, in %s\n", sweep.count, gn_text_plural(sweep.count), id, directory);
		printf("%s\n", id);
	}
	free(command);
	free(checkpoint);
	free(log);
	gn_strbuf_release(&script);
	gn_strbuf_release(&ledger);
	gn_sweep_release(&sweep);
	return status;
}

/* --- afterwards --- */

static void print_number(double v, const char *format)
{
	char text[32] = "-";

	if (isfinite(v))
		snprintf(text, sizeof text, "%.*g", 5, v);
	printf(format, text);
}

static void print_state(const struct gn_sweep_state *s)
{
	printf("%5d %-8s %8llu/%-8llu ", s->trial, s->state, (unsigned long long)s->step, (unsigned long long)s->total_steps);
	print_number(s->loss, "%9s ");
	print_number(100 * s->top1, "%8s  ");
	printf("%s\n", s->parameters);
}

static void print_json(const struct gn_sweep_state *s)
{
	struct gn_json j;

	gn_json_begin(&j);
	gn_json_put(&j, "trial %d state %s step %lu total_steps %lu loss %g top1 %g silent_s %.0f parameters %s log %s checkpoint %s",
		    s->trial, s->state, s->step, s->total_steps, s->loss, s->top1, s->silent_s, s->parameters, s->log, s->checkpoint);
	gn_cmd_print_json(&j);
}

/* first .. end-1 */
static void print_states(const struct sweep_options *o, const struct gn_sweep_state *s, size_t first, size_t end)
{
	if (!o->json)
		printf("%5s %-8s %17s %9s %8s  %s\n", "trial", "state", "step", "loss", "top-1 %", "parameters");
	for (size_t i = first; i < end; i++) {
		if (o->json)
			print_json(&s[i]);
		else
			print_state(&s[i]);
	}
}

static void print_best(const struct sweep_options *o, const struct gn_sweep_state *s, size_t best)
{
	char log[sizeof s->log], checkpoint[sizeof s->checkpoint];

	print_states(o, s, best, best + 1);
	if (!o->json)
		printf("log %s\ncheckpoint %s\n", gn_text_visible(s[best].log, log, sizeof log),
		       gn_text_visible(s[best].checkpoint, checkpoint, sizeof checkpoint));
}

static enum gn_status again(const char *directory, const struct gn_sweep_state *s, size_t count, int dry_run, struct gn_err *err)
{
	char id[64], full[PATH_MAX];
	struct gn_strbuf list = {0};
	enum gn_status status = gn_submit_absolute(directory, full, sizeof full, err);

	for (size_t i = 0; i < count; i++)
		if (!strcmp(s[i].state, "failed") || !strcmp(s[i].state, "stop"))
			gn_strbuf_printf(&list, "%s%d", list.len ? "," : "", s[i].trial);
	if (!status && !list.len) {
		fprintf(stderr, "gannet sweep: no trial has failed or was stopped\n");
	} else if (!status && dry_run) {
		printf("%s\n", gn_strbuf_text(&list));
	} else if (!status) {
		status = gn_submit_again(full, gn_strbuf_text(&list), id, err);
		if (!status) {
			fprintf(stderr, "gannet sweep: trials %s again, job %s\n", gn_strbuf_text(&list), id);
			printf("%s\n", id);
		}
	}
	gn_strbuf_release(&list);
	return status;
}

/* DIR/report/report.html */
static enum gn_status report(const char *directory, const struct gn_sweep_state *s, size_t count, struct gn_err *err)
{
	char out[PATH_MAX], path[PATH_MAX];
	struct gn_strbuf page = {0};
	enum gn_status status = gn_path_join(out, sizeof out, directory, "report", err);

	if (!status)
		status = gn_make_dirs(out, err);
	if (!status)
		status = gn_path_join(path, sizeof path, out, "report.html", err);
	if (!status)
		status = gn_sweep_page(directory, s, count, &page, err);
	if (!status)
		status = gn_file_replace_text(path, &page, GN_REPLACE_SYNCED, err);
	if (!status)
		printf("%s\n", path);
	gn_strbuf_release(&page);
	return status;
}

static enum gn_status look(const struct sweep_options *o, const struct gn_text_list *p, struct gn_err *err)
{
	const char *verb = p->items[0], *directory = p->count == 2 ? p->items[1] : NULL;
	struct gn_sweep_state *s = NULL;
	size_t count, best;
	enum gn_status status;

	if (strcmp(verb, "status") && strcmp(verb, "best") && strcmp(verb, "rerun") && strcmp(verb, "report"))
		return gn_err_set(err, GN_ERR_USAGE, "'%s' is none of run, status, best, rerun, report", verb);
	if (!directory)
		return gn_err_set(err, GN_ERR_USAGE, "gannet sweep %s DIR", verb);
	if (!strcmp(verb, "rerun") && !o->failed)
		return gn_err_set(err, GN_ERR_USAGE, "gannet sweep rerun --failed DIR");
	status = gn_sweep_read(directory, (double)time(NULL), &s, &count, err);
	if (status)
		return status;
	best = gn_sweep_best(s, count);
	if (!strcmp(verb, "status"))
		print_states(o, s, 0, count);
	else if (!strcmp(verb, "rerun"))
		status = again(directory, s, count, o->dry_run, err);
	else if (!strcmp(verb, "report"))
		status = report(directory, s, count, err);
	else if (best == count)
		status = gn_err_set(err, GN_ERR_DATA, "no trial in %s has ended yet", directory);
	else
		print_best(o, s, best);
	free(s);
	return status;
}

static int run(const void *options, const struct gn_text_list *positional)
{
	struct gn_err err;
	enum gn_status status = (strcmp(positional->items[0], "run") ? look : start)(options, positional, &err);

	return status ? gn_cmd_fail("sweep", &err) : GN_EXIT_DONE;
}

#define FIELD(name) offsetof(struct sweep_options, name)

static const struct gn_option options_table[] = {
	GN_OPT_LIST("grid", FIELD(grid), "NAME=VALUES", "run: values of an option of train, separated by commas; every combination of all "
		    "grids becomes a trial"),
	GN_OPT_LIST("random", FIELD(random), "NAME=DRAW:COUNT", "run: COUNT draws from log(LOW,HIGH), uniform(LOW,HIGH) or int(LOW,HIGH), "
		    "for each point of the grid"),
	GN_OPT_INT("seed", FIELD(seed), "N", "1", 0, 4294967295.0, "run: seed of the random draws"),
	GN_OPT_INT("max", FIELD(max), "N", "4", 1, 10000, "run: most trials that run at once"),
	GN_OPT_INT("halving", FIELD(halving), "N", "0", 0, 100, "run: successive halving, a trial stops early unless among the best N-th "
		    "of those that have come as far; 0: none"),
	GN_OPT_TEXT("dir", FIELD(directory), "DIR", "run: folder for the script, the ledger, checkpoints and logs; must not exist yet",
		    .initial = "sweep"),
	GN_OPT_INT("nodes", FIELD(nodes), "N", "1", 1, 1000000, "run: nodes of a trial", .letter = 'N'),
	GN_OPT_INT("ppn", FIELD(ppn), "N", "1", 1, 4096, "run: tasks on each node"),
	GN_OPT_TEXT("time", FIELD(time), "T", "run: time limit of a trial", .letter = 't'),
	GN_OPT_TEXT("partition", FIELD(partition), "NAME", "run: partition of the job", .letter = 'p'),
	GN_OPT_TEXT("name", FIELD(name), "NAME", "run: name of the job", .letter = 'J', .initial = "gannet-sweep"),
	GN_OPT_TEXT("snapshot", FIELD(snapshot), "DIR", "run: as for gannet submit"),
	GN_OPT_INT("retries", FIELD(retries), "N", "3", 0, 9999, "run: as for gannet submit"),
	GN_OPT_LIST("sbatch", FIELD(extra), "OPTION", "run: another option of sbatch"),
	GN_OPT_FLAG("dry-run", FIELD(dry_run), "run, rerun: print the trials, submit nothing", .letter = 'n'),
	GN_OPT_FLAG("failed", FIELD(failed), "rerun: those that failed or were stopped"),
	GN_OPT_FLAG("json", FIELD(json), "status, best: one JSON object a trial"),
};

static const struct gn_command command = {
	.name = "sweep",
	.summary = "train with many settings, as one job array",
	.positional = "run|status|best|rerun|report [DIR | -- train ARG...]",
	.description =
		"run makes a trial of each combination of options, writes them into a ledger (DIR/ledger.jsonl) and submits one job array, "
		"whose tasks are queued again by themselves as those of gannet submit. Each trial has a checkpoint folder and a log in DIR.\n\n"
		"status prints how they are doing, best the one with the highest top-1 (or the lowest loss) that has ended, with its log and "
		"checkpoint folder; of equals that with the lower loss, then the first. report writes "
		"DIR/report/report.html with a table of all trials, their curves, and the result by each parameter, rerun --failed submits those again that failed or were stopped; they go on from "
		"their checkpoints. All of these read the ledger and the logs, and do not ask Slurm.",
	.examples = "  gannet sweep run --grid lr=.01,.05 \\\n"
		    "      --random 'weight-decay=log(1e-5,1e-3):8' \\\n"
		    "      --max 4 -- train --data train --model lenet\n"
		    "  gannet sweep status sweep\n"
		    "  gannet sweep best --json sweep\n",
	GN_OPTIONS(options_table),
	.positional_min = 1,
	.positional_max = SIZE_MAX,
};

const struct gn_cmd gn_cmd_sweep = {.command = &command, .run = run, .options_size = sizeof(struct sweep_options)};
