bin_PROGRAMS += gannet
gannet_CFLAGS = $(AM_CFLAGS)
gannet_SOURCES = \
	src/cmd/cmd.c src/cmd/cmd.h \
	src/cmd/info.c \
	src/cmd/main.c \
	src/cmd/pack.c \
	src/cmd/stage.c \
	src/cmd/verify.c
gannet_LDADD = $(DATA_LIBS) $(BASE_LIBS)

pkgconfigdir = $(libdir)/pkgconfig
nodist_pkgconfig_DATA = src/gannet.pc
modulefiledir = $(datadir)/modulefiles/gannet
nodist_modulefile_DATA = src/gannet.modulefile
nodist_bashcomp_DATA = gannet.bash
gannet.bash: gannet$(EXEEXT)
	$(AM_V_GEN)./gannet$(EXEEXT) --completion >$@.tmp && mv $@.tmp $@
CLEANFILES += gannet.bash
