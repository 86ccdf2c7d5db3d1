SHELL_TESTS += tests/data/archives.t tests/data/bad.t tests/data/bench_io.t tests/data/decode.t tests/data/encrypt.t tests/data/imagenet.t tests/data/pack.t tests/data/pack_resume.t tests/data/pack_split.t tests/data/preview.t tests/data/stage.t
SHELL_TESTS += tests/data/stage_tree.t tests/data/stage_list.t tests/data/stage_nodes.t tests/data/stage_faulty.t
UNIT_TESTS += tests/data/test_balance
tests_data_test_balance_SOURCES = tests/data/test_balance.c
tests_data_test_balance_CPPFLAGS = $(TEST_CPPFLAGS)
tests_data_test_balance_LDADD = $(DATA_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)

UNIT_TESTS += tests/data/test_tree tests/data/test_augment tests/data/test_decode tests/data/test_loader tests/data/test_mixup tests/data/test_order \
	tests/data/test_crops tests/data/test_sample_pipeline tests/data/test_resize tests/data/test_image_op tests/data/test_auto_augment tests/data/test_image_turn tests/data/test_bicubic

tests_data_test_augment_SOURCES = tests/data/test_augment.c
tests_data_test_augment_CPPFLAGS = $(TEST_CPPFLAGS)
tests_data_test_augment_LDADD = $(DATA_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)

tests_data_test_decode_SOURCES = tests/data/test_decode.c tests/data/picture.c tests/data/picture.h
tests_data_test_decode_CPPFLAGS = $(TEST_CPPFLAGS) $(JPEG_CFLAGS)
tests_data_test_decode_LDADD = $(DATA_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)

tests_data_test_loader_SOURCES = tests/data/test_loader.c
tests_data_test_loader_CPPFLAGS = $(TEST_CPPFLAGS)
tests_data_test_loader_LDADD = $(DATA_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)

tests_data_test_order_SOURCES = tests/data/test_order.c
tests_data_test_order_CPPFLAGS = $(TEST_CPPFLAGS)
tests_data_test_order_LDADD = $(DATA_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)

tests_data_test_crops_SOURCES = tests/data/test_crops.c
tests_data_test_crops_CPPFLAGS = $(TEST_CPPFLAGS)
tests_data_test_crops_LDADD = $(DATA_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)

tests_data_test_sample_pipeline_SOURCES = tests/data/test_sample_pipeline.c tests/data/picture.c tests/data/picture.h
tests_data_test_sample_pipeline_CPPFLAGS = $(TEST_CPPFLAGS) $(JPEG_CFLAGS)
tests_data_test_sample_pipeline_LDADD = $(DATA_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)

tests_data_test_resize_SOURCES = tests/data/test_resize.c
tests_data_test_resize_CPPFLAGS = $(TEST_CPPFLAGS)
tests_data_test_resize_LDADD = $(DATA_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)

tests_data_test_image_op_SOURCES = tests/data/test_image_op.c tests/data/reference.h
tests_data_test_image_op_CPPFLAGS = $(TEST_CPPFLAGS)
tests_data_test_image_op_LDADD = $(DATA_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)
EXTRA_DIST += tests/data/resize_bicubic.txt tests/data/resize_reference tests/data/image_op.bin tests/data/image_op_reference

tests_data_test_image_turn_SOURCES = tests/data/test_image_turn.c
tests_data_test_image_turn_CPPFLAGS = $(TEST_CPPFLAGS)
tests_data_test_image_turn_LDADD = $(DATA_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)

tests_data_test_bicubic_SOURCES = tests/data/test_bicubic.c tests/data/reference.h
tests_data_test_bicubic_CPPFLAGS = $(TEST_CPPFLAGS)
tests_data_test_bicubic_LDADD = $(DATA_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)

tests_data_test_auto_augment_SOURCES = tests/data/test_auto_augment.c
tests_data_test_auto_augment_CPPFLAGS = $(TEST_CPPFLAGS)
tests_data_test_auto_augment_LDADD = $(DATA_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)

UNIT_TESTS += tests/data/test_encryption
tests_data_test_encryption_SOURCES = tests/data/test_encryption.c
tests_data_test_encryption_CPPFLAGS = $(TEST_CPPFLAGS) $(CRYPTO_CFLAGS)
tests_data_test_encryption_LDADD = $(DATA_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)

UNIT_TESTS += tests/data/test_image tests/data/test_labels tests/data/test_manifest tests/data/test_png tests/data/test_shard tests/data/test_source

tests_data_test_png_SOURCES = tests/data/test_png.c
tests_data_test_png_CPPFLAGS = $(TEST_CPPFLAGS) $(PNG_CFLAGS)
tests_data_test_png_LDADD = $(DATA_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)

tests_data_test_image_SOURCES = tests/data/test_image.c tests/data/picture.c tests/data/picture.h
tests_data_test_image_CPPFLAGS = $(TEST_CPPFLAGS) $(JPEG_CFLAGS) $(PNG_CFLAGS)
tests_data_test_image_LDADD = $(DATA_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)

tests_data_test_labels_SOURCES = tests/data/test_labels.c
tests_data_test_labels_CPPFLAGS = $(TEST_CPPFLAGS)
tests_data_test_labels_LDADD = $(DATA_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)

tests_data_test_manifest_SOURCES = tests/data/test_manifest.c
tests_data_test_manifest_CPPFLAGS = $(TEST_CPPFLAGS)
tests_data_test_manifest_LDADD = $(DATA_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)

tests_data_test_shard_SOURCES = tests/data/test_shard.c
tests_data_test_shard_CPPFLAGS = $(TEST_CPPFLAGS) $(HDF5_CFLAGS)
tests_data_test_shard_LDADD = $(DATA_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)

tests_data_test_source_SOURCES = tests/data/test_source.c
tests_data_test_source_CPPFLAGS = $(TEST_CPPFLAGS)
tests_data_test_source_LDADD = $(DATA_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)

tests_data_test_mixup_SOURCES = tests/data/test_mixup.c
tests_data_test_mixup_CPPFLAGS = $(TEST_CPPFLAGS)
tests_data_test_mixup_LDADD = $(DATA_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)
EXTRA_DIST += tests/data/tree.sh tests/data/web.sh tests/data/faulty_sender.c tests/data/faulty_disk.c
SLOW_TESTS += tests/data/fetch.t tests/data/fetch_nodes.t tests/data/stage_disks.t
EXTRA_DIST += tests/data/nfs.t tests/data/stage_deaths.t

tests_data_test_tree_SOURCES = tests/data/test_tree.c
tests_data_test_tree_CPPFLAGS = $(TEST_CPPFLAGS)
tests_data_test_tree_LDADD = $(DATA_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)
