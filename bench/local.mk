noinst_PROGRAMS += bench/convs
bench_convs_SOURCES = bench/convs.c
bench_convs_LDADD = $(TRAIN_LIBS) $(KERNELS_LIBS) $(BASE_LIBS)
noinst_PROGRAMS += bench/azure
bench_azure_SOURCES = bench/azure.c
bench_azure_LDADD = $(TRANSPORT_LIBS)
EXTRA_DIST += bench/azure.tsv bench/sim-vs-vcluster
noinst_PROGRAMS += bench/parallel/pipe_timers bench/parallel/share bench/parallel/sharded bench/parallel/stragglers
bench_parallel_pipe_timers_SOURCES = bench/parallel/pipe_timers.c
bench_parallel_pipe_timers_LDADD = $(TRAIN_LIBS) $(DATA_LIBS) $(TRANSPORT_CUDA_LIBS) $(TRANSPORT_LIBS) $(KERNELS_LIBS) $(BASE_LIBS)
bench_parallel_share_SOURCES = bench/parallel/share.c
bench_parallel_share_LDADD = $(TRAIN_LIBS) $(DATA_LIBS) $(TRANSPORT_CUDA_LIBS) $(TRANSPORT_LIBS) $(KERNELS_LIBS) $(BASE_LIBS)
bench_parallel_sharded_SOURCES = bench/parallel/sharded.c
bench_parallel_sharded_LDADD = $(TRAIN_LIBS) $(DATA_LIBS) $(TRANSPORT_CUDA_LIBS) $(TRANSPORT_LIBS) $(KERNELS_LIBS) $(BASE_LIBS)
bench_parallel_stragglers_SOURCES = bench/parallel/stragglers.c
bench_parallel_stragglers_LDADD = $(TRAIN_LIBS) $(DATA_LIBS) $(TRANSPORT_CUDA_LIBS) $(TRANSPORT_LIBS) $(KERNELS_LIBS) $(BASE_LIBS)
EXTRA_DIST += bench/parallel/run bench/parallel/report bench/parallel/accuracy bench/parallel/rates bench/parallel/rates_report bench/parallel/torch_ddp bench/parallel/pipelines bench/parallel/pipeline_picture bench/parallel/pipelines_report bench/parallel/pipe_step bench/parallel/slow_links.sh bench/parallel/torch_pipeline
# Programs of their own, built by bench/peers/run, and scripts: no part of make.
EXTRA_DIST += bench/peers/run bench/peers/report bench/peers/stream bench/peers/main.c bench/peers/peer.h \
	bench/peers/apart.c bench/peers/floor.c bench/peers/gloo.cc bench/peers/mpi.c bench/peers/shell \
	bench/peers/verbs.sh bench/peers/loader bench/peers/loader_way bench/peers/secure bench/peers/step bench/peers/torch bench/peers/torch_step
EXTRA_DIST += bench/data/io bench/data/stage
EXTRA_DIST += bench/photos/run bench/photos/cut.c bench/photos/scaled
EXTRA_DIST += bench/train/elastic bench/train/torch_elastic bench/train/checkpoint bench/train/checkpoint_report bench/train/torch_checkpoint
