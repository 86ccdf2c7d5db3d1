#include "tests/test.h"

#include "src/base/log.h"
#include "src/base/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void test_codes_have_texts(void **state)
{
	(void)state;
	assert_string_equal(gn_status_text(GN_ERR_PEER_LOST), "a peer was lost");
	assert_string_equal(gn_status_text((enum gn_status)77), "unknown status");
}

static void test_errno_maps(void **state)
{
	struct gn_err err;

	(void)state;
	assert_int_equal(gn_err_errno(&err, ENOSPC, "cannot write %s", "x"), GN_ERR_NO_SPACE);
	assert_string_equal(err.text, "cannot write x: No space left on device");
	assert_int_equal(gn_err_errno(&err, ENOENT, "a"), GN_ERR_NOT_FOUND);
	assert_int_equal(gn_err_errno(&err, EIO, "a"), GN_ERR_IO);
	assert_int_equal(gn_err_errno(NULL, EIO, "a"), GN_ERR_IO);
}

static void test_prefix(void **state)
{
	struct gn_err err;
	char longer[2 * GN_ERR_TEXT_MAX];

	(void)state;
	gn_err_set(&err, GN_ERR_DATA, "label 12 of 10");
	assert_int_equal(gn_err_prefix(&err, "shard %d", 3), GN_ERR_DATA);
	assert_string_equal(err.text, "shard 3: label 12 of 10");
	memset(longer, 'x', sizeof longer);
	longer[sizeof longer - 1] = '\0';
	gn_err_prefix(&err, "%s", longer);
	assert_int_equal(strlen(err.text), GN_ERR_TEXT_MAX - 1);
}

static void test_visible(void **state)
{
	static const char *const cases[][2] = {
		{"plain \\ text", "plain \\ text"},
		{"a\nb\tc\rd", "a\\x0ab\\x09c\\x0dd"},
		{"\033]0;title\a\177", "\\x1b]0;title\\x07\\x7f"},
		{"Gr\xc3\xbc\xc3\x9f" "e \xe6\x97\xa5 \xf0\x9f\x90\xb1", "Gr\xc3\xbc\xc3\x9f" "e \xe6\x97\xa5 \xf0\x9f\x90\xb1"},
		{"\xc2\x9b" "2J", "\\xc2\\x9b2J"},	  /* CSI in one character */
		{"\x9b" "2J", "\\x9b2J"},		  /* and in one byte */
		{"\xe2\x80\xae" "gpj", "\\xe2\\x80\\xaegpj"}, /* writes backwards */
		{"\xc0\x8a \xed\xa0\x80 \xf5", "\\xc0\\x8a \\xed\\xa0\\x80 \\xf5"}, /* overlong, surrogate, too high */
		{"cut \xe6\x97", "cut \\xe6\\x97"},
		{"", ""},
	};
	char out[64], small[9];

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char again[64];

		assert_string_equal(gn_text_visible(cases[i][0], out, sizeof out), cases[i][1]);
		assert_string_equal(gn_text_visible(out, again, sizeof again), out);
	}
	assert_string_equal(gn_text_visible("12345\n78", small, sizeof small), "12345");
	assert_string_equal(gn_text_visible("123456\xe6\x97\xa5", small, sizeof small), "123456");
	assert_string_equal(gn_text_visible("1234\n", small, sizeof small), "1234\\x0a");
	assert_string_equal(gn_text_visible("x", small, 1), "");
}

static void test_error_is_one_line(void **state)
{
	struct gn_err err;

	(void)state;
	gn_err_set(&err, GN_ERR_DATA, "class '%s'", "a\ngannet: all is well\033[2A");
	assert_string_equal(err.text, "class 'a\\x0agannet: all is well\\x1b[2A'");
	gn_err_prefix(&err, "%s", "dir\r");
	assert_string_equal(err.text, "dir\\x0d: class 'a\\x0agannet: all is well\\x1b[2A'");
	gn_err_errno(&err, ENOENT, "%s", "\t");
	assert_string_equal(err.text, "\\x09: No such file or directory");
}

static void test_log_line(void **state)
{
	struct gn_log *log;
	struct gn_err err;
	char line[256];
	int ends[2];
	ssize_t n;

	(void)state;
	assert_int_equal(pipe(ends), 0);
	assert_ok(gn_log_create(ends[1], GN_LOG_INFO, &log, &err));
	gn_log_debug(log, "dropped");
	gn_log_set_rank(log, 3);
	gn_log_warn(log, "shard %s is short", "a\nERROR\033[1m b");
	gn_log_warn(NULL, "silent");
	n = read(ends[0], line, sizeof line - 1);
	assert_true(n > 0);
	line[n] = '\0';
	assert_null(strstr(line, "dropped"));
	assert_non_null(strstr(line, " WARN "));
	assert_non_null(strstr(line, "[3] shard a\\x0aERROR\\x1b[1m b is short\n"));
	gn_log_destroy(log);
	close(ends[0]);
	close(ends[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_codes_have_texts),
		cmocka_unit_test(test_errno_maps),
		cmocka_unit_test(test_prefix),
		cmocka_unit_test(test_visible),
		cmocka_unit_test(test_error_is_one_line),
		cmocka_unit_test(test_log_line),
	};

	return cmocka_run_group_tests_name("base/status", tests, NULL, NULL);
}
