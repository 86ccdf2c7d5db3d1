check_PROGRAMS += tests/transport/rank_probe
tests_transport_rank_probe_SOURCES = tests/transport/rank_probe.c
tests_transport_rank_probe_LDADD = $(TRANSPORT_LIBS)
