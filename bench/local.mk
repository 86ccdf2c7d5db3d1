noinst_PROGRAMS += bench/loader
bench_loader_SOURCES = bench/loader.c
bench_loader_LDADD = $(DATA_LIBS) $(BASE_LIBS)
