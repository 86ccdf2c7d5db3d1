# The checks of our kernels on a GPU, and the same kernels on the host's processor, which needs no GPU.
GPU_CHECKS = \
	tests/gpu/fixture.c tests/gpu/fixture.h \
	tests/gpu/check_image.c \
	tests/gpu/check_loss.c \
	tests/gpu/check_norm.c \
	tests/gpu/check_optim.c tests/kernels/ref_optim.c tests/kernels/ref_optim.h \
	tests/gpu/check_pointwise.c \
	tests/gpu/check_pool.c \
	data/sample/resize.c data/sample/resize.h \
	tests/gpu/test_kernels.c
EMULATED = $(CU_FILES:.cu=.eo) tests/gpu/emulate.eo tests/gpu/emulate_machine.eo tests/gpu/emulate_memory.eo \
	tests/gpu/emulate_runtime.eo
EMULATE_H = tests/gpu/emulate.h tests/gpu/emulate_machine.h tests/gpu/emulate_queue.h tests/gpu/emulate_runtime.h
SHELL_TESTS += tests/gpu/device.t
EXTRA_DIST += tests/gpu/libs tests/gpu/no_host.c tests/gpu/peer tests/gpu/losses.txt tests/gpu/run tests/gpu/run_bench.sh tests/gpu/run_build.sh tests/gpu/run_results.sh tests/gpu/emulate.cc tests/gpu/emulate_machine.cc tests/gpu/emulate_memory.cc \
	tests/gpu/emulate_nccl.cc tests/gpu/emulate_runtime.cc $(EMULATE_H)
ORACLE_LIBS = $(KERNELS_LIBS) $(BASE_LIBS) -lm
GPU_TESTS = tests/gpu/test_dnn tests/gpu/test_kept tests/gpu/test_kernels tests/gpu/test_emulated tests/gpu/test_ops tests/gpu/test_ops_emulated \
	tests/gpu/test_plan tests/gpu/test_plan_emulated
if HAVE_CUDA
check_PROGRAMS += tests/gpu/bench_kernels tests/gpu/test_dnn tests/gpu/test_kept tests/gpu/test_kernels tests/gpu/test_emulated \
	tests/gpu/test_ops tests/gpu/test_ops_emulated \
	tests/gpu/test_plan tests/gpu/test_plan_emulated
tests_gpu_bench_kernels_LDADD = $(KERNELS_CUDA_LIBS) libgannet_kernels.a $(BASE_LIBS) -lm
tests_gpu_test_kernels_SOURCES = $(GPU_CHECKS)
tests_gpu_test_kernels_LDADD = $(KERNELS_CUDA_LIBS) $(ORACLE_LIBS)
tests_gpu_test_emulated_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_gpu_test_emulated_SOURCES = $(GPU_CHECKS) tests/gpu/emulate_arena.c
tests_gpu_test_emulated_LDADD = $(EMULATED) libgannet_cuda.a $(ORACLE_LIBS) -lstdc++
tests_gpu_test_emulated_DEPENDENCIES = $(EMULATED) libgannet_cuda.a libgannet_kernels.a libgannet_base.a
tests_gpu_test_dnn_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
# stands in for the driver; a program as far as automake knows, as the module for NCCL is
check_PROGRAMS += tests/gpu/libcuda.so.1
tests_gpu_libcuda_so_1_SOURCES = tests/gpu/emulate_driver.c
tests_gpu_libcuda_so_1_CFLAGS = $(AM_CFLAGS) -fPIC
tests_gpu_libcuda_so_1_LDFLAGS = $(AM_LDFLAGS) -shared -Wl,-soname,libcuda.so.1
tests_gpu_test_kept_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_gpu_test_kept_SOURCES = tests/gpu/test_kept.c tests/gpu/described.h
tests_gpu_test_kept_LDADD = $(KERNELS_CUDA_LIBS) $(ORACLE_LIBS)
tests_gpu_test_dnn_SOURCES = tests/gpu/test_dnn.c tests/gpu/described.h
tests_gpu_test_dnn_LDADD = $(KERNELS_CUDA_LIBS) $(ORACLE_LIBS)
tests_gpu_test_ops_SOURCES = tests/gpu/fixture.c tests/gpu/fixture.h tests/gpu/ops.h tests/gpu/ops_device.c \
	tests/gpu/ops_oracle.c tests/gpu/ops_conv_bn.c tests/gpu/test_ops.c
tests_gpu_test_ops_LDADD = $(KERNELS_CUDA_LIBS) $(ORACLE_LIBS)
# the operators are the library's own, on kernels that are emulated
STAND_INS = tests/gpu/emulate_blas.c tests/gpu/emulate_dnn.c
tests_gpu_test_ops_emulated_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_gpu_test_ops_emulated_SOURCES = $(tests_gpu_test_ops_SOURCES) $(STAND_INS) tests/gpu/emulate_arena.c
tests_gpu_test_ops_emulated_LDADD = $(EMULATED) libgannet_cuda.a $(ORACLE_LIBS) -lstdc++
tests_gpu_test_plan_SOURCES = tests/gpu/plan_models.c tests/gpu/plan_net.c tests/gpu/plan_net.h tests/gpu/plan_runs.c tests/gpu/test_plan.c
tests_gpu_test_plan_LDADD = $(TRAIN_LIBS) $(ORACLE_LIBS) $(CRYPTO_LIBS)
tests_gpu_test_plan_emulated_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_gpu_test_plan_emulated_SOURCES = $(tests_gpu_test_plan_SOURCES) $(STAND_INS) tests/gpu/emulate_arena.c
tests_gpu_test_plan_emulated_LDADD = $(EMULATED) libgannet_train.a libgannet_cuda.a $(JANSSON_LIBS) $(ORACLE_LIBS) $(CRYPTO_LIBS) -lstdc++
tests_gpu_test_plan_emulated_DEPENDENCIES = $(EMULATED) libgannet_train.a libgannet_cuda.a libgannet_kernels.a libgannet_base.a
tests_gpu_test_ops_emulated_DEPENDENCIES = $(EMULATED) libgannet_cuda.a libgannet_kernels.a libgannet_base.a
UNIT_TESTS += tests/gpu/test_runtime
tests_gpu_test_runtime_CPPFLAGS = $(TEST_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_gpu_test_runtime_LDADD = $(EMULATED) libgannet_cuda.a $(BASE_LIBS) $(CMOCKA_LIBS) -lstdc++
tests_gpu_test_runtime_DEPENDENCIES = $(EMULATED) libgannet_cuda.a libgannet_base.a
# the whole program on GPUs that are emulated, and sums between ranks alone
check_PROGRAMS += tests/gpu/comm_probe_emulated tests/gpu/gannet_emulated
EMULATED_RANKS = $(EMULATED) tests/gpu/emulate_nccl.eo
WRAPPED = $(AM_LDFLAGS) -Wl,--wrap=gn_comm_takes_gpu_memory -Wl,--wrap=gn_nccl_api_load
tests_gpu_comm_probe_emulated_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_gpu_comm_probe_emulated_SOURCES = $(tests_gpu_comm_probe_SOURCES) tests/gpu/emulate_carrier.c
tests_gpu_comm_probe_emulated_LDFLAGS = $(WRAPPED)
tests_gpu_comm_probe_emulated_LDADD = $(EMULATED_RANKS) libgannet_transport_cuda.a libgannet_cuda.a $(TRANSPORT_LIBS) \
	$(ORACLE_LIBS) -lstdc++
tests_gpu_comm_probe_emulated_DEPENDENCIES = $(EMULATED_RANKS) libgannet_transport_cuda.a libgannet_cuda.a libgannet_transport.a \
	libgannet_kernels.a libgannet_base.a
tests_gpu_gannet_emulated_CPPFLAGS = $(gannet_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_gpu_gannet_emulated_SOURCES = $(gannet_SOURCES) $(STAND_INS) tests/gpu/emulate_carrier.c
tests_gpu_gannet_emulated_CCASFLAGS = $(gannet_CCASFLAGS)
tests_gpu_gannet_emulated_LDFLAGS = $(WRAPPED)
tests_gpu_gannet_emulated_LDADD = $(EMULATED_RANKS) libgannet_jobs.a libgannet_train.a libgannet_transport_cuda.a libgannet_cuda.a $(JANSSON_LIBS) \
	$(DATA_LIBS) $(TRANSPORT_LIBS) $(ORACLE_LIBS) -lstdc++
tests_gpu_gannet_emulated_DEPENDENCIES = $(EMULATED_RANKS) libgannet_jobs.a libgannet_train.a libgannet_transport_cuda.a libgannet_cuda.a \
	libgannet_data.a libgannet_transport.a libgannet_kernels.a libgannet_base.a
endif
CLEANFILES += $(EMULATED) tests/gpu/emulate_nccl.eo
# nvcc knows a C++ compiler that fits
EMULATE = $(NVCC) -std=c++17 -O2 -g -D_GNU_SOURCE -DGN_CUDA_EMULATE -I$(top_srcdir) $(NVCC_SANITIZE) \
	-Xcompiler -Wall,-Wextra,-Wno-unknown-pragmas,-fno-exceptions -x c++ -c
.cu.eo:
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(EMULATE) -include $(top_srcdir)/tests/gpu/emulate.h -o $@ $<
.cc.eo:
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(EMULATE) -o $@ $<
$(EMULATED) tests/gpu/emulate_nccl.eo: $(CU_INCLUDED) $(EMULATE_H)

# Ranks that sum GPU memory.
GPU_SHELL_TESTS = tests/gpu/comm.t tests/gpu/faults.t tests/gpu/guarded.t tests/gpu/machine.t tests/gpu/train.t
EXTRA_DIST += $(GPU_SHELL_TESTS)
if HAVE_CUDA
check_PROGRAMS += tests/gpu/comm_probe
tests_gpu_comm_probe_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
tests_gpu_comm_probe_SOURCES = tests/gpu/comm_probe.c tests/transport/exit_code.h
tests_gpu_comm_probe_LDADD = $(TRANSPORT_CUDA_LIBS) $(KERNELS_CUDA_LIBS) $(TRANSPORT_LIBS)
SHELL_TESTS += $(GPU_SHELL_TESTS)
endif
