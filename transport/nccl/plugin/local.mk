# A module that NCCL loads by dlopen: a program as far as automake knows, since there is no libtool here. Sources of the layers
# below are built again, as position-independent code and with nothing exported.
ncclnetdir = $(libdir)
ncclnet_PROGRAMS = libnccl-net-gannet.so
libnccl_net_gannet_so_CPPFLAGS = $(AM_CPPFLAGS) $(UCX_CFLAGS)
libnccl_net_gannet_so_CFLAGS = $(AM_CFLAGS) -fPIC -fvisibility=hidden
libnccl_net_gannet_so_LDFLAGS = $(AM_LDFLAGS) -shared
libnccl_net_gannet_so_LDADD = $(UCX_LIBS)
libnccl_net_gannet_so_SOURCES = \
	transport/nccl/plugin/abi.h \
	transport/nccl/plugin/conn.c \
	transport/nccl/plugin/context.c transport/nccl/plugin/context.h \
	transport/nccl/plugin/api.c transport/nccl/plugin/api.h \
	transport/nccl/plugin/worker.c transport/nccl/plugin/worker.h \
	transport/nccl/plugin/flush.c transport/nccl/plugin/flush.h \
	transport/nccl/plugin/link.c \
	transport/nccl/plugin/cm.c transport/nccl/plugin/cm.h transport/nccl/plugin/cm_internal.h \
	transport/nccl/plugin/cm_connect.c \
	transport/nccl/plugin/versions.c \
	src/base/clock.c src/base/file.c src/base/log.c src/base/status.c src/base/strbuf.c src/base/text.c src/base/thread.c src/base/trust.c \
	transport/topology/devices.c transport/ucx/ucx_common.c transport/auth/net.c transport/topology/rails_find.c
