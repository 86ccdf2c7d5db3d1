lib_LIBRARIES += libgannet_transport.a
libgannet_transport_a_CPPFLAGS = $(AM_CPPFLAGS) $(CRYPTO_CFLAGS) $(UCX_CFLAGS) $(PMIX_CFLAGS) $(HWLOC_CFLAGS) $(JANSSON_CFLAGS)
libgannet_transport_a_SOURCES = \
	transport/affinity.c transport/affinity_report.c transport/affinity.h \
	transport/agree.c transport/agree.h \
	transport/algo.c transport/algo.h \
	transport/algo_bruck.c \
	transport/algo_direct.c \
	transport/algo_double_tree.c \
	transport/algo_halving_doubling.c \
	transport/algo_hierarchical.c \
	transport/algo_knomial.c \
	transport/algo_part.h \
	transport/algo_recursive_doubling.c \
	transport/algo_ring.c \
	transport/boot_contact.c transport/boot_contact.h \
	transport/boot_tree.c transport/boot_tree.h \
	transport/bootstrap.h \
	transport/bootstrap_alone.c \
	transport/bootstrap_env.c \
	transport/bootstrap_pmix.c \
	transport/libraries.c transport/libraries.h \
	transport/limits.c transport/limits.h \
	transport/pmix_call.c transport/pmix_call.h \
	transport/carrier.c transport/carrier.h \
	transport/choose.c transport/choose_form.c transport/choose.h \
	transport/coll.c transport/coll.h \
	transport/coll_choose.c \
	transport/coll_prepare.c \
	transport/comm.c transport/comm.h \
	transport/crowd.c transport/crowd.h \
	transport/copier.h \
	transport/cost.c transport/cost.h \
	transport/detect.c transport/detect.h \
	transport/devices.c transport/devices.h \
	transport/diagnosis.c transport/diagnosis.h \
	transport/direct.c transport/direct.h \
	transport/door.c transport/door.h \
	transport/fabric.c transport/fabric.h transport/fabric_internal.h \
	transport/fabric_lanes.c \
	transport/fabric_message.c \
	transport/fabric_rail.c \
	transport/fabric_reach.c \
	transport/handshake.c transport/handshake.h \
	transport/exec.c transport/exec.h transport/exec_internal.h \
	transport/exec_create.c \
	transport/lane.c transport/lane.h \
	transport/lanes_check.c transport/lanes_check.h \
	transport/machine.c transport/machine.h \
	transport/nccl_card.c transport/nccl_card.h \
	transport/net.c transport/net.h \
	transport/node.c transport/node.h transport/node_internal.h \
	transport/node_allreduce.c \
	transport/node_bell.c \
	transport/node_map.c \
	transport/node_stage.c \
	transport/memory.h transport/exec_lane.c transport/exec_memory.c transport/carrier_direct.c \
	transport/progress.c transport/progress.h \
	transport/proof.c transport/proof.h \
	transport/rails.c transport/rails_find.c transport/rails_near.c transport/rails.h \
	transport/recorder.c transport/recorder.h transport/recorder_kinds.c transport/recorder_kinds.h \
	transport/reduce.c \
	transport/rest.c transport/rest.h \
	transport/schedule.c transport/schedule.h \
	transport/secret.c transport/secret.h \
	transport/segment.c transport/segment.h \
	transport/server.c transport/server.h \
	transport/sim.c transport/sim.h \
	transport/sim_check.c \
	transport/sim_train.c \
	transport/sim_events.c transport/sim_events.h \
	transport/sim_net.c transport/sim_net.h \
	transport/sim_plan.c transport/sim_plan.h \
	transport/sim_run.c transport/sim_run.h \
	transport/sim_stream.c transport/sim_stream.h \
	transport/staged.c transport/staged.h transport/staged_internal.h \
	transport/staged_progress.c \
	transport/track.c transport/track.h \
	transport/told.c transport/told.h \
	transport/tune.c transport/tune.h \
	transport/tune_fit.c transport/tune_fit.h \
	transport/tune_trial.c transport/tune_trial.h \
	transport/tune_probe.c transport/tune_probe.h \
	transport/tuning.c transport/tuning_agree.c transport/tuning.h \
	transport/types.h \
	transport/verify.c transport/verify.h \
	transport/verify_run.c transport/verify_run.h \
	transport/watch.c transport/watch.h transport/watch_internal.h \
	transport/watch_inquiry.c \
	transport/watch_hub.c transport/watch_spoke.c \
	transport/watch_wire.c transport/watch_wire.h \
	transport/world.c transport/world.h
TRANSPORT_LIBS = libgannet_transport.a $(BASE_LIBS) $(UCX_LIBS) $(PMIX_LIBS) $(HWLOC_LIBS) $(JANSSON_LIBS) -lm

# what needs CUDA and NCCL; NCCL itself is loaded when it is wanted
EXTRA_DIST += transport/gpu_call.h
if HAVE_CUDA
lib_LIBRARIES += libgannet_transport_cuda.a
libgannet_transport_cuda_a_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
libgannet_transport_cuda_a_SOURCES = \
	transport/carrier_cuda.c transport/carrier_cuda.h \
	transport/copier_cuda.c \
	transport/nccl.c transport/nccl_internal.h \
	transport/nccl_create.c \
	transport/nccl_api.c transport/nccl_api.h
TRANSPORT_CUDA_LIBS = libgannet_transport_cuda.a $(CUDA_LIBS)
endif
