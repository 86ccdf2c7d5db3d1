UNIT_TESTS += tests/device/test_device
tests_device_test_device_CPPFLAGS = $(TEST_CPPFLAGS)
tests_device_test_device_LDADD = $(DEVICE_TEST_LIBS)
if HAVE_CUDA
DEVICE_TEST_LIBS = $(KERNELS_CUDA_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)
UNIT_TESTS += tests/device/test_device_emulated
tests_device_test_device_emulated_SOURCES = tests/device/test_device.c tests/gpu/emulate_arena.c
tests_device_test_device_emulated_CPPFLAGS = $(TEST_CPPFLAGS) $(CUDA_CPPFLAGS) -DGN_TEST_DEVICE='"cuda:0"'
tests_device_test_device_emulated_LDADD = $(EMULATED) libgannet_cuda.a $(BASE_LIBS) $(CMOCKA_LIBS) -lstdc++
tests_device_test_device_emulated_DEPENDENCIES = $(EMULATED) libgannet_cuda.a libgannet_base.a
else
DEVICE_TEST_LIBS = $(BASE_LIBS) $(CMOCKA_LIBS)
endif
