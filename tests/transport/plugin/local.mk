check_PROGRAMS += tests/transport/plugin/conform
tests_transport_plugin_conform_CPPFLAGS = $(AM_CPPFLAGS)
tests_transport_plugin_conform_LDFLAGS = $(AM_LDFLAGS) -pthread
tests_transport_plugin_conform_SOURCES = tests/transport/plugin/conform.c tests/transport/plugin/cluster.c tests/transport/plugin/cluster.h tests/transport/plugin/cluster_run.c \
	tests/transport/plugin/plug.c tests/transport/plugin/plug.h tests/transport/plugin/checks_basic.c tests/transport/plugin/checks_life.c \
	tests/transport/plugin/checks_hard.c tests/transport/plugin/checks_stop.c
SHELL_TESTS += tests/transport/plugin/conform.t
# A plugin with faults, for conform to find.
check_PROGRAMS += tests/transport/plugin/faulty.so
tests_transport_plugin_faulty_so_CFLAGS = $(AM_CFLAGS) -fPIC -fvisibility=hidden
tests_transport_plugin_faulty_so_LDFLAGS = $(AM_LDFLAGS) -shared
tests_transport_plugin_faulty_so_SOURCES = tests/transport/plugin/faulty.c
SLOW_TESTS += tests/transport/plugin/faults.t
# Stands for CUDA's driver, which is found by its name.
UNIT_TESTS += tests/transport/plugin/test_flush
tests_transport_plugin_test_flush_CPPFLAGS = $(TEST_CPPFLAGS)
tests_transport_plugin_test_flush_SOURCES = tests/transport/plugin/test_flush.c transport/nccl/plugin/flush.c transport/nccl/plugin/flush.h
tests_transport_plugin_test_flush_LDADD = $(BASE_LIBS) $(CMOCKA_LIBS)
check_PROGRAMS += tests/transport/plugin/driver.so
tests_transport_plugin_driver_so_CFLAGS = $(AM_CFLAGS) -fPIC
tests_transport_plugin_driver_so_LDFLAGS = $(AM_LDFLAGS) -shared -Wl,-soname,libcuda.so.1
tests_transport_plugin_driver_so_SOURCES = tests/transport/plugin/driver.c
