# The host's side is in the base library, for every program has it; CUDA's is in the library of its kernels.
libgannet_base_a_SOURCES += \
	src/device/array.c src/device/array.h \
	src/device/device.c src/device/device.h src/device/device_internal.h \
	src/device/host.c \
	src/device/replay.c
DEVICE_CUDA = \
	src/device/cuda.h src/device/cuda_native.h \
	src/device/cuda_arena.c \
	src/device/cuda_device.c \
	src/device/cuda_kind.c \
	src/device/cuda_graph.c \
	src/device/cuda_stream.c
if HAVE_CUDA
libgannet_cuda_a_SOURCES += src/device/open.c $(DEVICE_CUDA)
else
libgannet_base_a_SOURCES += src/device/open.c
endif
