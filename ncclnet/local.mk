# A module that NCCL loads by dlopen: a program as far as automake knows, since there is no libtool here. Sources of the layers
# below are built again, as position-independent code and with nothing exported.
ncclnetdir = $(libdir)
ncclnet_PROGRAMS = libnccl-net-gannet.so
libnccl_net_gannet_so_CPPFLAGS = $(AM_CPPFLAGS) $(UCX_CFLAGS)
libnccl_net_gannet_so_CFLAGS = $(AM_CFLAGS) -fPIC -fvisibility=hidden
libnccl_net_gannet_so_LDFLAGS = $(AM_LDFLAGS) -shared
libnccl_net_gannet_so_LDADD = $(UCX_LIBS)
libnccl_net_gannet_so_SOURCES = \
	ncclnet/abi.h \
	ncclnet/conn.c ncclnet/conn.h \
	ncclnet/context.c ncclnet/context.h \
	ncclnet/core.c ncclnet/core.h \
	ncclnet/device.c ncclnet/device.h \
	ncclnet/engine.c ncclnet/engine.h \
	ncclnet/flush.c ncclnet/flush.h \
	ncclnet/keeper.c ncclnet/keeper.h \
	ncclnet/link.c \
	ncclnet/mail.c ncclnet/mail.h \
	ncclnet/meet.c ncclnet/meet.h ncclnet/meet_internal.h \
	ncclnet/meet_in.c ncclnet/meet_out.c \
	ncclnet/report.c ncclnet/report.h \
	ncclnet/versions.c \
	src/base/clock.c src/base/file.c src/base/status.c src/base/strbuf.c src/base/text.c src/base/thread.c \
	transport/devices.c transport/fabric_lanes.c transport/net.c transport/rails_find.c
