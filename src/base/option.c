#include "src/base/option.h"

#include "src/base/text.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum gn_status gn_parse_int(const char *text, int64_t *out, struct gn_err *err)
{
	char *end;
	long long value;

	errno = 0;
	value = strtoll(text, &end, 10);
	if (end == text || *end || errno)
		return gn_err_set(err, GN_ERR_USAGE, "'%s' is not a whole number", text);
	*out = value;
	return GN_OK;
}

static enum gn_status parse_size(const char *text, int64_t *out, struct gn_err *err)
{
	static const char suffixes[] = "KMGT";
	char *end;
	long long value;
	int shift = 0;

	errno = 0;
	value = strtoll(text, &end, 10);
	if (end != text && *end) {
		const char *suffix = strchr(suffixes, toupper((unsigned char)*end));

		if (suffix) {
			shift = 10 * (int)(suffix - suffixes + 1);
			end++;
			if (!strcmp(end, "iB") || !strcmp(end, "B"))
				end += strlen(end);
		}
	}
	if (end == text || *end || errno || value < 0 || value > (INT64_MAX >> shift))
		return gn_err_set(err, GN_ERR_USAGE, "'%s' is not a size: write bytes, or a number with K, M, G or T",
				  text);
	*out = (int64_t)value << shift;
	return GN_OK;
}

enum gn_status gn_parse_real(const char *text, double *out, struct gn_err *err)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !isfinite(value))
		return gn_err_set(err, GN_ERR_USAGE, "'%s' is not a number", text);
	*out = value;
	return GN_OK;
}

static enum gn_status parse_shape(const char *text, struct gn_shape_2d *out, struct gn_err *err)
{
	char tail;

	if (sscanf(text, "%" SCNd64 "x%" SCNd64 "%c", &out->height, &out->width, &tail) != 2 || out->height < 1 ||
	    out->width < 1)
		return gn_err_set(err, GN_ERR_USAGE, "'%s' is not a shape like 224x224", text);
	return GN_OK;
}

static const char *next_choice(const char *choice)
{
	choice += strcspn(choice, "|");
	return *choice ? choice + 1 : NULL;
}

static int choice_fits(const char *choices, const char *text)
{
	size_t len = strlen(text);

	for (; choices; choices = next_choice(choices))
		if (strcspn(choices, "|") == len && !strncmp(choices, text, len))
			return 1;
	return 0;
}

static enum gn_status no_choice(const char *choices, const char *text, struct gn_err *err)
{
	struct gn_text_nearest n = {.word = text};

	for (const char *c = choices; c; c = next_choice(c))
		gn_text_offer(&n, c, strcspn(c, "|"));
	return gn_err_set(err, GN_ERR_USAGE, "'%s' is not one of %s%s%.*s%s", text, choices, n.name ? "; did you mean " : "", (int)n.name_len,
			  n.name ? n.name : "", n.name ? "?" : "");
}

static enum gn_status check_bounds(const struct gn_option *o, double value, const char *text, struct gn_err *err)
{
	if ((o->min != 0 || o->max != 0) && (value < o->min || value > o->max))
		return gn_err_set(err, GN_ERR_USAGE, "%s is outside %.15g to %.15g", text, o->min, o->max);
	return GN_OK;
}

static enum gn_status parse_flag(const char *text, int *out, struct gn_err *err)
{
	if (choice_fits("1|yes|true|on", text))
		*out = 1;
	else if (choice_fits("0|no|false|off", text))
		*out = 0;
	else
		return gn_err_set(err, GN_ERR_USAGE, "'%s' is not yes or no", text);
	return GN_OK;
}

static enum gn_status append_item(struct gn_text_list *list, const char *text, struct gn_err *err)
{
	const char **items = realloc(list->items, (list->count + 1) * sizeof *items);

	if (!items)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for arguments");
	list->items = items;
	items[list->count++] = text;
	return GN_OK;
}

static enum gn_status store(const struct gn_option *o, const char *text, void *target, struct gn_err *err)
{
	void *field = (char *)target + o->offset;
	enum gn_status status;

	if (o->choices && !choice_fits(o->choices, text))
		return no_choice(o->choices, text, err);
	switch (o->kind) {
	case GN_OPTION_FLAG:
		return parse_flag(text, field, err);
	case GN_OPTION_INT:
		if (o->zero && !strcmp(text, o->zero)) {
			*(int64_t *)field = 0;
			return GN_OK;
		}
		/* fall through */
	case GN_OPTION_SIZE:
		status = o->kind == GN_OPTION_INT ? gn_parse_int(text, field, err) : parse_size(text, field, err);
		return status ? status : check_bounds(o, (double)*(int64_t *)field, text, err);
	case GN_OPTION_REAL:
		status = gn_parse_real(text, field, err);
		return status ? status : check_bounds(o, *(double *)field, text, err);
	case GN_OPTION_CHOICE:
	case GN_OPTION_TEXT:
		*(const char **)field = text;
		return GN_OK;
	case GN_OPTION_LIST:
		return append_item(field, text, err);
	case GN_OPTION_SHAPE:
		return parse_shape(text, field, err);
	}
	return gn_err_set(err, GN_ERR_FAILED, "option --%s has an unknown kind", o->name);
}

/* text: "name" or "name=value". Names of other programs' options stand for those of the table that say so. */
static enum gn_status unknown(const struct gn_command *c, const char *text, struct gn_err *err)
{
	char word[64];
	struct gn_text_nearest nearest = {.word = word};

	snprintf(word, sizeof word, "%.*s", (int)strcspn(text, "="), text);
	for (size_t i = 0; i < c->option_count; i++) {
		const struct gn_option *o = &c->options[i];

		for (const char *also = o->also; also; also = next_choice(also)) {
			gn_text_offer(&nearest, also, strcspn(also, "|"));
			nearest.name = nearest.name == also ? o->name : nearest.name;
		}
		gn_text_offer(&nearest, o->name, strlen(o->name));
	}
	if (nearest.name)
		return gn_err_set(err, GN_ERR_USAGE, "unknown option --%s; did you mean --%s?", word, nearest.name);
	return gn_err_set(err, GN_ERR_USAGE, "unknown option --%s; see gannet %s --help", word, c->name);
}

static const struct gn_option *find_long(const struct gn_command *c, const char *name, size_t len)
{
	for (size_t i = 0; i < c->option_count; i++)
		if (strlen(c->options[i].name) == len && !strncmp(c->options[i].name, name, len))
			return &c->options[i];
	return NULL;
}

static const struct gn_option *find_letter(const struct gn_command *c, char letter)
{
	for (size_t i = 0; i < c->option_count; i++)
		if (c->options[i].letter && c->options[i].letter == letter)
			return &c->options[i];
	return NULL;
}

/* Finds the option that word names, and its value when the same word holds it. */
static enum gn_status match(const struct gn_command *c, const char *word, const struct gn_option **out,
			    const char **value, struct gn_err *err)
{
	const char *name = word + 2, *equals = strchr(word, '=');
	const struct gn_option *o;

	*value = NULL;
	if (word[1] != '-') {
		o = find_letter(c, word[1]);
		if (!o)
			return gn_err_set(err, GN_ERR_USAGE, "unknown option -%c; see gannet %s --help", word[1],
					  c->name);
		if (word[2])
			*value = word + 2;
	} else {
		o = find_long(c, name, equals ? (size_t)(equals - name) : strlen(name));
		if (!o && !strncmp(name, "no-", 3)) {
			o = find_long(c, name + 3, strlen(name + 3));
			if (o && o->kind != GN_OPTION_FLAG)
				o = NULL;
			*value = "0";
		}
		if (!o)
			return unknown(c, name, err);
		if (equals)
			*value = equals + 1;
	}
	if (o->kind == GN_OPTION_FLAG && !*value)
		*value = "1";
	*out = o;
	return GN_OK;
}

enum gn_status gn_options_store(const struct gn_command *command, const char *word, void *target, struct gn_err *err)
{
	const struct gn_option *o;
	const char *value;
	enum gn_status status = match(command, word, &o, &value, err);

	if (!status && !value)
		return gn_err_set(err, GN_ERR_USAGE, "--%s needs a value: %s", o->name, o->value_name);
	if (!status && store(o, value, target, err))
		return gn_err_prefix(err, "--%s", o->name);
	return status;
}

static enum gn_status store_defaults(const struct gn_command *c, void *target, struct gn_err *err)
{
	for (size_t i = 0; i < c->option_count; i++) {
		enum gn_status status;

		if (gn_option_is_unset(&c->options[i]))
			*(double *)((char *)target + c->options[i].offset) = -1;
		if (!c->options[i].initial || gn_option_is_unset(&c->options[i]))
			continue;
		status = store(&c->options[i], c->options[i].initial, target, err);
		if (status)
			return gn_err_prefix(err, "default of --%s", c->options[i].name);
	}
	return GN_OK;
}

static enum gn_status parse_words(const struct gn_command *c, int argc, char **argv, void *target,
				  unsigned char *seen, struct gn_text_list *positional, int *help, struct gn_err *err)
{
	int only_positional = 0;

	for (int i = 1; i < argc; i++) {
		const struct gn_option *o = NULL;
		const char *value = NULL;
		enum gn_status status;

		if (only_positional || argv[i][0] != '-' || !argv[i][1]) {
			status = append_item(positional, argv[i], err);
			if (status)
				return status;
			only_positional |= c->keeps_rest;
			continue;
		}
		if (!strcmp(argv[i], "--")) {
			only_positional = 1;
			continue;
		}
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			*help = 1;
			return GN_OK;
		}
		status = match(c, argv[i], &o, &value, err);
		if (status)
			return status;
		if (!value && ++i == argc)
			return gn_err_set(err, GN_ERR_USAGE, "--%s needs a value: %s", o->name, o->value_name);
		status = store(o, value ? value : argv[i], target, err);
		if (status)
			return gn_err_prefix(err, "--%s", o->name);
		seen[o - c->options] = 1;
	}
	return GN_OK;
}

static enum gn_status check_complete(const struct gn_command *c, const void *target, const unsigned char *seen, size_t positional,
				     struct gn_err *err)
{
	const struct gn_option *flag = c->waives_required ? find_long(c, c->waives_required, strlen(c->waives_required)) : NULL;
	int waived = flag && *(const int *)((const char *)target + flag->offset);

	for (size_t i = 0; i < c->option_count; i++)
		if (c->options[i].required && !seen[i] && !waived)
			return gn_err_set(err, GN_ERR_USAGE, "--%s %s is missing; see gannet %s --help",
					  c->options[i].name, c->options[i].value_name, c->name);
	if (positional < c->positional_min)
		return gn_err_set(err, GN_ERR_USAGE, "missing argument: %s; see gannet %s --help", c->positional, c->name);
	if (positional > c->positional_max)
		return gn_err_set(err, GN_ERR_USAGE, "too many arguments; see gannet %s --help", c->name);
	return GN_OK;
}

enum gn_status gn_options_parse(const struct gn_command *command, int argc, char **argv, void *target,
				struct gn_text_list *positional, int *help, struct gn_err *err)
{
	unsigned char *seen = calloc(command->option_count + 1, 1);
	struct gn_text_list found = {0};
	enum gn_status status;

	*help = 0;
	if (!seen)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for arguments");
	status = store_defaults(command, target, err);
	if (!status)
		status = parse_words(command, argc, argv, target, seen, &found, help, err);
	if (!status && !*help)
		status = check_complete(command, target, seen, found.count, err);
	if (!status && command->given)
		memcpy((char *)target + command->given, seen, command->option_count);
	free(seen);
	if (status) {
		free(found.items);
		gn_options_release(command, target);
		return status;
	}
	*positional = found;
	return GN_OK;
}

void gn_options_release(const struct gn_command *command, void *target)
{
	for (size_t i = 0; i < command->option_count; i++) {
		if (command->options[i].kind == GN_OPTION_LIST) {
			struct gn_text_list *list = (void *)((char *)target + command->options[i].offset);

			free(list->items);
			*list = (struct gn_text_list){0};
		}
	}
}

int gn_options_given(const struct gn_command *command, const void *target, const char *name)
{
	const struct gn_option *o = find_long(command, name, strlen(name));

	return o && command->given && ((const unsigned char *)target + command->given)[o - command->options];
}

void gn_options_unused(const struct gn_command *command, const void *target, struct gn_strbuf *out)
{
	for (size_t i = 0; i < command->option_count; i++) {
		const struct gn_option *o = &command->options[i], *other;
		const char *name = strncmp(o->help, "with --", 7) ? "" : o->help + 7;
		size_t len = strcspn(name, ":, ");

		other = find_long(command, name, len);
		if (other && gn_options_given(command, target, o->name) && !gn_options_given(command, target, other->name))
			gn_strbuf_printf(out, "%s--%s, which needs --%s", out->len ? "; " : "", o->name, other->name);
	}
}

enum gn_status gn_options_fill(const struct gn_command *command, void *target, const char *name, const char *text,
			       int *filled, struct gn_err *err)
{
	const struct gn_option *o = find_long(command, name, strlen(name));
	enum gn_status status;

	if (!o || !command->given)
		return gn_err_set(err, GN_ERR_FAILED, "gannet %s has no option --%s to fill in", command->name, name);
	*filled = 0;
	if (((const unsigned char *)target + command->given)[o - command->options])
		return GN_OK;
	status = store(o, text, target, err);
	if (status)
		return gn_err_prefix(err, "--%s", name);
	*filled = 1;
	return GN_OK;
}
