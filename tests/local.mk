EXTRA_DIST += tests/run tests/harness tests/cmd/tap.sh

TEST_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)

include tests/base/local.mk
include tests/kernels/local.mk
include tests/transport/local.mk
include tests/data/local.mk
include tests/train/local.mk
include tests/cmd/local.mk
include tests/slurm/local.mk

# TESTS=... limits the run to some of them: make check TESTS=tests/base/test_json
if HAVE_CMOCKA
check_PROGRAMS += $(UNIT_TESTS)
TESTS_TO_RUN = $(UNIT_TESTS) $(SHELL_TESTS)
else
TESTS_TO_RUN = $(SHELL_TESTS)
endif
EXTRA_DIST += $(SHELL_TESTS)

check-local: $(check_PROGRAMS) $(bin_PROGRAMS)
	GN_BUILD=$(abs_top_builddir) GN_SOURCE=$(abs_top_srcdir) \
	  $(PERL) $(srcdir)/tests/harness --source $(srcdir) $${TESTS:-$(TESTS_TO_RUN)}
.PHONY: check-local
