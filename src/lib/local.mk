# A shared library: a program as far as automake knows, since there is no libtool here. Its objects are those of the static libraries,
# position-independent and hidden (SHARED_CFLAGS), of which gannet.map exports gannet_*.
sharedlibdir = $(libdir)
sharedlib_PROGRAMS = libgannet.so.0
libgannet_so_0_SOURCES = src/lib/gannet.h src/lib/lib.c src/lib/lib_internal.h src/lib/lib_loader.c src/lib/lib_op.c \
	src/train/loop/augment_options.c src/train/loop/input.c src/train/loop/staging.c
libgannet_so_0_CFLAGS = $(SHARED_CFLAGS)
libgannet_so_0_LDFLAGS = $(AM_LDFLAGS) -shared -Wl,-soname,libgannet.so.0 -Wl,--version-script=$(srcdir)/src/lib/gannet.map -Wl,--as-needed
libgannet_so_0_LDADD = $(DATA_LIBS) $(TRANSPORT_LIBS)
EXTRA_libgannet_so_0_DEPENDENCIES = $(srcdir)/src/lib/gannet.map
include_HEADERS = src/lib/gannet.h
# The same objects for programs that are linked statically: one archive, for which the others need not be there.
lib_LIBRARIES += libgannet.a
libgannet_a_SOURCES =
libgannet_a_LIBADD = $(libgannet_so_0_OBJECTS) $(libgannet_data_a_OBJECTS) $(libgannet_transport_a_OBJECTS) $(libgannet_base_a_OBJECTS)
# automake takes what is an object for made already
libgannet_a_DEPENDENCIES = $(libgannet_a_LIBADD)
nodist_pkgconfig_DATA += src/lib/libgannet.pc
dist_man_MANS += src/man/libgannet.3
EXTRA_DIST += src/lib/gannet.map

# programs that show it, and that tests/lib runs
LIB_EXAMPLES = src/lib/examples/allreduce src/lib/examples/halo src/lib/examples/overlap
check_PROGRAMS += $(LIB_EXAMPLES)
LIB_EXAMPLE_CPPFLAGS = -I$(srcdir)/src/lib
src_lib_examples_allreduce_CPPFLAGS = $(LIB_EXAMPLE_CPPFLAGS)
src_lib_examples_allreduce_LDADD = libgannet.so.0
src_lib_examples_halo_CPPFLAGS = $(LIB_EXAMPLE_CPPFLAGS)
src_lib_examples_halo_LDADD = libgannet.so.0 -lm
src_lib_examples_overlap_CPPFLAGS = $(LIB_EXAMPLE_CPPFLAGS)
src_lib_examples_overlap_LDADD = libgannet.so.0
dist_examples_DATA = src/lib/examples/allreduce.c src/lib/examples/halo.c src/lib/examples/overlap.c
examplesdir = $(docdir)/examples

# the link that -lgannet finds, beside it when it is installed
install-data-hook: shared-link
shared-link:
	cd '$(DESTDIR)$(libdir)' && rm -f libgannet.so && ln -s libgannet.so.0 libgannet.so
uninstall-hook:
	rm -f '$(DESTDIR)$(libdir)/libgannet.so'
# make install may have other folders than configure: relative to the file where they are below the prefix
install-data-hook: installed-pkgconfig
installed-pkgconfig:
	below() { case "$$1" in '$(prefix)'/*) echo '$${prefix}'"$${1#'$(prefix)'}" ;; *) echo "$$1" ;; esac; } && \
	  up=`realpath -ms --relative-to='$(pkgconfigdir)' '$(prefix)'` && lib=`below '$(libdir)'` && include=`below '$(includedir)'` && \
	  cd '$(DESTDIR)$(pkgconfigdir)' && sed -i 's|^prefix=.*|prefix=$${pcfiledir}/'"$$up|;s|^libdir=.*|libdir=$$lib|;s|^includedir=.*|includedir=$$include|" \
	    $(notdir $(nodist_pkgconfig_DATA))
.PHONY: shared-link installed-pkgconfig

# the backend of torch.distributed: built by pip, no part of make
EXTRA_DIST += src/bindings/torch/setup.py src/bindings/torch/pyproject.toml src/bindings/torch/gannet_torch/__init__.py src/bindings/torch/gannet_torch/convert.py \
	src/bindings/torch/gannet_torch/_library.py src/bindings/torch/gannet_torch/data.py \
	src/bindings/torch/csrc/backend.cpp src/bindings/torch/csrc/backend.h src/bindings/torch/csrc/callbacks.cpp \
	src/bindings/torch/csrc/callbacks.h src/bindings/torch/csrc/engine.cpp src/bindings/torch/csrc/engine.h \
	src/bindings/torch/csrc/module.cpp src/bindings/torch/csrc/moves.cpp src/bindings/torch/csrc/moves.h \
	src/bindings/torch/csrc/reduce.cpp src/bindings/torch/csrc/reduce.h src/bindings/torch/csrc/staging.cpp \
	src/bindings/torch/csrc/staging.h
