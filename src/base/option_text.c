/* Generates --help, man pages, completion and descriptions from the command table. */
#include "src/base/option.h"

#include "src/config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_left_column(const struct gn_option *o, char *out, size_t size)
{
	char letter[8] = "    ";

	if (o->letter)
		snprintf(letter, sizeof letter, "-%c, ", o->letter);
	snprintf(out, size, "%s--%s%s%s", letter, o->name, o->value_name ? " " : "", o->value_name ? o->value_name : "");
}

/* Appends the notes after the help sentence: choices, default, required. */
static void append_notes(const struct gn_option *o, struct gn_strbuf *out)
{
	if (o->choices)
		gn_strbuf_puts(out, "; one of ");
	/* separated by spaces, so that a long list can wrap */
	for (const char *p = o->choices; p && *p; p++)
		gn_strbuf_append(out, *p == '|' ? ", " : p, *p == '|' ? 2 : 1);
	if (o->required)
		gn_strbuf_puts(out, " (required)");
	else if (o->initial && o->kind != GN_OPTION_FLAG && !gn_option_is_unset(o))
		gn_strbuf_printf(out, " (default %s)", o->initial);
	else if (o->initial && strcmp(o->initial, "0"))
		gn_strbuf_printf(out, " (on; --no-%s turns it off)", o->name);
}

void gn_options_wrap(struct gn_strbuf *out, const char *text, int columns, int at, int indent)
{
	while (*text) {
		int word = (int)strcspn(text, " \n"), blanks = (int)strspn(text + word, " ");

		if (columns && at > indent && at + word > columns) {
			gn_strbuf_printf(out, "\n%*s", indent, "");
			at = indent;
		}
		gn_strbuf_append(out, text, (size_t)word);
		at += word;
		text += word + blanks;
		if (*text == '\n') {
			gn_strbuf_puts(out, "\n");
			text++;
			at = 0;
		} else if (*text) {
			int next = (int)strcspn(text, " \n");

			/* no blanks before the end of a line */
			if (!columns || at + blanks + next <= columns)
				gn_strbuf_printf(out, "%*s", blanks, "");
			at += blanks;
		}
	}
}

void gn_options_help(const struct gn_command *command, const char *program, int columns, struct gn_strbuf *out)
{
	static const struct gn_option help = {.name = "help", .letter = 'h', .help = "show this help"};
	struct gn_strbuf text = {0};
	const int at = columns && columns < 60 ? 8 : 34;

	gn_strbuf_printf(&text, "Usage: %s %s [OPTION]...%s%s", program, command->name, command->positional[0] ? " " : "", command->positional);
	gn_options_wrap(out, gn_strbuf_text(&text), columns, 0, 7);
	gn_strbuf_puts(out, "\n\n");
	gn_options_wrap(out, command->summary, columns, 0, 0);
	gn_strbuf_puts(out, "\n\n");
	gn_options_wrap(out, command->description, columns, 0, 0);
	gn_strbuf_puts(out, "\n\nOptions:\n");
	for (size_t i = 0; i <= command->option_count; i++) {
		const struct gn_option *o = i < command->option_count ? &command->options[i] : &help;
		char left[96];

		put_left_column(o, left, sizeof left);
		gn_strbuf_printf(out, "  %-*s  ", at - 4, left);
		/* a long name has its line to itself */
		if (columns && strlen(left) > (size_t)at - 4)
			gn_strbuf_printf(out, "\n%*s", at, "");
		gn_strbuf_clear(&text);
		gn_strbuf_puts(&text, o->help);
		append_notes(o, &text);
		gn_options_wrap(out, gn_strbuf_text(&text), columns, at, at);
		gn_strbuf_puts(out, "\n");
		out->failed |= gn_strbuf_failed(&text);
	}
	gn_strbuf_release(&text);
	if (command->examples)
		gn_strbuf_printf(out, "\nExamples:\n%s", command->examples);
}

/* Escapes roff's special characters: backslashes, dashes, and a dot or quote at the start of a line. */
static void append_roff(struct gn_strbuf *out, const char *text)
{
	int line_start = 1;

	for (; *text; text++) {
		if (line_start && (*text == '.' || *text == '\''))
			gn_strbuf_puts(out, "\\&");
		if (*text == '\\')
			gn_strbuf_puts(out, "\\e");
		else if (*text == '-')
			gn_strbuf_puts(out, "\\-");
		else if (*text == '\n' && text[1] == '\n')
			gn_strbuf_puts(out, "\n.PP"), line_start = 0;
		else
			gn_strbuf_append(out, text, 1);
		line_start = *text == '\n';
	}
}

void gn_options_man(const struct gn_command *command, const char *program, struct gn_strbuf *out)
{
	gn_strbuf_printf(out, ".TH %s\\-%s 1 \"" PACKAGE_DATE "\" \"Gannet\" \"User Commands\"\n.SH NAME\n%s\\-%s \\- ", program,
			 command->name, program, command->name);
	append_roff(out, command->summary);
	gn_strbuf_printf(out, "\n.SH SYNOPSIS\n.B %s %s\n[\\fIOPTION\\fR]... ", program, command->name);
	append_roff(out, command->positional);
	gn_strbuf_puts(out, "\n.SH DESCRIPTION\n");
	append_roff(out, command->description);
	gn_strbuf_puts(out, "\n.SH OPTIONS\n");
	for (size_t i = 0; i < command->option_count; i++) {
		const struct gn_option *o = &command->options[i];

		gn_strbuf_puts(out, ".TP\n");
		if (o->letter)
			gn_strbuf_printf(out, "\\fB\\-%c\\fR, ", o->letter);
		gn_strbuf_puts(out, "\\fB\\-\\-");
		append_roff(out, o->name);
		gn_strbuf_printf(out, "\\fR %s%s%s\n", o->value_name ? "\\fI" : "", o->value_name ? o->value_name : "",
				 o->value_name ? "\\fR" : "");
		append_roff(out, o->help);
		append_notes(o, out);
		gn_strbuf_puts(out, ".\n");
	}
	if (command->examples) {
		gn_strbuf_puts(out, ".SH EXAMPLES\n.nf\n");
		append_roff(out, command->examples);
		gn_strbuf_puts(out, ".fi\n");
	}
	gn_strbuf_puts(out, ".SH EXIT STATUS\n0 done; 1 failed; 2 wrong usage; 3 bad input data; 4 a peer was lost; "
			    "5 stopped on request, resumable; 6 a node or fabric failed its check.\n");
	gn_strbuf_printf(out, ".SH SEE ALSO\n.BR %s (1)\n", program);
}

void gn_options_completion(const struct gn_command *const *commands, size_t count, const char *program,
			   struct gn_strbuf *out)
{
	gn_strbuf_printf(out, "_%s() {\n  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=\n"
			      "  if [ \"$COMP_CWORD\" = 1 ]; then\n    words='", program);
	for (size_t i = 0; i < count; i++)
		gn_strbuf_printf(out, "%s%s", i ? " " : "", commands[i]->name);
	gn_strbuf_puts(out, "'\n  else case ${COMP_WORDS[1]}:$prev in\n");
	for (size_t i = 0; i < count; i++) {
		for (size_t k = 0; k < commands[i]->option_count; k++) {
			const struct gn_option *o = &commands[i]->options[k];

			if (!o->choices)
				continue;
			gn_strbuf_printf(out, "    %s:--%s) words='", commands[i]->name, o->name);
			for (const char *p = o->choices; *p; p++)
				gn_strbuf_append(out, *p == '|' ? " " : p, 1);
			gn_strbuf_puts(out, "';;\n");
		}
	}
	for (size_t i = 0; i < count; i++) {
		gn_strbuf_printf(out, "    %s:*) case $cur in -*) words='--help", commands[i]->name);
		for (size_t k = 0; k < commands[i]->option_count; k++)
			gn_strbuf_printf(out, " --%s", commands[i]->options[k].name);
		gn_strbuf_puts(out, "';; esac;;\n");
	}
	gn_strbuf_printf(out, "  esac; fi\n  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\n"
			      "complete -o default -F _%s %s\n", program, program);
}

static int is_skipped(const char *name, size_t len, const char *const *skip)
{
	for (; skip && *skip; skip++)
		if (strlen(*skip) == len && !memcmp(*skip, name, len))
			return 1;
	return 0;
}

static void append_field(const struct gn_option *o, const void *field, struct gn_strbuf *out)
{
	const struct gn_text_list *list = field;
	const struct gn_shape_2d *shape = field;

	switch (o->kind) {
	case GN_OPTION_FLAG:
		gn_strbuf_printf(out, "%d", *(const int *)field);
		break;
	case GN_OPTION_INT:
		if (o->zero && !*(const int64_t *)field) {
			gn_strbuf_puts(out, o->zero);
			break;
		}
		/* fall through */
	case GN_OPTION_SIZE:
		gn_strbuf_printf(out, "%" PRId64, *(const int64_t *)field);
		break;
	case GN_OPTION_REAL:
		gn_strbuf_printf(out, "%.17g", *(const double *)field);
		break;
	case GN_OPTION_TEXT:
	case GN_OPTION_CHOICE:
		gn_strbuf_puts(out, *(const char *const *)field ? *(const char *const *)field : "");
		break;
	case GN_OPTION_LIST:
		for (size_t k = 0; k < list->count; k++)
			gn_strbuf_printf(out, "%s%s", k ? "," : "", list->items[k]);
		break;
	case GN_OPTION_SHAPE:
		gn_strbuf_printf(out, "%" PRId64 "x%" PRId64, shape->height, shape->width);
		break;
	}
}

void gn_options_describe(const struct gn_command *command, const void *target, const char *const *skip,
			 struct gn_strbuf *out)
{
	for (size_t i = 0; i < command->option_count; i++) {
		const struct gn_option *o = &command->options[i];

		if (is_skipped(o->name, strlen(o->name), skip))
			continue;
		gn_strbuf_printf(out, "%s%s=", out->len ? " " : "", o->name);
		append_field(o, (const char *)target + o->offset, out);
	}
}

/* Shorter than %.17g where that reads back the same. */
static void append_real(double value, struct gn_strbuf *out)
{
	char text[32];

	snprintf(text, sizeof text, "%.15g", value);
	gn_strbuf_printf(out, "%.*g", strtod(text, NULL) < value || strtod(text, NULL) > value ? 17 : 15, value);
}

static void append_line(const struct gn_option *o, const void *field, const char *before, struct gn_strbuf *out)
{
	gn_strbuf_printf(out, "%s%s = ", before, o->name);
	if (o->kind == GN_OPTION_REAL)
		append_real(*(const double *)field, out);
	else
		append_field(o, field, out);
	gn_strbuf_puts(out, "\n");
}

/* Whether a line can say it: a text that is there and has no line breaks; a flag that is on or off. */
static int is_writable(const struct gn_option *o, const void *field)
{
	const char *text = o->kind == GN_OPTION_TEXT || o->kind == GN_OPTION_CHOICE ? *(const char *const *)field : "-";

	return text && *text && !strpbrk(text, "\n\r") && (o->kind != GN_OPTION_FLAG || *(const unsigned *)field < 2);
}

static void write_options(const struct gn_command *command, const void *target, const char *const *skip, int given,
			  struct gn_strbuf *out)
{
	for (size_t i = 0; i < command->option_count; i++) {
		const struct gn_option *o = &command->options[i];
		const void *field = (const char *)target + o->offset;

		if (is_skipped(o->name, strlen(o->name), skip) || gn_options_given(command, target, o->name) != given ||
		    !is_writable(o, field))
			continue;
		if (o->kind != GN_OPTION_LIST)
			append_line(o, field, given ? "" : "# ", out);
		for (size_t k = 0; o->kind == GN_OPTION_LIST && k < ((const struct gn_text_list *)field)->count; k++)
			gn_strbuf_printf(out, "%s = %s\n", o->name, ((const struct gn_text_list *)field)->items[k]);
	}
}

void gn_options_write(const struct gn_command *command, const void *target, const char *const *skip, struct gn_strbuf *out)
{
	write_options(command, target, skip, 1, out);
	gn_strbuf_puts(out, "\n# not given:\n");
	write_options(command, target, skip, 0, out);
}

static size_t name_length(const char *at)
{
	size_t len = strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789-");

	return at[len] == '=' ? len : 0;
}

const char *gn_options_next(const char *line, struct gn_option_value *d)
{
	const char *end;

	d->name = line;
	d->name_len = name_length(line);
	d->value = end = line + d->name_len + (d->name_len > 0);
	while (*end && !(*end == ' ' && name_length(end + 1)))
		end++;
	d->value_len = (size_t)(end - d->value);
	return *end ? end + 1 : end;
}

int gn_options_find(const char *line, const char *name, size_t name_len, struct gn_option_value *found)
{
	while (line && *line) {
		line = gn_options_next(line, found);
		if (found->name_len == name_len && !memcmp(found->name, name, name_len))
			return 1;
	}
	return 0;
}

void gn_options_value(const struct gn_option_value *v, struct gn_strbuf *out)
{
	char text[64], *end = text;
	double number = 0;

	if (v->value_len && v->value_len < sizeof text) {
		memcpy(text, v->value, v->value_len);
		text[v->value_len] = '\0';
		number = strtod(text, &end);
	}
	if (end > text && !*end)
		gn_strbuf_printf(out, "%.15g", number);
	else
		gn_strbuf_printf(out, "%.*s", v->value_len ? (int)v->value_len : 6, v->value_len ? v->value : "(none)");
}

void gn_options_compare(const char *before, const char *now, const char *const *skip, const char *between,
			struct gn_strbuf *out)
{
	struct gn_option_value d, old;
	int differences = 0;

	while (*now) {
		now = gn_options_next(now, &d);
		if (is_skipped(d.name, d.name_len, skip) || !gn_options_find(before, d.name, d.name_len, &old) ||
		    (d.value_len == old.value_len && !memcmp(d.value, old.value, d.value_len)))
			continue;
		gn_strbuf_printf(out, "%s--%.*s ", differences++ ? "; " : "", (int)d.name_len, d.name);
		gn_options_value(&old, out);
		gn_strbuf_puts(out, between);
		gn_options_value(&d, out);
	}
}

enum gn_status gn_options_agree(const char *of_rank_0, const char *own, struct gn_err *err)
{
	struct gn_strbuf text = {0};
	enum gn_status status = GN_OK;

	gn_options_compare(of_rank_0, own, NULL, ", here ", &text);
	if (text.len)
		status = gn_err_set(err, GN_ERR_MISMATCH, "its options are not those of rank 0: %s; start the same command everywhere",
				    gn_strbuf_text(&text));
	gn_strbuf_release(&text);
	return status;
}
