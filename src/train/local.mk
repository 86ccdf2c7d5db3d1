lib_LIBRARIES += libgannet_train.a
libgannet_train_a_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
libgannet_train_a_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS)
libgannet_train_a_SOURCES = \
	src/train/arrange.c src/train/arrange.h \
	src/train/checkpoint_load.c src/train/checkpoint_manifest.c src/train/checkpoint_save.c src/train/checkpoint.h \
	src/train/chart.c src/train/chart.h \
	src/train/clocks.c src/train/clocks.h \
	src/train/curve.c src/train/curve.h \
	src/train/curve_svg.c src/train/curve_svg.h \
	src/train/device.c src/train/device.h \
	src/train/ema.c src/train/ema.h \
	src/train/evaluate.c src/train/evaluate.h \
	src/train/exchange.c src/train/exchange.h \
	src/train/golden.c src/train/golden_internal.h src/train/golden_ledger.c src/train/golden_ledger.h src/train/golden_run.c src/train/golden.h \
	src/train/growth.c src/train/growth.h \
	src/train/init.c src/train/init.h \
	src/train/input.c src/train/input.h \
	src/train/lenet.c \
	src/train/logits.c src/train/logits.h \
	src/train/lr.c src/train/lr.h \
	src/train/model.c src/train/model_internal.h src/train/model.h \
	src/train/optimizer.c src/train/optimizer.h \
	src/train/owner.c src/train/owner_file.c src/train/owner_internal.h src/train/owner.h \
	src/train/plan.c src/train/plan_build.c src/train/plan_cost.c src/train/plan_cost.h src/train/plan_fold.c src/train/plan_memory.c src/train/plan_device.h src/train/plan_internal.h src/train/plan.h \
	src/train/recipe.c src/train/recipe.h \
	src/train/report_charts.c src/train/report_page.c src/train/report_page.h src/train/report_internal.h \
	src/train/gpu_memory.h src/train/gpu_sums.c src/train/gpu_sums.h src/train/resident.c src/train/resident.h \
	src/train/resnet.c \
	src/train/runlog.c src/train/runlog.h \
	src/train/safetensors.c src/train/safetensors.h \
	src/train/score.c src/train/score.h \
	src/train/session.c src/train/session_evaluate.c src/train/session_state.c \
	src/train/session_train.c src/train/session.h \
	src/train/processors.c src/train/processors.h \
	src/train/split.c src/train/split.h \
	src/train/summary.c src/train/summary.h \
	src/train/step.c src/train/step.h \
	src/train/storage.c \
	src/train/sync.c src/train/sync.h \
	src/train/trace.c src/train/trace_file.c src/train/trace_write.c src/train/trace.h src/train/trace_internal.h \
	src/train/trainer.c src/train/trainer.h \
	src/train/trial.c src/train/trial.h \
	src/train/vgg.c \
	src/train/weights.c src/train/weights.h src/train/weights_about.c src/train/weights_about.h
if HAVE_CUDA
libgannet_train_a_SOURCES += src/train/plan_cuda.c src/train/plan_cuda.h src/train/plan_cuda_batch.c src/train/plan_cuda_memory.c \
	src/train/plan_cuda_gather.c src/train/plan_cuda_record.c src/train/plan_cuda_stay.c src/train/gpu_memory.c
else
libgannet_train_a_SOURCES += src/train/plan_no_cuda.c
endif
TRAIN_LIBS = libgannet_train.a $(KERNELS_CUDA_LIBS) $(JANSSON_LIBS)
