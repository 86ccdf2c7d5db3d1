lib_LIBRARIES += libgannet_base.a
libgannet_base_a_CPPFLAGS = $(AM_CPPFLAGS) $(CRYPTO_CFLAGS)
libgannet_base_a_CFLAGS = $(SHARED_CFLAGS)
libgannet_base_a_SOURCES = \
	src/base/alloc.c src/base/alloc.h \
	src/base/clock.c src/base/clock.h \
	src/base/crc32c.c src/base/crc32c.h \
	src/base/cipher_file.c src/base/cipher_file.h \
	src/base/data_key.c src/base/data_key.h \
	src/base/file.c src/base/file.h src/base/file_kind.c src/base/file_kind.h \
	src/base/half.h \
	src/base/vector.h \
	src/base/json.c src/base/json.h \
	src/base/dynlib.c src/base/dynlib.h \
	src/base/log.c src/base/log.h \
	src/base/oom.c src/base/oom.h src/base/option.c src/base/option_file.c src/base/option_text.c src/base/option.h \
	src/base/philox.c src/base/philox.h \
	src/base/crop.h \
	src/base/thread_pool.c src/base/thread_pool.h \
	src/base/process.c src/base/process.h \
	src/base/progress_bar.c src/base/progress_bar.h \
	src/base/sha256.c src/base/sha256.h \
	src/base/sort.h \
	src/base/status.c src/base/status.h \
	src/base/strbuf.c src/base/strbuf.h \
	src/base/text.c src/base/text.h \
	src/base/thread.c src/base/thread.h \
	src/base/trust.c src/base/trust.h \
	src/base/version.c src/base/version.h
EXTRA_DIST += src/base/build-info
# Looked at by each make, written only when it changed: another user may install a build that he cannot write to.
src/build.h: FORCE
	@$(MKDIR_P) src && text=`$(SHELL) $(srcdir)/src/base/build-info $(srcdir)` && \
	  { echo "$$text" | cmp -s - $@ || { test -f $@ && test ! -w src; } || { echo "$$text" >$@.tmp && mv -f $@.tmp $@; }; }
FORCE:
.PHONY: FORCE
src/base/libgannet_base_a-version.$(OBJEXT): src/build.h
CLEANFILES += src/build.h
BASE_LIBS = libgannet_base.a $(CRYPTO_LIBS)
