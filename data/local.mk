lib_LIBRARIES += libgannet_data.a
libgannet_data_a_CPPFLAGS = $(AM_CPPFLAGS) $(JPEG_CFLAGS)
libgannet_data_a_SOURCES = \
	data/augment.c data/augment.h \
	data/decode.c data/decode.h \
	data/loader.c data/loader.h \
	data/order.c data/order.h \
	data/render.c data/render.h \
	data/resize.c data/resize.h
DATA_LIBS = libgannet_data.a $(JPEG_LIBS)
