check_PROGRAMS += tests/lib/lib_probe
tests_lib_lib_probe_CPPFLAGS = $(AM_CPPFLAGS) $(LIB_EXAMPLE_CPPFLAGS)
tests_lib_lib_probe_LDADD = libgannet.so.0
SHELL_TESTS += tests/lib/lib.t tests/lib/loader.t
EXTRA_DIST += tests/lib/libgannet.abi tests/lib/loader.py
