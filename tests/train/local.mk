UNIT_TESTS += tests/train/test_model

TRAIN_TEST_LIBS = $(TRAIN_LIBS) $(KERNELS_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)
tests_train_test_model_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_model_LDADD = $(TRAIN_TEST_LIBS)
