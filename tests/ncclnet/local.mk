check_PROGRAMS += tests/ncclnet/conform
tests_ncclnet_conform_CPPFLAGS = $(AM_CPPFLAGS)
tests_ncclnet_conform_LDFLAGS = $(AM_LDFLAGS) -pthread
tests_ncclnet_conform_SOURCES = tests/ncclnet/conform.c tests/ncclnet/lab.c tests/ncclnet/lab.h tests/ncclnet/plug.c \
	tests/ncclnet/plug.h tests/ncclnet/checks_basic.c tests/ncclnet/checks_life.c tests/ncclnet/checks_hard.c
SHELL_TESTS += tests/ncclnet/conform.t
