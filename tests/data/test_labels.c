#include "data/pack/labels.h"
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct gn_labels *parse(const char *text)
{
	struct gn_labels *l = NULL;
	struct gn_err err;

	assert_ok(gn_labels_parse(text, strlen(text), "list", &l, &err));
	return l;
}

static void refuse(const char *text, size_t len, const char *why)
{
	struct gn_labels *l = NULL;
	struct gn_err err = {0};

	assert_int_equal(gn_labels_parse(text, len, "list", &l, &err), GN_ERR_DATA);
	assert_null(l);
	if (!strstr(err.text, why))
		fail_msg("'%s' does not say '%s'", err.text, why);
}

static void fields_are_those_of_rfc_4180(void **state)
{
	struct gn_labels *l = parse("a.jpg,cat\nb/c d.jpg,\"great white, shark\"\n e.jpg , cat\t\n\"f,\"\"g\"\".jpg\" ,\" cat \"\nh\"i.jpg,5\" disk");
	uint32_t index = 9;

	(void)state;
	assert_int_equal(gn_labels_count(l), 5);
	assert_true(gn_labels_find(l, "b/c d.jpg", &index));
	assert_int_equal(index, 1);
	assert_string_equal(gn_labels_class(l, 1), "great white, shark");
	assert_string_equal(gn_labels_image(l, 2), "e.jpg");
	assert_string_equal(gn_labels_class(l, 2), "cat");
	assert_int_equal(gn_labels_line(l, 2), 3);
	assert_string_equal(gn_labels_image(l, 3), "f,\"g\".jpg");
	assert_string_equal(gn_labels_class(l, 3), " cat ");
	assert_string_equal(gn_labels_image(l, 4), "h\"i.jpg");
	assert_string_equal(gn_labels_class(l, 4), "5\" disk");
	gn_labels_destroy(l);
	gn_labels_destroy(NULL);
}

static void a_heading_is_the_first_line_alone(void **state)
{
	struct gn_labels *l = parse("name,class\na,b\n");

	(void)state;
	assert_int_equal(gn_labels_count(l), 1);
	assert_int_equal(gn_labels_line(l, 0), 2);
	gn_labels_destroy(l);
	l = parse("\"name\", class\na,b\n");
	assert_int_equal(gn_labels_count(l), 1);
	gn_labels_destroy(l);
	l = parse("a,b\nname,class\n");
	assert_int_equal(gn_labels_count(l), 2);
	gn_labels_destroy(l);
}

static void bad_lines_are_named(void **state)
{
	static char longest[10000];

	(void)state;
	refuse("", 0, "list names no images");
	refuse("name,class\n", 11, "list names no images");
	refuse("a,b\n\nc,d\n", 9, "line 2 is empty");
	refuse("a,b\nc\n", 6, "line 2 has 1 field, not NAME,CLASS");
	refuse("a,b\nc,d,0.7\n", 12, "line 2 has 3 fields, not NAME,CLASS");
	refuse("a,b\n\"c\"d,e\n", 12, "line 2: field 1 has more than 4095 bytes, a zero byte, or quotes that do not end it");
	refuse("a,b\n\"c,d\ne,f\"\n", 15, "line 2: field 1 has more than 4095 bytes, a zero byte, or quotes that do not end it");
	refuse("a,b\nx\0,c\n", 9, "line 2: field 1 has more than 4095 bytes, a zero byte, or quotes that do not end it");
	refuse("a,b\n\"", 5, "line 2: field 1");
	refuse("a, \t\n", 5, "line 1 is not NAME,CLASS: 'a,'");
	refuse("a,b\n,d\n", 7, "line 2 is not NAME,CLASS");
	refuse("a,\n", 3, "line 1 is not NAME,CLASS");
	refuse("a,b\nc,d\na,e\n", 12, "line 3 repeats image 'a' (first in line 1)");
	memset(longest, 'x', sizeof longest);
	refuse(longest, sizeof longest, "line 1: field 1 has more than 4095 bytes");
	longest[1] = ',';
	refuse(longest, 5000, "line 1: field 2 has more than 4095 bytes");
}

static void many_lines_are_found(void **state)
{
	char *text = malloc(60000 * 24), name[32];
	struct gn_labels *l;
	size_t len = 0;

	(void)state;
	assert_non_null(text);
	for (int i = 0; i < 50000; i++)
		len += (size_t)sprintf(text + len, "%08d.jpg,n%03d\n", i, i % 1000);
	l = parse(text);
	assert_int_equal(gn_labels_count(l), 50000);
	for (int i = 0; i < 50000; i += 7) {
		uint32_t index;

		snprintf(name, sizeof name, "%08d.jpg", i);
		assert_true(gn_labels_find(l, name, &index));
		assert_int_equal(index, i);
		assert_int_equal(atoi(gn_labels_class(l, index) + 1), i % 1000);
	}
	gn_labels_destroy(l);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields_are_those_of_rfc_4180),
		cmocka_unit_test(a_heading_is_the_first_line_alone),
		cmocka_unit_test(bad_lines_are_named),
		cmocka_unit_test(many_lines_are_found),
	};

	return cmocka_run_group_tests_name("labels", tests, NULL, NULL);
}
