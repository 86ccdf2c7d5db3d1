EXTRA_DIST += tests/README.md tests/run tests/long tests/harness tests/table tests/distro/deb tests/distro/run tests/cmd/tap.sh tests/lsan.supp tests/tsan.supp

TEST_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)

include tests/base/local.mk
include tests/device/local.mk
include tests/kernels/local.mk
include tests/gpu/local.mk
include tests/transport/local.mk
include tests/transport/plugin/local.mk
include tests/lib/local.mk
include tests/data/local.mk
include tests/fuzz/local.mk
include tests/train/local.mk
include tests/jobs/local.mk
include tests/cmd/local.mk
include tests/slurm/local.mk
include tests/rdma/local.mk
include tests/structure/local.mk

# TESTS=... limits the run to some of them: make check TESTS=tests/base/test_json
TESTS_TO_RUN = $(UNIT_TESTS) $(GPU_TESTS) $(SHELL_TESTS)
# What configure had to leave out is run all the same: the harness counts and names it as skipped.
UNBUILT =
if HAVE_CMOCKA
check_PROGRAMS += $(UNIT_TESTS)
else
UNBUILT += --unbuilt 'tests/=configured without cmocka: install libcmocka-dev and run configure again'
endif
if !HAVE_CUDA
UNBUILT += --unbuilt 'tests/gpu/=configured without --with-cuda, or without cmocka'
endif
EXTRA_DIST += $(SHELL_TESTS) $(SLOW_TESTS)

check-local: $(check_PROGRAMS) $(bin_PROGRAMS)
	GN_BUILD=$(abs_top_builddir) GN_SOURCE=$(abs_top_srcdir) \
	  $(PERL) $(srcdir)/tests/harness --source $(srcdir) --times test-seconds $(UNBUILT) $${TESTS:-$(TESTS_TO_RUN)}

check-slow:
	$(MAKE) $(AM_MAKEFLAGS) check-local TESTS="$(SLOW_TESTS)"

# Which files run where, for tests/long and .ci/run: run, those of tests/run; slow, of tests/long; gpu, of both a GPU and none; sanitized, those that are
# left out of the sanitizers' checks unless they are drawn.
list-tests:
	@echo 'run $(TESTS_TO_RUN)'
	@echo 'slow $(SLOW_TESTS)'
	@echo 'sanitized $(SANITIZED_LONG)'
	@echo 'gpu tests/gpu/test_runtime $(GPU_TESTS) tests/gpu/device.t $(GPU_SHELL_TESTS)'

# Everything the tests need, without running them. In two steps: all is a make of its own, and two at once build files twice.
check-programs: all
	$(MAKE) $(AM_MAKEFLAGS) $(check_PROGRAMS)

# For a build with --enable-sanitize. UCX and AddressSanitizer both want to replace malloc and mmap; what needs Slurm, emulated machines
# or minutes of training is too slow; configure and the peers are not built with it. SANITIZED_LONG: more than half a minute each, of code
# that shorter tests run, too. .ci/run draws some of them and leaves the others to tests/long, which leaves none out.
SANITIZED_LONG = tests/cmd/selftest.t tests/jobs/exec.t tests/train/bf16.t tests/train/compress.t tests/train/logits.t tests/train/mesh_sharing.t \
	tests/train/pipeline.t tests/train/resume.t tests/train/shard.t tests/train/tensor.t tests/transport/bench.t tests/transport/collectives.t \
	tests/transport/failure.t tests/transport/launch.t tests/transport/messages.t tests/transport/plugin/conform.t tests/transport/tune.t
LEFT_OUT = $(SANITIZED_LONG)
check-sanitized: check-programs
	UCX_MEM_EVENTS=n UBSAN_OPTIONS=print_stacktrace=1 \
	ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:allocator_may_return_null=1 \
	LSAN_OPTIONS=suppressions=$(abs_top_srcdir)/tests/lsan.supp:print_suppressions=0 GN_SANITIZED=1 \
	  $(MAKE) $(AM_MAKEFLAGS) check-local \
	  TESTS="$${TESTS:-$$(printf '%s\n' $(TESTS_TO_RUN) tests/transport/tune.t tests/transport/plugin/faults.t | \
	    grep -v '^tests/slurm/\|^tests/rdma/\|^tests/transport/\(peers\|slurm\)[.]t' | \
	    awk -v left_out=' $(LEFT_OUT) ' '!index(left_out, " " $$0 " ")' | tr '\n' ' ')}"

# For a build with --enable-sanitize=thread: what runs threads beside each other, the transport and the NCCL plugin. Checking schedules is
# the work of one thread, and slow.
check-tsan: check-programs
	UCX_MEM_EVENTS=n UCX_VFS_ENABLE=n GN_SANITIZED=1 \
	TSAN_OPTIONS=suppressions=$(abs_top_srcdir)/tests/tsan.supp:history_size=4:exitcode=66 \
	  $(MAKE) $(AM_MAKEFLAGS) check-local \
	  TESTS="$${TESTS:-$$(printf '%s ' $(TRANSPORT_TESTS) | sed 's,tests/transport/test_verify ,,') tests/transport/plugin/test_flush \
	    $$(printf 'tests/transport/%s.t ' collectives direct groups loss messages p2p staged)}"
CLEANFILES += test-seconds
.PHONY: list-tests check-local check-slow check-programs check-sanitized check-tsan
