#include "src/jobs/submit.h"

#include "src/base/file.h"
#include "src/base/trust.h"
#include "src/jobs/program.h"
#include "src/paths.h"

#include <errno.h>
#include <limits.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- places --- */

void gn_submit_quote(const char *text, struct gn_strbuf *out)
{
	gn_strbuf_puts(out, "'");
	for (; *text; text++)
		gn_strbuf_append(out, *text == '\'' ? "'\\''" : text, *text == '\'' ? 4 : 1);
	gn_strbuf_puts(out, "'");
}

/* The value of an option of the command, "--name VALUE" or "--name=VALUE"; NULL: not given. The last one counts. */
static const char *value_of(const struct gn_submit *s, const char *name)
{
	size_t len = strlen(name);
	const char *value = NULL;

	for (size_t i = 1; i < s->command_count; i++) {
		const char *a = s->command[i];

		if (strncmp(a, name, len))
			continue;
		if (a[len] == '=')
			value = a + len + 1;
		else if (!a[len] && i + 1 < s->command_count)
			value = s->command[++i];
	}
	return value;
}

static int has_form(const char *text, const char *pattern)
{
	regex_t form;
	int result;

	if (regcomp(&form, pattern, REG_EXTENDED | REG_NOSUB | REG_ICASE))
		return 1;
	result = regexec(&form, text, 0, NULL, 0);
	regfree(&form);
	return !result;
}

/* What sbatch would refuse only after the snapshot, with a message about a line of the script. */
static enum gn_status check_forms(const struct gn_submit *s, struct gn_err *err)
{
	if (s->time && !has_form(s->time, "^([0-9]+|[0-9]+(:[0-9]{1,2}){1,2}|[0-9]+-[0-9]{1,2}(:[0-9]{1,2}){0,2}|infinite|unlimited)$"))
		return gn_err_set(err, GN_ERR_USAGE, "--time %s: minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes "
				  "or days-hours:minutes:seconds", s->time);
	if (s->array && !has_form(s->array, "^[0-9]+(-[0-9]+(:[1-9][0-9]*)?)?(,[0-9]+(-[0-9]+(:[1-9][0-9]*)?)?)*(%[1-9][0-9]*)?$"))
		return gn_err_set(err, GN_ERR_USAGE, "--array %s: numbers and ranges, such as 0-7, 1,3,9-20:2 or 1-100%%4", s->array);
	if (s->after && !has_form(s->after, "^[0-9]+(_[0-9]+)?([:,][0-9]+(_[0-9]+)?)*$"))
		return gn_err_set(err, GN_ERR_USAGE, "--after %s is no job number", s->after);
	return GN_OK;
}

static enum gn_status check(const struct gn_submit *s, struct gn_err *err)
{
	const char *const texts[] = {s->name, s->directory, s->gannet, s->time, s->partition, s->array, s->after, s->work};

	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		if (texts[i] && texts[i][strcspn(texts[i], "\r\n")])
			return gn_err_set(err, GN_ERR_USAGE, "a line break in '%s', which becomes a line of the batch script", texts[i]);
	if (check_forms(s, err))
		return GN_ERR_USAGE;
	for (size_t i = 0; i < s->extra_count; i++)
		if (s->extra[i][strcspn(s->extra[i], "\r\n")] || s->extra[i][0] != '-')
			return gn_err_set(err, GN_ERR_USAGE, "--sbatch '%s' is no option of sbatch, such as --mem=4G", s->extra[i]);
	if (s->name[strcspn(s->name, " \t/%\\\"'")])
		return gn_err_set(err, GN_ERR_USAGE, "--name %s: a job's name has no blank, /, %%, backslash or quote here", s->name);
	if (s->directory[strcspn(s->directory, " \t%\\\"'")])
		return gn_err_set(err, GN_ERR_USAGE, "the job's folder '%s' cannot be written in a line of sbatch (blank, %%, backslash or quote): "
				  "--dir names another", s->directory);
	if (!s->command_count || (strcmp(s->command[0], "train") && strcmp(s->command[0], "exec")))
		return gn_err_set(err, GN_ERR_USAGE, "'%s' is neither train nor exec: 'gannet submit ... -- train ...' trains, and '-- exec python "
				  "train.py' starts a program of another framework", s->command_count ? s->command[0] : "");
	if (!strcmp(s->command[0], "exec") && s->command_count < 2)
		return gn_err_set(err, GN_ERR_USAGE, "exec needs a program: -- exec python train.py");
	for (int i = 0; i < 2 && s->snapshot && !strcmp(s->command[0], "train"); i++) {
		const char *name = i ? "--log" : "--checkpoint", *value = value_of(s, name);

		if (value && *value != '/' && strcmp(value, "-"))
			return gn_err_set(err, GN_ERR_USAGE, "with --snapshot, %s %s would lie in the copy: give the whole path", name, value);
	}
	if (!strcmp(s->command[0], "train") && !value_of(s, "--checkpoint"))
		return gn_err_set(err, GN_ERR_USAGE, "train needs --checkpoint DIR: a job that is queued again goes on from there");
	if (s->array && !strcmp(s->command[0], "train") && !strstr(value_of(s, "--checkpoint"), "%a"))
		return gn_err_set(err, GN_ERR_USAGE, "--array: the tasks need checkpoints of their own, with %%a for the task's number: "
				  "--checkpoint %s-%%a", value_of(s, "--checkpoint"));
	return GN_OK;
}

static void put_option(const char *name, const char *value, struct gn_strbuf *out)
{
	if (value)
		gn_strbuf_printf(out, "#SBATCH --%s=%s\n", name, value);
}

static void put_header(const struct gn_submit *s, struct gn_strbuf *out)
{
	gn_strbuf_puts(out, "#!/bin/bash\n# Written by gannet submit. How the job is queued again: train.sbatch, beside this file.\n");
	put_option("job-name", s->name, out);
	gn_strbuf_printf(out, "#SBATCH --nodes=%lld\n#SBATCH --ntasks-per-node=%lld\n", (long long)s->nodes, (long long)s->tasks_per_node);
	put_option("time", s->time, out);
	put_option("partition", s->partition, out);
	put_option("array", s->array, out);
	if (s->after)
		gn_strbuf_printf(out, "#SBATCH --dependency=afterok:%s\n", s->after);
	gn_strbuf_printf(out, "#SBATCH --output=%s/%s.out\n#SBATCH --open-mode=append\n#SBATCH --requeue\n#SBATCH --signal=B:USR1@90\n",
			 s->directory, s->array ? "%A_%a" : "%j");
	for (size_t i = 0; i < s->extra_count; i++)
		gn_strbuf_printf(out, "#SBATCH %s\n", s->extra[i]);
}

static void put_variable(const char *name, const char *value, struct gn_strbuf *out)
{
	gn_strbuf_printf(out, "export %s=", name);
	gn_submit_quote(value, out);
	gn_strbuf_puts(out, "\n");
}

/* Files that were changed or removed since. What a program adds (compiled modules, output) is no change. */
static void put_snapshot_check(const struct gn_submit *s, struct gn_strbuf *out)
{
	gn_strbuf_puts(out, "cd ");
	gn_submit_quote(s->snapshot ? s->directory : s->work, out);
	gn_strbuf_puts(out, s->snapshot ? "/snapshot || exit 1\n" : " || exit 1\n");
	if (!s->snapshot)
		return;
	gn_strbuf_puts(out, "if ! sha256sum --quiet -c ../snapshot.sha256; then\n"
			    "\techo \"gannet submit: the snapshot $PWD is not what was submitted: submit again\" >&2\n\texit 3\nfi\n");
}

enum gn_status gn_submit_script(const struct gn_submit *s, struct gn_strbuf *out, struct gn_err *err)
{
	const char *checkpoint, *log;
	enum gn_status status = check(s, err);
	int trains;

	if (status)
		return status;
	trains = !strcmp(s->command[0], "train");
	checkpoint = value_of(s, "--checkpoint");
	log = trains ? value_of(s, "--log") : NULL;
	put_header(s, out);
	put_snapshot_check(s, out);
	put_variable("GANNET", s->gannet, out);
	if (trains) {
		put_variable("GANNET_CHECKPOINT", checkpoint, out);
	} else {
		gn_strbuf_puts(out, "export GANNET_CHECKPOINT=");
		gn_submit_quote(s->directory, out);
		gn_strbuf_puts(out, s->array ? "/'task-%a'\n" : "/job\n");
	}
	put_variable("GANNET_LOG_FILE", log ? log : "-", out);
	gn_strbuf_printf(out, "export GANNET_RETRIES=%lld\n", (long long)s->retries);
	if (s->exclude_bad)
		gn_strbuf_puts(out, "gannet_exclude_bad=1\n");
	else if (s->preflight)
		gn_strbuf_puts(out, "srun --mpi=pmix --ntasks=\"$SLURM_NNODES\" --ntasks-per-node=1 \"$GANNET\" preflight || exit\n");
	gn_strbuf_puts(out, "gannet_step=(");
	for (size_t i = 0; i < s->command_count; i++) {
		gn_strbuf_puts(out, i ? " " : "");
		gn_submit_quote(s->command[i], out);
	}
	gn_strbuf_puts(out, trains && !value_of(s, "--resume") ? " --resume auto)\n" : ")\n");
	if (s->trials) {
		gn_strbuf_puts(out, ". ");
		gn_submit_quote(s->directory, out);
		gn_strbuf_printf(out, "/%s\n", s->trials);
	}
	gn_strbuf_puts(out, ". ");
	gn_submit_quote(s->directory, out);
	gn_strbuf_puts(out, "/train.sbatch\n");
	return gn_strbuf_failed(out) ? gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the batch script") : GN_OK;
}

/* train.sbatch: where GANNET_JOBS says, where it was installed, or in the tree that this program was built in. */
static enum gn_status find_policy(char *out, size_t size, struct gn_err *err)
{
	char near[PATH_MAX] = "", tree[PATH_MAX] = "";
	const char *named = getenv("GANNET_JOBS"), *const folders[] = {named ? named : "", near, GN_JOBS_DIR, tree};

	gn_path_from_program(GN_JOBS_DIR_NEAR, near, sizeof near, NULL);
	gn_path_from_program("../slurm/jobs", tree, sizeof tree, NULL);
	for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
		if (*folders[i] && !gn_path_join(out, size, folders[i], "train.sbatch", NULL) && !access(out, R_OK))
			return GN_OK;
	return gn_err_set(err, GN_ERR_UNSUPPORTED, "train.sbatch is in none of %s, %s and %s: GANNET_JOBS names its folder", near, GN_JOBS_DIR, tree);
}

enum gn_status gn_submit_absolute(const char *path, char *out, size_t size, struct gn_err *err)
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

/* Symbolic links stay links; a relative one that leaves the folder becomes absolute. Version control's folders and those of other
 * jobs are left out. The digests of the copy's files are written beside it. */
static enum gn_status take_snapshot(const char *from, const char *directory, struct gn_err *err)
{
	const char *const copy[] = {"bash", "-c", "set -o pipefail; mkdir \"$1/snapshot\" && tar -C \"$0\" --exclude-vcs "
				    "--exclude-tag-all=" MARK " -cf - . | tar -xf - -C \"$1/snapshot\" && from=$(realpath -- \"$0\") && "
				    "cd \"$1/snapshot\" && find . -type l -print0 | while IFS= read -r -d '' l; do t=$(readlink -- \"$l\"); "
				    "[[ $t == /* ]] && continue; to=$(realpath -ms -- \"$from/${l%/*}/$t\"); [[ $to == \"$from\" || $to == \"$from\"/* ]] || "
				    "ln -sfn -- \"$to\" \"$l\" || exit; done && find . -type f -print0 | LC_ALL=C sort -z | xargs -0r sha256sum >../snapshot.sha256",
				    from, directory, NULL};
	struct stat st;

	if (stat(from, &st) || !S_ISDIR(st.st_mode))
		return gn_err_set(err, GN_ERR_USAGE, "--snapshot %s is no folder", from);
	return gn_program_run(copy, 0, NULL, err);
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

/* What sbatch --parsable prints: "ID" or "ID;CLUSTER". A wrapper's own text is no number of a job; the job may be there nevertheless. */
static enum gn_status parse_id(const char *said, char id[64], struct gn_err *err)
{
	size_t len = strspn(said, "0123456789"), all = strcspn(said, "\n");

	if (!len || len >= 64 || *said == '0' || (said[len] != ';' && len != all) || (said[len] == ';' && len + 1 == all) ||
	    said[all + (said[all] == '\n')])
		return gn_err_set(err, GN_ERR_FAILED, "sbatch --parsable printed no job number, but '%.100s': is it a wrapper? A job may have been "
				  "queued: see squeue", said);
	snprintf(id, 64, "%.*s", (int)len, said);
	return GN_OK;
}

/* *queued: sbatch has succeeded, whatever it printed. */
static enum gn_status run_sbatch(const char *const *argv, int *queued, char id[64], struct gn_err *err)
{
	struct gn_strbuf said = {0};
	enum gn_status status = gn_program_run(argv, 0, &said, err);

	*queued = !status;
	if (status)
		gn_err_set(err, status, "sbatch did not take the job, see above; it needs Slurm, which gannet launch does without");
	if (!status)
		status = parse_id(gn_strbuf_text(&said), id, err);
	gn_strbuf_release(&said);
	return status;
}

static enum gn_status put_file(const char *directory, const char *name, const char *text, size_t len, struct gn_err *err)
{
	char path[PATH_MAX];
	enum gn_status status = gn_path_join(path, sizeof path, directory, name, err);

	return status ? status : gn_file_replace(path, text, len, err);
}

enum gn_status gn_submit_job(const struct gn_submit *s, const char *snapshot, const struct gn_submit_file *files, size_t file_count,
			     char id[64], struct gn_err *err)
{
	char path[PATH_MAX], policy[2 * PATH_MAX];
	const char *const sbatch[] = {"sbatch", "--parsable", path, NULL}, *const clear[] = {"rm", "-rf", "--", s->directory, NULL};
	struct gn_strbuf script = {0};
	int is_own = 0, queued = 0;
	enum gn_status status = find_policy(policy, sizeof policy, err);

	if (!status)
		status = gn_submit_script(s, &script, err);
	if (!status)
		status = gn_trust_check_links(s->directory, err);
	if (!status && mkdir(s->directory, 0777) && errno == EEXIST)
		status = gn_err_set(err, GN_ERR_EXISTS, "%s is there already: a job's folder is its own, --dir names another", s->directory);
	is_own = !status;
	if (!status)
		status = gn_make_dirs(s->directory, err);
	if (!status)
		status = put_file(s->directory, MARK, "", 0, err);
	if (!status && snapshot)
		status = take_snapshot(snapshot, s->directory, err);
	if (!status)
		status = copy_policy(policy, s->directory, err);
	for (size_t i = 0; !status && i < file_count; i++)
		status = put_file(s->directory, files[i].name, files[i].text, strlen(files[i].text), err);
	if (!status)
		status = put_file(s->directory, "job.sbatch", gn_strbuf_text(&script), script.len, err);
	if (!status)
		status = gn_path_join(path, sizeof path, s->directory, "job.sbatch", err);
	if (!status)
		status = run_sbatch(sbatch, &queued, id, err);
	/* the same call may be made again */
	if (status && is_own && !queued)
		gn_program_run(clear, 0, NULL, NULL);
	gn_strbuf_release(&script);
	return status;
}

enum gn_status gn_submit_again(const char *directory, const char *array, char id[64], struct gn_err *err)
{
	char path[PATH_MAX], option[4096];
	int queued;
	const char *const sbatch[] = {"sbatch", "--parsable", option, path, NULL};
	enum gn_status status = gn_path_join(path, sizeof path, directory, "job.sbatch", err);

	if (!status && (size_t)snprintf(option, sizeof option, "--array=%s", array) >= sizeof option)
		status = gn_err_set(err, GN_ERR_USAGE, "too many tasks at once: %.60s...", array);
	return status ? status : run_sbatch(sbatch, &queued, id, err);
}
