#include "src/cmd/cmd.h"

#include "src/base/file.h"
#include "src/cmd/job_command.h"
#include "src/jobs/submit.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct submit_options {
	const char *name, *directory, *time, *partition, *array, *after, *snapshot;
	int64_t nodes, ppn, retries;
	struct gn_text_list extra;
	int preflight, exclude_bad, dry_run;
};

/* attempt: from 0 on, because other jobs of the same second have taken the names before. */
static void name_directory(const struct submit_options *o, int attempt, char *out, size_t size)
{
	time_t now = time(NULL);
	char stamp[32], number[16] = "";
	struct tm tm;

	localtime_r(&now, &tm);
	strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &tm);
	if (attempt)
		snprintf(number, sizeof number, "-%d", attempt + 1);
	if (o->directory)
		snprintf(out, size, "%s", o->directory);
	else
		snprintf(out, size, "%s-%s%s", o->name, stamp, number);
}

/* The first task of an array: the others differ in its number. */
static enum gn_status check_command(const struct gn_submit *s, const char *snapshot, struct gn_err *err)
{
	char task[24] = "";

	if (s->array)
		snprintf(task, sizeof task, "%.*s", (int)strspn(s->array, "0123456789"), s->array);
	return gn_job_command_check(s->command, s->command_count, s->nodes * s->tasks_per_node, s->array ? task : NULL, snapshot, err);
}

static enum gn_status submit(const struct submit_options *o, const struct gn_text_list *positional, const char *folder, struct gn_err *err)
{
	char self[PATH_MAX], directory[PATH_MAX], work[PATH_MAX], id[64];
	struct gn_submit s = {.name = o->name, .directory = directory, .gannet = self, .nodes = o->nodes, .tasks_per_node = o->ppn,
		.retries = o->retries, .time = o->time, .partition = o->partition, .array = o->array, .after = o->after,
		.extra = o->extra.items, .extra_count = o->extra.count, .snapshot = o->snapshot != NULL, .work = work,
		.preflight = o->preflight, .exclude_bad = o->exclude_bad, .command = positional->items, .command_count = positional->count};
	struct gn_strbuf script = {0};
	enum gn_status status = gn_path_from_program(NULL, self, sizeof self, err);

	if (!status)
		status = gn_submit_absolute(folder, directory, sizeof directory, err);
	if (!status && !getcwd(work, sizeof work))
		status = gn_err_errno(err, errno, "where is this?");
	if (!status)
		status = gn_submit_script(&s, &script, err);
	if (!status)
		status = check_command(&s, o->snapshot, err);
	if (!status && o->dry_run) {
		fputs(gn_strbuf_text(&script), stdout);
	} else if (!status && !(status = gn_submit_job(&s, o->snapshot, NULL, 0, id, err))) {
		fprintf(stderr, "gannet submit: job %s, in %s\n", id, directory);
		printf("%s\n", id);
	}
	gn_strbuf_release(&script);
	return status;
}

static int run(const void *options, const struct gn_text_list *positional)
{
	const struct submit_options *o = options;
	enum gn_status status = GN_ERR_EXISTS;
	char folder[PATH_MAX];
	struct gn_err err;

	for (int attempt = 0; status == GN_ERR_EXISTS && attempt < (o->directory ? 1 : 100); attempt++) {
		name_directory(o, attempt, folder, sizeof folder);
		status = submit(o, positional, folder, &err);
	}
	return status ? gn_cmd_fail("submit", &err) : GN_EXIT_DONE;
}

#define FIELD(name) offsetof(struct submit_options, name)

static const struct gn_option options_table[] = {
	GN_OPT_INT("nodes", FIELD(nodes), "N", "1", 1, 1000000, "how many nodes", .letter = 'N'),
	GN_OPT_INT("ppn", FIELD(ppn), "N", "1", 1, 4096, "tasks on each node"),
	GN_OPT_TEXT("time", FIELD(time), "T", "time limit as sbatch takes it; the program gets USR1 90 s before", .letter = 't'),
	GN_OPT_TEXT("partition", FIELD(partition), "NAME", "partition of the job", .letter = 'p'),
	GN_OPT_TEXT("name", FIELD(name), "NAME", "name of the job", .letter = 'J', .initial = "gannet"),
	GN_OPT_TEXT("dir", FIELD(directory), "DIR", "folder for script, output and snapshot, on a file system that all nodes see; must not "
		    "exist yet (default: NAME-TIME)"),
	GN_OPT_TEXT("snapshot", FIELD(snapshot), "DIR", "copy this folder, and run in the copy: what is edited while the job waits changes "
		    "nothing"),
	GN_OPT_TEXT("array", FIELD(array), "LIST", "a job array, as sbatch takes it; %a in the command is the task's number",
		    .letter = 'a'),
	GN_OPT_INT("retries", FIELD(retries), "N", "3", 0, 9999, "times to queue it again in a row without a newer checkpoint"),
	GN_OPT_FLAG("preflight", FIELD(preflight), "check the nodes first; the job ends with 6 when one is bad"),
	GN_OPT_FLAG("exclude-bad", FIELD(exclude_bad), "check the nodes first; when one is bad, queue the job again without it (one of "
		    "--retries), if enough others are there"),
	GN_OPT_TEXT("after", FIELD(after), "JOB", "number of a job: start only once it has ended with 0"),
	GN_OPT_LIST("sbatch", FIELD(extra), "OPTION", "another option of sbatch: --sbatch=--mem=4G"),
	GN_OPT_FLAG("dry-run", FIELD(dry_run), "print the script, and submit nothing", .letter = 'n'),
};

static const struct gn_command command = {
	.name = "submit",
	.summary = "submit train or exec as a job that is queued again when it has to",
	.positional = "train|exec [ARG]...",
	.description =
		"Writes a batch script into a folder of its own and submits it. The job number goes to standard output. With --snapshot the "
		"job runs in a copy of the sources, which is checked against its digests at each start.\n\n"
		"The job is queued again when it was stopped (time limit, preemption, scancel --signal=USR1) or a rank was lost, "
		"at most --retries times in a row without a newer checkpoint; a host that was lost twice is excluded. train goes on from "
		"its newest checkpoint; for exec the program has to do so itself. The policy is train.sbatch's, of which a copy lies "
		"beside the script.",
	.examples = "  gannet submit -N 4 --ppn 8 -t 12:00:00 -- train --data /local/train \\\n"
		    "      --model resnet50 --checkpoint run1 --log run1.jsonl\n"
		    "  gannet submit -N 2 --ppn 4 --snapshot . --after 1234 -- \\\n"
		    "      exec python train.py\n"
		    "  gannet submit --array 1-4 -- train --data train --model lenet \\\n"
		    "      --seed %a --checkpoint run-%a\n",
	GN_OPTIONS(options_table),
	.positional_min = 1,
	.positional_max = SIZE_MAX,
	.keeps_rest = 1,
};

const struct gn_cmd gn_cmd_submit = {.command = &command, .run = run, .options_size = sizeof(struct submit_options)};
