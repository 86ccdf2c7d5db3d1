bin_PROGRAMS += gannet
gannet_CFLAGS = $(AM_CFLAGS)
gannet_SOURCES = \
	src/cmd/cmd.c src/cmd/cmd.h \
	src/cmd/info.c \
	src/cmd/main.c \
	src/cmd/pack.c \
	src/cmd/report.c \
	src/cmd/golden.S src/cmd/selftest.c \
	src/cmd/stage.c \
	src/cmd/verify.c
GOLDEN_FILES = \
	tests/golden/resnet18-b4-s64-c10.json \
	tests/golden/resnet50-b4-s96-c1000.json \
	tests/golden/resnet50-b2-s224-c1000.json
EXTRA_DIST += $(GOLDEN_FILES) tests/golden/README.md
# the assembler finds the reference files by its own -I
gannet_CCASFLAGS = -Wa,-I$(top_srcdir)
src/cmd/gannet-golden.$(OBJEXT): $(GOLDEN_FILES)
gannet_LDADD = $(TRAIN_LIBS) $(DATA_LIBS) $(KERNELS_LIBS) $(BASE_LIBS)

pkgconfigdir = $(libdir)/pkgconfig
nodist_pkgconfig_DATA = src/gannet.pc
modulefiledir = $(datadir)/modulefiles/gannet
nodist_modulefile_DATA = src/gannet.modulefile
nodist_bashcomp_DATA = gannet.bash
gannet.bash: gannet$(EXEEXT)
	$(AM_V_GEN)./gannet$(EXEEXT) --completion >$@.tmp && mv $@.tmp $@
CLEANFILES += gannet.bash
