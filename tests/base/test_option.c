#include "tests/test.h"

#include "src/base/option.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct target {
	int quick;
	int64_t batch, memory;
	double lr;
	const char *mode, *out;
	struct gn_text_list inits;
	struct gn_shape_2d size;
	const char *file;
	unsigned char given[16];
};

static const struct gn_option options[] = {
	{.name = "quick", .letter = 'q', .kind = GN_OPTION_FLAG, .offset = offsetof(struct target, quick), .initial = "1",
	 .help = "skip what is known"},
	{.name = "batch", .letter = 'b', .also = "images-per-step", .kind = GN_OPTION_INT, .offset = offsetof(struct target, batch),
	 .value_name = "N", .initial = "64", .help = "samples a rank", .min = 1, .max = 65536},
	{.name = "memory", .kind = GN_OPTION_SIZE, .offset = offsetof(struct target, memory), .value_name = "BYTES",
	 .help = "memory"},
	{.name = "lr", .kind = GN_OPTION_REAL, .offset = offsetof(struct target, lr), .value_name = "X", .initial = "0.1",
	 .help = "learning rate"},
	{.name = "mode", .kind = GN_OPTION_CHOICE, .offset = offsetof(struct target, mode), .value_name = "MODE",
	 .initial = "fast", .choices = "fast|slow", .help = "how"},
	{.name = "out", .kind = GN_OPTION_TEXT, .offset = offsetof(struct target, out), .value_name = "DIR",
	 .help = "where to", .required = 1},
	{.name = "init", .kind = GN_OPTION_LIST, .offset = offsetof(struct target, inits), .value_name = "FILE",
	 .help = "start from"},
	{.name = "size", .kind = GN_OPTION_SHAPE, .offset = offsetof(struct target, size), .value_name = "HxW",
	 .initial = "28x30", .help = "pixels"},
	{.name = "options", .kind = GN_OPTION_TEXT, .offset = offsetof(struct target, file), .value_name = "FILE",
	 .help = "read options"},
};
static const struct gn_command command = {
	.name = "pack", .summary = "pack images", .positional = "SOURCE...", .description = "Packs.\n\n.Twice.",
	.options = options, .option_count = sizeof options / sizeof *options, .positional_min = 1, .positional_max = 3,
	.given = offsetof(struct target, given),
};

/* Parses a line of words separated by blanks. */
static enum gn_status parse(const char *line, struct target *t, struct gn_text_list *positional, int *help,
			    struct gn_err *err)
{
	static char words[512];
	char *argv[32], *save = NULL;
	int argc = 0;

	memset(t, 0, sizeof *t);
	strncpy(words, line, sizeof words - 1);
	for (char *word = strtok_r(words, " ", &save); word; word = strtok_r(NULL, " ", &save))
		argv[argc++] = word;
	return gn_options_parse(&command, argc, argv, t, positional, help, err);
}

static void test_values_and_defaults(void **state)
{
	struct gn_text_list rest;
	struct target t;
	struct gn_err err;
	int help;

	(void)state;
	assert_ok(parse("pack -b 7 a --memory=3K --out o --init x --init y --no-quick b -- --c", &t, &rest, &help, &err));
	assert_false(help);
	assert_int_equal(t.batch, 7);
	assert_int_equal(t.memory, 3072);
	assert_int_equal(t.quick, 0);
	assert_true(t.lr == 0.1);
	assert_string_equal(t.mode, "fast");
	assert_int_equal(t.inits.count, 2);
	assert_string_equal(t.inits.items[1], "y");
	assert_int_equal(t.size.width, 30);
	assert_int_equal(rest.count, 3);
	free(rest.items);
	gn_options_release(&command, &t);
	assert_ok(parse("pack a --quick=no --out o -- b --c", &t, &rest, &help, &err));
	assert_int_equal(t.quick, 0);
	assert_int_equal(rest.count, 3);
	assert_string_equal(rest.items[2], "--c");
	free(rest.items);
	gn_options_release(&command, &t);
}

static void test_refusals(void **state)
{
	static const struct {
		const char *line, *text;
	} cases[] = {
		{"pack a --out o --bach 3", "did you mean --batch"},
		{"pack a --out o --Batch_Size 3", "did you mean --batch"},
		{"pack a --out o --images-per-step=3", "did you mean --batch"},
		{"pack a --out o --memory-order-yes 3", "did you mean --memory"},
		{"pack a --out o --mode fest", "'fest' is not one of fast|slow; did you mean fast?"},
		{"pack a --out o --mode fast-slow-both", "not one of fast|slow"},
		{"pack a --out o --frobnicate", "unknown option --frobnicate"},
		{"pack a --out o --batch 0", "outside 1 to 65536"},
		{"pack a --out o --batch 3x", "not a whole number"},
		{"pack a --out o --batch 99999999999999999999", "not a whole number"},
		{"pack a --out o --memory 99999999999T", "not a size"},
		{"pack a --out o --lr nan", "not a number"},
		{"pack a --out o --mode idle", "not one of fast|slow"},
		{"pack a --out o --size 3y4", "not a shape"},
		{"pack a --out", "--out needs a value"},
		{"pack a", "--out DIR is missing"},
		{"pack --out o", "missing argument: SOURCE"},
		{"pack a b c d --out o", "too many"},
		{"pack a --out o -z", "unknown option -z"},
		{"pack a --no-batch --out o", "unknown option"},
		{"pack a --out o --quick=perhaps", "not yes or no"},
	};
	struct gn_text_list rest;
	struct target t;
	struct gn_err err;
	int help;

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		assert_int_equal(parse(cases[i].line, &t, &rest, &help, &err), GN_ERR_USAGE);
		if (!strstr(err.text, cases[i].text))
			fail_msg("%s: %s", cases[i].line, err.text);
	}
}

/* quick is on unless --no-quick turns it off. */
static void test_waived(void **state)
{
	struct gn_command waiving = command;
	char *with[] = {"pack", "a"}, *without[] = {"pack", "a", "--no-quick"};
	struct gn_text_list rest;
	struct target t = {0};
	struct gn_err err;
	int help;

	(void)state;
	waiving.waives_required = "quick";
	assert_ok(gn_options_parse(&waiving, 2, with, &t, &rest, &help, &err));
	assert_null(t.out);
	free(rest.items);
	assert_int_equal(gn_options_parse(&waiving, 3, without, &t, &rest, &help, &err), GN_ERR_USAGE);
	assert_non_null(strstr(err.text, "--out DIR is missing"));
}

static void test_help_wins(void **state)
{
	struct gn_text_list rest;
	struct target t;
	struct gn_err err;
	int help;

	(void)state;
	assert_ok(parse("pack --help", &t, &rest, &help, &err));
	assert_true(help);
	free(rest.items);
}

static void test_texts(void **state)
{
	const struct gn_command *one = &command;
	struct gn_strbuf text;

	(void)state;
	gn_strbuf_init(&text);
	gn_options_help(&command, "gannet", 0, &text);
	for (size_t i = 0; i < command.option_count; i++)
		assert_non_null(strstr(gn_strbuf_text(&text), options[i].name));
	assert_non_null(strstr(gn_strbuf_text(&text), "(default 64)"));
	gn_strbuf_clear(&text);
	gn_options_help(&command, "gannet", 60, &text);
	for (const char *line = gn_strbuf_text(&text); *line && strncmp(line, "Examples:", 9); line += strcspn(line, "\n"), line += *line == '\n') {
		assert_true(strcspn(line, "\n") <= 60);
		assert_false(line[0] != '\n' && line[strcspn(line, "\n") - 1] == ' ');
	}
	gn_strbuf_clear(&text);
	gn_options_man(&command, "gannet", &text);
	assert_non_null(strstr(gn_strbuf_text(&text), "\\&.Twice."));
	gn_strbuf_clear(&text);
	gn_options_completion(&one, 1, "gannet", &text);
	assert_non_null(strstr(gn_strbuf_text(&text), "pack:--mode) words='fast slow'"));
	gn_strbuf_release(&text);
}

static void test_describe(void **state)
{
	static const char *const skip[] = {"out", "memory", "options", NULL};
	struct gn_text_list rest;
	struct gn_strbuf text;
	struct target t;
	struct gn_err err;
	int help;

	(void)state;
	assert_ok(parse("pack a --out o --init x", &t, &rest, &help, &err));
	gn_strbuf_init(&text);
	gn_options_describe(&command, &t, skip, &text);
	assert_string_equal(gn_strbuf_text(&text),
			    "quick=1 batch=64 lr=0.10000000000000001 mode=fast init=x size=28x30");
	gn_strbuf_release(&text);
	free(rest.items);
	gn_options_release(&command, &t);
}

static void test_compare(void **state)
{
	static const char *const skip[] = {"resume", NULL};
	struct gn_strbuf text;

	(void)state;
	gn_strbuf_init(&text);
	gn_options_compare("lr=0.10000000000000001 data=a b resume=none mixup= old=1", "lr=0.10000000000000001 data=a b resume=auto mixup= new=1",
			   skip, ", now ", &text);
	assert_string_equal(gn_strbuf_text(&text), "");
	gn_options_compare("lr=0.10000000000000001 data=a b=c mixup= x=", "lr=0.2 data=a d mixup=0.2 x=", skip, ", now ", &text);
	assert_string_equal(gn_strbuf_text(&text), "--lr 0.1, now 0.2; --data a, now a d; --mixup (none), now 0.2");
	gn_strbuf_release(&text);
}

static void test_agree(void **state)
{
	struct gn_err err;

	(void)state;
	assert_int_equal(gn_options_agree("lr=0.1 mixup= old=1", "lr=0.1 mixup= new=2", &err), GN_OK);
	assert_int_equal(gn_options_agree("lr=0.1 mixup=", "lr=0.1 mixup=0.2", &err), GN_ERR_MISMATCH);
	assert_string_equal(err.text, "its options are not those of rank 0: --mixup (none), here 0.2; start the same command everywhere");
}

/* A recipe fills in what was not given, also where the given value is the default's. */
static void test_fill(void **state)
{
	struct gn_text_list rest;
	struct target t;
	struct gn_err err;
	int help, filled;

	(void)state;
	assert_ok(parse("pack --no-quick --batch 64 --out o a", &t, &rest, &help, &err));
	assert_ok(gn_options_fill(&command, &t, "batch", "7", &filled, &err));
	assert_true(!filled && t.batch == 64);
	assert_ok(gn_options_fill(&command, &t, "quick", "1", &filled, &err));
	assert_true(!filled && !t.quick);
	assert_ok(gn_options_fill(&command, &t, "lr", "0.5", &filled, &err));
	assert_true(filled && t.lr == 0.5);
	assert_int_equal(gn_options_fill(&command, &t, "mode", "slowest", &filled, &err), GN_ERR_USAGE);
	assert_int_equal(gn_options_fill(&command, &t, "nothing", "1", &filled, &err), GN_ERR_FAILED);
	free(rest.items);
	gn_options_release(&command, &t);
}

static void write_file(char *path, const char *text)
{
	int fd = mkstemp(path);

	assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

/* argv with the options of a file that holds text; the caller releases *words. */
static enum gn_status read_words(const char *text, const char *last, struct gn_option_words *words, struct gn_err *err)
{
	char path[] = "/tmp/gannet-options.XXXXXX";
	char *argv[] = {"pack", "--options", path, (char *)last, "a"};
	enum gn_status status;

	write_file(path, text);
	status = gn_option_words_read(&command, sizeof(struct target), 5, argv, words, err);
	unlink(path);
	return status;
}

/* Lines of any form; the command line wins; what is written reads back the same. */
static void test_file(void **state)
{
	const char *const skip[] = {"options", NULL};
	struct gn_option_words words;
	struct gn_text_list rest;
	struct gn_strbuf text, again;
	struct target t;
	struct gn_err err;
	int help;

	(void)state;
	assert_ok(read_words("# a comment\n\n lr = 0.3\r\n--batch 7\nmemory=2K\nno-quick\nout = a place = here \ninit = x\ninit=y",
			     "--batch=9", &words, &err));
	memset(&t, 0, sizeof t);
	assert_ok(gn_options_parse(&command, words.argc, words.argv, &t, &rest, &help, &err));
	assert_true(t.lr == 0.3 && t.batch == 9 && t.memory == 2048 && !t.quick && t.inits.count == 2 && rest.count == 1);
	assert_string_equal(t.out, "a place = here");
	gn_strbuf_init(&text);
	gn_options_write(&command, &t, skip, &text);
	assert_string_equal(gn_strbuf_text(&text), "quick = 0\nbatch = 9\nmemory = 2048\nlr = 0.3\nout = a place = here\ninit = x\n"
			    "init = y\n\n# not given:\n# mode = fast\n# size = 28x30\n");
	free(rest.items);
	gn_options_release(&command, &t);
	gn_option_words_release(&words);
	assert_ok(read_words(gn_strbuf_text(&text), "-q", &words, &err));
	memset(&t, 0, sizeof t);
	assert_ok(gn_options_parse(&command, words.argc, words.argv, &t, &rest, &help, &err));
	assert_true(t.quick);
	t.quick = 0;
	gn_strbuf_init(&again);
	gn_options_write(&command, &t, skip, &again);
	assert_string_equal(gn_strbuf_text(&again), gn_strbuf_text(&text));
	free(rest.items);
	gn_options_release(&command, &t);
	gn_option_words_release(&words);
	gn_strbuf_release(&text);
	gn_strbuf_release(&again);
}

static void test_file_refusals(void **state)
{
	static const char *const bad[][2] = {{"\nbatchs = 3", "line 2: unknown option --batchs; did you mean --batch?"},
					     {"batch = 0", "line 1: --batch: 0 is outside"}, {"lr", "--lr needs a value: X"},
					     {"options = other", "cannot name another"}, {"init = a\nmode = slowest", "line 2: --mode"}};
	struct gn_option_words words = {0};
	struct gn_err err;

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		assert_int_equal(read_words(bad[i][0], "-q", &words, &err), GN_ERR_USAGE);
		assert_non_null(strstr(err.text, bad[i][1]));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values_and_defaults),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_waived), cmocka_unit_test(test_help_wins),
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_describe),
		cmocka_unit_test(test_compare),
		cmocka_unit_test(test_agree),
		cmocka_unit_test(test_fill),
		cmocka_unit_test(test_file),
		cmocka_unit_test(test_file_refusals),
	};

	return cmocka_run_group_tests_name("base/option", tests, NULL, NULL);
}
