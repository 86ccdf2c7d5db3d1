#include "src/cmd/job_command.h"

#include "src/cmd/cmd.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* As train.sbatch replaces it. Freed by the caller. */
static char *with_task(const char *word, const char *task)
{
	const char *at;
	struct gn_strbuf text = {0};
	char *out;

	for (; task && (at = strstr(word, "%a")); word = at + 2) {
		gn_strbuf_append(&text, word, (size_t)(at - word));
		gn_strbuf_puts(&text, task);
	}
	gn_strbuf_puts(&text, word);
	out = gn_strbuf_failed(&text) ? NULL : strdup(gn_strbuf_text(&text));
	gn_strbuf_release(&text);
	return out;
}

/* Files that the job reads. */
static void warn_of_missing(const struct gn_command *c, const void *options, const char *snapshot)
{
	static const char *const names[] = {"data", "val", "init"};
	char path[PATH_MAX];

	for (size_t i = 0; i < c->option_count; i++) {
		const struct gn_option *o = &c->options[i];
		const void *field = (const char *)options + o->offset;
		const char *value = o->kind == GN_OPTION_TEXT ? *(const char *const *)field : NULL;
		int is_relative = snapshot && value && *value != '/';

		for (size_t k = 0; value && k < sizeof names / sizeof *names; k++) {
			snprintf(path, sizeof path, "%s%s%s", is_relative ? snapshot : "", is_relative ? "/" : "", value);
			if (!strcmp(o->name, names[k]) && access(path, F_OK))
				fprintf(stderr, "gannet: warning: --%s %s is not on this machine; the job's nodes must have it\n",
					names[k], value);
		}
	}
}

/* Word number i, when it names a file of options, as the job will find it. Returns 0, or -1 without memory. */
static int find_file(char **words, size_t i, const char *snapshot)
{
	const char *word = words[i], *file = NULL;
	char *found;

	if (!strncmp(word, "--options=", 10))
		file = word + 10;
	else if (i && !strcmp(words[i - 1], "--options"))
		file = word;
	if (!snapshot || !file || *file == '/')
		return 0;
	if (asprintf(&found, "%.*s%s/%s", (int)(file - word), word, snapshot, file) < 0)
		return -1;
	free(words[i]);
	words[i] = found;
	return 0;
}

static enum gn_status check_words(const struct gn_cmd *cmd, char **words, size_t count, int64_t ranks, int warns, const char *snapshot,
				  struct gn_err *err)
{
	void *options = calloc(1, cmd->options_size);
	struct gn_text_list positional = {0};
	struct gn_option_words read = {0};
	int help;
	enum gn_status status;

	if (!options)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for options");
	status = gn_option_words_read(cmd->command, cmd->options_size, (int)count, words, &read, err);
	if (!status)
		status = gn_options_parse(cmd->command, read.argc, read.argv, options, &positional, &help, err);
	if (!status) {
		if (help)
			status = gn_err_set(err, GN_ERR_USAGE, "--help is no work for a job");
		else if (cmd->check)
			status = cmd->check(options, ranks, err);
		if (!status && warns)
			warn_of_missing(cmd->command, options, snapshot);
		gn_options_release(cmd->command, options);
		free(positional.items);
	}
	gn_option_words_release(&read);
	free(options);
	return status ? gn_err_prefix(err, "%s", cmd->command->name) : GN_OK;
}

static enum gn_status check(const char *const *words, size_t count, const struct gn_sweep *s, size_t trial, int64_t ranks,
			    const char *task, const char *snapshot, struct gn_err *err)
{
	size_t more = s ? (size_t)s->parameters : 0, made = 0;
	char **all = calloc(count + more + 1, sizeof *all);
	const struct gn_cmd *cmd = gn_cmd_find(words[0]);
	enum gn_status status = GN_OK;

	for (; all && made < count && (all[made] = with_task(words[made], task)) && !find_file(all, made, snapshot); made++)
		;
	for (size_t p = 0; all && made == count + p && p < more; p++)
		if (asprintf(&all[made], "--%s=%s", s->names[p], s->trials[trial].values[p]) < 0)
			all[made] = NULL;
		else
			made++;
	if (made < count + more)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the command");
	else if (cmd)
		status = check_words(cmd, all, count + more, ranks, !trial, snapshot, err);
	for (size_t i = 0; all && i < count + more; i++)
		free(all[i]);
	free(all);
	return status;
}

enum gn_status gn_job_command_check(const char *const *words, size_t count, int64_t ranks, const char *task, const char *snapshot,
				    struct gn_err *err)
{
	return check(words, count, NULL, 0, ranks, task, snapshot, err);
}

enum gn_status gn_job_command_check_trials(const char *const *words, size_t count, const struct gn_sweep *s, int64_t ranks,
					   const char *snapshot, struct gn_err *err)
{
	for (size_t t = 0; t < s->count; t++) {
		char task[24];
		enum gn_status status;

		snprintf(task, sizeof task, "%zu", t + 1);
		status = check(words, count, s, t, ranks, task, snapshot, err);
		if (status)
			return gn_err_prefix(err, "trial %s", task);
	}
	return GN_OK;
}
