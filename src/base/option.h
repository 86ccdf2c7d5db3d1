/* One table per subcommand that drives parsing, --help, the man page and shell completion.
 *
 * A command is data: its options name a field of the caller's struct by offset, with kind, default, bounds and help. What
 * is documented is therefore what is parsed. Parsing never prints and never exits.
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
	GN_OPTION_SIZE,	  /* int64_t bytes; K, M, G, T mean 1024 and up; within min..max */
	GN_OPTION_REAL,	  /* double, within min..max */
	GN_OPTION_TEXT,	  /* const char *: borrowed from argv */
	GN_OPTION_CHOICE, /* const char *: one of choices, words separated by | */
	GN_OPTION_LIST,	  /* struct gn_text_list: may be given several times */
	GN_OPTION_SHAPE	  /* struct gn_shape_2d: HxW */
};

struct gn_text_list {
	const char **items; /* the array is the target's, freed by gn_options_release(); the texts are argv's */
	size_t count;
};

struct gn_shape_2d {
	int64_t height, width;
};

struct gn_option {
	const char *name;	  /* without the dashes */
	char letter;		  /* a one-letter form, or 0 */
	enum gn_option_kind kind;
	size_t offset;		  /* of the field in the target struct */
	const char *value_name;	  /* "DIR"; NULL for a flag */
	const char *initial;	  /* default as text, parsed like an argument; NULL: field stays zero */
	const char *help;	  /* one sentence without a full stop */
	double min, max;	  /* INT, SIZE, REAL; both 0: no bounds */
	const char *choices;	  /* CHOICE; others may have them, too, then only those texts are taken */
	int required;
};

struct gn_command {
	const char *name;	  /* "pack" */
	const char *summary;	  /* one line */
	const char *positional;	  /* "SOURCE...", "[PATH]", "" */
	const char *description;  /* paragraphs separated by blank lines, for --help and the man page */
	const char *examples;	  /* lines "command   # comment", or NULL */
	const struct gn_option *options;
	size_t option_count;
	size_t positional_min, positional_max;
	int keeps_rest;		  /* positionals may begin with a dash after the first one (launch PROGRAM ARG...) */
	size_t given;		  /* offset of unsigned char[option_count] in the target: 1 for options that were given; 0:
				   * nobody asks */
};

/* Fills target (already zeroed, laid out as the offsets say) from the defaults, then from argv[1..]. Positional arguments
 * go to *positional, whose array is the caller's to free. --help sets *help and stops. On failure (GN_ERR_USAGE, with the
 * nearest option's name when one is unknown) target is released. */
enum gn_status gn_options_parse(const struct gn_command *command, int argc, char **argv, void *target,
				struct gn_text_list *positional, int *help, struct gn_err *err);
/* An option that was not given gets its value from text, as from a default, and *filled is 1; one that was given keeps it.
 * For commands with a `given` field. text is borrowed. */
enum gn_status gn_options_fill(const struct gn_command *command, void *target, const char *name, const char *text,
			       int *filled, struct gn_err *err);
/* Whether an option was given. For commands with a `given` field; name is one of the table's. */
int gn_options_given(const struct gn_command *command, const void *target, const char *name);
/* Frees the list fields of target. */
void gn_options_release(const struct gn_command *command, void *target);

void gn_options_help(const struct gn_command *command, const char *program, struct gn_strbuf *out);
/* The man page in roff, section 1, named PROGRAM-COMMAND. */
void gn_options_man(const struct gn_command *command, const char *program, struct gn_strbuf *out);
/* A bash completion script for all count commands. */
void gn_options_completion(const struct gn_command *const *commands, size_t count, const char *program,
			   struct gn_strbuf *out);
/* The options of target as they stand, "name=value" separated by spaces, in table order: for logs and digests. Options
 * whose names are in skip (NULL-terminated, may be NULL) are left out. */
void gn_options_describe(const struct gn_command *command, const void *target, const char *const *skip,
			 struct gn_strbuf *out);

/* What differs between two such lines, but for skip: "--lr 0.1, now 0.2; --mixup (none), now 0.2". An option that one of them lacks is
 * no difference: the lines may be of two versions of a program. Nothing is appended when nothing differs. */
void gn_options_compare(const char *before, const char *now, const char *const *skip, struct gn_strbuf *out);

/* Parse helpers, also for use outside tables. The whole text must be a number. */
enum gn_status gn_parse_int(const char *text, int64_t *out, struct gn_err *err);
enum gn_status gn_parse_size(const char *text, int64_t *out, struct gn_err *err);
enum gn_status gn_parse_real(const char *text, double *out, struct gn_err *err);

#endif
