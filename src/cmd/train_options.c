/* The options of gannet train. */
#include "src/cmd/train_internal.h"

#include "src/cmd/key_option.h"
#include "src/cmd/sample_options.h"
#include "src/config.h"
#include "src/train/loop/carried.h"
#include "src/train/model/model.h"
#include "src/train/optim/recipe.h"
#include "src/train/parallel/pipe_schedule.h"
#include "src/train/parallel/shard.h"
#include "src/train/plan/device.h"

#define FIELD(name) offsetof(struct gn_train_options, name)

static const struct gn_option options[] = {
	{.name = "options", .kind = GN_OPTION_TEXT, .offset = FIELD(options_file), .value_name = "FILE",
	 .help = "read options from FILE, one a line: NAME = VALUE; those of the command line win. A run leaves such a file in its "
		 "--checkpoint folder, named options"},
	{.name = "data", .kind = GN_OPTION_TEXT, .offset = FIELD(data), .value_name = "DIR", .required = 1,
	 .help = "training dataset, written by gannet pack"},
	{.name = "val", .also = "val-dir|test", .kind = GN_OPTION_TEXT, .offset = FIELD(val), .value_name = "DIR",
	 .help = "validation dataset; without it no evaluation takes place"},
	{.name = "stage", .kind = GN_OPTION_TEXT, .offset = FIELD(stage), .value_name = "DIR",
	 .help = "copy --data and --val to this folder of each node's own disk, under their names, while the run reads them: each shard is "
		 "read from the copy once that is complete and verified, with the same results. The next run finds the copies"},
	GN_CMD_KEY_OPTION(FIELD(key_file)),
	{.name = "model", .also = "arch", .kind = GN_OPTION_CHOICE, .offset = FIELD(model), .value_name = "NAME", .required = 1,
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
	{.name = "warmup-epochs", .also = "warmup", .kind = GN_OPTION_REAL, .offset = FIELD(warmup_epochs), .value_name = "X",
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
	{.name = "weight-decay", .also = "wd", .kind = GN_OPTION_REAL, .offset = FIELD(weight_decay), .value_name = "X",
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
	{.name = "init", .also = "pretrained", .kind = GN_OPTION_TEXT, .offset = FIELD(init), .value_name = "HOW",
	 .help = "initial parameters: PATH of a safetensors file of F32, F16 or BF16 with torchvision's, timm's or Transformers' names, behind "
		 "any prefix (unknown tensors are named and ignored), formula, or seed:N "
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
	{.name = "checkpoint", .also = "output-dir|save-dir", .kind = GN_OPTION_TEXT, .offset = FIELD(checkpoint), .value_name = "DIR",
	 .help = "folder for checkpoints, written after epochs, at the end of the run, and on a signal; one run at a time"},
	{.name = "checkpoint-key", .kind = GN_OPTION_TEXT, .offset = FIELD(checkpoint_key), .value_name = "FILE",
	 .help = "encrypt checkpoints with this key (AES-256-GCM): 32 bytes, readable by their owner only; --resume, eval, predict, export and "
		 "info take the same file"},
	{.name = "checkpoint-epochs", .kind = GN_OPTION_INT, .offset = FIELD(checkpoint_epochs), .value_name = "N",
	 .initial = "1", .min = 1, .max = 1e6, .help = "with --checkpoint: epochs between checkpoints"},
	{.name = "checkpoint-every", .kind = GN_OPTION_INT, .offset = FIELD(checkpoint_every), .value_name = "N",
	 .initial = "0", .min = 0, .max = 1e12, .help = "with --checkpoint: steps between additional checkpoints; 0: none"},
	{.name = "checkpoint-minutes", .kind = GN_OPTION_REAL, .offset = FIELD(checkpoint_minutes), .value_name = "M",
	 .initial = "0", .min = 0, .max = 1e6,
	 .help = "with --checkpoint: minutes between additional checkpoints, counted from the start of the last one; 0: none"},
	{.name = "checkpoint-local", .kind = GN_OPTION_TEXT, .offset = FIELD(checkpoint_local), .value_name = "DIR",
	 .help = "a folder on each node's own disk, where checkpoints are written first; --resume auto copies what had not reached --checkpoint"},
	{.name = "keep", .kind = GN_OPTION_INT, .offset = FIELD(keep), .value_name = "N", .initial = "3", .min = 1,
	 .max = 1e6, .help = "with --checkpoint: number of checkpoints to keep"},
	{.name = "keep-every", .kind = GN_OPTION_INT, .offset = FIELD(keep_every), .value_name = "K", .initial = "0", .min = 0,
	 .max = 1e6, .help = "with --checkpoint: beside them, never remove every K-th: it gets an empty file named keep; 0: none"},
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
	{.name = "metrics", .kind = GN_OPTION_TEXT, .offset = FIELD(metrics), .value_name = "FOLDER|FILE.prom",
	 .help = "rewrite a file in FOLDER every few seconds, until the run ends, with step, loss, rates and times in Prometheus' text format, for "
		 "node_exporter's textfile collector on the node of rank 0; FILE.prom is one of your own, which stays"},
	{.name = "trace", .kind = GN_OPTION_TEXT, .offset = FIELD(trace), .value_name = "FILE.json",
	 .help = "write a timeline of all ranks on one clock as a Chrome trace, for Perfetto (ui.perfetto.dev)"},
	{.name = "trace-steps", .kind = GN_OPTION_TEXT, .offset = FIELD(trace_steps), .value_name = "A:B|N", .initial = "20",
	 .help = "with --trace: trace steps A to B, written after B; or the last N steps, written at the end"},
	{.name = "eval-every", .kind = GN_OPTION_INT, .offset = FIELD(eval_every), .value_name = "N", .initial = "1",
	 .min = 1, .max = 1e6, .help = "with --val: epochs between evaluations"},
	{.name = "eval-steps", .kind = GN_OPTION_INT, .offset = FIELD(eval_steps), .value_name = "N", .initial = "0", .min = 0,
	 .max = 1e12, .help = "with --val: steps between additional evaluations; 0: none"},
	{.name = "eval-first", .kind = GN_OPTION_FLAG, .offset = FIELD(eval_first), .help = "with --val: evaluate before the first step, too"},
	{.name = "device", .kind = GN_OPTION_CHOICE, .offset = FIELD(device), .value_name = "NAME", .initial = "host",
	 .choices = GN_DEVICE_CHOICES,
	 .help = "host: oneDNN; cuda: one GPU per rank of a node; auto: cuda if present, else host; ref: the plain-C reference, "
		 "slow"},
	{.name = "precision", .also = "amp", .kind = GN_OPTION_CHOICE, .offset = FIELD(precision), .value_name = "NAME", .initial = "fp32",
	 .choices = GN_PRECISION_CHOICES,
	 .help = "type of activations and their gradients. With bf16 and fp16, parameters, their gradients and batch statistics "
		 "stay fp32, and all sums are accumulated in fp32 or better. bf16 needs processors with bfloat16 instructions "
		 "(bf16-emulated: only AVX-512, slower than fp32) or GPUs; fp16 needs GPUs and uses loss scaling; tf32, on GPUs, "
		 "is fp32 with rounded inputs of convolutions"},
	{.name = "convolution", .kind = GN_OPTION_CHOICE, .offset = FIELD(convolution), .value_name = "HOW", .choices = GN_CONVOLUTION_CHOICES,
	 .help = "convolutions of 3 x 3 in fp32 on processors: direct; winograd: 36 products for 16 outputs in place of 144, two to three times as fast, "
		 "with rounding errors of 1e-6 in place of 2e-7; auto: winograd where maps are large enough for it, by a rule of their shape (default: "
		 "auto; of a run that is resumed what it had)"},
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
	{.name = "loader-threads", .also = "workers|num-workers", .kind = GN_OPTION_INT, .offset = FIELD(loader_threads), .value_name = "N|auto",
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
	 .help = "with --bucket 0, also try sizes that change the order of summation, and on GPUs also engines of cuDNN whose order of "
		 "summation differs from run to run: perhaps faster, but two runs may differ in the last bits"},
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
		 "data=D,tensor=T: divide each layer among T ranks instead. All three: each layer of a stage. One of the numbers may be "
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
	 .help = "with --elastic, 1: each rank's part of the optimizer state (--shard), on another node where there is one, or its stage of a pipeline is also "
		 "on another rank, so that the run goes on from memory after the loss of one of the two; 0: from the last checkpoint"},
	{.name = "spares", .kind = GN_OPTION_INT, .offset = FIELD(spares), .value_name = "N", .initial = "0", .min = 0, .max = 1023,
	 .help = "with --elastic: the last N ranks wait, and take the place of ranks that are lost"},
	{.name = "join", .kind = GN_OPTION_TEXT, .offset = FIELD(join), .value_name = "DIR",
	 .help = "join the run of --elastic MIN:MAX whose --checkpoint folder DIR is, after its next step: with --options DIR/options. Each process "
		 "is one rank more; one that finds MAX ranks waits"},
	GN_CMD_WORLD_OPTIONS(struct gn_train_options, world),
};

const struct gn_command gn_train_command = {
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
	GN_OPTIONS(options),
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

const char *const *gn_train_own_options(const struct gn_train_options *o)
{
	return own_options + (gn_elastic_most(o) == 0);
}

const char *const gn_train_unrepeated[] = {"options", "checkpoint", "checkpoint-local", "resume", "log", "log-samples", "metrics", "trace", "halving",
					   "dry-run", "join", NULL};
