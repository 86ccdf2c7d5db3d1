lib_LIBRARIES += libgannet_train.a
libgannet_train_a_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
libgannet_train_a_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS)
libgannet_train_a_SOURCES =
libgannet_train_a_SOURCES += \
	src/train/checkpoint/checkpoint.h \
	src/train/checkpoint/checkpoint_internal.h \
	src/train/checkpoint/checkpoint_folder.c \
	src/train/checkpoint/checkpoint_load.c \
	src/train/checkpoint/checkpoint_local.c \
	src/train/checkpoint/checkpoint_manifest.c \
	src/train/checkpoint/checkpoint_rank.c \
	src/train/checkpoint/checkpoint_snapshot.c src/train/checkpoint/checkpoint_snapshot.h \
	src/train/checkpoint/checkpoint_write.c \
	src/train/checkpoint/checkpoint_writer.c src/train/checkpoint/checkpoint_writer.h \
	src/train/checkpoint/owner.c src/train/checkpoint/owner.h \
	src/train/checkpoint/owner_file.c \
	src/train/checkpoint/owner_internal.h

libgannet_train_a_SOURCES += \
	src/train/loop/augment_options.c src/train/loop/augment_options.h \
	src/train/loop/session_carried.c src/train/loop/carried.h src/train/loop/session_copies.c \
	src/train/loop/state_copy.c src/train/loop/state_copy.h \
	src/train/loop/sample_log.c src/train/loop/sample_log.h \
	src/train/loop/class_weights.c src/train/loop/class_weights.h \
	src/train/loop/combine.c src/train/loop/combine.h \
	src/train/loop/evaluate.c src/train/loop/evaluate.h \
	src/train/loop/input.c src/train/loop/input.h \
	src/train/loop/loader_threads.c \
	src/train/loop/network.c src/train/loop/network.h \
	src/train/loop/options.h \
	src/train/loop/predict.c src/train/loop/predict.h \
	src/train/loop/predict_round.c src/train/loop/predict_round.h \
	src/train/loop/replica.c src/train/loop/replica.h \
	src/train/loop/replica_plan.c \
	src/train/loop/served.c src/train/loop/served.h \
	src/train/loop/session.c src/train/loop/session.h \
	src/train/loop/session_auto_mesh.c \
	src/train/loop/session_best.c \
	src/train/loop/session_checkpoint.c \
	src/train/loop/session_compress.c \
	src/train/loop/session_evaluate.c \
	src/train/loop/session_mesh_log.c \
	src/train/loop/session_parts.c \
	src/train/loop/session_pipeline.c \
	src/train/loop/session_served.c \
	src/train/loop/session_schedule.c \
	src/train/loop/session_shard.c \
	src/train/loop/session_state.c \
	src/train/loop/session_status.c \
	src/train/loop/session_step.c \
	src/train/loop/session_train.c \
	src/train/loop/staging.c src/train/loop/staging.h \
	src/train/loop/step.c src/train/loop/step.h src/train/loop/step_internal.h \
	src/train/loop/step_async.c \
	src/train/loop/summary.c src/train/loop/summary.h \
	src/train/loop/trainer.c src/train/loop/trainer.h

libgannet_train_a_SOURCES += \
	src/train/metrics/chart.c src/train/metrics/chart.h \
	src/train/metrics/confusion.c src/train/metrics/confusion.h \
	src/train/metrics/curve_export.c \
	src/train/metrics/logits.c src/train/metrics/logits.h \
	src/train/metrics/metrics.c src/train/metrics/metrics.h \
	src/train/metrics/metrics_log.c src/train/metrics/metrics_log.h \
	src/train/metrics/log_event.h \
	src/train/metrics/metrics_reader.c src/train/metrics/metrics_reader.h \
	src/train/metrics/report_charts.c \
	src/train/metrics/report_internal.h \
	src/train/metrics/report_page.c src/train/metrics/report_page.h \
	src/train/metrics/run_status.c src/train/metrics/run_status.h \
	src/train/metrics/scaling_report.c src/train/metrics/scaling_report.h \
	src/train/metrics/trace.c src/train/metrics/trace.h \
	src/train/metrics/trace_file.c \
	src/train/metrics/trace_internal.h \
	src/train/metrics/usage.c src/train/metrics/usage.h

libgannet_train_a_SOURCES += \
	src/train/model/init.c src/train/model/init.h \
	src/train/model/lenet.c \
	src/train/model/convnext.c \
	src/train/model/mobilenet.c \
	src/train/model/model.c src/train/model/model.h \
	src/train/model/model_internal.h \
	src/train/model/model_slice.c \
	src/train/model/onnx.c src/train/model/onnx.h \
	src/train/model/onnx_internal.h \
	src/train/model/onnx_layers.c \
	src/train/model/onnx_tokens.c \
	src/train/model/resnet.c \
	src/train/model/safetensors.c src/train/model/safetensors.h src/train/model/safetensors_write.c \
	src/train/model/vgg.c \
	src/train/model/vit.c \
	src/train/model/weight_names.c \
	src/train/model/weights.c src/train/model/weights.h

libgannet_train_a_SOURCES += \
	src/train/optim/lr.c src/train/optim/lr.h \
	src/train/optim/optimizer.c src/train/optim/optimizer.h \
	src/train/optim/parts.h \
	src/train/optim/parts.h \
	src/train/optim/recipe.c src/train/optim/recipe.h \
	src/train/optim/resize_schedule.c src/train/optim/resize_schedule.h

libgannet_train_a_SOURCES += \
	src/train/parallel/bucket_autotune.c src/train/parallel/bucket_autotune.h \
	src/train/parallel/compress.c src/train/parallel/compress.h \
	src/train/parallel/compress_int8.c \
	src/train/parallel/compress_internal.h \
	src/train/parallel/compress_powersgd.c \
	src/train/parallel/compress_sparse.c \
	src/train/parallel/cut_costs.c \
	src/train/parallel/cuts.c src/train/parallel/cuts.h \
	src/train/parallel/gpu_backend.c src/train/parallel/gpu_backend.h \
	src/train/parallel/mesh.c src/train/parallel/mesh.h \
	src/train/parallel/overlap.h \
	src/train/parallel/pipe_forecast.c src/train/parallel/pipe_forecast.h \
	src/train/parallel/pipe_link.c src/train/parallel/pipe_link.h \
	src/train/parallel/pipe_predictor.c src/train/parallel/pipe_predictor.h \
	src/train/parallel/pipe_schedule.c src/train/parallel/pipe_schedule.h \
	src/train/parallel/pipe_stage.c src/train/parallel/pipe_stage.h \
	src/train/parallel/reducer.c src/train/parallel/reducer.h \
	src/train/parallel/share_allreduce.c \
	src/train/parallel/share_averaged.c \
	src/train/parallel/share_compressed.c \
	src/train/parallel/server.c src/train/parallel/server.h \
	src/train/parallel/server_client.c src/train/parallel/server_client.h \
	src/train/parallel/server_internal.h \
	src/train/parallel/server_update.c \
	src/train/parallel/share_served.c \
	src/train/parallel/share_sharded.c \
	src/train/parallel/shard.c src/train/parallel/shard.h \
	src/train/parallel/sharing.h \
	src/train/parallel/sharing_table.c \
	src/train/parallel/step_forecast.c src/train/parallel/step_forecast.h \
	src/train/parallel/tensor_group.c src/train/parallel/tensor_group.h

libgannet_train_a_SOURCES += \
	src/train/plan/bn_folding.c \
	src/train/plan/device.c src/train/plan/device.h \
	src/train/plan/golden.c src/train/plan/golden.h \
	src/train/plan/golden_internal.h \
	src/train/plan/golden_run.c \
	src/train/plan/group_sums.c src/train/plan/group_sums.h \
	src/train/plan/plan.c src/train/plan/plan.h \
	src/train/plan/options.h \
	src/train/plan/plan_batch.c \
	src/train/plan/processors.c src/train/plan/processors.h \
	src/train/plan/plan_build.c \
	src/train/plan/plan_cost.c src/train/plan/plan_cost.h \
	src/train/plan/plan_internal.h \
	src/train/plan/plan_memory.c \
	src/train/plan/plan_run.c \
	src/train/plan/contention.c src/train/plan/contention.h \
	src/train/plan/weight_layouts.c src/train/plan/weight_layouts.h
TRAIN_LIBS = libgannet_train.a $(KERNELS_CUDA_LIBS) $(JANSSON_LIBS)
