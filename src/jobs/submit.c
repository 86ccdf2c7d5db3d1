#include "src/jobs/submit.h"

#include <regex.h>
#include <string.h>

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
