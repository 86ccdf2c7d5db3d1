UNIT_TESTS += tests/train/test_curve tests/train/test_lr tests/train/test_model tests/train/test_safetensors
EXTRA_DIST += tests/train/common.sh

TRAIN_TEST_LIBS = $(TRAIN_LIBS) $(KERNELS_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)
tests_train_test_model_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_model_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_curve_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_curve_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_lr_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_lr_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_safetensors_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_safetensors_LDADD = $(TRAIN_TEST_LIBS)
