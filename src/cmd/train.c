#include "src/cmd/cmd.h"

#include "src/cmd/stop.h"
#include "src/cmd/world_options.h"
#include "src/config.h"
#include "src/train/loop/input.h"
#include "src/train/loop/trainer.h"
#include "src/train/model/model.h"
#include "src/train/optim/recipe.h"
#include "src/train/plan/device.h"
#include "transport/coll/coll_backend.h"
#include "transport/coll/affinity_report.h"

#include <stdlib.h>
#include <string.h>

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

static const struct gn_command command = {
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

/* Options that ranks may have of their own: where to write, and how many threads. Paths of the data differ from node to node,
 * too: what is in them is compared instead. */
static const char *const own_options[] = {"data", "val", "checkpoint", "log", "threads", "loader-threads", "prefetch",
					  "init", "tuning", "progress", "join-timeout", "heartbeat-timeout", "stall-timeout", "socket-ifname", NULL};

/* "goyal for a global batch of 256: epochs=90 ...; given: lr" */
static void tell_recipe(const char *name, const struct gn_recipe *recipe, const int *filled, int64_t batch,
			struct gn_strbuf *out)
{
	int given = 0;

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
}

/* Fills in what the recipe says and nobody gave. recipe's texts are borrowed by o. */
static enum gn_status apply_recipe(struct gn_train_options *o, int64_t ranks, struct gn_recipe *recipe,
				   struct gn_strbuf *text, struct gn_err *err)
{
	int filled[GN_RECIPE_CHOICES_MAX];
	int64_t batch = o->batch * ranks * o->accumulate;
	enum gn_status status = gn_recipe_find(o->recipe, batch, recipe, err);

	for (size_t i = 0; !status && i < recipe->count; i++) {
		const char *option = recipe->choices[i].option;

		status = gn_options_fill(&command, o, option, recipe->choices[i].value, &filled[i], err);
		if (!strcmp(option, "warmup-epochs") && filled[i])
			o->warmup_of = recipe->epochs;
		if (!strcmp(option, "milestones") && filled[i])
			o->milestones_of = recipe->epochs;
	}
	if (status)
		return gn_err_prefix(err, "recipe %s", o->recipe);
	tell_recipe(o->recipe, recipe, filled, batch, text);
	o->recipe_text = gn_strbuf_text(text);
	return GN_OK;
}

/* One warning of options that were given and do nothing beside the others. */
static void warn_of_idle(const struct gn_train_options *given, const struct gn_train_options *o, struct gn_log *log)
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
		gn_log_warn(log, "options that do nothing here: %s", gn_strbuf_text(&text));
	gn_strbuf_release(&text);
}

/* *told: as gn_train_run has it. */
static enum gn_status train_in_world(const struct gn_train_options *given, struct gn_world *world,
				     const volatile sig_atomic_t *stop, struct gn_log *log, int *told, struct gn_err *err)
{
	struct gn_comm_options co = {.transport = given->transport, .tuning = given->tuning, .rails = (int)given->rails,
				     .strict = given->transport_strict, .progress = given->progress};
	struct gn_train_options filled = *given, *o = &filled;
	struct gn_strbuf agreed, all, recipe_text;
	struct gn_recipe recipe;
	char gpu[GN_DEVICE_PCI_MAX];
	struct gn_comm *comm;
	int measure = 0;
	enum gn_status status = gn_comm_create(world, &co, log, &comm, err);

	if (status)
		return status;
	gn_strbuf_init(&agreed);
	gn_strbuf_init(&all);
	gn_strbuf_init(&recipe_text);
	gn_device_pci(given->device, gn_world_local_rank(world), gpu);
	status = gn_affinity_report(comm, *gpu ? gpu : NULL, log, err);
	if (!status)
		status = gn_options_fill(&command, o, "overlap", "yes", &measure, err);
	if (measure)
		o->overlap = GN_OVERLAP_MEASURE;
	if (!status && o->recipe)
		status = apply_recipe(o, gn_comm_size(comm), &recipe, &recipe_text, err);
	if (!status && gn_comm_rank(comm) == 0 && (o->steps || o->epochs))
		warn_of_idle(given, o, log);
	gn_options_describe(&command, o, own_options, &agreed);
	gn_options_describe(&command, o, NULL, &all);
	o->options_text = gn_strbuf_text(&all);
	if (!status && (gn_strbuf_failed(&agreed) || gn_strbuf_failed(&all) || gn_strbuf_failed(&recipe_text)))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the options");
	if (!status)
		status = gn_train_run(o, gn_strbuf_text(&agreed), stop, comm, log, told, err);
	gn_strbuf_release(&agreed);
	gn_strbuf_release(&all);
	gn_strbuf_release(&recipe_text);
	gn_comm_destroy(comm);
	return status;
}

/* Before any rank waits for another. What auto comes to is found later, and then whether NCCL can be had. */
static enum gn_status check_comm(const struct gn_train_options *o, struct gn_err *err)
{
#ifdef HAVE_CUDA
	int built_in = 1;
#else
	int built_in = 0;
#endif

	return gn_coll_backend_check(o->comm, strcmp(o->device, "auto") ? o->device : "cuda", built_in, err);
}

/* Options that say two things, or nothing. */
static enum gn_status check_length(const struct gn_train_options *o, struct gn_err *err)
{
	if (o->steps && gn_options_given(&command, o, "epochs"))
		return gn_err_set(err, GN_ERR_USAGE, "--epochs and --steps both say how long the run is: give one of them");
	if (!o->steps && !o->epochs && !o->val)
		return gn_err_set(err, GN_ERR_USAGE, "--epochs 0 trains nothing and only evaluates: give --val DIR");
	return GN_OK;
}

static int run(const void *target, const struct gn_text_list *positional)
{
	const struct gn_train_options *o = target;
	struct gn_log *log = gn_cmd_log();
	struct gn_stop *stop = NULL;
	struct gn_world *world;
	struct gn_err err;
	enum gn_status status = check_length(target, &err);
	int told = 0;

	(void)positional;
	if (!status)
		status = check_comm(target, &err);
	if (!status)
		status = gn_stop_create(log, &stop, &err);
	if (!status)
		status = gn_world_create(&o->world, log, &world, &err);
	if (!status) {
		gn_stop_begin(stop);
		if (gn_world_rank(world) > 0)
			gn_stop_be_quiet(stop);
		status = train_in_world(target, world, gn_stop_flag(stop), log, &told, &err);
		gn_world_destroy(world);
	}
	if (status && !told)
		gn_log_line(log, status == GN_ERR_STOPPED ? GN_LOG_WARN : GN_LOG_ERROR, "train: %s", err.text);
	gn_stop_destroy(stop);
	gn_log_destroy(log);
	return gn_cmd_exit_code(status);
}

const struct gn_cmd gn_cmd_train = {&command, run, sizeof(struct gn_train_options)};
