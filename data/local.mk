lib_LIBRARIES += libgannet_data.a
libgannet_data_a_CFLAGS = $(SHARED_CFLAGS)
libgannet_data_a_CPPFLAGS = $(AM_CPPFLAGS) $(HDF5_CFLAGS) $(JPEG_CFLAGS) $(PNG_CFLAGS) $(ARCHIVE_CFLAGS) $(JANSSON_CFLAGS) $(CURL_CFLAGS)
libgannet_data_a_SOURCES = \
	data/sample/augment.c data/sample/augment.h data/sample/auto_augment.c data/sample/auto_augment.h \
	data/sample/image_op.c data/sample/image_op.h \
	data/sample/decode.c data/sample/decode.h data/sample/image.c \
	data/sample/jpeg_trap.c data/sample/jpeg_trap_internal.h \
	data/sample/image.h data/sample/mixup.c data/sample/mixup.h data/sample/options.c data/sample/options.h \
	data/sample/order.c data/sample/order.h data/sample/resize.c data/sample/resize.h \
	data/shard/dataset.c data/shard/dataset.h data/shard/encryption.c data/shard/encryption.h data/shard/folders.c data/shard/folders.h data/shard/manifest.c data/shard/manifest.h data/shard/names.c \
	data/shard/names.h data/shard/shard.c data/shard/shard.h \
	data/shard/shard_internal.h data/shard/shard_write.c data/shard/verify.c data/shard/verify.h \
	data/pack/labels.c data/pack/labels.h data/pack/pack.c data/pack/pack.h data/pack/pack_classes.c \
	data/pack/pack_collect.c data/pack/pack_collect_internal.h data/pack/pack_job.c data/pack/pack_journal.c \
	data/pack/pack_journal.h data/pack/pack_levels.c data/pack/pack_options.h \
	data/pack/pack_parts_internal.h data/pack/pack_write.c data/pack/pictures.c data/pack/pictures.h data/pack/source.c data/pack/source.h \
	data/pack/source_folder.c data/pack/source_tar.c data/pack/split.c data/pack/split.h \
	data/loader/batch_builder.c data/loader/batch_builder.h data/loader/loader.c data/loader/loader.h data/loader/sample_pipeline.c \
	data/loader/sample_pipeline.h \
	data/stage/stage.c data/stage/stage.h data/stage/stage_internal.h data/stage/stage_jobs.c data/stage/stage_spread.c \
	data/stage/stage_marker.c data/stage/stage_marker.h \
	data/stage/staged.c data/stage/staged.h data/stage/staged_internal.h data/stage/staged_remove.c \
	data/stage/stage_place.c data/stage/stage_place.h data/stage/fetch.c data/stage/fetch.h data/stage/http.c data/stage/http.h \
	data/stage/relay.c data/stage/relay.h data/stage/relay_internal.h data/stage/relay_job.c data/stage/relay_lead.c \
	data/stage/relay_lead_internal.h data/stage/relay_source.c data/stage/relay_verdict.c \
	data/stage/tree.c data/stage/tree.h data/stage/tree_data.c \
	data/stage/tree_target.c data/stage/tree_target.h data/stage/tree_target_internal.h
DATA_LIBS = libgannet_data.a $(HDF5_LIBS) $(JPEG_LIBS) $(PNG_LIBS) $(ARCHIVE_LIBS) $(JANSSON_LIBS) $(CURL_LIBS)
EXTRA_DIST += data/digits/README.md data/digits/digits-train.tar.xz data/digits/digits-val.tar.xz
