UNIT_TESTS += tests/kernels/test_bf16 tests/kernels/test_group tests/kernels/test_host tests/kernels/test_layers tests/kernels/test_nonfinite \
	tests/kernels/test_optim \
	tests/kernels/test_ref tests/kernels/test_shape tests/kernels/test_weighted_loss tests/kernels/test_winograd
KERNELS_TEST_LIBS = $(KERNELS_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)

tests_kernels_test_bf16_SOURCES = tests/kernels/test_bf16.c tests/kernels/op_pair.c tests/kernels/op_pair.h
tests_kernels_test_bf16_CPPFLAGS = $(TEST_CPPFLAGS)
tests_kernels_test_bf16_LDADD = $(KERNELS_TEST_LIBS)

tests_kernels_test_host_SOURCES = tests/kernels/test_host.c tests/kernels/op_pair.c tests/kernels/op_pair.h
tests_kernels_test_host_CPPFLAGS = $(TEST_CPPFLAGS)
tests_kernels_test_host_LDADD = $(KERNELS_TEST_LIBS)

tests_kernels_test_layers_SOURCES = tests/kernels/test_layers.c tests/kernels/op_pair.c tests/kernels/op_pair.h
tests_kernels_test_layers_CPPFLAGS = $(TEST_CPPFLAGS)
tests_kernels_test_layers_LDADD = $(KERNELS_TEST_LIBS)

tests_kernels_test_nonfinite_SOURCES = tests/kernels/test_nonfinite.c tests/kernels/op_pair.c tests/kernels/op_pair.h
tests_kernels_test_nonfinite_CPPFLAGS = $(TEST_CPPFLAGS)
tests_kernels_test_nonfinite_LDADD = $(KERNELS_TEST_LIBS)

tests_kernels_test_optim_SOURCES = tests/kernels/test_optim.c tests/kernels/ref_optim.c tests/kernels/ref_optim.h
tests_kernels_test_optim_CPPFLAGS = $(TEST_CPPFLAGS)
tests_kernels_test_optim_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS)
tests_kernels_test_optim_LDADD = $(KERNELS_TEST_LIBS)

tests_kernels_test_ref_SOURCES = tests/kernels/test_ref.c
tests_kernels_test_ref_CPPFLAGS = $(TEST_CPPFLAGS)
tests_kernels_test_ref_LDADD = $(KERNELS_TEST_LIBS)

tests_kernels_test_group_SOURCES = tests/kernels/test_group.c
tests_kernels_test_group_CPPFLAGS = $(TEST_CPPFLAGS)
tests_kernels_test_group_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS)
tests_kernels_test_group_LDADD = $(KERNELS_TEST_LIBS)

tests_kernels_test_weighted_loss_SOURCES = tests/kernels/test_weighted_loss.c
tests_kernels_test_weighted_loss_CPPFLAGS = $(TEST_CPPFLAGS)
tests_kernels_test_weighted_loss_LDADD = $(KERNELS_TEST_LIBS)

tests_kernels_test_shape_SOURCES = tests/kernels/test_shape.c
tests_kernels_test_shape_CPPFLAGS = $(TEST_CPPFLAGS)
tests_kernels_test_shape_LDADD = $(CMOCKA_LIBS) -lm

tests_kernels_test_winograd_SOURCES = tests/kernels/test_winograd.c tests/kernels/op_pair.c tests/kernels/op_pair.h
tests_kernels_test_winograd_CPPFLAGS = $(TEST_CPPFLAGS)
tests_kernels_test_winograd_LDADD = $(KERNELS_TEST_LIBS)
