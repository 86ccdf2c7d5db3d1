/* Options from a file, one a line, before those of the command line. */
#include "src/base/option.h"

#include "src/base/file.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX_BYTES = 1 << 20 };

static enum gn_status append_word(struct gn_option_words *words, const char *text, struct gn_err *err)
{
	char **argv = realloc(words->argv, ((size_t)words->argc + 2) * sizeof *argv), *copy = strdup(text);

	if (argv)
		words->argv = argv;
	if (!argv || !copy) {
		free(copy);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for arguments");
	}
	argv[words->argc++] = copy;
	argv[words->argc] = NULL;
	return GN_OK;
}

/* The text between the blanks at both ends of [begin, end), terminated there. */
static char *trim(char *begin, char *end)
{
	while (begin < end && isspace((unsigned char)*begin))
		begin++;
	while (end > begin && isspace((unsigned char)end[-1]))
		end--;
	*end = '\0';
	return begin;
}

/* line: trimmed, not empty. Makes "--name=value" of "name = value", "--name value" and "--name=value"; "--name" of "name". */
static enum gn_status read_line(const struct gn_command *command, char *line, void *scratch, struct gn_option_words *words,
				struct gn_err *err)
{
	char *name = line + (strncmp(line, "--", 2) ? 0 : 2), *end = name + strcspn(name, "= \t"), *value, *word;
	size_t size;
	enum gn_status status;

	value = end + strspn(end, " \t");
	value += *value == '=';
	value += strspn(value, " \t");
	if (!strncmp(name, "options", (size_t)(end - name)) && end - name == 7)
		return gn_err_set(err, GN_ERR_USAGE, "a file of options cannot name another one");
	size = strlen(line) + 4;
	word = malloc(size);
	if (!word)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for arguments");
	snprintf(word, size, "--%.*s%s%s", (int)(end - name), name, *end ? "=" : "", value);
	status = gn_options_store(command, word, scratch, err);
	if (!status)
		status = append_word(words, word, err);
	free(word);
	return status;
}

static enum gn_status read_file(const struct gn_command *command, const char *path, void *scratch, struct gn_option_words *words,
				struct gn_err *err)
{
	char *text;
	size_t len;
	int number = 0;
	enum gn_status status = gn_file_load_text(path, FILE_MAX_BYTES, &text, &len, err);

	if (status)
		return gn_err_prefix(err, "--options");
	for (char *at = text, *end; at < text + len && !status; at = end + 1) {
		char *line;

		end = at + strcspn(at, "\n");
		number++;
		line = trim(at, end);
		if (*line && *line != '#')
			status = read_line(command, line, scratch, words, err);
	}
	free(text);
	return status ? gn_err_prefix(err, "%s, line %d", path, number) : GN_OK;
}

/* Whether argv has the option, by its long name or its letter. */
static int is_there(const struct gn_option *o, int argc, char **argv)
{
	size_t len = strlen(o->name);

	for (int i = 1; i < argc; i++) {
		if (!strncmp(argv[i], "--", 2) && !strncmp(argv[i] + 2, o->name, len) && (!argv[i][2 + len] || argv[i][2 + len] == '='))
			return 1;
		if (o->letter && argv[i][0] == '-' && argv[i][1] == o->letter)
			return 1;
	}
	return 0;
}

/* Options of files that the command line has, too, or another in place of: those that add up to a list would otherwise add to it. */
static int is_overruled(const struct gn_command *command, const char *word, int argc, char **argv)
{
	const char *name = word + 2;
	size_t len = strcspn(name, "=");

	for (size_t i = 0; i < command->option_count; i++) {
		const struct gn_option *o = &command->options[i];
		int itself = strlen(o->name) == len && !strncmp(o->name, name, len);

		if ((itself || (o->instead_of && strlen(o->instead_of) == len && !strncmp(o->instead_of, name, len))) && is_there(o, argc, argv))
			return 1;
	}
	return 0;
}

static void drop_overruled(const struct gn_command *command, struct gn_option_words *words, int argc, char **argv)
{
	int kept = 1;

	for (int i = 1; i < words->argc; i++) {
		if (is_overruled(command, words->argv[i], argc, argv))
			free(words->argv[i]);
		else
			words->argv[kept++] = words->argv[i];
	}
	words->argc = kept;
	words->argv[kept] = NULL;
}

static int has_files(const struct gn_command *command)
{
	for (size_t i = 0; i < command->option_count; i++)
		if (!strcmp(command->options[i].name, "options"))
			return 1;
	return 0;
}

enum gn_status gn_option_words_read(const struct gn_command *command, size_t options_size, int argc, char **argv,
				    struct gn_option_words *out, struct gn_err *err)
{
	struct gn_option_words words = {0};
	void *scratch = calloc(1, options_size + 1);
	enum gn_status status = scratch ? append_word(&words, argv[0], err)
					: gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for arguments");

	for (int i = 1; i < argc && !status && has_files(command); i++) {
		if (!strncmp(argv[i], "--options=", 10))
			status = read_file(command, argv[i] + 10, scratch, &words, err);
		else if (!strcmp(argv[i], "--options") && i + 1 < argc)
			status = read_file(command, argv[i + 1], scratch, &words, err);
	}
	if (!status)
		drop_overruled(command, &words, argc, argv);
	for (int i = 1; i < argc && !status; i++)
		status = append_word(&words, argv[i], err);
	if (scratch)
		gn_options_release(command, scratch);
	free(scratch);
	if (status)
		gn_option_words_release(&words);
	else
		*out = words;
	return status;
}

void gn_option_words_release(struct gn_option_words *words)
{
	for (int i = 0; i < words->argc; i++)
		free(words->argv[i]);
	free(words->argv);
	*words = (struct gn_option_words){0};
}
