/* One table per subcommand that drives parsing, --help, the man page and shell completion.
 *
 * A command is data: each option names a field of the caller's struct by offset, with kind, default, bounds and help. Parser and
 * documentation cannot differ. Parsing never prints and never exits.
 *
 * Thread safety: tables are constant; parsing writes only to the target.
 */
#ifndef GN_BASE_OPTION_H
#define GN_BASE_OPTION_H

#include "src/base/status.h"
#include "src/base/strbuf.h"

#include <stddef.h>
#include <stdint.h>

enum gn_option_kind {
	GN_OPTION_FLAG,	  /* int: 1 when given; --no-NAME gives 0 */
	GN_OPTION_INT,	  /* int64_t, within min..max */
	GN_OPTION_SIZE,	  /* int64_t bytes; suffixes K, M, G, T are powers of 1024; within min..max */
	GN_OPTION_REAL,	  /* double, within min..max */
	GN_OPTION_TEXT,	  /* const char *: borrowed from argv */
	GN_OPTION_CHOICE, /* const char *: one of choices, separated by | */
	GN_OPTION_LIST,	  /* struct gn_text_list: may be repeated */
	GN_OPTION_SHAPE	  /* struct gn_shape_2d: HxW */
};

struct gn_text_list {
	const char **items; /* the target owns the array (gn_options_release() frees it); the strings belong to argv */
	size_t count;
};

struct gn_shape_2d {
	int64_t height, width;
};

struct gn_option {
	const char *name;	  /* without the dashes */
	char letter;		  /* one-letter form, or 0 */
	enum gn_option_kind kind;
	size_t offset;		  /* of the field in the target struct */
	const char *value_name;	  /* "DIR"; NULL for a flag */
	const char *initial;	  /* default as text, parsed like an argument; NULL: the field stays zero; "-1" below min: not given */
	const char *help;	  /* one sentence without a full stop */
	const char *instead_of;	  /* the option that files do not set when this one is on the command line; NULL: only itself */
	double min, max;	  /* INT, SIZE, REAL; both 0: no bounds */
	const char *choices;	  /* CHOICE: required; other kinds: optional, restricts the accepted texts */
	int required;
	const char *also;	  /* names that other programs have for it, "batch-size|bs": for messages only; NULL: none */
	const char *zero;	  /* INT: a word for 0, which then may be out of bounds; NULL: none */
};

/* Rows of tables. at: the offset; value: its name. What a row has beside these follows as .letter = 'o', .initial = "4M" and so on. */
#define GN_OPT_FLAG(option, at, text, ...) {.name = option, .kind = GN_OPTION_FLAG, .offset = at, .help = text, __VA_ARGS__}
#define GN_OPT_OF(of, option, at, value, text, ...) {.name = option, .kind = of, .offset = at, .value_name = value, .help = text, __VA_ARGS__}
#define GN_OPT_TEXT(option, at, value, ...) GN_OPT_OF(GN_OPTION_TEXT, option, at, value, __VA_ARGS__, )
#define GN_OPT_LIST(option, at, value, ...) GN_OPT_OF(GN_OPTION_LIST, option, at, value, __VA_ARGS__, )
/* start: the initial value, or NULL. */
#define GN_OPT_CHOICE(option, at, value, start, of, ...) \
	GN_OPT_OF(GN_OPTION_CHOICE, option, at, value, __VA_ARGS__, .initial = start, .choices = of)
#define GN_OPT_INT(option, at, value, start, least, most, ...) \
	GN_OPT_OF(GN_OPTION_INT, option, at, value, __VA_ARGS__, .initial = start, .min = least, .max = most)
#define GN_OPT_SIZE(option, at, value, start, least, most, ...) \
	GN_OPT_OF(GN_OPTION_SIZE, option, at, value, __VA_ARGS__, .initial = start, .min = least, .max = most)
#define GN_OPT_REAL(option, at, value, start, least, most, ...) \
	GN_OPT_OF(GN_OPTION_REAL, option, at, value, __VA_ARGS__, .initial = start, .min = least, .max = most)

/* In the initializer of a command: its table of options. */
#define GN_OPTIONS(TABLE) .options = TABLE, .option_count = sizeof(TABLE) / sizeof *(TABLE)

static inline int gn_option_is_unset(const struct gn_option *o)
{
	return o->kind == GN_OPTION_REAL && o->min >= 0 && o->initial && o->initial[0] == '-';
}

struct gn_command {
	const char *name;	  /* "pack" */
	const char *summary;	  /* one line */
	const char *positional;	  /* "SOURCE...", "[PATH]", "" */
	const char *description;  /* paragraphs separated by blank lines, for --help and the man page */
	const char *examples;	  /* lines "command   # comment", or NULL */
	const struct gn_option *options;
	size_t option_count;
	size_t positional_min, positional_max;
	const char *waives_required; /* the name of a flag with which required options may be missing; NULL: none */
	/* words after the first positional are positional too, even with a dash (launch PROGRAM ARG...) */
	int keeps_rest;
	/* offset of unsigned char[option_count] in the target: 1 for options that were given; 0: not recorded */
	size_t given;
};

/* Fills target (zeroed by the caller) from the defaults, then from argv[1..]. Positional arguments go to *positional, whose array
 * the caller frees. --help sets *help and ends parsing. On failure (GN_ERR_USAGE; for an unknown option with the nearest name)
 * target is released. */
enum gn_status gn_options_parse(const struct gn_command *command, int argc, char **argv, void *target,
				struct gn_text_list *positional, int *help, struct gn_err *err);
/* Sets an option that was not given to text, parsed as a default is, with *filled = 1; an option that was given is unchanged. Needs
 * the command's `given` field. text is borrowed. */
enum gn_status gn_options_fill(const struct gn_command *command, void *target, const char *name, const char *text,
			       int *filled, struct gn_err *err);
/* Whether the option was given. Needs the command's `given` field; name must be in the table. */
int gn_options_given(const struct gn_command *command, const void *target, const char *name);
/* Stores one word, "--name=value", "--name" or "--no-name", in target, whose lists the caller releases. */
enum gn_status gn_options_store(const struct gn_command *command, const char *word, void *target, struct gn_err *err);

/* The words of a command line with those of files of options; option_file.c. */
struct gn_option_words {
	char **argv; /* owned, and its texts */
	int argc;
};
/* argv with the options of every file that "--options FILE" names put before argv[1], so that those of the command line, which come
 * later, win; a copy of argv for a command without that option. Lines are NAME = VALUE, or --NAME VALUE, or NAME alone for a flag; # at
 * the start of a line begins a comment. GN_ERR_USAGE names file and line. Parsed options borrow the texts: release after their last use. */
enum gn_status gn_option_words_read(const struct gn_command *command, size_t options_size, int argc, char **argv,
				    struct gn_option_words *out, struct gn_err *err);
void gn_option_words_release(struct gn_option_words *words);
/* Appends the options of target as such lines: those that were given, then the values of the others as comments. Options in skip, and
 * texts that are not set, are left out. Needs the command's `given` field. */
void gn_options_write(const struct gn_command *command, const void *target, const char *const *skip, struct gn_strbuf *out);
/* Appends the options given whose help begins "with --OTHER" without OTHER having been given: "--nodes, which needs --parallel", separated by
 * "; ". For commands that record what was given. */
void gn_options_unused(const struct gn_command *command, const void *target, struct gn_strbuf *out);
/* Frees the list fields of target. */
void gn_options_release(const struct gn_command *command, void *target);

/* Appends text that follows at characters of a line, broken between words at columns (0: nowhere); further lines begin with indent blanks.
 * A word that is longer than a line stays whole. */
void gn_options_wrap(struct gn_strbuf *out, const char *text, int columns, int at, int indent);
/* columns: lines other than examples are broken between words there; 0: nowhere, so that each option is one line. */
void gn_options_help(const struct gn_command *command, const char *program, int columns, struct gn_strbuf *out);
/* The man page in roff, section 1, named PROGRAM-COMMAND. */
void gn_options_man(const struct gn_command *command, const char *program, struct gn_strbuf *out);
/* A bash completion script for all count commands. */
void gn_options_completion(const struct gn_command *const *commands, size_t count, const char *program,
			   struct gn_strbuf *out);
/* Appends the options of target as "name=value", separated by spaces, in table order: for logs and digests. Options in skip
 * (NULL-terminated, may be NULL) are left out. */
void gn_options_describe(const struct gn_command *command, const void *target, const char *const *skip,
			 struct gn_strbuf *out);

/* One "name=value" of such a line; value_len 0: an option that was not set. A value may contain spaces: it ends where another name starts. */
struct gn_option_value {
	const char *name, *value; /* not terminated */
	size_t name_len, value_len;
};

/* Parses the first pair of a line that is not empty. Returns the start of the next pair. */
const char *gn_options_next(const char *line, struct gn_option_value *out);
/* Whether a line, which may be NULL, has the option: *found is its pair then. */
int gn_options_find(const char *line, const char *name, size_t name_len, struct gn_option_value *found);
/* Appends the value for people: numbers in their shortest form (a line has enough digits to read them back), "(none)" for an empty one. */
void gn_options_value(const struct gn_option_value *value, struct gn_strbuf *out);
/* Appends the differences between two such lines, except for options in skip: "--lr 0.1, now 0.2; --mixup (none), now 0.2", where
 * ", now " is `between`. An
 * option that only one line has is no difference: the lines may come from different versions. Appends nothing when nothing
 * differs. */
void gn_options_compare(const char *before, const char *now, const char *const *skip, const char *between, struct gn_strbuf *out);

/* GN_ERR_MISMATCH when own differs from rank 0's line in that way: "its options are not those of rank 0: --lr 0.1, here 0.2; ...". */
enum gn_status gn_options_agree(const char *of_rank_0, const char *own, struct gn_err *err);

/* Parsers for use outside tables. GN_ERR_USAGE unless the whole text is a number. */
enum gn_status gn_parse_int(const char *text, int64_t *out, struct gn_err *err);
enum gn_status gn_parse_real(const char *text, double *out, struct gn_err *err);

#endif
