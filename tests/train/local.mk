UNIT_TESTS += tests/train/test_checkpoint_rank tests/train/test_combine tests/train/test_compress tests/train/test_count tests/train/test_cuts tests/train/test_metrics_reader tests/train/test_loader_threads tests/train/test_lr tests/train/test_manifest tests/train/test_mesh tests/train/test_model tests/train/test_networks \
	tests/train/test_optimizer tests/train/test_owner tests/train/test_pipe_predictor tests/train/test_pipe_schedule tests/train/test_pipeline_parts tests/train/test_plan tests/train/test_preprocess tests/train/test_processors tests/train/test_recipe tests/train/test_metrics_log tests/train/test_safetensors tests/train/test_metrics tests/train/test_servers tests/train/test_step tests/train/test_onnx
EXTRA_DIST += tests/train/apart tests/train/same_bits tests/train/samples_once tests/train/accuracy tests/train/common.sh tests/train/digits.sh tests/train/elastic.sh tests/train/mesh.sh tests/train/pipeline.sh tests/train/net.h tests/train/preprocess.tar tests/train/preprocess.txt \
	tests/train/elastic_ledger tests/train/preprocess_reference tests/train/read_checkpoint tests/train/library_names tests/train/libraries tests/train/torchvision tests/train/trace_check

SHELL_TESTS += tests/train/names.t tests/train/convert.t
SHELL_TESTS += tests/train/data_wait.t tests/train/lr_scale.t tests/train/train_top1.t tests/train/predict.t tests/train/checkpoint_local.t tests/train/checkpoint_key.t tests/train/loader_threads.t
SHELL_TESTS += tests/train/bad.t tests/train/elastic.t tests/train/bench.t tests/train/bf16.t tests/train/isa.t tests/train/sharing_lines.t tests/train/mesh_sharing.t tests/train/checkpoint.t tests/train/compress.t tests/train/convolution.t tests/train/equal.t tests/train/exchange.t tests/train/logits.t tests/train/options_file.t tests/train/exif.t tests/train/keep_best.t tests/train/nonfinite.t tests/train/fine_tune.t tests/train/per_class.t \
	tests/train/overlap.t tests/train/report.t \
	tests/train/pipeline.t tests/train/pipeline_async.t tests/train/resume.t tests/train/shard.t tests/train/split.t tests/train/status.t tests/train/one_fails.t tests/train/stop.t tests/train/sync.t \
	tests/train/trace.t
check_PROGRAMS += tests/train/compress_probe tests/train/exchange_probe tests/train/kill_at_call
tests_train_kill_at_call_SOURCES = tests/train/kill_at_call.c
tests_train_compress_probe_SOURCES = tests/train/compress_probe.c
tests_train_compress_probe_LDADD = $(TRAIN_LIBS) $(DATA_LIBS) $(TRANSPORT_CUDA_LIBS) $(TRANSPORT_LIBS) $(KERNELS_LIBS) $(BASE_LIBS)
tests_train_exchange_probe_SOURCES = tests/train/exchange_probe.c tests/transport/late_device.c tests/transport/late_device.h
tests_train_exchange_probe_LDADD = $(TRAIN_LIBS) $(DATA_LIBS) $(TRANSPORT_CUDA_LIBS) $(TRANSPORT_LIBS) $(KERNELS_LIBS) $(BASE_LIBS)
check_PROGRAMS += tests/train/pipedream_oracle
tests_train_pipedream_oracle_SOURCES = tests/train/pipedream_oracle.c
tests_train_pipedream_oracle_LDADD = $(TRAIN_LIBS) $(DATA_LIBS) $(TRANSPORT_CUDA_LIBS) $(TRANSPORT_LIBS) $(KERNELS_LIBS) $(BASE_LIBS)
check_PROGRAMS += tests/train/onnx_probe
tests_train_onnx_probe_SOURCES = tests/train/onnx_probe.c
tests_train_onnx_probe_LDADD = $(TRAIN_LIBS) $(DATA_LIBS) $(TRANSPORT_CUDA_LIBS) $(TRANSPORT_LIBS) $(KERNELS_LIBS) $(BASE_LIBS)
EXTRA_DIST += tests/train/onnx_check
TRAIN_TEST_LIBS = $(TRAIN_LIBS) $(DATA_LIBS) $(TRANSPORT_CUDA_LIBS) $(TRANSPORT_LIBS) $(KERNELS_LIBS) $(BASE_LIBS) $(CMOCKA_LIBS)
tests_train_test_mesh_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_mesh_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_model_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_model_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_networks_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_networks_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_checkpoint_rank_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_checkpoint_rank_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_combine_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_combine_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_compress_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_compress_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_count_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_count_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_cuts_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_cuts_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_processors_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_processors_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_pipe_predictor_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_pipe_predictor_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_pipe_schedule_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_pipe_schedule_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_pipeline_parts_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_pipeline_parts_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_plan_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_plan_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_preprocess_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_preprocess_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_metrics_reader_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_metrics_reader_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_loader_threads_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_loader_threads_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_lr_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_lr_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_safetensors_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_safetensors_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_manifest_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_manifest_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_metrics_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_metrics_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_owner_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_owner_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_onnx_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_onnx_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_optimizer_SOURCES = tests/train/test_optimizer.c tests/kernels/ref_optim.h
tests_train_test_optimizer_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_optimizer_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_metrics_log_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_metrics_log_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_recipe_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_recipe_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_servers_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_servers_LDADD = $(TRAIN_TEST_LIBS)
tests_train_test_step_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_step_LDADD = $(TRAIN_TEST_LIBS)
SLOW_TESTS += tests/train/onnx.t tests/train/recipe.t tests/train/augment.t tests/train/commit_kill.t
SLOW_TESTS += tests/train/servers.t tests/train/servers_lost.t
SLOW_TESTS += tests/train/networks.t
SLOW_TESTS += tests/train/elastic_states.t tests/train/elastic_batch.t tests/train/elastic_join.t tests/train/stage.t tests/train/compress_auto.t tests/train/compress_learns.t tests/train/mesh_compress.t \
	tests/train/sampling.t tests/train/local_steps.t tests/train/bf16_emulated.t tests/train/pipeline_recompute.t
EXTRA_DIST += tests/train/tensor_networks.t tests/train/pipeline_networks.t tests/train/pairs.t tests/train/faults.t
EXTRA_DIST += tests/train/explore/cover.py tests/train/explore/factors.py tests/train/explore/groups.py tests/train/explore/judge.py \
	tests/train/explore/launchers.py tests/train/explore/nodes.py tests/train/explore/oracles.py tests/train/explore/page.py \
	tests/train/explore/process.py tests/train/explore/reference.py tests/train/explore/refusals.py tests/train/explore/strike.py \
	tests/train/explore/trial.py tests/train/explore/ways.py tests/train/explore/worlds.py
UNIT_TESTS += tests/train/test_tensor
tests_train_test_tensor_CPPFLAGS = $(TEST_CPPFLAGS)
tests_train_test_tensor_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS)
tests_train_test_tensor_LDADD = $(TRAIN_TEST_LIBS)
SHELL_TESTS += tests/train/tensor.t
