#include "tests/test.h"

#include "src/base/strbuf.h"
#include "src/base/text.h"

static void is(const char *wanted, const char *const *names, size_t count)
{
	struct gn_strbuf text;

	gn_strbuf_init(&text);
	gn_hostlist_append(&text, names, count);
	assert_string_equal(gn_strbuf_text(&text), wanted);
	gn_strbuf_release(&text);
}
#define IS(wanted, ...) is(wanted, (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void test_hostlist(void **state)
{
	(void)state;
	is("", NULL, 0);
	IS("n1", "n1");
	IS("login", "login");
	IS("n[1-3]", "n1", "n2", "n3");
	IS("n[1-2,4]", "n1", "n2", "n4");
	IS("n[9-11]", "n9", "n10", "n11");
	IS("n[08-10]", "n08", "n09", "n10");
	IS("n[08,9]", "n08", "n9");
	IS("n[3,1-2]", "n3", "n1", "n2");
	IS("a[1-2],b,c[7-8],d1", "a1", "a2", "b", "c7", "c8", "d1");
	IS("gpu-a1-n[1-2]", "gpu-a1-n1", "gpu-a1-n2");
	IS("[17-18]", "17", "18");
	IS("x,x", "x", "x");
	/* nothing overflows on more digits than a number has */
	IS("n99999999999[999999998-999999999]", "n99999999999999999998", "n99999999999999999999");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_hostlist)};

	return cmocka_run_group_tests_name("hostlist", tests, NULL, NULL);
}
