lib_LIBRARIES += libgannet_train.a
libgannet_train_a_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
libgannet_train_a_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS)
libgannet_train_a_SOURCES = \
	src/train/golden.c src/train/golden_internal.h src/train/golden_run.c src/train/golden.h \
	src/train/init.c src/train/init.h \
	src/train/lenet.c \
	src/train/model.c src/train/model_internal.h src/train/model.h \
	src/train/plan.c src/train/plan_build.c src/train/plan_memory.c src/train/plan_internal.h src/train/plan.h \
	src/train/resnet.c \
	src/train/storage.c \
	src/train/vgg.c
TRAIN_LIBS = libgannet_train.a $(JANSSON_LIBS)
