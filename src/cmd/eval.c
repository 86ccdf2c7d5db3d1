#include "src/cmd/cmd.h"

#include "src/base/json.h"
#include "src/cmd/world_options.h"
#include "src/train/plan/device.h"
#include "src/train/loop/evaluate.h"
#include "src/train/model/model.h"

#include <limits.h>
#include <stdio.h>

#define FIELD(name) offsetof(struct gn_evaluate_options, name)

static const struct gn_option options[] = {
	{.name = "data", .kind = GN_OPTION_TEXT, .offset = FIELD(data), .value_name = "DIR", .required = 1,
	 .help = "dataset to evaluate on"},
	{.name = "checkpoint", .kind = GN_OPTION_TEXT, .offset = FIELD(network.checkpoint), .value_name = "DIR",
	 .help = "a checkpoint, or a folder of checkpoints, of which the newest valid one is used"},
	{.name = "weights", .kind = GN_OPTION_TEXT, .offset = FIELD(network.weights), .value_name = "FILE.safetensors",
	 .help = "instead of a checkpoint, a safetensors file with torchvision's names; a file written by gannet export needs "
		 "none of --model to --interpolation"},
	{.name = "model", .kind = GN_OPTION_CHOICE, .offset = FIELD(network.model), .value_name = "NAME", .choices = gn_model_names,
	 .help = "with --weights: the network (default: from the file's metadata; required without it); the numbers of classes "
		 "and channels are those of the tensors"},
	{.name = "side", .kind = GN_OPTION_INT, .offset = FIELD(network.side), .value_name = "N", .initial = "0", .min = 0, .max = 4096,
	 .help = "side of the images in pixels, which may be another than in training; 0: from the checkpoint or the file, else the "
		 "network's default (28, 32, 224)"},
	{.name = "mean", .kind = GN_OPTION_TEXT, .offset = FIELD(network.mean), .value_name = "X[,X,X]",
	 .help = "with --weights: mean of pixels in 0..1 (default: from the file, else ImageNet's for colour, 0.5 for grey)"},
	{.name = "deviation", .kind = GN_OPTION_TEXT, .offset = FIELD(network.deviation), .value_name = "X[,X,X]",
	 .help = "with --weights: standard deviation of pixels (default: from the file, else ImageNet's for colour, 0.5 for grey)"},
	{.name = "resize", .kind = GN_OPTION_INT, .offset = FIELD(network.resize_shorter), .value_name = "N", .initial = "-1", .min = -1,
	 .max = 8192,
	 .help = "shorter side before the centre crop, as torchvision's Resize; -1: as in training; for --weights without "
		 "metadata 8/7 of the side, and for sides below 64 images of nearly that size are not resized"},
	{.name = "interpolation", .kind = GN_OPTION_CHOICE, .offset = FIELD(network.interpolation), .value_name = "NAME", .initial = "auto",
	 .choices = "auto|bilinear|bicubic",
	 .help = "filter of resizing; auto: as in training; for --weights without metadata bilinear"},
	{.name = "ema", .kind = GN_OPTION_FLAG, .offset = FIELD(network.average),
	 .help = "evaluate the exponential moving average of the weights (train --ema)"},
	{.name = "logits", .kind = GN_OPTION_TEXT, .offset = FIELD(logits), .value_name = "FILE.npy",
	 .help = "write the logits as a NumPy array: float32, one row per image in the order of the dataset"},
	{.name = "per-class", .kind = GN_OPTION_TEXT, .offset = FIELD(per_class), .value_name = "FILE.json",
	 .help = "write accuracy, precision and F1 of each class, the confusion matrix, and the calibration error (15 bins)"},
	{.name = "batch", .letter = 'b', .kind = GN_OPTION_INT, .offset = FIELD(batch), .value_name = "N",
	 .initial = "64", .min = 1, .max = 65536, .help = "images per rank and step"},
	{.name = "device", .kind = GN_OPTION_CHOICE, .offset = FIELD(device), .value_name = "NAME", .initial = "host",
	 .choices = GN_DEVICE_CHOICES,
	 .help = "host: oneDNN; cuda: one GPU per rank of a node; auto: cuda if present, else host; ref: the plain-C reference, "
		 "slow"},
	{.name = "precision", .kind = GN_OPTION_CHOICE, .offset = FIELD(precision), .value_name = "NAME", .initial = "fp32",
	 .choices = GN_PRECISION_CHOICES, .help = "of activations; fp16 and tf32 only on GPUs"},
	{.name = "transport", .kind = GN_OPTION_CHOICE, .offset = FIELD(transport), .value_name = "NAME",
	 .initial = "auto", .choices = "auto|tcp|shm|rc|ud", .help = "allowed transport (sets UCX_TLS)"},
	{.name = "transport-strict", .kind = GN_OPTION_FLAG, .offset = FIELD(transport_strict),
	 .help = "fail instead of warn when nodes use different transports, or a node does not use its fastest device"},
	{.name = "threads", .kind = GN_OPTION_INT, .offset = FIELD(threads), .value_name = "N", .initial = "0", .min = 0,
	 .max = 4096, .help = "compute threads per rank; 0: the processors of its affinity mask divided among the ranks that share "
		 "them"},
	{.name = "loader-threads", .kind = GN_OPTION_INT, .offset = FIELD(loader_threads), .value_name = "N",
	 .initial = "2", .min = 1, .max = 1024, .help = "threads per rank that read and decode"},
	{.name = "prefetch", .kind = GN_OPTION_SIZE, .offset = FIELD(prefetch), .value_name = "BYTES", .initial = "256M",
	 .min = 0, .max = 1e13, .help = "memory for batches read ahead; at least three batches"},
	GN_CMD_WORLD_OPTIONS(struct gn_evaluate_options, world),
};

static const struct gn_command command = {
	.name = "eval",
	.summary = "evaluate a checkpoint: top-1, top-5 and loss over a dataset",
	.positional = "",
	.description = "Prints one JSON object: {\"images\", \"top1\", \"top5\", \"loss\", ...} with top1 and top5 as fractions; "
		       "nonfinite counts images whose logits are NaN or infinite, which count as wrong. Counts are exact for any "
		       "number of ranks. The network and its input come from the checkpoint, or from the metadata of a file "
		       "written by gannet export, which options override with a warning; for other files options give them. Images "
		       "are resized, cropped and normalised as by torchvision's reference transform.",
	.examples = "  gannet eval --data val --checkpoint run1\n"
		    "  gannet eval --data val --weights exported.safetensors\n"
		    "  gannet eval --data val --weights resnet50.safetensors --model resnet50\n",
	.options = options,
	.option_count = sizeof options / sizeof *options,
};

static void print_score(const struct gn_evaluate_options *o, const struct gn_metrics *score, const char *folder, uint64_t step)
{
	double images = (double)score->images;
	struct gn_json j;

	gn_json_init(&j);
	gn_json_object(&j, NULL);
	gn_json_uint(&j, "images", score->images);
	gn_json_double(&j, "top1", (double)score->top1 / images);
	gn_json_double(&j, "top5", (double)score->top5 / images);
	gn_json_double(&j, "loss", score->loss_sum / images);
	gn_json_uint(&j, "nonfinite", score->nonfinite);
	if (o->network.weights) {
		gn_json_string(&j, "weights", o->network.weights);
	} else {
		gn_json_uint(&j, "step", step);
		gn_json_string(&j, "checkpoint", folder);
	}
	gn_json_end(&j);
	puts(gn_json_text(&j));
	gn_json_release(&j);
}

static enum gn_status evaluate(const struct gn_evaluate_options *o, struct gn_world *world, struct gn_log *log,
			       struct gn_err *err)
{
	struct gn_comm_options co = {.transport = o->transport, .strict = o->transport_strict};
	char folder[PATH_MAX] = "";
	struct gn_metrics score;
	struct gn_comm *comm;
	uint64_t step;
	enum gn_status status = gn_comm_create(world, &co, log, &comm, err);

	if (status)
		return status;
	gn_world_set_phase(world, "evaluating", GN_EVALUATE_STALL_MS);
	status = gn_evaluate(o, comm, log, folder, &step, &score, err);
	if (!status && gn_comm_rank(comm) == 0) {
		gn_metrics_warn(&score, log);
		print_score(o, &score, folder, step);
	}
	gn_comm_destroy(comm);
	return status;
}

static int run(const void *target, const struct gn_text_list *positional)
{
	const struct gn_evaluate_options *o = target;
	struct gn_log *log = gn_cmd_log();
	struct gn_world *world;
	struct gn_err err;
	enum gn_status status = gn_network_options_check(&o->network, &err);

	(void)positional;
	if (!status)
		status = gn_world_create(&o->world, log, &world, &err);
	if (!status) {
		status = evaluate(target, world, log, &err);
		gn_world_destroy(world);
	}
	if (status)
		gn_log_error(log, "eval: %s", err.text);
	gn_log_destroy(log);
	return gn_cmd_exit_code(status);
}

const struct gn_cmd gn_cmd_eval = {.command = &command, .run = run, .options_size = sizeof(struct gn_evaluate_options)};
