#include "tests/test.h"

#include "src/base/json.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void test_layout(void **state)
{
	struct gn_json j;

	(void)state;
	gn_json_init(&j);
	gn_json_object(&j, NULL);
	gn_json_int(&j, "step", -3);
	gn_json_array(&j, "parts");
	gn_json_double(&j, NULL, 0.1);
	gn_json_double(&j, NULL, NAN);
	gn_json_bool(&j, NULL, 1);
	gn_json_end(&j);
	assert_true(gn_json_failed(&j));
	gn_json_end(&j);
	assert_false(gn_json_failed(&j));
	assert_string_equal(gn_json_text(&j), "{\"step\": -3, \"parts\": [0.1, null, true]}");
	gn_json_release(&j);
}

static void test_members_by_a_format(void **state)
{
	struct gn_json j;

	(void)state;
	gn_json_begin(&j);
	gn_json_put(&j, "kind plan text %s no %d yes? %d no? %d few %u", "a \"b\"", -7, 2, 0, 4294967295u);
	gn_json_put(&j, "low %ld high %lu size %zu", (long)INT64_MIN, (unsigned long)UINT64_MAX, (size_t)9);
	gn_json_put(&j, "exact %g rounded %.3f whole %.0f lost %g { a %d }", 0.1, 2.0 / 3, 1e15, NAN, 1);
	gn_json_put(&j, "part { of [");
	for (int i = 0; i < 2; i++)
		gn_json_put(&j, "{ i %d }", i);
	gn_json_put(&j, "] } }");
	assert_false(gn_json_failed(&j));
	assert_string_equal(gn_json_text(&j), "{\"kind\": \"plan\", \"text\": \"a \\\"b\\\"\", \"no\": -7, \"yes\": true, \"no\": false, "
			    "\"few\": 4294967295, \"low\": -9223372036854775808, \"high\": 18446744073709551615, \"size\": 9, "
			    "\"exact\": 0.1, \"rounded\": 0.667, \"whole\": 1000000000000000, \"lost\": null, {\"a\": 1}, "
			    "\"part\": {\"of\": [{\"i\": 0}, {\"i\": 1}]}}");
	gn_json_release(&j);
}

/* Whatever bytes a file name has, the output parses, and valid text comes back as it was. */
static void test_any_bytes_parse(void **state)
{
	char bytes[256];
	struct gn_json j;
	json_t *back;

	(void)state;
	srand(1);
	for (int round = 0; round < 2000; round++) {
		size_t len = (size_t)rand() % sizeof bytes;

		for (size_t i = 0; i < len; i++)
			bytes[i] = (char)(rand() % 256);
		gn_json_init(&j);
		gn_json_array(&j, NULL);
		gn_json_string_n(&j, NULL, bytes, len);
		gn_json_end(&j);
		back = json_loads(gn_json_text(&j), JSON_ALLOW_NUL, NULL);
		assert_non_null(back);
		json_decref(back);
		gn_json_release(&j);
	}
	gn_json_init(&j);
	gn_json_array(&j, NULL);
	gn_json_string(&j, NULL, "Zürich \"7\"\n\x7f");
	gn_json_end(&j);
	back = json_loads(gn_json_text(&j), 0, NULL);
	assert_string_equal(json_string_value(json_array_get(back, 0)), "Zürich \"7\"\n\x7f");
	json_decref(back);
	gn_json_release(&j);
}

static void test_doubles_read_back(void **state)
{
	const double values[] = {0, 1.0 / 3, 1e-300, -2.5e17, 3.4028234663852886e38, 5e-324};
	struct gn_json j;

	(void)state;
	for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
		gn_json_init(&j);
		gn_json_double(&j, NULL, values[i]);
		assert_true(strtod(gn_json_text(&j), NULL) == values[i]);
		gn_json_release(&j);
	}
}

static void test_too_deep(void **state)
{
	struct gn_json j;

	(void)state;
	gn_json_init(&j);
	for (int i = 0; i < 100; i++)
		gn_json_array(&j, NULL);
	for (int i = 0; i < 100; i++)
		gn_json_end(&j);
	assert_true(gn_json_failed(&j));
	gn_json_release(&j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layout), cmocka_unit_test(test_members_by_a_format),
		cmocka_unit_test(test_any_bytes_parse),
		cmocka_unit_test(test_doubles_read_back),
		cmocka_unit_test(test_too_deep),
	};

	return cmocka_run_group_tests_name("base/json", tests, NULL, NULL);
}
