#include "src/cmd/train.h"

#include "src/cmd/world_options.h"
#include "src/train/plan/device.h"
#include "src/train/model/model.h"
#include "src/train/optim/recipe.h"

#define FIELD(name) offsetof(struct gn_train_options, name)

static const struct gn_option options[] = {
	{.name = "data", .kind = GN_OPTION_TEXT, .offset = FIELD(data), .value_name = "DIR", .required = 1,
	 .help = "dataset to train on, as gannet pack wrote it"},
	{.name = "val", .kind = GN_OPTION_TEXT, .offset = FIELD(val), .value_name = "DIR",
	 .help = "dataset to evaluate on; without it nothing is evaluated"},
	{.name = "model", .kind = GN_OPTION_CHOICE, .offset = FIELD(model), .value_name = "NAME", .required = 1,
	 .choices = gn_model_names, .help = "network"},
	{.name = "recipe", .kind = GN_OPTION_CHOICE, .offset = FIELD(recipe), .value_name = "NAME",
	 .choices = gn_recipe_names,
	 .help = "published values for what is not given, meant for ImageNet (in a run of fewer epochs its warm-up and milestones are "
		 "scaled): goyal (Goyal et al. 2017, arXiv 1706.02677), "
		 "nvidia-50 (NVIDIA DeepLearningExamples, ResNet50 v1.5, 50 epochs), mlperf-lars (MLPerf training, reference "
		 "convergence point of the nearest global batch)"},
	{.name = "epochs", .kind = GN_OPTION_INT, .offset = FIELD(epochs), .value_name = "N", .initial = "10", .min = 0,
	 .max = 1e6, .help = "passes over the data; 0: evaluate on --val, and stop"},
	{.name = "steps", .kind = GN_OPTION_INT, .offset = FIELD(steps), .value_name = "N", .initial = "0", .min = 0,
	 .max = 1e12, .help = "updates in all, in place of --epochs; 0 counts epochs"},
	{.name = "batch", .letter = 'b', .kind = GN_OPTION_INT, .offset = FIELD(batch), .value_name = "N",
	 .initial = "64", .min = 1, .max = 65536, .help = "images per rank and step"},
	{.name = "side", .kind = GN_OPTION_INT, .offset = FIELD(side), .value_name = "N", .initial = "0", .min = 0,
	 .max = 4096, .help = "side of the images in pixels; 0: the network's own (28, 32, 224)"},
	{.name = "resize-schedule", .kind = GN_OPTION_TEXT, .offset = FIELD(resize_schedule), .value_name = "E:N,...",
	 .help = "progressive resizing: training images of side N from epoch E on, such as 0:128,18:160,28:224; evaluation keeps "
		 "--side"},
	{.name = "channels", .kind = GN_OPTION_INT, .offset = FIELD(channels), .value_name = "N", .initial = "0",
	 .choices = "0|1|3", .help = "1 grey, 3 colour; 0: the network's own"},
	{.name = "lr", .kind = GN_OPTION_REAL, .offset = FIELD(lr), .value_name = "X", .initial = "0.1", .min = 0,
	 .max = 1e6, .help = "learning rate"},
	{.name = "lr-batch", .kind = GN_OPTION_REAL, .offset = FIELD(lr_batch), .value_name = "N", .initial = "0",
	 .min = 0, .max = 1e9, .help = "linear scaling: --lr is meant for a global batch of N; 0: no scaling"},
	{.name = "schedule", .kind = GN_OPTION_CHOICE, .offset = FIELD(schedule), .value_name = "NAME",
	 .initial = "cosine", .choices = "constant|step|cosine|polynomial", .help = "how the rate goes after warm-up"},
	{.name = "warmup-epochs", .kind = GN_OPTION_REAL, .offset = FIELD(warmup_epochs), .value_name = "X",
	 .initial = "0", .min = 0, .max = 1e6, .help = "epochs of linear warm-up, fewer than the run has"},
	{.name = "lr-start", .kind = GN_OPTION_REAL, .offset = FIELD(lr_start), .value_name = "X", .initial = "-1",
	 .min = -1, .max = 1e6,
	 .help = "the rate that warm-up begins with; -1: --lr where scaling raised the rate, else an eighth of it"},
	{.name = "milestones", .kind = GN_OPTION_TEXT, .offset = FIELD(milestones), .value_name = "E,E,...",
	 .initial = "30,60,80", .help = "epochs at which the step schedule lowers the rate"},
	{.name = "lr-factor", .kind = GN_OPTION_REAL, .offset = FIELD(lr_factor), .value_name = "X", .initial = "0.1",
	 .min = 0, .max = 1, .help = "step schedule: the factor"},
	{.name = "lr-final", .kind = GN_OPTION_REAL, .offset = FIELD(final_lr), .value_name = "X", .initial = "0",
	 .min = 0, .max = 1e6, .help = "cosine and polynomial: the rate at the end"},
	{.name = "lr-power", .kind = GN_OPTION_REAL, .offset = FIELD(lr_power), .value_name = "X", .initial = "2",
	 .min = 0, .max = 100, .help = "polynomial: the power"},
	{.name = "optimizer", .kind = GN_OPTION_CHOICE, .offset = FIELD(optimizer), .value_name = "NAME",
	 .initial = "sgd", .choices = "sgd|lars|lamb",
	 .help = "sgd; lars (You, Gitman and Ginsburg 2017) and lamb (You et al. 2020) for large batches"},
	{.name = "momentum", .kind = GN_OPTION_REAL, .offset = FIELD(momentum), .value_name = "X", .initial = "0.9",
	 .min = 0, .max = 1, .help = "momentum of sgd and lars, beta 1 of lamb"},
	{.name = "nesterov", .kind = GN_OPTION_FLAG, .offset = FIELD(nesterov), .help = "Nesterov's momentum, sgd and lars"},
	{.name = "beta2", .kind = GN_OPTION_REAL, .offset = FIELD(beta2), .value_name = "X", .initial = "0.999",
	 .min = 0, .max = 1, .help = "lamb: how slowly the second moment changes"},
	{.name = "eps", .kind = GN_OPTION_REAL, .offset = FIELD(eps), .value_name = "X", .initial = "-1", .min = -1,
	 .max = 1, .help = "added to what lars and lamb divide by; -1: 0 for lars, 1e-6 for lamb"},
	{.name = "trust", .kind = GN_OPTION_REAL, .offset = FIELD(trust), .value_name = "X", .initial = "0.001",
	 .min = 0, .max = 1e6, .help = "lars: the trust coefficient"},
	{.name = "clip", .kind = GN_OPTION_REAL, .offset = FIELD(clip), .value_name = "X", .initial = "0", .min = 0,
	 .max = 1e9, .help = "scale the whole gradient down to this norm where it is longer; 0: never"},
	{.name = "accumulate", .kind = GN_OPTION_INT, .offset = FIELD(accumulate), .value_name = "N", .initial = "1",
	 .min = 1, .max = 65536,
	 .help = "batches per rank and step, whose gradients are averaged: larger steps in the same memory"},
	{.name = "ema", .kind = GN_OPTION_REAL, .offset = FIELD(ema), .value_name = "X", .initial = "0", .min = 0,
	 .max = 0.999999,
	 .help = "keep a moving average of the weights that decays by X a step (0.9999; by (1 + t) / (10 + t) in step t "
		 "while that is less), evaluate it too, and save it for "
		 "eval --ema and export --ema; 0: none"},
	{.name = "zero-gamma", .kind = GN_OPTION_FLAG, .offset = FIELD(zero_gamma),
	 .help = "begin with 0 in the batch norm that ends each residual block (Goyal et al. 2017, sec. 5.1)"},
	{.name = "sync-bn", .kind = GN_OPTION_TEXT, .offset = FIELD(sync_bn), .value_name = "all|node|N",
	 .help = "batch norm statistics over all ranks, the ranks of a node, or groups of N ranks, for small batches per rank "
		 "(default: each rank its own)"},
	{.name = "weight-decay", .kind = GN_OPTION_REAL, .offset = FIELD(weight_decay), .value_name = "X",
	 .initial = "1e-4", .min = 0, .max = 1, .help = "weight decay"},
	{.name = "decay-all", .kind = GN_OPTION_FLAG, .offset = FIELD(decay_all), .initial = "0",
	 .help = "weight decay also on biases and batch norm"},
	{.name = "label-smoothing", .kind = GN_OPTION_REAL, .offset = FIELD(label_smoothing), .value_name = "X",
	 .initial = "0", .min = 0, .max = 0.999, .help = "label smoothing"},
	{.name = "mixup", .kind = GN_OPTION_REAL, .offset = FIELD(mixup), .value_name = "X", .initial = "0", .min = 0,
	 .max = 1000,
	 .help = "blend pairs of images by shares drawn from Beta(X, X) (0.2; Zhang et al. 2018, arXiv 1710.09412); 0: not"},
	{.name = "dropout", .kind = GN_OPTION_FLAG, .offset = FIELD(dropout), .initial = "1",
	 .help = "dropout, in networks that have it"},
	{.name = "augment", .kind = GN_OPTION_CHOICE, .offset = FIELD(augment), .value_name = "NAME", .initial = "auto",
	 .choices = "auto|none|crop-flip|shift|shift-flip",
	 .help = "augmentation; auto is crop-flip for sides of 64 and more, else shift"},
	{.name = "pad", .kind = GN_OPTION_INT, .offset = FIELD(pad), .value_name = "N", .initial = "-1", .min = -1,
	 .max = 1024, .help = "shift: how far, in pixels; -1: a fourteenth of the side"},
	{.name = "resize", .kind = GN_OPTION_INT, .offset = FIELD(resize_shorter), .value_name = "N", .initial = "-1",
	 .min = -1, .max = 8192, .help = "evaluation, none and shift: shorter side before the centre crop, as torchvision's Resize; -1: 8/7 of the side; with "
			 "shift and with sides below 64 an image that is near that keeps its size"},
	{.name = "mean", .kind = GN_OPTION_TEXT, .offset = FIELD(mean), .value_name = "X[,X,X]",
	 .help = "mean of pixels in 0..1: divide means of 0..255 by 255 (default: ImageNet's for colour, 0.5 for grey)"},
	{.name = "deviation", .kind = GN_OPTION_TEXT, .offset = FIELD(deviation), .value_name = "X[,X,X]",
	 .help = "standard deviation of pixels in 0..1, at most 1 (default: ImageNet's for colour, 0.5 for grey)"},
	{.name = "init", .kind = GN_OPTION_TEXT, .offset = FIELD(init), .value_name = "HOW",
	 .help = "PATH of a safetensors file of F32, F16 or BF16 (tensors that the network lacks are named and ignored), formula, or seed:N "
		 "(default seed: and the value of --seed)"},
	{.name = "seed", .kind = GN_OPTION_INT, .offset = FIELD(seed), .value_name = "N", .initial = "1", .min = 0,
	 .max = 9e15, .help = "order of samples, augmentation, initial weights"},
	{.name = "checkpoint", .kind = GN_OPTION_TEXT, .offset = FIELD(checkpoint), .value_name = "DIR",
	 .help = "where checkpoints go: at the end of epochs, of the run, and on a signal; one run at a time"},
	{.name = "checkpoint-epochs", .kind = GN_OPTION_INT, .offset = FIELD(checkpoint_epochs), .value_name = "N",
	 .initial = "1", .min = 1, .max = 1e6, .help = "at the end of every Nth epoch"},
	{.name = "checkpoint-every", .kind = GN_OPTION_INT, .offset = FIELD(checkpoint_every), .value_name = "N",
	 .initial = "0", .min = 0, .max = 1e12, .help = "also every N steps"},
	{.name = "checkpoint-minutes", .kind = GN_OPTION_REAL, .offset = FIELD(checkpoint_minutes), .value_name = "M",
	 .initial = "0", .min = 0, .max = 1e6,
	 .help = "also after the first step that ends M minutes after the last checkpoint was begun; 0: not"},
	{.name = "keep", .kind = GN_OPTION_INT, .offset = FIELD(keep), .value_name = "N", .initial = "3", .min = 1,
	 .max = 1e6, .help = "how many checkpoints to keep"},
	{.name = "resume", .kind = GN_OPTION_TEXT, .offset = FIELD(resume), .value_name = "auto|PATH|none",
	 .initial = "none", .help = "auto: the newest whole one in --checkpoint, or from the start when there is none"},
	{.name = "log", .kind = GN_OPTION_TEXT, .offset = FIELD(log), .value_name = "FILE.jsonl",
	 .help = "append one JSON line per interval, evaluation and checkpoint; - is standard output; a start that is no resume "
		 "begins a new run of the file"},
	{.name = "log-every", .kind = GN_OPTION_INT, .offset = FIELD(log_every), .value_name = "N", .initial = "20",
	 .min = 1, .max = 1e9, .help = "steps per line"},
	{.name = "trace", .kind = GN_OPTION_TEXT, .offset = FIELD(trace), .value_name = "FILE.json",
	 .help = "write what all ranks did when, on one clock, as a Chrome trace for Perfetto (ui.perfetto.dev)"},
	{.name = "trace-steps", .kind = GN_OPTION_TEXT, .offset = FIELD(trace_steps), .value_name = "A:B|N", .initial = "20",
	 .help = "of steps A to B, written after B; or of the last N, written at the end"},
	{.name = "eval-every", .kind = GN_OPTION_INT, .offset = FIELD(eval_every), .value_name = "N", .initial = "1",
	 .min = 1, .max = 1e6, .help = "epochs between evaluations"},
	{.name = "device", .kind = GN_OPTION_CHOICE, .offset = FIELD(device), .value_name = "NAME", .initial = "host",
	 .choices = GN_DEVICE_CHOICES,
	 .help = "host: oneDNN; cuda: a GPU for each rank of a node; auto: cuda where there is one; ref: the plain-C oracle, slow"},
	{.name = "precision", .kind = GN_OPTION_CHOICE, .offset = FIELD(precision), .value_name = "NAME", .initial = "fp32",
	 .choices = GN_PRECISION_CHOICES,
	 .help = "of activations and their gradients; with bf16, which needs processors that have it (bf16-emulated: or only "
		 "AVX-512, slower than fp32 there), and fp16, on GPUs and with a loss scale, parameters, their gradients and batch "
		 "statistics stay fp32, and all sums are made in fp32 or better; tf32, on GPUs: fp32, of which convolutions round what "
		 "they multiply"},
	{.name = "transport", .kind = GN_OPTION_CHOICE, .offset = FIELD(transport), .value_name = "NAME",
	 .initial = "auto", .choices = "auto|tcp|shm|rc|ud", .help = "what may carry gradients (sets UCX_TLS)"},
	{.name = "transport-strict", .kind = GN_OPTION_FLAG, .offset = FIELD(transport_strict),
	 .help = "an error, not a warning, when nodes use different transports, or one leaves a faster device unused"},
	{.name = "comm", .kind = GN_OPTION_CHOICE, .offset = FIELD(comm), .value_name = "NAME", .initial = "auto",
	 .choices = "auto|nccl|ucx",
	 .help = "what sums gradients that stay on GPUs (auto: nccl where ranks can have it, or ucx if that is faster); on the host it is ucx"},
	{.name = "rails", .kind = GN_OPTION_INT, .offset = FIELD(rails), .value_name = "N", .initial = "0", .min = 0,
	 .max = GN_RAILS_MAX, .help = "network devices of a node to use side by side at most; 0: all that are equally fast"},
	{.name = "algo", .kind = GN_OPTION_CHOICE, .offset = FIELD(algo), .value_name = "NAME", .initial = "auto",
	 .choices = "auto|shared|ring|recursive-doubling|halving-doubling|double-tree|hierarchical|hierarchical-ring", .help = "allreduce algorithm"},
	{.name = "tuning", .kind = GN_OPTION_TEXT, .offset = FIELD(tuning), .value_name = "FILE",
	 .help = "what gannet tune measured; none: guess (default: where gannet tune keeps it)"},
	{.name = "progress", .kind = GN_OPTION_CHOICE, .offset = FIELD(progress), .value_name = "WHO",
	 .initial = "caller", .choices = "caller|thread",
	 .help = "thread: gradients also move while the ranks compute; caller: whenever a layer's are ready"},
	{.name = "threads", .kind = GN_OPTION_INT, .offset = FIELD(threads), .value_name = "N", .initial = "0", .min = 0,
	 .max = 4096, .help = "compute threads per rank; 0: its share of the processors it may use"},
	{.name = "loader-threads", .kind = GN_OPTION_INT, .offset = FIELD(loader_threads), .value_name = "N",
	 .initial = "2", .min = 1, .max = 1024, .help = "threads per rank that read and decode"},
	{.name = "prefetch", .kind = GN_OPTION_SIZE, .offset = FIELD(prefetch), .value_name = "BYTES", .initial = "256M",
	 .min = 0, .max = 1e13, .help = "memory for batches read ahead, for a GPU 0.9 MB an image of side 224; three batches are always kept"},
	{.name = "bucket", .kind = GN_OPTION_SIZE, .offset = FIELD(bucket), .value_name = "BYTES", .initial = "0",
	 .min = 0, .max = 1e13,
	 .help = "gradients are summed in pieces of at least this size; 0: what the first steps show to be fastest of those that "
		 "leave the same bits as 16M, which is used where the run is short"},
	{.name = "any-order", .kind = GN_OPTION_FLAG, .offset = FIELD(any_order),
	 .help = "with --bucket 0 sizes that change the order in which ranks are added are tried, too: perhaps faster, but two runs "
		 "may then differ in their last bits"},
	{.name = "overlap", .kind = GN_OPTION_FLAG, .offset = FIELD(overlap), .initial = "1",
	 .help = "gradients leave while backward runs; --no-overlap: afterwards (default: whichever the first steps show to be "
		 "faster)"},
	GN_CMD_WORLD_OPTIONS(struct gn_train_options, world),
};

const struct gn_command gn_train_command = {
	.name = "train",
	.summary = "train a classifier, alone or on all ranks of a job",
	.positional = "",
	.description =
		"Data-parallel training. Started by srun --mpi=pmix, mpirun or gannet launch, all tasks form one run; started by "
		"itself it is a run of one rank. Every rank reads its share of each batch from --data, gradients are summed "
		"over UCX, all ranks hold the same parameters after every step.\n\n"
		"SIGTERM, SIGUSR1 and the first SIGINT end the run after the step at hand, with a checkpoint, and exit code 5: start "
		"it again with --resume auto. A second SIGINT ends it at once. An epoch's checkpoint is written before its evaluation; an evaluation that a stop cuts short comes "
		"first when the run goes on, unless --log has it. When a rank dies the others end with exit code 4 and name it.\n\n"
		"A step whose gradients are not finite updates nothing on any rank and is counted in the log; ten in a row end "
		"the run.\n\n"
		"Each epoch leaves out what its last whole global batch leaves over: fewer images than a step takes. The order is "
		"another in each epoch, and so are they.\n\n"
		"The log has one JSON object a line; loss is the mean over the interval that ends with the line's step, and time_ms "
		"tells where its mean step went on rank 0. gannet report draws it.",
	.examples = "  gannet train --data train --val val --model lenet --epochs 10 --lr 0.05 --checkpoint run1\n"
		    "  srun --mpi=pmix gannet train --data /local/train --model resnet50 --batch 64 --lr 0.1 --lr-batch 256 \\\n"
		    "      --warmup-epochs 5 --checkpoint /shared/run1 --resume auto --log /shared/run1.jsonl\n",
	.options = options,
	.option_count = sizeof options / sizeof *options,
	.given = FIELD(given),
};
_Static_assert(sizeof options / sizeof *options <= GN_TRAIN_OPTIONS_MAX, "raise GN_TRAIN_OPTIONS_MAX");
