# Builds and runs the fuzzers; called by `make fuzz`, for GNU make, with clang whatever CC is.
# One more fuzzer NAME: a file fuzz_NAME.c, its name here, the folders or files it needs in CODE, seeds in tests/fuzz/seeds,
# and both in local.mk's EXTRA_DIST.
FUZZERS = handshake image labels manifest safetensors shard tar
CODE = $(filter-out $(SOURCE)/data/stage/%,$(wildcard $(SOURCE)/src/base/*.c $(SOURCE)/data/*/*.c)) $(SOURCE)/src/train/model/safetensors.c $(SOURCE)/tests/fuzz/scratch.c \
	$(patsubst %,$(SOURCE)/transport/auth/%.c,handshake net secret)
CC = clang
FUZZ_FLAGS = -std=c11 -g -O1 -fno-omit-frame-pointer -pthread -fno-sanitize-recover=undefined
SANITIZE = address,undefined

OBJECTS = $(patsubst $(SOURCE)/%.c,tests/fuzz/objects/%.o,$(CODE))
PROGRAMS = $(FUZZERS:%=tests/fuzz/bin/fuzz_%)

run: $(PROGRAMS)
	@GN_BUILD='$(CURDIR)' GN_SOURCE='$(SOURCE)' FUZZERS='$(FUZZERS)' FUZZ_SECONDS='$(FUZZ_SECONDS)' \
	  $(PERL) $(SOURCE)/tests/harness --source $(SOURCE) tests/fuzz/fuzz.t
tests/fuzz/objects/%.o: $(SOURCE)/%.c
	@echo '  FUZZCC  ' $@ && mkdir -p $(@D) && \
	$(CC) $(CPPFLAGS) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link,$(SANITIZE) -MMD -c -o $@ $<
tests/fuzz/bin/fuzz_%: $(SOURCE)/tests/fuzz/fuzz_%.c $(OBJECTS)
	@echo '  FUZZLD  ' $@ && mkdir -p $(@D) && \
	$(CC) $(CPPFLAGS) $(FUZZ_FLAGS) -fsanitize=fuzzer,$(SANITIZE) -o $@ $< $(OBJECTS) $(LIBS)
-include $(OBJECTS:.o=.d)
.PHONY: run
.SECONDARY: $(OBJECTS)
