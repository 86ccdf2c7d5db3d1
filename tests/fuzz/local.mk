# make fuzz [FUZZ_SECONDS=10]: libFuzzer harnesses, see tests/fuzz/fuzz.mk
EXTRA_DIST += tests/fuzz/fuzz.mk tests/fuzz/fuzz.t tests/fuzz/seeds tests/fuzz/scratch.c tests/fuzz/scratch.h tests/fuzz/lsan.supp \
	tests/fuzz/fuzz_handshake.c tests/fuzz/fuzz_image.c tests/fuzz/fuzz_labels.c tests/fuzz/fuzz_manifest.c tests/fuzz/fuzz_safetensors.c tests/fuzz/fuzz_shard.c tests/fuzz/fuzz_tar.c
FUZZ_CPPFLAGS = $(AM_CPPFLAGS) $(CRYPTO_CFLAGS) $(HDF5_CFLAGS) $(JPEG_CFLAGS) $(PNG_CFLAGS) $(ARCHIVE_CFLAGS) \
	$(JANSSON_CFLAGS)
FUZZ_LIBS = $(HDF5_LIBS) $(JPEG_LIBS) $(PNG_LIBS) $(ARCHIVE_LIBS) $(JANSSON_LIBS) $(CRYPTO_LIBS) $(LIBS)

fuzz: gannet$(EXEEXT)
	$(MAKE) -f $(abs_top_srcdir)/tests/fuzz/fuzz.mk SOURCE='$(abs_top_srcdir)' CPPFLAGS='$(FUZZ_CPPFLAGS)' \
	  LIBS='$(FUZZ_LIBS)' PERL='$(PERL)'
clean-local:
	rm -rf tests/fuzz/objects tests/fuzz/bin
.PHONY: fuzz
