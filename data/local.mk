lib_LIBRARIES += libgannet_data.a
libgannet_data_a_CPPFLAGS = $(AM_CPPFLAGS) $(HDF5_CFLAGS) $(JPEG_CFLAGS) $(PNG_CFLAGS) $(ARCHIVE_CFLAGS) $(JANSSON_CFLAGS)
libgannet_data_a_SOURCES = \
	data/augment.c data/augment.h \
	data/dataset.c data/dataset.h \
	data/decode.c data/decode.h \
	data/image.c data/image.h \
	data/fill.c data/fill.h \
	data/loader.c data/loader.h data/loader_options.c \
	data/manifest.c data/manifest.h \
	data/mixup.c data/mixup.h \
	data/names.c data/names.h \
	data/order.c data/order.h \
	data/pack.c data/pack.h data/pack_parts.h \
	data/pack_classes.c data/pack_collect.c data/pack_output.c data/pack_write.c \
	data/render.c data/render.h \
	data/resize.c data/resize_rows.c data/resize_rows.h data/resize.h \
	data/shard.c data/shard.h data/shard_digest.c \
	data/shard_hdf5.c data/shard_hdf5.h data/shard_write.c \
	data/source.c data/source.h data/source_tar.c \
	data/stage.c data/stage.h data/stage_stamp.c data/stage_stamp.h \
	data/synthetic.c data/synthetic.h \
	data/verify.c data/verify.h
DATA_LIBS = libgannet_data.a $(HDF5_LIBS) $(JPEG_LIBS) $(PNG_LIBS) $(ARCHIVE_LIBS) $(JANSSON_LIBS)
EXTRA_DIST += data/digits/README.md data/digits/digits-train.tar.xz data/digits/digits-val.tar.xz
