bin_PROGRAMS += gannet
gannet_CFLAGS = $(AM_CFLAGS)
gannet_CPPFLAGS = $(AM_CPPFLAGS)
gannet_SOURCES = \
	src/cmd/bench.c src/cmd/bench.h src/cmd/bench_coll.c src/cmd/bench_decode.c src/cmd/bench_gpu.c src/cmd/bench_io.c \
	src/cmd/bench_row.c src/cmd/bench_row.h src/cmd/bench_shared.c \
	src/cmd/bench_train.c src/cmd/bench_train_internal.h src/cmd/bench_train_profile.c src/cmd/bench_train_report.c \
	src/cmd/cmd.c src/cmd/cmd.h \
	src/cmd/eval.c \
	src/cmd/exec.c \
	src/cmd/export.c \
	src/cmd/job_command.c src/cmd/job_command.h \
	src/cmd/info.c src/cmd/info.h src/cmd/info_checkpoint.c src/cmd/info_parallel.c src/cmd/info_plan.c src/cmd/info_topology.c \
	src/cmd/launch.c src/cmd/launch_internal.h src/cmd/launch_job.c \
	src/cmd/main.c \
	src/cmd/pack.c \
	src/cmd/predict.c \
	src/cmd/preflight.c \
	src/cmd/preview.c src/cmd/print_json.c \
	src/cmd/report.c \
	src/cmd/sample_options.h \
	src/cmd/golden.S src/cmd/selftest.c \
	src/cmd/sim.c src/cmd/sim.h src/cmd/sim_machine.c src/cmd/sim_train.c \
	src/cmd/stage.c src/cmd/stage_list.c src/cmd/stage_list.h \
	src/cmd/stop.c src/cmd/stop.h \
	src/cmd/submit.c \
	src/cmd/summary.c \
	src/cmd/sweep.c \
	src/cmd/top.c \
	src/cmd/train.c src/cmd/train_internal.h src/cmd/train_options.c src/cmd/train_elastic.c \
	src/cmd/tune.c \
	src/cmd/verify.c \
	src/cmd/key_option.h src/cmd/network_options.h src/cmd/world_options.h
GOLDEN_FILES = \
	tests/golden/resnet18-b4-s64-c10.json \
	tests/golden/resnet50-b4-s96-c1000.json \
	tests/golden/resnet50-b2-s224-c1000.json \
	tests/golden/mobilenet_v2-b3-s96-c7.json \
	tests/golden/mobilenet_v3_large-b3-s96-c7.json \
	tests/golden/efficientnet_b0-b3-s96-c7.json \
	tests/golden/convnext_tiny-b3-s96-c7.json \
	tests/golden/vit_b_16-b2-s64-c10.json
EXTRA_DIST += $(GOLDEN_FILES) tests/golden/README.md tests/golden/resnet18-b2-s32-c10.json tests/golden/vit_b_16-b3-s96-c17.json
# the assembler finds the reference files by its own -I
gannet_CCASFLAGS = -Wa,-I$(top_srcdir)
src/cmd/gannet-golden.$(OBJEXT): $(GOLDEN_FILES)
gannet_LDADD = $(JOBS_LIBS) $(TRAIN_LIBS) $(DATA_LIBS) $(TRANSPORT_CUDA_LIBS) $(TRANSPORT_LIBS) $(KERNELS_CUDA_LIBS) $(KERNELS_LIBS) $(BASE_LIBS)

pkgconfigdir = $(libdir)/pkgconfig
nodist_pkgconfig_DATA += src/gannet.pc
# Modules are known by their file's name: the version's. Made for the folders of this make install, which may be others than configure's.
modulefiledir = $(datadir)/modulefiles/gannet
install-data-hook: installed-modulefile
installed-modulefile:
	$(MKDIR_P) '$(DESTDIR)$(modulefiledir)' && \
	  sed 's|@version@|$(PACKAGE_VERSION)|; s|[@]prefix@|$(prefix)|; s|[@]bindir@|$(bindir)|; s|[@]libdir@|$(libdir)|; s|[@]mandir@|$(mandir)|' \
	    '$(srcdir)/src/gannet.modulefile.in' >'$(DESTDIR)$(modulefiledir)/$(PACKAGE_VERSION)' && \
	  chmod 644 '$(DESTDIR)$(modulefiledir)/$(PACKAGE_VERSION)'
.PHONY: installed-modulefile
EXTRA_DIST += src/gannet.modulefile.in
nodist_bashcomp_DATA = gannet.bash
gannet.bash: gannet$(EXEEXT)
	$(AM_V_GEN)./gannet$(EXEEXT) --completion >$@.tmp && mv $@.tmp $@
CLEANFILES += gannet.bash

# A page for each command, from the table that parses its options: nothing here to keep in step.
dist_man_MANS += src/man/gannet.1
dist_doc_DATA = README.md CHANGELOG.md LICENSE src/man/gannet.conf src/man/data-path.svg src/man/architecture.svg src/man/pipelines.svg \
	src/man/checkpoints.md src/man/containers.md src/man/data.md src/man/design.md src/man/exec.md src/man/fabric.md src/man/first-day.md src/man/formats.md src/man/gpus.md src/man/loader.md src/man/logs.md \
	src/man/nccl-plugin.md src/man/peers.md src/man/preflight.md src/man/preprocessing.md src/man/security.md src/man/sim.md src/man/site.md \
	src/man/slurm.md src/man/submit.md src/man/summary.md src/man/sweep.md src/man/torch.md src/man/training.md
simdir = $(pkgdatadir)/sim
dist_sim_DATA = src/man/sim-rail-optimised.json src/man/sim-three-level.json
src/man/stamp: gannet$(EXEEXT)
	$(AM_V_GEN)$(MKDIR_P) src/man && rm -f src/man/gannet-*.1 && \
	  for c in `./gannet$(EXEEXT) --help | sed -n '/^Commands:/,/^$$/s/^  \([a-z][a-z]*\) .*/\1/p'`; do \
	    ./gannet$(EXEEXT) --man $$c >src/man/gannet-$$c.1 || exit 1; \
	  done && echo made >$@
noinst_DATA = src/man/stamp
CLEANFILES += src/man/stamp src/man/gannet-*.1
# the pages lie beside README.md there
install-data-hook: installed-readme
installed-readme:
	cd '$(DESTDIR)$(docdir)' && sed -i 's|](src/man/|](|g' README.md
.PHONY: installed-readme whole-prefix
install-exec-local: whole-prefix
whole-prefix:
	@case '$(prefix)' in /*) ;; *) echo "make install: prefix=$(prefix) is no whole path: begin it with /" >&2; exit 1 ;; esac
install-data-local: src/man/stamp whole-prefix
	$(MKDIR_P) '$(DESTDIR)$(man1dir)' && $(INSTALL_DATA) src/man/gannet-*.1 '$(DESTDIR)$(man1dir)'
uninstall-local:
	rm -f '$(DESTDIR)$(man1dir)'/gannet-*.1 '$(DESTDIR)$(modulefiledir)/$(PACKAGE_VERSION)'
