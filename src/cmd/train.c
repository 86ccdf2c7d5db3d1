#include "src/cmd/cmd.h"

#include "data/shard/dataset.h"
#include "src/base/data_key.h"
#include "src/base/file.h"
#include "src/base/sha256.h"
#include "src/base/version.h"
#include "src/cmd/key_option.h"
#include "src/cmd/sample_options.h"
#include "src/cmd/stop.h"
#include "src/cmd/world_options.h"
#include "src/config.h"
#include "src/jobs/sweep_halving.h"
#include "src/train/loop/carried.h"
#include "src/train/loop/combine.h"
#include "src/train/loop/elastic.h"
#include "src/train/loop/input.h"
#include "src/train/loop/served.h"
#include "src/train/loop/trainer.h"
#include "src/train/model/init.h"
#include "src/train/model/model.h"
#include "src/train/optim/lr_scale.h"
#include "src/train/optim/recipe.h"
#include "src/train/parallel/mesh.h"
#include "src/train/parallel/pipe_schedule.h"
#include "src/train/parallel/shard.h"
#include "src/train/plan/device.h"
#include "transport/bootstrap/regroup.h"
#include "transport/coll/coll_device.h"
#include "transport/coll/affinity_report.h"

#include <stdlib.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define FIELD(name) offsetof(struct gn_train_options, name)

static const struct gn_option options[] = {
	{.name = "options", .kind = GN_OPTION_TEXT, .offset = FIELD(options_file), .value_name = "FILE",
	 .help = "read options from FILE, one a line: NAME = VALUE; those of the command line win. A run leaves such a file in its "
		 "--checkpoint folder, named options"},
	{.name = "data", .kind = GN_OPTION_TEXT, .offset = FIELD(data), .value_name = "DIR", .required = 1,
	 .help = "training dataset, written by gannet pack"},
	{.name = "val", .kind = GN_OPTION_TEXT, .offset = FIELD(val), .value_name = "DIR",
	 .help = "validation dataset; without it no evaluation takes place"},
	{.name = "stage", .kind = GN_OPTION_TEXT, .offset = FIELD(stage), .value_name = "DIR",
	 .help = "copy --data and --val to this folder of each node's own disk, under their names, while the run reads them: each shard is "
		 "read from the copy once that is complete and verified, with the same results. The next run finds the copies"},
	GN_CMD_KEY_OPTION(FIELD(key_file)),
	{.name = "model", .kind = GN_OPTION_CHOICE, .offset = FIELD(model), .value_name = "NAME", .required = 1,
	 .choices = gn_model_names, .help = "network"},
	{.name = "recipe", .kind = GN_OPTION_CHOICE, .offset = FIELD(recipe), .value_name = "NAME",
	 .choices = gn_recipe_names,
	 .help = "published values for options that are not given, meant for ImageNet (in a run of fewer epochs warm-up and "
		 "milestones are scaled): goyal (Goyal et al. 2017, arXiv 1706.02677), nvidia-50 (NVIDIA DeepLearningExamples, "
		 "ResNet50 v1.5, 50 epochs), mlperf-lars (MLPerf training, reference convergence point of the nearest global "
		 "batch), torchvision-v1 and -v2 (its ResNet-50 weights of these versions), timm-a2 and -a3 (Wightman et al. 2021, arXiv "
		 "2110.00476), ffcv-16 to ffcv-88 (FFCV, by epochs)"},
	{.name = "dry-run", .kind = GN_OPTION_FLAG, .offset = FIELD(dry_run),
	 .help = "print what --recipe sets for --batch and --accumulate of one rank, where each value is published, and which parts of "
		 "the recipe are missing here; and end"},
	{.name = "epochs", .instead_of = "steps", .kind = GN_OPTION_INT, .offset = FIELD(epochs), .value_name = "N", .initial = "10", .min = 0,
	 .max = 1e6, .help = "passes over the data; 0: only evaluate on --val"},
	{.name = "steps", .instead_of = "epochs", .kind = GN_OPTION_INT, .offset = FIELD(steps), .value_name = "N", .initial = "0", .min = 0,
	 .max = 1e12, .help = "total number of updates, instead of --epochs; 0: use --epochs"},
	{.name = "batch", .letter = 'b', .kind = GN_OPTION_INT, .offset = FIELD(batch), .value_name = "N",
	 .initial = "64", .min = 1, .max = 65536, .help = "images per rank and step"},
	{.name = "resize-schedule", .kind = GN_OPTION_TEXT, .offset = FIELD(resize_schedule), .value_name = "E:N,...",
	 .help = "progressive resizing: training images of side N from epoch E on, such as 0:128,18:160,28:224; evaluation keeps "
		 "--side"},
	{.name = "lr", .kind = GN_OPTION_REAL, .offset = FIELD(lr), .value_name = "X", .initial = "0.1", .min = 0,
	 .max = 1e6, .help = "learning rate"},
	{.name = "lr-batch", .kind = GN_OPTION_REAL, .offset = FIELD(lr_batch), .value_name = "N", .initial = "0",
	 .min = 0, .max = 1e9, .help = "linear scaling: --lr is the rate for a global batch of N; 0: no scaling"},
	{.name = "schedule", .kind = GN_OPTION_CHOICE, .offset = FIELD(schedule), .value_name = "NAME",
	 .initial = "cosine", .choices = "constant|step|cosine|polynomial", .help = "learning rate schedule after warm-up"},
	{.name = "warmup-epochs", .kind = GN_OPTION_REAL, .offset = FIELD(warmup_epochs), .value_name = "X",
	 .initial = "0", .min = 0, .max = 1e6, .help = "epochs of linear warm-up, less than the length of the run"},
	{.name = "lr-start", .kind = GN_OPTION_REAL, .offset = FIELD(lr_start), .value_name = "X", .initial = "-1",
	 .min = -1, .max = 1e6,
	 .help = "learning rate at the start of warm-up; -1: --lr if scaling raised the rate, else an eighth of it"},
	{.name = "milestones", .kind = GN_OPTION_TEXT, .offset = FIELD(milestones), .value_name = "E,E,...",
	 .initial = "30,60,80", .help = "epochs at which the step schedule lowers the rate"},
	{.name = "lr-factor", .kind = GN_OPTION_REAL, .offset = FIELD(lr_factor), .value_name = "X", .initial = "0.1",
	 .min = 0, .max = 1, .help = "step schedule: factor of each reduction"},
	{.name = "lr-final", .kind = GN_OPTION_REAL, .offset = FIELD(final_lr), .value_name = "X", .initial = "0",
	 .min = 0, .max = 1e6, .help = "cosine and polynomial: final learning rate"},
	{.name = "lr-power", .kind = GN_OPTION_REAL, .offset = FIELD(lr_power), .value_name = "X", .initial = "2",
	 .min = 0, .max = 100, .help = "polynomial: exponent"},
	{.name = "optimizer", .kind = GN_OPTION_CHOICE, .offset = FIELD(optimizer), .value_name = "NAME",
	 .initial = "sgd", .choices = "sgd|lars|lamb|adamw|rmsprop",
	 .help = "sgd; lars (You, Gitman and Ginsburg 2017) and lamb (You et al. 2020) for large batches; adamw and rmsprop as "
		 "PyTorch's, on hosts"},
	{.name = "momentum", .kind = GN_OPTION_REAL, .offset = FIELD(momentum), .value_name = "X", .initial = "0.9",
	 .min = 0, .max = 1, .help = "momentum of sgd, lars and rmsprop, beta 1 of lamb and adamw"},
	{.name = "nesterov", .kind = GN_OPTION_FLAG, .offset = FIELD(nesterov), .help = "Nesterov's momentum, sgd and lars"},
	{.name = "beta2", .kind = GN_OPTION_REAL, .offset = FIELD(beta2), .value_name = "X", .initial = "0.999",
	 .min = 0, .max = 1, .help = "lamb, adamw: beta 2, the decay of the second moment; rmsprop: alpha, which torchvision sets to 0.9"},
	{.name = "eps", .kind = GN_OPTION_REAL, .offset = FIELD(eps), .value_name = "X", .initial = "-1", .min = -1,
	 .max = 1, .help = "epsilon added to denominators, for all but sgd; -1: 0 for lars, 1e-6 for lamb, 1e-8 for adamw and rmsprop"},
	{.name = "trust", .kind = GN_OPTION_REAL, .offset = FIELD(trust), .value_name = "X", .initial = "0.001",
	 .min = 0, .max = 1e6, .help = "lars: trust coefficient"},
	{.name = "clip", .kind = GN_OPTION_REAL, .offset = FIELD(clip), .value_name = "X", .initial = "0", .min = 0,
	 .max = 1e9, .help = "clip the norm of the whole gradient to X; 0: no clipping"},
	{.name = "accumulate", .kind = GN_OPTION_INT, .offset = FIELD(accumulate), .value_name = "N", .initial = "1",
	 .min = 1, .max = 65536,
	 .help = "gradient accumulation: batches per rank and step, whose gradients are averaged"},
	{.name = "global-batch", .kind = GN_OPTION_INT, .offset = FIELD(global_batch), .value_name = "N", .initial = "0",
	 .min = 0, .max = 1e9,
	 .help = "images per step of all ranks, a multiple of --batch, instead of --accumulate: ranks take its batches in turns, the first ones one "
		 "more than the others where it does not divide; 0: --batch * ranks * --accumulate"},
	{.name = "ema", .kind = GN_OPTION_REAL, .offset = FIELD(ema), .value_name = "X", .initial = "0", .min = 0,
	 .max = 0.999999,
	 .help = "keep a moving average of the weights that decays by X a step (0.9999; by (1 + t) / (10 + t) in step t "
		 "while that is less), evaluate it too, and save it for "
		 "eval --ema and export --ema; 0: none"},
	{.name = "zero-gamma", .kind = GN_OPTION_FLAG, .offset = FIELD(zero_gamma),
	 .help = "initialise the last batch norm weight of each residual block with 0 (Goyal et al. 2017, sec. 5.1)"},
	{.name = "sync-bn", .kind = GN_OPTION_TEXT, .offset = FIELD(sync_bn), .value_name = "all|node|N",
	 .help = "batch norm statistics over all ranks, the ranks of a node, or groups of N ranks, for small batches per rank "
		 "(default: separate for each rank)"},
	{.name = "weight-decay", .kind = GN_OPTION_REAL, .offset = FIELD(weight_decay), .value_name = "X",
	 .initial = "1e-4", .min = 0, .max = 1, .help = "weight decay"},
	{.name = "decay-all", .kind = GN_OPTION_FLAG, .offset = FIELD(decay_all), .initial = "0",
	 .help = "weight decay also on biases and batch norm"},
	{.name = "label-smoothing", .kind = GN_OPTION_REAL, .offset = FIELD(label_smoothing), .value_name = "X",
	 .initial = "0", .min = 0, .max = 0.999, .help = "label smoothing"},
	{.name = "class-weights", .kind = GN_OPTION_TEXT, .offset = FIELD(class_weights), .value_name = "FILE|balanced",
	 .help = "loss: weights of classes, as weight of torch's CrossEntropyLoss: FILE holds one number for each class, in the order of the "
		 "dataset's; balanced: images / (classes * images of the class)"},
	{.name = "dropout", .kind = GN_OPTION_FLAG, .offset = FIELD(dropout), .initial = "1",
	 .help = "dropout probability, in networks with dropout"},
	{.name = "drop-path", .kind = GN_OPTION_REAL, .offset = FIELD(drop_path), .value_name = "X", .initial = "-1", .min = -1, .max = 0.99,
	 .help = "stochastic depth: probability that an image skips the last residual block, less for earlier ones (efficientnet_b0, "
		 "convnext_tiny); -1: the network's own, 0.2 and 0.1"},
	GN_CMD_SAMPLE_OPTIONS(FIELD),
	{.name = "init", .kind = GN_OPTION_TEXT, .offset = FIELD(init), .value_name = "HOW",
	 .help = "initial parameters: PATH of a safetensors file of F32, F16 or BF16 (unknown tensors are named and ignored), "
		 "formula, or seed:N "
		 "(default: seed:N with the value of --seed)"},
	{.name = "init-head", .kind = GN_OPTION_CHOICE, .offset = FIELD(init_head), .value_name = "WHAT", .initial = "keep",
	 .choices = "keep|skip",
	 .help = "the last layer of --init's file; skip: initialise it by --seed, for fine-tuning on another number of classes"},
	{.name = "freeze", .kind = GN_OPTION_LIST, .offset = FIELD(freeze), .value_name = "PATTERN",
	 .help = "do not update parameters whose names match PATTERN, such as 'layer1.*'; may be repeated. Running statistics of batch "
		 "norm go on"},
	{.name = "lr-scale", .kind = GN_OPTION_LIST, .offset = FIELD(lr_scale), .value_name = "PATTERN=X",
	 .help = "learning rate times X for parameters whose names match PATTERN, such as 'layer1.*=0.1'; may be repeated, the last that "
		 "matches counts"},
	{.name = "checkpoint", .kind = GN_OPTION_TEXT, .offset = FIELD(checkpoint), .value_name = "DIR",
	 .help = "folder for checkpoints, written after epochs, at the end of the run, and on a signal; one run at a time"},
	{.name = "checkpoint-key", .kind = GN_OPTION_TEXT, .offset = FIELD(checkpoint_key), .value_name = "FILE",
	 .help = "encrypt checkpoints with this key (AES-256-GCM): 32 bytes, readable by their owner only; --resume, eval, predict, export and "
		 "info take the same file"},
	{.name = "checkpoint-epochs", .kind = GN_OPTION_INT, .offset = FIELD(checkpoint_epochs), .value_name = "N",
	 .initial = "1", .min = 1, .max = 1e6, .help = "epochs between checkpoints"},
	{.name = "checkpoint-every", .kind = GN_OPTION_INT, .offset = FIELD(checkpoint_every), .value_name = "N",
	 .initial = "0", .min = 0, .max = 1e12, .help = "steps between additional checkpoints; 0: none"},
	{.name = "checkpoint-minutes", .kind = GN_OPTION_REAL, .offset = FIELD(checkpoint_minutes), .value_name = "M",
	 .initial = "0", .min = 0, .max = 1e6,
	 .help = "minutes between additional checkpoints, counted from the start of the last one; 0: none"},
	{.name = "checkpoint-local", .kind = GN_OPTION_TEXT, .offset = FIELD(checkpoint_local), .value_name = "DIR",
	 .help = "a folder on each node's own disk, where checkpoints are written first; --resume auto copies what had not reached --checkpoint"},
	{.name = "keep", .kind = GN_OPTION_INT, .offset = FIELD(keep), .value_name = "N", .initial = "3", .min = 1,
	 .max = 1e6, .help = "number of checkpoints to keep"},
	{.name = "keep-every", .kind = GN_OPTION_INT, .offset = FIELD(keep_every), .value_name = "K", .initial = "0", .min = 0,
	 .max = 1e6, .help = "beside them, never remove every K-th checkpoint: it gets an empty file named keep; 0: none"},
	{.name = "keep-best", .kind = GN_OPTION_CHOICE, .offset = FIELD(keep_best), .value_name = "METRIC", .initial = "none",
	 .choices = "none|top1|loss|ema-top1",
	 .help = "beside them, keep the checkpoint of the best evaluation, which the link best in --checkpoint names"},
	{.name = "patience", .kind = GN_OPTION_INT, .offset = FIELD(patience), .value_name = "N", .initial = "0", .min = 0,
	 .max = GN_PATIENCE_MAX,
	 .help = "end the run after N evaluations in a row without a better one, by the metric of --keep-best (none: top1); 0: never"},
	{.name = "resume", .kind = GN_OPTION_TEXT, .offset = FIELD(resume), .value_name = "auto|PATH|none",
	 .initial = "none", .help = "auto: continue from the newest valid checkpoint in --checkpoint; start from the beginning if "
		 "there is none"},
	{.name = "log", .kind = GN_OPTION_TEXT, .offset = FIELD(log), .value_name = "FILE.jsonl",
	 .help = "append one JSON line per interval, evaluation and checkpoint; -: standard output; a start without a resume "
		 "begins a new run of the file"},
	{.name = "log-every", .kind = GN_OPTION_INT, .offset = FIELD(log_every), .value_name = "N", .initial = "20",
	 .min = 1, .max = 1e9, .help = "steps per interval"},
	{.name = "slow-factor", .kind = GN_OPTION_REAL, .offset = FIELD(slow_factor), .value_name = "F", .initial = "2", .min = 0, .max = 1e6,
	 .help = "name a rank in the log that computes at least F times as long as the median of the ranks for --slow-steps steps; 0: none"},
	{.name = "slow-steps", .kind = GN_OPTION_INT, .offset = FIELD(slow_steps), .value_name = "N", .initial = "100", .min = 1, .max = 1e9,
	 .help = "steps after which a slow rank is named, rounded up to whole intervals of --log-every"},
	{.name = "slow-replace", .kind = GN_OPTION_FLAG, .offset = FIELD(slow_replace),
	 .help = "with --elastic: a slow rank ends, and a process that waits (--spares, --join) takes its place; it stays where none waits"},
	{.name = "halving", .kind = GN_OPTION_TEXT, .offset = FIELD(halving), .value_name = "FACTOR:RUNGS",
	 .help = "for trials of gannet sweep: stop at 1/FACTOR of the steps, 1/FACTOR^2, ... (RUNGS of them) unless among the best "
		 "FACTOR-th of the trials that have come as far"},
	{.name = "log-samples", .kind = GN_OPTION_TEXT, .offset = FIELD(log_samples), .value_name = "DIR",
	 .help = "append a JSON line per rank and batch to DIR/world-W-rank-R.jsonl: the step, and which images it trains on"},
	{.name = "metrics", .kind = GN_OPTION_TEXT, .offset = FIELD(metrics), .value_name = "FILE.prom",
	 .help = "rewrite FILE every few seconds with step, loss, rates and times in Prometheus' text format, for node_exporter's "
		 "textfile collector on the node of rank 0"},
	{.name = "trace", .kind = GN_OPTION_TEXT, .offset = FIELD(trace), .value_name = "FILE.json",
	 .help = "write a timeline of all ranks on one clock as a Chrome trace, for Perfetto (ui.perfetto.dev)"},
	{.name = "trace-steps", .kind = GN_OPTION_TEXT, .offset = FIELD(trace_steps), .value_name = "A:B|N", .initial = "20",
	 .help = "trace steps A to B, written after B; or the last N steps, written at the end"},
	{.name = "eval-every", .kind = GN_OPTION_INT, .offset = FIELD(eval_every), .value_name = "N", .initial = "1",
	 .min = 1, .max = 1e6, .help = "epochs between evaluations"},
	{.name = "eval-steps", .kind = GN_OPTION_INT, .offset = FIELD(eval_steps), .value_name = "N", .initial = "0", .min = 0,
	 .max = 1e12, .help = "steps between additional evaluations; 0: none"},
	{.name = "eval-first", .kind = GN_OPTION_FLAG, .offset = FIELD(eval_first), .help = "evaluate before the first step, too"},
	{.name = "device", .kind = GN_OPTION_CHOICE, .offset = FIELD(device), .value_name = "NAME", .initial = "host",
	 .choices = GN_DEVICE_CHOICES,
	 .help = "host: oneDNN; cuda: one GPU per rank of a node; auto: cuda if present, else host; ref: the plain-C reference, "
		 "slow"},
	{.name = "precision", .kind = GN_OPTION_CHOICE, .offset = FIELD(precision), .value_name = "NAME", .initial = "fp32",
	 .choices = GN_PRECISION_CHOICES,
	 .help = "type of activations and their gradients. With bf16 and fp16, parameters, their gradients and batch statistics "
		 "stay fp32, and all sums are accumulated in fp32 or better. bf16 needs processors with bfloat16 instructions "
		 "(bf16-emulated: only AVX-512, slower than fp32) or GPUs; fp16 needs GPUs and uses loss scaling; tf32, on GPUs, "
		 "is fp32 with rounded inputs of convolutions"},
	{.name = "transport", .kind = GN_OPTION_CHOICE, .offset = FIELD(transport), .value_name = "NAME",
	 .initial = "auto", .choices = "auto|tcp|shm|rc|ud", .help = "allowed transport for gradients (sets UCX_TLS)"},
	{.name = "transport-strict", .kind = GN_OPTION_FLAG, .offset = FIELD(transport_strict),
	 .help = "fail instead of warn when nodes use different transports, or a node does not use its fastest device"},
	{.name = "comm", .kind = GN_OPTION_CHOICE, .offset = FIELD(comm), .value_name = "NAME", .initial = "auto",
	 .choices = "auto|nccl|ucx",
	 .help = "backend for gradients on GPUs (auto: the faster one, if NCCL is available, else ucx); on the host always ucx"},
	{.name = "rails", .kind = GN_OPTION_INT, .offset = FIELD(rails), .value_name = "N", .initial = "0", .min = 0,
	 .max = GN_RAILS_MAX, .help = "most network devices (rails) per node; 0: all that are equally fast"},
	{.name = "algo", .kind = GN_OPTION_CHOICE, .offset = FIELD(algo), .value_name = "NAME", .initial = "auto",
	 .choices = "auto|shared|ring|recursive-doubling|halving-doubling|double-tree|hierarchical|hierarchical-ring",
	 	.help = "allreduce algorithm"},
	{.name = "tuning", .kind = GN_OPTION_TEXT, .offset = FIELD(tuning), .value_name = "FILE",
	 .help = "tuning table of gannet tune; none: use estimates (default: where gannet tune writes it)"},
	{.name = "progress", .kind = GN_OPTION_CHOICE, .offset = FIELD(progress), .value_name = "WHO",
	 .initial = "caller", .choices = "caller|thread",
	 .help = "thread: a separate thread makes communication progress; caller: progress only between layers"},
	{.name = "threads", .kind = GN_OPTION_INT, .offset = FIELD(threads), .value_name = "N", .initial = "0", .min = 0,
	 .max = 4096, .help = "compute threads per rank; 0: the processors of its affinity mask divided among the ranks that share "
		 "them"},
	{.name = "loader-threads", .kind = GN_OPTION_INT, .offset = FIELD(loader_threads), .value_name = "N|auto",
	 .initial = "2", .min = 1, .max = 1024, .zero = "auto",
	 .help = "threads per rank that read and decode; auto: chosen in the first steps from what decoding and a step take, at most the "
		 "rank's processors; the results are the same"},
	{.name = "prefetch", .kind = GN_OPTION_SIZE, .offset = FIELD(prefetch), .value_name = "BYTES", .initial = "256M",
	 .min = 0, .max = 1e13, .help = "memory for batches read ahead (for a GPU 0.9 MB per image of side 224); at least three "
		 "batches"},
	{.name = "bucket", .kind = GN_OPTION_SIZE, .offset = FIELD(bucket), .value_name = "BYTES", .initial = "0",
	 .min = 0, .max = 1e13,
	 .help = "least bytes per gradient bucket; 0: autotune in the first steps, among sizes whose results are bitwise equal to "
		 "those of 16M (short runs use 16M)"},
	{.name = "any-order", .kind = GN_OPTION_FLAG, .offset = FIELD(any_order),
	 .help = "with --bucket 0, also try sizes that change the order of summation: perhaps faster, but two runs may differ in "
		 "the last bits"},
	{.name = "overlap", .kind = GN_OPTION_FLAG, .offset = FIELD(overlap), .initial = "1",
	 .help = "overlap the allreduce of gradients with backward; --no-overlap: after backward (default: autotune in the first "
		 "steps)"},
	{.name = "compress", .kind = GN_OPTION_TEXT, .offset = FIELD(compress), .value_name = "HOW", .initial = "none",
	 .help = "compress gradients between ranks: bf16, fp16, int8, topk:F (the share F of largest ones, such as 0.01; the rest is "
		 "added to the next step's), dgc:F (the same with momentum before selection), powersgd:R (factors of rank R); auto: the first steps "
		 "measure which pays on this network, if any"},
	{.name = "shard", .kind = GN_OPTION_CHOICE, .offset = FIELD(shard), .value_name = "WHAT", .initial = "none",
	 .choices = GN_SHARD_CHOICES,
	 .help = "divide among the ranks what all of them would hold (ZeRO): optimizer: optimizer state and the moving average, of which each "
		 "rank updates its part; gradients: those that --accumulate adds up, too"},
	{.name = "local-steps", .kind = GN_OPTION_INT, .offset = FIELD(local_steps), .value_name = "H", .initial = "1", .min = 1,
	 .max = 1e6, .help = "ranks train by their own gradients and average parameters every H steps; 1: sum gradients in every step"},
	{.name = "local-from", .kind = GN_OPTION_INT, .offset = FIELD(local_from), .value_name = "EPOCH", .initial = "0", .min = 0,
	 .max = 1e6, .help = "with --local-steps: the first epoch of local steps; before it gradients are summed"},
	{.name = "update", .kind = GN_OPTION_TEXT, .offset = FIELD(update), .value_name = "HOW", .initial = "allreduce",
	 .help = "who applies gradients: allreduce: every rank their sum; or parameter servers: sync: the sum in rank order; async: each "
		 "worker's as they come; ssp:N: the same, a worker being at most N steps ahead of the slowest"},
	{.name = "servers", .kind = GN_OPTION_TEXT, .offset = FIELD(servers), .value_name = "N|shared", .initial = "none",
	 .help = "with --update sync, async and ssp:N: the last N ranks hold parameters and optimizer state, and do not train; shared: every "
		 "rank holds a part beside its training"},
	{.name = "parallel", .kind = GN_OPTION_TEXT, .offset = FIELD(parallel), .value_name = "MESH",
	 .help = "data=D,pipeline=P: divide the network into P stages on as many ranks, a pipeline, and train D pipelines on data of their own. "
		 "data=D,tensor=T: divide each layer among T ranks instead. data=D,pipeline=P,tensor=T: each layer of a stage. One of the numbers may be "
		 "left out. auto: the data ranks or pipelines in "
		 "which a step is predicted to be fastest, each pipeline with --batch and --micro-batches for each of its ranks, so that the samples of a "
		 "step are the same (default: all ranks train the whole network)"},
	{.name = "pipe-schedule", .kind = GN_OPTION_CHOICE, .offset = FIELD(pipe_schedule), .value_name = "NAME", .initial = "1f1b",
	 .choices = GN_PIPE_CHOICES,
	 .help = "order of micro-batches in a pipeline. gpipe: all forward, then all backward; 1f1b: forward and backward in turns, with "
		 "activations of at most P micro-batches. The results are the same. pipedream: each stage updates after each micro-batch, and "
		 "does not pause between batches; backward has the parameters of its forward, which are up to P - 1 updates old. decoupled: the "
		 "same, with gradients that each stage predicts instead of waiting for them"},
	{.name = "micro-batches", .kind = GN_OPTION_INT, .offset = FIELD(micro_batches), .value_name = "M", .initial = "1", .min = 1, .max = 65536,
	 .help = "parts in which each --batch passes, one after the other; the results are those of --batch B/M --accumulate M, but with "
		 "pipedream and decoupled, where each part is an update"},
	{.name = "recompute", .kind = GN_OPTION_FLAG, .offset = FIELD(recompute),
	 .help = "with gpipe and 1f1b: a stage keeps of each micro-batch in flight its input, not all activations, and runs forward again before its "
		 "backward: less memory, about a third more to compute; the results are the same"},
	{.name = "cut", .kind = GN_OPTION_TEXT, .offset = FIELD(cut), .value_name = "NAME,...",
	 .help = "layers or blocks with which the stages but the first begin, such as layer2,layer3 (default: rank 0 measures the layers, and "
		 "the slowest stage becomes as fast as possible)"},
	{.name = "elastic", .kind = GN_OPTION_TEXT, .offset = FIELD(elastic), .value_name = "MIN[:MAX]",
	 .help = "go on after losses of ranks while MIN are left, and more than half of those before (with --checkpoint half): they form a new world and go on from "
		 "memory; buckets are not autotuned. For srun --no-kill "
		 "--kill-on-bad-exit=0 and gannet launch --keep-going. MAX: others may join (--join) until they are so many. 0: end with the first "
		 "loss (default: 0)"},
	{.name = "elastic-batch", .kind = GN_OPTION_CHOICE, .offset = FIELD(elastic_batch), .value_name = "HOW", .initial = "keep",
	 .choices = "keep|scale",
	 .help = "with --elastic, the global batch after a loss: keep: the same, of which the ranks that are left take more batches (--global-batch); "
		 "scale: --batch * ranks * --accumulate, and the learning rate in proportion"},
	{.name = "redundancy", .kind = GN_OPTION_INT, .offset = FIELD(redundancy), .value_name = "N", .initial = "0", .min = 0, .max = 1,
	 .help = "with --elastic and --shard, 1: each rank's part of the optimizer state is also on another rank, on another node where there is one, "
		 "so that the run goes on from memory after the loss of one of the two; 0: from the last checkpoint"},
	{.name = "spares", .kind = GN_OPTION_INT, .offset = FIELD(spares), .value_name = "N", .initial = "0", .min = 0, .max = 1023,
	 .help = "with --elastic: the last N ranks wait, and take the place of ranks that are lost"},
	{.name = "join", .kind = GN_OPTION_TEXT, .offset = FIELD(join), .value_name = "DIR",
	 .help = "join the run of --elastic MIN:MAX whose --checkpoint folder DIR is, after its next step: with --options DIR/options. Each process "
		 "is one rank more; one that finds MAX ranks waits"},
	GN_CMD_WORLD_OPTIONS(struct gn_train_options, world),
};

static const struct gn_command command = {
	.name = "train",
	.summary = "train a classifier, alone or on all ranks of a job",
	.positional = "",
	.description =
		"Data-parallel training. Started by srun --mpi=pmix, mpirun or gannet launch, all tasks form one run; started "
		"directly it is a run of one rank. Every rank reads its part of each batch from --data, gradients are summed over "
		"UCX or NCCL, and all ranks hold the same parameters after every step.\n\n"
		"SIGTERM, SIGUSR1 and the first SIGINT end the run after the current step, with a checkpoint and exit code 5: "
		"start it again with --resume auto. A second SIGINT ends it immediately. The checkpoint of an epoch is written "
		"before its evaluation; an evaluation that was interrupted is repeated when the run resumes, unless --log contains "
		"its result. When a rank is lost, the others end with exit code 4 and name it; with --elastic they go on.\n\n"
		"A step with non-finite gradients changes no parameters on any rank and is counted in the log; ten in a row end "
		"the run.\n\n"
		"An epoch consists of whole global batches: the remaining images, fewer than a global batch, are skipped. The "
		"order, and with it the skipped images, differs between epochs.\n\n"
		"The log has one JSON object per line; loss is the mean over the interval that ends with the line's step, and "
		"time_ms is the breakdown of its mean step on rank 0. gannet report draws it.",
	.examples = "  gannet train --data train --val val --model lenet --epochs 10 \\\n"
		    "      --lr 0.05 --checkpoint run1\n"
		    "  srun --mpi=pmix gannet train --data /local/train --model resnet50 \\\n"
		    "      --batch 64 --lr 0.1 --lr-batch 256 --warmup-epochs 5 \\\n"
		    "      --checkpoint /shared/run1 --resume auto --log /shared/run1.jsonl\n",
	.options = options,
	.option_count = sizeof options / sizeof *options,
	.given = FIELD(given),
	.waives_required = "dry-run",
};
_Static_assert(sizeof options / sizeof *options <= GN_TRAIN_OPTIONS_MAX, "raise GN_TRAIN_OPTIONS_MAX");

/* Options that may differ between ranks: output paths and numbers of threads; the first one only where others may join, who go on from what
 * the run's ranks have. Paths of the data and keys may differ between nodes, too; their contents are compared instead. */
static const char *const own_options[] = {"resume", "options", "data", "val", "stage", "key-file", "checkpoint", "checkpoint-local", "checkpoint-key", "log", "log-samples", "metrics",
					  "threads", "loader-threads", "prefetch",
					  "init", "tuning", "progress", "join-timeout", "heartbeat-timeout", "stall-timeout",
					  "socket-ifname", "spares", "join", NULL};

static const char *const *own_options_of(const struct gn_train_options *o)
{
	return own_options + (gn_elastic_most(o) == 0);
}

/* What a file of options does not repeat: where a run writes, and from where it goes on. */
static const char *const unrepeated[] = {"options", "checkpoint", "checkpoint-local", "resume", "log", "log-samples", "metrics", "trace", "halving",
					   "dry-run", "join", NULL};

/* Logs the recipe: "goyal for a global batch of 256: epochs=90 ...; given: lr". */
static void log_recipe(const char *name, const struct gn_recipe *recipe, const int *filled, int64_t batch,
			struct gn_strbuf *out)
{
	int given = 0, missing = 0;

	gn_strbuf_printf(out, "%s for a global batch of %lld", name, (long long)batch);
	if (recipe->batch && recipe->batch != batch)
		gn_strbuf_printf(out, " (the nearest published one is %lld%s)", (long long)recipe->batch,
				 batch > 2 * recipe->batch || 2 * batch < recipe->batch ? ", far from it" : "");
	gn_strbuf_puts(out, ":");
	for (size_t i = 0; i < recipe->count; i++)
		if (filled[i])
			gn_strbuf_printf(out, " %s=%s", recipe->choices[i].option, recipe->choices[i].value);
	for (size_t i = 0; i < recipe->count; i++)
		if (!filled[i])
			gn_strbuf_printf(out, "%s%s", given++ ? " " : "; given: ", recipe->choices[i].option);
	for (const char *const *m = recipe->missing; m && *m; m++)
		gn_strbuf_printf(out, "%s%s", missing++ ? ", " : "; missing here: ", *m);
}

/* Sets the options of the recipe that were not given; *batch: the global one. */
static enum gn_status fill_recipe(struct gn_train_options *o, int64_t ranks, struct gn_recipe *recipe,
				  int filled[GN_RECIPE_CHOICES_MAX], int64_t *batch, struct gn_err *err)
{
	enum gn_status status;

	*batch = o->global_batch ? o->global_batch : o->batch * ranks * o->accumulate;
	status = gn_recipe_find(o->recipe, *batch, recipe, err);
	if (!status)
		gn_recipe_fit(recipe, gn_options_given(&command, o, "side") ? o->side : 0, *batch,
			      !gn_options_given(&command, o, "lr") && !gn_options_given(&command, o, "lr-batch"));
	for (size_t i = 0; !status && i < recipe->count; i++)
		status = gn_options_fill(&command, o, recipe->choices[i].option, recipe->choices[i].value, &filled[i], err);
	return status ? gn_err_prefix(err, "recipe %s", o->recipe) : GN_OK;
}

/* The same for a run, with the recipe in its log. Strings of recipe are borrowed by o. */
static enum gn_status apply_recipe(struct gn_train_options *o, int64_t ranks, struct gn_recipe *recipe,
				   struct gn_strbuf *text, struct gn_err *err)
{
	int filled[GN_RECIPE_CHOICES_MAX];
	int64_t batch;
	enum gn_status status = fill_recipe(o, ranks, recipe, filled, &batch, err);

	if (status)
		return status;
	for (size_t i = 0; i < recipe->count; i++) {
		const char *option = recipe->choices[i].option;

		if (!strcmp(option, "warmup-epochs") && filled[i])
			o->warmup_of = recipe->epochs;
		if (!strcmp(option, "milestones") && filled[i])
			o->milestones_of = recipe->epochs;
	}
	log_recipe(o->recipe, recipe, filled, batch, text);
	o->recipe_text = gn_strbuf_text(text);
	return gn_train_check_options(o, err);
}

/* Warns once of all options that were given and have no effect in combination with the others. */
static void warn_of_unused(const struct gn_train_options *given, const struct gn_train_options *o, struct gn_log *log)
{
	int side = o->side ? (int)o->side : gn_model_default_side(o->model);
	int milestones = gn_options_given(&command, given, "milestones");
	int factor = gn_options_given(&command, given, "lr-factor");
	enum gn_augment augment;
	struct gn_strbuf text;

	gn_strbuf_init(&text);
	if (strcmp(o->schedule, "step") && (milestones || factor))
		gn_strbuf_printf(&text, "%s%s%s, which --schedule step has, not %s", milestones ? "--milestones" : "",
				 milestones && factor ? " and " : "", factor ? "--lr-factor" : "", o->schedule);
	if (gn_options_given(&command, given, "pad") && !gn_input_augment_parse(o->augment, side, &augment, NULL) &&
	    (augment == GN_AUGMENT_NONE || augment == GN_AUGMENT_CROP_FLIP))
		gn_strbuf_printf(&text, "%s--pad, which --augment shift and shift-flip have, not %s", text.len ? "; " : "",
				 augment == GN_AUGMENT_NONE ? "none" : "crop-flip");
	if (text.len && !gn_strbuf_failed(&text))
		gn_log_warn(log, "options without effect in this run: %s", gn_strbuf_text(&text));
	gn_strbuf_release(&text);
}

/* For gn_train_options. */
static enum gn_status is_behind(const char *log, int factor, int rung, int *behind, char why[256], struct gn_err *err)
{
	size_t place, of;
	enum gn_status status = gn_halving_place(log, factor, rung, &place, &of, err);

	if (status)
		return status;
	*behind = !gn_halving_goes_on(place, of, factor);
	snprintf(why, 256, "place %zu of %zu trial%s at 1/%.0f of the steps: %s", place, of, gn_text_plural(of), pow(factor, rung),
		 *behind ? "stopping" : "going on");
	return GN_OK;
}

/* *told: as in gn_train_run(). */
static enum gn_status train_in_world(const struct gn_train_options *given, struct gn_world *world,
				     const volatile sig_atomic_t *stop, struct gn_log *log, int *told, struct gn_err *err)
{
	struct gn_comm_options co = {.transport = given->transport, .tuning = given->tuning, .rails = (int)given->rails,
				     .strict = given->transport_strict, .progress = given->progress};
	struct gn_train_options filled = *given, *o = &filled;
	struct gn_strbuf agreed, all, lines, recipe_text;
	struct gn_recipe recipe;
	char gpu[GN_DEVICE_PCI_MAX];
	struct gn_comm *comm;
	int measure = 0;
	enum gn_status status = gn_comm_create(world, &co, log, &comm, err);

	if (status)
		return status;
	gn_strbuf_init(&agreed);
	gn_strbuf_init(&all);
	gn_strbuf_init(&lines);
	gn_strbuf_init(&recipe_text);
	gn_device_pci(given->device, gn_world_local_rank(world), gpu);
	status = gn_affinity_report(comm, *gpu ? gpu : NULL, log, err);
	if (!status && o->carried)
		status = gn_carried_batch(o->carried, comm, o, err);
	if (!status)
		status = gn_options_fill(&command, o, "overlap", "yes", &measure, err);
	if (measure)
		o->overlap = GN_OVERLAP_MEASURE;
	if (!status && o->recipe)
		status = apply_recipe(o, gn_train_workers(o, gn_comm_size(comm)), &recipe, &recipe_text, err);
	if (!status && gn_comm_rank(comm) == 0 && (o->steps || o->epochs))
		warn_of_unused(given, o, log);
	gn_options_describe(&command, o, own_options_of(o), &agreed);
	gn_options_describe(&command, o, NULL, &all);
	o->options_text = gn_strbuf_text(&all);
	gn_strbuf_printf(&lines, "# gannet train --options FILE --checkpoint DIR repeats this run (gannet %s, %d rank%s)\n", gn_version(),
			 gn_comm_size(comm), gn_text_plural((uint64_t)gn_comm_size(comm)));
	gn_options_write(&command, o, unrepeated, &lines);
	o->options_lines = gn_strbuf_text(&lines);
	o->is_behind = is_behind;
	if (!status && (gn_strbuf_failed(&agreed) || gn_strbuf_failed(&all) || gn_strbuf_failed(&lines) || gn_strbuf_failed(&recipe_text)))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the options");
	/* from here on batches are micro-batches */
	o->batch /= o->micro_batches;
	o->accumulate *= o->micro_batches;
	if (!status)
		status = gn_train_served(o, gn_strbuf_text(&agreed), stop, comm, log, told, err);
	gn_strbuf_release(&agreed);
	gn_strbuf_release(&all);
	gn_strbuf_release(&lines);
	gn_strbuf_release(&recipe_text);
	gn_comm_destroy(comm);
	return status;
}

/* Checked before any collective call. How auto is resolved, and whether NCCL is available, is known only later. */
static enum gn_status check_comm(const struct gn_train_options *o, struct gn_err *err)
{
	return gn_coll_backend_check(o->comm, strcmp(o->device, "auto") ? o->device : "cuda", gn_device_is_built("cuda"), err);
}

/* Refuses contradictory and missing lengths of the run. */
static enum gn_status check_length(const struct gn_train_options *o, struct gn_err *err)
{
	if (o->steps && gn_options_given(&command, o, "epochs"))
		return gn_err_set(err, GN_ERR_USAGE, "--epochs and --steps both set the length of the run: give only one");
	if (!o->steps && !o->epochs && !o->val)
		return gn_err_set(err, GN_ERR_USAGE, "--epochs 0 only evaluates: give --val DIR");
	return GN_OK;
}

static enum gn_status check_batch(const struct gn_train_options *o, struct gn_err *err)
{
	if (o->global_batch && o->accumulate > 1)
		return gn_err_set(err, GN_ERR_USAGE, "--accumulate and --global-batch both set the batches of a step: give only one");
	if (o->global_batch % o->batch)
		return gn_err_set(err, GN_ERR_USAGE, "--global-batch %lld is no multiple of --batch %lld", (long long)o->global_batch,
				  (long long)o->batch);
	return GN_OK;
}

static enum gn_status check_elastic(const struct gn_train_options *o, struct gn_err *err)
{
	struct gn_mesh_shape shape;
	int least, most;
	enum gn_status status = gn_elastic_parse(o->elastic, &least, &most, err);

	if (status)
		return status;
	if (least && !o->checkpoint && o->parallel && !gn_mesh_parse(o->parallel, 0, &shape, NULL) && shape.pipeline != 1)
		return gn_err_set(err, GN_ERR_USAGE, "--elastic with --parallel goes back to the last checkpoint when no rank that is left has a stage: give "
				  "--checkpoint DIR");
	if (o->redundancy && (!least || gn_shard_mode_of(o->shard) == GN_SHARD_NONE))
		return gn_err_set(err, GN_ERR_USAGE, "--redundancy copies parts of the optimizer state, so that their loss is survived: give --elastic MIN and "
				  "--shard optimizer or gradients");
	if (o->spares && !least)
		return gn_err_set(err, GN_ERR_USAGE, "--spares take the place of lost ranks: give --elastic MIN");
	if (o->slow_replace && !least)
		return gn_err_set(err, GN_ERR_USAGE, "--slow-replace gives the place of a slow rank to one that waits: give --elastic MIN and --spares N, or "
				  "--elastic MIN:MAX");
	if (o->slow_replace && !(o->slow_factor > 0))
		return gn_err_set(err, GN_ERR_USAGE, "--slow-replace is of slow ranks: --slow-factor 0 finds none");
	if (o->join && !most)
		return gn_err_set(err, GN_ERR_USAGE, "--join is for a run with --elastic MIN:MAX: give its options by --options %s/options", o->join);
	if (o->join && o->checkpoint != o->join && !gn_file_is_same(o->join, o->checkpoint))
		return gn_err_set(err, GN_ERR_USAGE, "--checkpoint %s is not the folder of the run that --join names: leave --checkpoint out",
				  o->checkpoint);
	if (most && !o->join && !o->checkpoint)
		return gn_err_set(err, GN_ERR_USAGE, "--elastic MIN:MAX is for others that find the run by its folder: give --checkpoint DIR");
	return GN_OK;
}

static enum gn_status check_needs(const struct gn_train_options *o, struct gn_err *err)
{
	int keeps = strcmp(o->keep_best, "none") != 0;
	const char *asks = keeps ? "--keep-best" : o->patience ? "--patience" : o->eval_steps ? "--eval-steps" : o->eval_first ? "--eval-first"
			   : NULL;

	if (!strcmp(o->init_head, "skip") && !gn_init_is_file(o->init))
		return gn_err_set(err, GN_ERR_USAGE, "--init-head skip is of a file of weights: give --init FILE.safetensors");
	if (o->freeze.count && o->clip > 0)
		return gn_err_set(err, GN_ERR_USAGE, "--freeze and --clip cannot be combined: the norm is of all gradients");
	if (gn_lr_scale_check(&o->lr_scale, err))
		return GN_ERR_USAGE;
	if (!o->parallel && gn_options_given(&command, o, "pipe-schedule"))
		return gn_err_set(err, GN_ERR_USAGE, "--pipe-schedule is of pipelines: give --parallel data=D,pipeline=P, too");
	if (asks && !o->val)
		return gn_err_set(err, GN_ERR_USAGE, "%s is of evaluations: give --val DIR", asks);
	if (keeps && !o->checkpoint)
		return gn_err_set(err, GN_ERR_USAGE, "--keep-best keeps a checkpoint: give --checkpoint DIR");
	if (o->checkpoint_key && !o->checkpoint && !strcmp(o->resume, "none"))
		return gn_err_set(err, GN_ERR_USAGE, "--checkpoint-key encrypts checkpoints: give --checkpoint DIR");
	if (gn_elastic_least(o) && gn_shard_mode_of(o->shard) != GN_SHARD_NONE && !o->checkpoint)
		return gn_err_set(err, GN_ERR_USAGE, "--elastic with --shard goes back to the last checkpoint after a loss, for a part of the optimizer "
				  "state is lost with its rank: give --checkpoint DIR");
	if (check_elastic(o, err))
		return GN_ERR_USAGE;
	if (o->checkpoint_local && !o->checkpoint)
		return gn_err_set(err, GN_ERR_USAGE, "--checkpoint-local holds what goes on to the shared folder: give --checkpoint DIR");
	if (!strcmp(o->keep_best, "ema-top1") && !(o->ema > 0))
		return gn_err_set(err, GN_ERR_USAGE, "--keep-best ema-top1 is of the moving average: give --ema X");
	return GN_OK;
}

/* Who joins a run has its folder, which a file of options does not repeat. */
static enum gn_status check_alone(const struct gn_train_options *given, struct gn_err *err)
{
	struct gn_train_options filled = *given;
	const struct gn_train_options *o = &filled;
	enum gn_status status = check_length(o, err);

	if (!filled.checkpoint)
		filled.checkpoint = filled.join;
	if (!status)
		status = check_batch(o, err);
	if (!status)
		status = check_needs(o, err);
	if (!status)
		status = check_comm(o, err);
	return status ? status : gn_train_check_options(o, err);
}

/* For gn_cmd: with what the recipe fills in, too. */
static enum gn_status check(const void *target, int64_t ranks, struct gn_err *err)
{
	struct gn_train_options filled = *(const struct gn_train_options *)target;
	struct gn_mesh_shape shape;
	struct gn_recipe recipe;
	struct gn_strbuf text;
	enum gn_status status;

	if (filled.dry_run)
		return gn_err_set(err, GN_ERR_USAGE, "--dry-run prints and ends: it is not for a job");
	status = check_alone(&filled, err);
	if (!status && filled.parallel)
		status = gn_mesh_parse(filled.parallel, (int)(ranks - filled.spares), &shape, err);
	gn_strbuf_init(&text);
	if (!status && filled.recipe)
		status = apply_recipe(&filled, gn_train_workers(&filled, (int)ranks), &recipe, &text, err);
	gn_strbuf_release(&text);
	return status;
}

static enum gn_status dry_run(const struct gn_train_options *given, struct gn_err *err)
{
	struct gn_train_options o = *given;
	int filled[GN_RECIPE_CHOICES_MAX];
	struct gn_recipe recipe;
	struct gn_strbuf text;
	int64_t batch;
	enum gn_status status = o.recipe ? fill_recipe(&o, 1, &recipe, filled, &batch, err)
					 : gn_err_set(err, GN_ERR_USAGE, "--dry-run prints what --recipe sets: give --recipe NAME");

	if (status)
		return status;
	gn_strbuf_init(&text);
	gn_recipe_describe(o.recipe, &recipe, filled, batch, &text);
	if (gn_strbuf_failed(&text))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the recipe");
	else
		fputs(gn_strbuf_text(&text), stdout);
	gn_strbuf_release(&text);
	return status;
}

/* For gn_regroup_witness: the folder's owner decides between two halves. */
struct heir {
	const char *directory;
	const struct gn_carried *carried;
};

static enum gn_status settle(void *context, const void *mine, size_t len, void *kept, size_t room, size_t *kept_len, struct gn_err *err)
{
	const struct heir *h = context;

	return gn_owner_settle(h->directory, h->carried->owner, mine, len, kept, room, kept_len, err);
}

/* The longest time that the ranks which are left wait for one that has not noticed the loss. */
enum { REGROUP_MS = GN_TRAIN_STALL_MS };

/* Of the data of a dataset, which all processes must have alike. */
static enum gn_status describe_data(const char *directory, struct gn_strbuf *out, struct gn_err *err)
{
	struct gn_dataset *d;
	enum gn_status status = directory ? gn_dataset_open(directory, &d, err) : GN_OK;

	if (status || !directory)
		return status;
	gn_strbuf_printf(out, " %s", gn_dataset_digest(d));
	gn_dataset_close(d);
	return GN_OK;
}

/* By which members tell whether one that joins would compute the same as they do. */
static enum gn_status digest_run(const struct gn_train_options *o, char hex[GN_SHA256_HEX], struct gn_err *err)
{
	struct gn_strbuf text;
	enum gn_status status;

	gn_strbuf_init(&text);
	gn_options_describe(&command, o, own_options_of(o), &text);
	status = describe_data(o->data, &text, err);
	if (!status)
		status = describe_data(o->val, &text, err);
	if (!status && gn_strbuf_failed(&text))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the options");
	if (!status)
		status = gn_sha256_buffer(gn_strbuf_text(&text), text.len, hex, err);
	gn_strbuf_release(&text);
	return status;
}

/* A failure before the run goes on in a world to which some were taken in, which is theirs in all likelihood: what they have on their hosts is seen
 * there first. They end with it, and the others go on without them. */
static int is_of_newcomers(const struct gn_train_options *o, enum gn_status status)
{
	return status && status != GN_ERR_PEER_LOST && status != GN_ERR_STOPPED && !o->carried->has_begun && gn_regroup_has_new(o->regroup);
}

/* Others go on without this process, which has joined them. */
static enum gn_status leave(struct gn_train_options *o, const struct gn_world_options *how, struct gn_world **world, struct gn_err *err)
{
	gn_regroup_leave(o->regroup);
	gn_regroup_form(o->regroup, how, REGROUP_MS, world, err);
	gn_world_destroy(*world);
	*world = NULL;
	return gn_err_set(err, GN_ERR_STOPPED, "stopped on request after step %llu: this process has left the run, which goes on",
			  (unsigned long long)o->carried->state.step);
}

/* The ranks that are left are no multiple of a pipeline's, and this one is not needed now. *world: NULL when the run ends before it is. */
static enum gn_status wait_again(struct gn_train_options *o, const struct gn_world_options *how, struct gn_world **world,
				 const volatile sig_atomic_t *stop, struct gn_log *log, struct gn_err *err)
{
	gn_log_warn(log, "%s: it waits to be taken in", err->text);
	gn_carried_forget(o->carried);
	return gn_regroup_await(o->regroup, how, stop, REGROUP_MS, world, err);
}

/* A rank knows of the loss that ended its step, which may be one of several, or a consequence of another. */
static void name_losses(const struct gn_train_options *o, const struct gn_world *world, struct gn_err *loss)
{
	struct gn_strbuf lost;

	if (gn_world_rank(world) || o->carried->is_planned)
		return;
	gn_strbuf_init(&lost);
	gn_regroup_losses(o->regroup, &lost);
	if (lost.len && !gn_strbuf_failed(&lost) && !strstr(loss->text, gn_strbuf_text(&lost)))
		snprintf(loss->text, sizeof loss->text, "%s", gn_strbuf_text(&lost));
	gn_strbuf_release(&lost);
}

/* Trains in *world, and again and again in worlds of the ranks that are left and those that are taken in. *world: the last one; NULL: there
 * is none any more. */
static enum gn_status train_in_worlds(struct gn_train_options *o, const struct gn_world_options *how, struct gn_world **world,
				      const volatile sig_atomic_t *stop, struct gn_log *log, int *told, struct gn_err *err)
{
	struct gn_carried *carried = o->carried;
	struct heir heir = {o->checkpoint, carried};
	const struct gn_regroup_witness witness = {settle, &heir};
	struct gn_err loss = {.text = ""};
	uint64_t aborted_step = UINT64_MAX;
	enum gn_status status = train_in_world(o, *world, stop, log, told, err);
	int leaves;

	while ((status == GN_ERR_PEER_LOST && (!gn_world_aborted(*world) || carried->state.step != aborted_step)) ||
	       (carried->ranks && is_of_newcomers(o, status) && !gn_world_aborted(*world))) {
		/* a connection broke before anybody knew of a loss, and this rank gave up; not again and again without a step */
		if (gn_world_aborted(*world))
			aborted_step = carried->state.step;
		loss = *err;
		leaves = status == GN_ERR_PEER_LOST && carried->leaves;
		if (carried->has_begun)
			gn_regroup_began(o->regroup);
		carried->has_begun = 0;
		*told = 0;
		gn_regroup_set_witness(o->regroup, o->checkpoint && carried->owner[0] ? &witness : NULL);
		status = leaves ? leave(o, how, world, err) : gn_regroup_form(o->regroup, how, REGROUP_MS, world, err);
		while (status && gn_regroup_is_surplus(o->regroup))
			status = wait_again(o, how, world, stop, log, err);
		if (leaves || (!status && !*world))
			break;
		if (status) {
			gn_err_prefix(err, "%s", loss.text);
			if (gn_regroup_is_last(o->regroup))
				gn_carried_log_failure(carried, o, log, err);
			break;
		}
		name_losses(o, *world, &loss);
		carried->why = loss.text;
		carried->world = gn_regroup_epoch(o->regroup);
		status = train_in_world(o, *world, stop, log, told, err);
	}
	if (*world && status != GN_ERR_PEER_LOST && !is_of_newcomers(o, status))
		gn_regroup_end(o->regroup, status);
	return status;
}

/* With the global batch kept each rank needs a batch of it. */
static enum gn_status check_growth(const struct gn_train_options *o, int ranks, int most, struct gn_err *err)
{
	const int64_t batches = o->global_batch ? o->global_batch / o->batch : o->accumulate * ranks;

	if (batches >= most || !strcmp(o->elastic_batch, "scale"))
		return GN_OK;
	return gn_err_set(err, GN_ERR_USAGE, "--elastic %s: %d ranks need as many batches, and a step has %lld of them: give a --global-batch of more, or "
			  "--elastic-batch scale", o->elastic, most, (long long)batches);
}

/* The same from the first world on, or from the one that takes this process in; *world: NULL for one that joins. */
static enum gn_status train_elastic(const struct gn_train_options *given, const struct gn_world_options *how, struct gn_world **world,
				    const volatile sig_atomic_t *stop, struct gn_log *log, int *told, struct gn_err *err)
{
	struct gn_train_options o = *given;
	struct gn_carried carried = {.world = 1};
	struct gn_regroup_options ro = {.ifnames = how->ifnames, .stop = stop, .spares = (int)o.spares, .log = log};
	enum gn_status status = gn_elastic_parse(o.elastic, &ro.least, &ro.most, err);
	struct gn_mesh_shape shape;
	int waits;

	/* a mesh that does not fit: the first session says so */
	if (!status && *world && o.parallel && !gn_mesh_parse(o.parallel, gn_world_size(*world) - ro.spares, &shape, NULL))
		ro.each = shape.pipeline;
	/* too many spares: gn_regroup_open says so */
	if (!status && *world && ro.spares < gn_world_size(*world))
		status = check_growth(given, gn_world_size(*world) - ro.spares, ro.most, err);
	if (!status && ro.most)
		status = digest_run(given, ro.digest, err);
	if (!status)
		status = *world ? gn_regroup_open(*world, &ro, &o.regroup, err) : gn_regroup_join(o.join, &ro, &o.regroup, err);
	if (status)
		return status;
	o.carried = &carried;
	o.checkpoint = o.checkpoint ? o.checkpoint : o.join;
	waits = !*world || gn_regroup_is_spare(o.regroup);
	/* one that is taken into a run which has begun, and whose others are lost before it has their state, has the last checkpoint */
	carried.goes_back = waits;
	if (*world && o.spares)
		status = gn_regroup_begin(o.regroup, how, REGROUP_MS, world, err);
	if (!status && waits) {
		gn_log_info(log, "waiting to be taken in");
		status = gn_regroup_await(o.regroup, how, stop, REGROUP_MS, world, err);
		carried.why = "taken in";
		carried.world = gn_regroup_epoch(o.regroup);
	}
	if (!status && *world)
		status = train_in_worlds(&o, how, world, stop, log, told, err);
	if (status && waits && !carried.has_begun)
		*told = 0;
	gn_regroup_leave(o.regroup);
	gn_world_destroy(*world);
	*world = NULL;
	gn_regroup_close(o.regroup);
	gn_carried_release(&carried);
	return status;
}

/* Whether losses of ranks are to be survived, or ranks to be won. */
static int is_elastic(const struct gn_train_options *o, const struct gn_world *world)
{
	return gn_elastic_least(o) && (gn_world_size(world) > 1 || gn_elastic_most(o) > 1);
}

static enum gn_status train_in_job(const struct gn_train_options *o, const struct gn_world_options *how, struct gn_stop *stop, struct gn_log *log,
				   int *told, struct gn_err *err)
{
	struct gn_world *world;
	enum gn_status status = gn_world_create(how, log, &world, err);

	if (status)
		return status;
	gn_stop_begin(stop);
	if (gn_world_rank(world) > 0)
		gn_stop_be_quiet(stop);
	if (is_elastic(o, world)) {
		gn_world_wait_for_nobody(world);
		status = train_elastic(o, how, &world, gn_stop_flag(stop), log, told, err);
	} else {
		status = train_in_world(o, world, gn_stop_flag(stop), log, told, err);
	}
	gn_world_destroy(world);
	return status;
}

static int run(const void *target, const struct gn_text_list *positional)
{
	const struct gn_train_options *o = target;
	struct gn_world_options how = o->world;
	struct gn_log *log = gn_cmd_log();
	struct gn_stop *stop = NULL;
	struct gn_world *world = NULL; /* of a process that joins */
	struct gn_err err;
	enum gn_status status;
	int told = 0;

	(void)positional;
	if (o->dry_run) {
		status = dry_run(o, &err);
		gn_log_destroy(log);
		return status ? gn_cmd_fail("train", &err) : GN_EXIT_DONE;
	}
	status = check_alone(target, &err);
	told = status && gn_cmd_leaves_to_first(&err);
	if (!status)
		status = gn_data_key_check(o->key_file, &err);
	if (!status)
		status = gn_data_key_check(o->checkpoint_key, &err);
	if (!status)
		status = gn_stop_create(log, &stop, &err);
	if (!status)
		how.keep_going = gn_train_keeps_going(o);
	if (!status && o->join) {
		gn_stop_begin(stop);
		status = train_elastic(o, &how, &world, gn_stop_flag(stop), log, &told, &err);
	} else if (!status) {
		status = train_in_job(o, &how, stop, log, &told, &err);
	}
	if (status && !told)
		gn_log_line(log, status == GN_ERR_STOPPED ? GN_LOG_WARN : GN_LOG_ERROR, "train: %s", err.text);
	gn_stop_destroy(stop);
	gn_log_destroy(log);
	return gn_cmd_exit_code(status);
}

const struct gn_cmd gn_cmd_train = {.command = &command, .run = run, .options_size = sizeof(struct gn_train_options), .check = check};
