check_PROGRAMS += tests/ncclnet/conform
tests_ncclnet_conform_CPPFLAGS = $(AM_CPPFLAGS)
tests_ncclnet_conform_LDFLAGS = $(AM_LDFLAGS) -pthread
tests_ncclnet_conform_SOURCES = tests/ncclnet/conform.c tests/ncclnet/lab.c tests/ncclnet/lab.h tests/ncclnet/lab_run.c \
	tests/ncclnet/plug.c tests/ncclnet/plug.h tests/ncclnet/checks_basic.c tests/ncclnet/checks_life.c \
	tests/ncclnet/checks_hard.c tests/ncclnet/checks_stop.c
SHELL_TESTS += tests/ncclnet/conform.t
# A plugin with faults, for conform to find.
check_PROGRAMS += tests/ncclnet/faulty.so
tests_ncclnet_faulty_so_CFLAGS = $(AM_CFLAGS) -fPIC -fvisibility=hidden
tests_ncclnet_faulty_so_LDFLAGS = $(AM_LDFLAGS) -shared
tests_ncclnet_faulty_so_SOURCES = tests/ncclnet/faulty.c
SHELL_TESTS += tests/ncclnet/faults.t
# Stands for CUDA's driver, which is found by its name.
UNIT_TESTS += tests/ncclnet/test_flush
tests_ncclnet_test_flush_CPPFLAGS = $(TEST_CPPFLAGS)
tests_ncclnet_test_flush_SOURCES = tests/ncclnet/test_flush.c ncclnet/flush.c ncclnet/flush.h
tests_ncclnet_test_flush_LDADD = $(BASE_LIBS) $(CMOCKA_LIBS)
check_PROGRAMS += tests/ncclnet/driver.so
tests_ncclnet_driver_so_CFLAGS = $(AM_CFLAGS) -fPIC
tests_ncclnet_driver_so_LDFLAGS = $(AM_LDFLAGS) -shared -Wl,-soname,libcuda.so.1
tests_ncclnet_driver_so_SOURCES = tests/ncclnet/driver.c
