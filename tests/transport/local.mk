TRANSPORT_TESTS = \
	tests/transport/test_affinity \
	tests/transport/test_agree \
	tests/transport/test_bootstrap \
	tests/transport/test_coll_backend \
	tests/transport/test_select \
	tests/transport/test_launcher_detect \
	tests/transport/test_devices \
	tests/transport/test_handshake \
	tests/transport/test_lanes \
	tests/transport/test_limits \
	tests/transport/test_membership \
	tests/transport/test_net \
	tests/transport/test_hub \
	tests/transport/test_rails \
	tests/transport/test_recorder \
	tests/transport/test_regroup \
	tests/transport/test_schedule \
	tests/transport/test_sealed_message \
	tests/transport/test_segment \
	tests/transport/test_sim tests/transport/test_sim_pipe \
	tests/transport/test_tuning_table \
	tests/transport/test_types \
	tests/transport/test_verify \
	tests/transport/test_heartbeat
UNIT_TESTS += $(TRANSPORT_TESTS)
TRANSPORT_TEST_LIBS = $(TRANSPORT_LIBS) $(CMOCKA_LIBS)
tests_transport_test_affinity_CPPFLAGS = $(TEST_CPPFLAGS)
tests_transport_test_affinity_LDADD = $(TRANSPORT_TEST_LIBS)
tests_transport_test_agree_CPPFLAGS = $(TEST_CPPFLAGS)
tests_transport_test_agree_LDADD = $(TRANSPORT_TEST_LIBS)
tests_transport_test_membership_CPPFLAGS = $(TEST_CPPFLAGS)
tests_transport_test_membership_LDADD = $(TRANSPORT_TEST_LIBS)
tests_transport_test_bootstrap_CPPFLAGS = $(TEST_CPPFLAGS)
tests_transport_test_bootstrap_LDADD = $(TRANSPORT_TEST_LIBS)
tests_transport_test_coll_backend_CPPFLAGS = $(TEST_CPPFLAGS)
tests_transport_test_coll_backend_LDADD = $(TRANSPORT_TEST_LIBS)
tests_transport_test_select_CPPFLAGS = $(TEST_CPPFLAGS)
tests_transport_test_select_LDADD = $(TRANSPORT_TEST_LIBS)
tests_transport_test_select_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=gn_critical_path_seconds
tests_transport_test_launcher_detect_CPPFLAGS = $(TEST_CPPFLAGS)
tests_transport_test_launcher_detect_LDADD = $(TRANSPORT_TEST_LIBS)
tests_transport_test_devices_SOURCES = tests/transport/test_devices.c tests/transport/made_up_clock.h tests/transport/made_up_sys.h
tests_transport_test_devices_CPPFLAGS = $(TEST_CPPFLAGS)
tests_transport_test_devices_LDADD = $(TRANSPORT_TEST_LIBS)
tests_transport_test_handshake_SOURCES = tests/transport/test_handshake.c tests/transport/made_up_clock.h
tests_transport_test_handshake_CPPFLAGS = $(TEST_CPPFLAGS)
tests_transport_test_handshake_LDADD = $(TRANSPORT_TEST_LIBS)
tests_transport_test_lanes_CPPFLAGS = $(TEST_CPPFLAGS)
tests_transport_test_lanes_LDADD = $(TRANSPORT_TEST_LIBS)
tests_transport_test_limits_CPPFLAGS = $(TEST_CPPFLAGS)
tests_transport_test_limits_LDADD = $(TRANSPORT_TEST_LIBS)
tests_transport_test_net_CPPFLAGS = $(TEST_CPPFLAGS)
tests_transport_test_net_LDADD = $(TRANSPORT_TEST_LIBS)
tests_transport_test_hub_SOURCES = tests/transport/test_hub.c tests/transport/made_up_clock.h
tests_transport_test_hub_CPPFLAGS = $(TEST_CPPFLAGS)
tests_transport_test_hub_LDADD = $(TRANSPORT_TEST_LIBS)
tests_transport_test_rails_SOURCES = tests/transport/test_rails.c tests/transport/made_up_sys.h
tests_transport_test_rails_CPPFLAGS = $(TEST_CPPFLAGS)
tests_transport_test_rails_LDADD = $(TRANSPORT_TEST_LIBS)
tests_transport_test_regroup_SOURCES = tests/transport/test_regroup.c tests/transport/made_up_clock.h
tests_transport_test_regroup_CPPFLAGS = $(TEST_CPPFLAGS)
tests_transport_test_regroup_LDADD = $(TRANSPORT_TEST_LIBS)
tests_transport_test_recorder_CPPFLAGS = $(TEST_CPPFLAGS)
tests_transport_test_recorder_LDADD = $(TRANSPORT_TEST_LIBS)
tests_transport_test_schedule_CPPFLAGS = $(TEST_CPPFLAGS)
tests_transport_test_schedule_LDADD = $(TRANSPORT_TEST_LIBS)
tests_transport_test_sealed_message_CPPFLAGS = $(TEST_CPPFLAGS)
tests_transport_test_sealed_message_LDADD = $(TRANSPORT_TEST_LIBS)
tests_transport_test_segment_CPPFLAGS = $(TEST_CPPFLAGS)
tests_transport_test_segment_LDADD = $(TRANSPORT_TEST_LIBS)
tests_transport_test_sim_pipe_CPPFLAGS = $(TEST_CPPFLAGS)
tests_transport_test_sim_pipe_LDADD = $(TRANSPORT_TEST_LIBS)
tests_transport_test_sim_CPPFLAGS = $(TEST_CPPFLAGS)
tests_transport_test_sim_LDADD = $(TRANSPORT_TEST_LIBS)
tests_transport_test_tuning_table_CPPFLAGS = $(TEST_CPPFLAGS)
tests_transport_test_tuning_table_LDADD = $(TRANSPORT_TEST_LIBS)
tests_transport_test_types_CPPFLAGS = $(TEST_CPPFLAGS)
tests_transport_test_types_LDADD = $(TRANSPORT_TEST_LIBS)
tests_transport_test_verify_CPPFLAGS = $(TEST_CPPFLAGS)
tests_transport_test_verify_LDADD = $(TRANSPORT_TEST_LIBS)
tests_transport_test_heartbeat_SOURCES = tests/transport/test_heartbeat.c tests/transport/made_up_clock.h
tests_transport_test_heartbeat_CPPFLAGS = $(TEST_CPPFLAGS)
tests_transport_test_heartbeat_LDADD = $(TRANSPORT_TEST_LIBS)

check_PROGRAMS += tests/transport/coll_probe tests/transport/loss_probe tests/transport/trial_probe tests/transport/message_probe tests/transport/group_probe tests/transport/fault_probe tests/transport/rank_probe \
	tests/transport/foreign_probe tests/transport/resident_probe tests/transport/tail_probe tests/transport/scale_probe
tests_transport_scale_probe_SOURCES = tests/transport/scale_probe.c tests/transport/exit_code.h
tests_transport_scale_probe_LDADD = $(TRANSPORT_LIBS)
tests_transport_resident_probe_SOURCES = tests/transport/resident_probe.c tests/transport/exit_code.h
tests_transport_resident_probe_LDADD = $(TRANSPORT_LIBS)
tests_transport_tail_probe_SOURCES = tests/transport/tail_probe.c
tests_transport_tail_probe_LDADD = $(TRANSPORT_LIBS)
tests_transport_foreign_probe_SOURCES = tests/transport/foreign_probe.c tests/transport/exit_code.h
tests_transport_foreign_probe_LDADD = $(TRANSPORT_LIBS)
tests_transport_fault_probe_SOURCES = tests/transport/fault_probe.c tests/transport/exit_code.h
tests_transport_fault_probe_LDADD = $(TRANSPORT_LIBS)
tests_transport_trial_probe_SOURCES = tests/transport/trial_probe.c
tests_transport_trial_probe_LDADD = $(TRANSPORT_LIBS)
tests_transport_loss_probe_SOURCES = tests/transport/loss_probe.c
tests_transport_loss_probe_LDADD = $(TRANSPORT_LIBS)
tests_transport_group_probe_SOURCES = tests/transport/group_probe.c
tests_transport_group_probe_LDADD = $(TRANSPORT_LIBS)
tests_transport_message_probe_SOURCES = tests/transport/message_probe.c
tests_transport_message_probe_LDADD = $(TRANSPORT_LIBS)
tests_transport_coll_probe_SOURCES = tests/transport/coll_probe.c
tests_transport_coll_probe_LDADD = $(TRANSPORT_LIBS)
tests_transport_rank_probe_SOURCES = tests/transport/rank_probe.c tests/transport/exit_code.h
tests_transport_rank_probe_LDADD = $(TRANSPORT_LIBS)
check_PROGRAMS += tests/transport/device_probe
tests_transport_device_probe_SOURCES = tests/transport/device_probe.c tests/transport/exit_code.h \
	tests/transport/late_device.c tests/transport/late_device.h
tests_transport_device_probe_LDADD = $(TRANSPORT_LIBS)
check_PROGRAMS += tests/transport/p2p_probe
tests_transport_p2p_probe_SOURCES = tests/transport/p2p_probe.c tests/transport/exit_code.h \
	tests/transport/late_device.c tests/transport/late_device.h
tests_transport_p2p_probe_LDADD = $(TRANSPORT_LIBS)
check_PROGRAMS += tests/transport/selection_grid
tests_transport_selection_grid_SOURCES = tests/transport/selection_grid.c
tests_transport_selection_grid_LDADD = $(TRANSPORT_LIBS)
SHELL_TESTS += \
	tests/transport/groups.t \
	tests/transport/loss.t \
	tests/transport/messages.t \
	tests/transport/affinity.t \
	tests/transport/direct.t \
	tests/transport/azure.t \
	tests/transport/bench.t \
	tests/transport/peers.t \
	tests/transport/collectives.t \
	tests/transport/early.t \
	tests/transport/encrypt_network.t \
	tests/transport/environment.t \
	tests/transport/failure.t \
	tests/transport/launch.t \
	tests/transport/limits.t \
	tests/transport/resident.t \
	tests/transport/scale.t \
	tests/transport/selection.t \
	tests/transport/sim.t \
	tests/transport/slurm.t \
	tests/transport/p2p.t \
	tests/transport/staged.t \
	tests/transport/strangers.t \
	tests/transport/surroundings.t tests/transport/versions.t
EXTRA_DIST += tests/transport/capture tests/transport/faults tests/transport/bits.sh tests/transport/common.sh tests/transport/scale tests/transport/stranger
SLOW_TESTS += tests/transport/random_faults.t tests/transport/ranks.t tests/transport/rails.t tests/transport/scale_many.t tests/transport/tune.t
