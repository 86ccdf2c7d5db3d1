BASE_TESTS = \
	tests/base/test_cipher_file \
	tests/base/test_file \
	tests/base/test_hostlist \
	tests/base/test_json \
	tests/base/test_numbers \
	tests/base/test_oom \
	tests/base/test_option \
	tests/base/test_thread_pool \
	tests/base/test_status
UNIT_TESTS += $(BASE_TESTS)
BASE_TEST_LIBS = $(BASE_LIBS) $(CMOCKA_LIBS)
tests_base_test_cipher_file_LDADD = $(BASE_TEST_LIBS)
tests_base_test_file_LDADD = $(BASE_TEST_LIBS)
tests_base_test_hostlist_LDADD = $(BASE_TEST_LIBS)
tests_base_test_json_LDADD = $(BASE_TEST_LIBS) $(JANSSON_LIBS)
tests_base_test_numbers_LDADD = $(BASE_TEST_LIBS)
tests_base_test_oom_LDADD = $(BASE_TEST_LIBS)
tests_base_test_option_LDADD = $(BASE_TEST_LIBS)
tests_base_test_thread_pool_LDADD = $(BASE_TEST_LIBS)
tests_base_test_status_LDADD = $(BASE_TEST_LIBS)
EXTRA_DIST += tests/test.h
