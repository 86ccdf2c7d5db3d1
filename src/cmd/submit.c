#include "src/cmd/cmd.h"

#include "src/base/file.h"
#include "src/jobs/submit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct submit_options {
	const char *name, *directory, *time, *partition, *array, *after, *snapshot;
	int64_t nodes, ppn, retries;
	struct gn_text_list extra;
	int preflight, dry_run;
};

/* --- programs --- */

/* Its output goes to *text, if that is not NULL. GN_ERR_FAILED when its code is not 0. */
static enum gn_status run_program(const char *const *argv, struct gn_strbuf *text, struct gn_err *err)
{
	int ends[2] = {-1, -1}, status;
	char part[4096];
	ssize_t n;
	pid_t pid;

	if (text && pipe2(ends, O_CLOEXEC))
		return gn_err_errno(err, errno, "no pipe for %s", argv[0]);
	pid = fork();
	if (!pid) {
		if (text && dup2(ends[1], 1) < 0)
			_exit(126);
		execvp(argv[0], (char *const *)(uintptr_t)argv);
		dprintf(2, "gannet submit: cannot run %s: %s\n", argv[0], strerror(errno));
		_exit(127);
	}
	if (text)
		close(ends[1]);
	while (text && pid > 0 && (n = gn_read_some(ends[0], part, sizeof part)) > 0)
		gn_strbuf_append(text, part, (size_t)n);
	if (text)
		close(ends[0]);
	if (pid < 0)
		return gn_err_errno(err, errno, "cannot start %s", argv[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		return gn_err_set(err, GN_ERR_FAILED, "%s failed, see above", argv[0]);
	return GN_OK;
}

/* --- places --- */

static enum gn_status own_path(char *out, size_t size, struct gn_err *err)
{
	ssize_t n = readlink("/proc/self/exe", out, size - 1);

	if (n <= 0)
		return gn_err_errno(err, errno, "cannot find gannet itself");
	out[n] = 0;
	return GN_OK;
}

/* train.sbatch: where GANNET_JOBS says, where it was installed, or in the tree that this program was built in. */
static enum gn_status find_policy(const char *self, char *out, size_t size, struct gn_err *err)
{
	const char *named = getenv("GANNET_JOBS");
	char near[PATH_MAX];

	snprintf(near, sizeof near, "%s", self);
	if (strrchr(near, '/'))
		*strrchr(near, '/') = 0;
	for (int i = 0; i < 3; i++) {
		int n = i == 0 ? snprintf(out, size, "%s/train.sbatch", named && *named ? named : "/nonexistent")
			: i == 1 ? snprintf(out, size, "%s/train.sbatch", GN_JOBS_DIR)
				 : snprintf(out, size, "%s/../slurm/jobs/train.sbatch", near);

		if (n > 0 && (size_t)n < size && !access(out, R_OK))
			return GN_OK;
	}
	return gn_err_set(err, GN_ERR_UNSUPPORTED, "train.sbatch is neither in " GN_JOBS_DIR " nor beside %s: GANNET_JOBS names its folder", self);
}

static enum gn_status absolute(const char *path, char *out, size_t size, struct gn_err *err)
{
	char here[PATH_MAX] = "";

	if (*path != '/' && !getcwd(here, sizeof here))
		return gn_err_errno(err, errno, "where is this?");
	if ((size_t)snprintf(out, size, "%s%s%s", here, *here ? "/" : "", path) >= size)
		return gn_err_set(err, GN_ERR_USAGE, "%s is too long a path", path);
	return GN_OK;
}

/* --- the job's folder --- */

#define MARK ".gannet-submit"

/* Links are followed, so that the job does not depend on what lies elsewhere; repositories of version control and folders of other jobs
 * are left out. What the copy is, is written down beside it. */
static enum gn_status take_snapshot(const char *from, const char *directory, struct gn_err *err)
{
	const char *const copy[] = {"bash", "-c", "set -o pipefail; mkdir \"$1/snapshot\" && tar -C \"$0\" --exclude-vcs "
				    "--exclude-tag-all=" MARK " -chf - . | tar -xf - -C \"$1/snapshot\" && cd \"$1/snapshot\" && "
				    "find . -type f | LC_ALL=C sort >../snapshot.list && "
				    "find . -type f -print0 | LC_ALL=C sort -z | xargs -0r sha256sum >../snapshot.sha256",
				    from, directory, NULL};
	struct stat st;

	if (stat(from, &st) || !S_ISDIR(st.st_mode))
		return gn_err_set(err, GN_ERR_USAGE, "--snapshot %s is no folder", from);
	return run_program(copy, NULL, err);
}

static enum gn_status copy_policy(const char *from, const char *directory, struct gn_err *err)
{
	char to[PATH_MAX];
	char *text = NULL;
	size_t len;
	enum gn_status status = gn_file_load(from, 1 << 20, &text, &len, err);

	if (!status)
		status = gn_path_join(to, sizeof to, directory, "train.sbatch", err);
	if (!status)
		status = gn_file_replace(to, text, len, err);
	free(text);
	return status;
}

static enum gn_status submit(const struct submit_options *o, const struct gn_submit *s, const char *policy,
			     const struct gn_strbuf *script, struct gn_err *err)
{
	char path[PATH_MAX];
	const char *const sbatch[] = {"sbatch", "--parsable", path, NULL};
	struct gn_strbuf said;
	enum gn_status status = GN_OK;

	if (mkdir(s->directory, 0777) && errno == EEXIST)
		return gn_err_set(err, GN_ERR_EXISTS, "%s is there already: a job's folder is its own, --dir names another", s->directory);
	status = gn_make_dirs(s->directory, err);
	if (!status)
		status = gn_path_join(path, sizeof path, s->directory, MARK, err);
	if (!status)
		status = gn_file_replace(path, "", 0, err);
	if (!status && o->snapshot)
		status = take_snapshot(o->snapshot, s->directory, err);
	if (!status)
		status = copy_policy(policy, s->directory, err);
	if (!status)
		status = gn_path_join(path, sizeof path, s->directory, "job.sbatch", err);
	if (!status)
		status = gn_file_replace(path, gn_strbuf_text(script), script->len, err);
	gn_strbuf_init(&said);
	if (!status)
		status = run_program(sbatch, &said, err);
	/* ID, or ID;CLUSTER */
	if (!status) {
		fprintf(stderr, "gannet submit: job %.*s, in %s\n", (int)strcspn(gn_strbuf_text(&said), ";\n"), gn_strbuf_text(&said),
			s->directory);
		printf("%.*s\n", (int)strcspn(gn_strbuf_text(&said), ";\n"), gn_strbuf_text(&said));
	}
	gn_strbuf_release(&said);
	return status;
}

static void name_directory(const struct submit_options *o, char *out, size_t size)
{
	time_t now = time(NULL);
	struct tm tm;
	char stamp[32];

	localtime_r(&now, &tm);
	strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &tm);
	if (o->directory)
		snprintf(out, size, "%s", o->directory);
	else
		snprintf(out, size, "%s-%s", o->name, stamp);
}

static int run(const void *options, const struct gn_text_list *positional)
{
	const struct submit_options *o = options;
	char self[PATH_MAX], policy[2 * PATH_MAX], folder[PATH_MAX], directory[PATH_MAX], work[PATH_MAX];
	struct gn_submit s = {.name = o->name, .directory = directory, .gannet = self, .nodes = o->nodes, .tasks_per_node = o->ppn,
		.retries = o->retries, .time = o->time, .partition = o->partition, .array = o->array, .after = o->after,
		.extra = o->extra.items, .extra_count = o->extra.count, .snapshot = o->snapshot != NULL, .work = work,
		.preflight = o->preflight, .command = positional->items, .command_count = positional->count};
	struct gn_strbuf script;
	struct gn_err err;
	enum gn_status status = own_path(self, sizeof self, &err);

	gn_strbuf_init(&script);
	name_directory(o, folder, sizeof folder);
	if (!status)
		status = find_policy(self, policy, sizeof policy, &err);
	if (!status)
		status = absolute(folder, directory, sizeof directory, &err);
	if (!status && !getcwd(work, sizeof work))
		status = gn_err_errno(&err, errno, "where is this?");
	if (!status)
		status = gn_submit_script(&s, &script, &err);
	if (!status && o->dry_run)
		fputs(gn_strbuf_text(&script), stdout);
	else if (!status)
		status = submit(o, &s, policy, &script, &err);
	gn_strbuf_release(&script);
	return status ? gn_cmd_fail("submit", &err) : GN_EXIT_DONE;
}

#define FIELD(name) offsetof(struct submit_options, name)

static const struct gn_option options_table[] = {
	{.name = "nodes", .letter = 'N', .kind = GN_OPTION_INT, .offset = FIELD(nodes), .value_name = "N", .initial = "1",
	 .help = "how many nodes", .min = 1, .max = 1000000},
	{.name = "ppn", .kind = GN_OPTION_INT, .offset = FIELD(ppn), .value_name = "N", .initial = "1", .help = "tasks on each", .min = 1,
	 .max = 4096},
	{.name = "time", .letter = 't', .kind = GN_OPTION_TEXT, .offset = FIELD(time), .value_name = "T",
	 .help = "time limit as sbatch takes it; the program gets USR1 90 s before"},
	{.name = "partition", .letter = 'p', .kind = GN_OPTION_TEXT, .offset = FIELD(partition), .value_name = "NAME", .help = "where it runs"},
	{.name = "name", .letter = 'J', .kind = GN_OPTION_TEXT, .offset = FIELD(name), .value_name = "NAME", .initial = "gannet",
	 .help = "of the job"},
	{.name = "dir", .kind = GN_OPTION_TEXT, .offset = FIELD(directory), .value_name = "DIR",
	 .help = "for script, output and snapshot, on a file system that all nodes see; must not be there yet (default: NAME-TIME)"},
	{.name = "snapshot", .kind = GN_OPTION_TEXT, .offset = FIELD(snapshot), .value_name = "DIR",
	 .help = "copy this folder, and run in the copy: what is edited while the job waits changes nothing"},
	{.name = "array", .letter = 'a', .kind = GN_OPTION_TEXT, .offset = FIELD(array), .value_name = "LIST",
	 .help = "a job array, as sbatch takes it; %a in the command is the task's number"},
	{.name = "retries", .kind = GN_OPTION_INT, .offset = FIELD(retries), .value_name = "N", .initial = "3",
	 .help = "times to queue it again in a row without a newer checkpoint", .max = 9999},
	{.name = "preflight", .kind = GN_OPTION_FLAG, .offset = FIELD(preflight),
	 .help = "check the nodes first; the job ends with 6 when one is bad"},
	{.name = "after", .kind = GN_OPTION_TEXT, .offset = FIELD(after), .value_name = "JOB", .help = "only once that job has ended with 0"},
	{.name = "sbatch", .kind = GN_OPTION_LIST, .offset = FIELD(extra), .value_name = "OPTION", .help = "another option of sbatch: --sbatch=--mem=4G"},
	{.name = "dry-run", .letter = 'n', .kind = GN_OPTION_FLAG, .offset = FIELD(dry_run), .help = "print the script, and submit nothing"},
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
	.examples = "  gannet submit -N 4 --ppn 8 -t 12:00:00 -- train --data /local/train --checkpoint run1 --log run1.jsonl\n"
		    "  gannet submit -N 2 --ppn 4 --snapshot . --after 1234 -- exec python train.py\n"
		    "  gannet submit --array 1-4 -- train --data train --seed %a --checkpoint run-%a\n",
	.options = options_table,
	.option_count = sizeof options_table / sizeof *options_table,
	.positional_min = 1,
	.positional_max = SIZE_MAX,
	.keeps_rest = 1,
};

const struct gn_cmd gn_cmd_submit = {&command, run, sizeof(struct submit_options)};
