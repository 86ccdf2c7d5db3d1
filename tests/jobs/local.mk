UNIT_TESTS += tests/jobs/test_exec tests/jobs/test_preflight
tests_jobs_test_exec_CPPFLAGS = $(TEST_CPPFLAGS)
tests_jobs_test_exec_LDADD = $(JOBS_LIBS) $(TRANSPORT_LIBS) $(CMOCKA_LIBS)
tests_jobs_test_preflight_CPPFLAGS = $(TEST_CPPFLAGS) $(JANSSON_CFLAGS)
tests_jobs_test_preflight_LDADD = $(JOBS_LIBS) $(TRAIN_LIBS) $(TRANSPORT_LIBS) $(CMOCKA_LIBS)
SHELL_TESTS += tests/jobs/exec.t
EXTRA_DIST += tests/jobs/exec_probe
EXTRA_DIST += tests/frameworks/run tests/frameworks/ddp.py tests/frameworks/fit.py tests/frameworks/multi_worker.py tests/frameworks/speed.py
