lib_LIBRARIES += libgannet_transport.a
libgannet_transport_a_CPPFLAGS = $(AM_CPPFLAGS) $(CRYPTO_CFLAGS) $(UCX_CFLAGS) $(PMIX_CFLAGS) $(HWLOC_CFLAGS) $(JANSSON_CFLAGS)
libgannet_transport_a_CFLAGS = $(SHARED_CFLAGS)
libgannet_transport_a_SOURCES =
libgannet_transport_a_SOURCES += \
	transport/auth/auth_listener.c transport/auth/auth_listener.h \
	transport/auth/handshake.c transport/auth/handshake.h \
	transport/auth/net.c transport/auth/net.h \
	transport/auth/sealed_message.c transport/auth/sealed_message.h \
	transport/auth/secret.c transport/auth/secret.h

libgannet_transport_a_SOURCES += \
	transport/bootstrap/boot_message.c transport/bootstrap/boot_message.h \
	transport/bootstrap/boot_tree.c transport/bootstrap/boot_tree.h \
	transport/bootstrap/bootstrap.h \
	transport/bootstrap/bootstrap_env.c \
	transport/bootstrap/bootstrap_pmix.c \
	transport/bootstrap/bootstrap_single.c \
	transport/bootstrap/gathered.c transport/bootstrap/gathered.h \
	transport/bootstrap/launcher_detect.c transport/bootstrap/launcher_detect.h \
	transport/bootstrap/library_versions.c transport/bootstrap/library_versions.h \
	transport/bootstrap/limits.c transport/bootstrap/limits.h \
	transport/bootstrap/membership.c transport/bootstrap/membership.h \
	transport/bootstrap/pmix_call.c transport/bootstrap/pmix_call.h \
	transport/bootstrap/regroup.c transport/bootstrap/regroup.h \
	transport/bootstrap/regroup_agree.c transport/bootstrap/regroup_form.c transport/bootstrap/regroup_meet.c transport/bootstrap/regroup_join.c transport/bootstrap/regroup_internal.h \
	transport/bootstrap/pmix_server.c transport/bootstrap/pmix_server.h \
	transport/bootstrap/world.c transport/bootstrap/world.h transport/bootstrap/world_internal.h transport/bootstrap/world_join.c

libgannet_transport_a_SOURCES += \
	transport/coll/affinity_report.c transport/coll/affinity_report.h \
	transport/coll/agree.c transport/coll/agree.h \
	transport/coll/coll.c \
	transport/coll/coll_device.c transport/coll/coll_device.h transport/coll/coll_device_internal.h \
	transport/coll/coll_prepare.c \
	transport/coll/coll_select.c \
	transport/coll/coll_wait.c \
	transport/coll/comm.c transport/coll/comm.h \
	transport/coll/comm_internal.h \
	transport/coll/comm_progress.c \
	transport/coll/comm_split.c \
	transport/coll/exec.c \
	transport/coll/exec_create.c \
	transport/coll/exec_internal.h \
	transport/coll/lanes_check.c \
	transport/coll/messages.c transport/coll/messages.h \
	transport/coll/messages_internal.h \
	transport/coll/messages_receive.c \
	transport/coll/messages_send.c \
	transport/coll/p2p.c transport/coll/p2p.h \
	transport/coll/reduce.c \
	transport/coll/staged.c

libgannet_transport_a_SOURCES += \
	transport/health/diagnosis.c transport/health/diagnosis.h \
	transport/health/heartbeat.c transport/health/heartbeat.h \
	transport/health/heartbeat_coordinator.c \
	transport/health/heartbeat_internal.h \
	transport/health/heartbeat_losses.c \
	transport/health/heartbeat_member.c \
	transport/health/recorder.c transport/health/recorder.h \
	transport/health/recorder_op.c transport/health/recorder_op.h \
	transport/health/state_query.c

libgannet_transport_a_SOURCES += \
	transport/nccl/nccl_record.c transport/nccl/nccl_record.h

libgannet_transport_a_SOURCES += \
	transport/schedule/algo.c transport/schedule/algo.h \
	transport/schedule/algo_bruck.c \
	transport/schedule/algo_double_tree.c \
	transport/schedule/algo_halving_doubling.c \
	transport/schedule/algo_hierarchical.c \
	transport/schedule/algo_knomial.c \
	transport/schedule/algo_pairwise.c \
	transport/schedule/algo_part.h \
	transport/schedule/algo_recursive_doubling.c \
	transport/schedule/algo_recursive_halving.c \
	transport/schedule/algo_ring.c \
	transport/schedule/schedule.c transport/schedule/schedule.h \
	transport/schedule/types.h \
	transport/schedule/verify.c transport/schedule/verify.h \
	transport/schedule/verify_internal.h \
	transport/schedule/verify_run.c

libgannet_transport_a_SOURCES += \
	transport/select/cost.c transport/select/cost.h \
	transport/select/critical_path.c transport/select/critical_path.h transport/select/critical_path_internal.h \
	transport/select/critical_path_walk.c \
	transport/select/select.c transport/select/select.h \
	transport/select/tuning_table.c transport/select/tuning_table.h \
	transport/select/tuning_table_agree.c

libgannet_transport_a_SOURCES += \
	transport/shm/segment.c transport/shm/shm_members.c transport/shm/shm_members.h \
	transport/shm/shm.c transport/shm/shm.h \
	transport/shm/shm_allreduce.c \
	transport/shm/shm_bounce.c \
	transport/shm/shm_internal.h

libgannet_transport_a_SOURCES += \
	transport/sim/sim.c transport/sim/sim.h \
	transport/sim/sim_net.c transport/sim/sim_net.h \
	transport/sim/sim_pipe.c transport/sim/sim_pipe.h \
	transport/sim/sim_run.c transport/sim/sim_run.h \
	transport/sim/sim_stream.c

libgannet_transport_a_SOURCES += \
	transport/topology/affinity.c transport/topology/affinity.h \
	transport/topology/devices.c transport/topology/devices.h \
	transport/topology/rails.c transport/topology/rails.h \
	transport/topology/rails_find.c \
	transport/topology/topology.c transport/topology/topology.h

libgannet_transport_a_SOURCES += \
	transport/tune/tune.c transport/tune/tune.h \
	transport/tune/tune_fit.c \
	transport/tune/tune_internal.h \
	transport/tune/tune_probe.c \
	transport/tune/tune_trial.c

libgannet_transport_a_SOURCES += \
	transport/ucx/ucx.c transport/ucx/ucx.h \
	transport/ucx/ucx_common.c transport/ucx/ucx_common.h \
	transport/ucx/ucx_internal.h \
	transport/ucx/ucx_failure.c \
	transport/ucx/ucx_cipher.c \
	transport/ucx/ucx_message.c \
	transport/ucx/ucx_rail.c \
	transport/ucx/ucx_reach.c \
	transport/ucx/ucx_stripe.c
TRANSPORT_LIBS = libgannet_transport.a $(BASE_LIBS) $(UCX_LIBS) $(PMIX_LIBS) $(HWLOC_LIBS) $(JANSSON_LIBS) -lm

# what needs CUDA and NCCL; NCCL itself is loaded when it is wanted
if HAVE_CUDA
lib_LIBRARIES += libgannet_transport_cuda.a
libgannet_transport_cuda_a_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
libgannet_transport_cuda_a_SOURCES = \
	transport/nccl/nccl.c transport/nccl/nccl.h \
	transport/nccl/nccl_api.c transport/nccl/nccl_api.h
TRANSPORT_CUDA_LIBS = libgannet_transport_cuda.a $(CUDA_LIBS)
endif
