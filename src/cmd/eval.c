#include "src/cmd/cmd.h"

#include "src/base/json.h"
#include "src/train/device.h"
#include "src/train/evaluate.h"

#include <limits.h>
#include <stdio.h>

#define FIELD(name) offsetof(struct gn_evaluate_options, name)

static const struct gn_option options[] = {
	{.name = "data", .kind = GN_OPTION_TEXT, .offset = FIELD(data), .value_name = "DIR", .required = 1,
	 .help = "dataset to evaluate on"},
	{.name = "checkpoint", .kind = GN_OPTION_TEXT, .offset = FIELD(checkpoint), .value_name = "DIR", .required = 1,
	 .help = "a checkpoint, or a folder of them, whose newest whole one is taken"},
	{.name = "ema", .kind = GN_OPTION_FLAG, .offset = FIELD(average),
	 .help = "evaluate the moving average of the weights, of a run with train --ema"},
	{.name = "logits", .kind = GN_OPTION_TEXT, .offset = FIELD(logits), .value_name = "FILE.npy",
	 .help = "write the network's answers, for NumPy: float32, one row for each image in the dataset's order"},
	{.name = "batch", .letter = 'b', .kind = GN_OPTION_INT, .offset = FIELD(batch), .value_name = "N",
	 .initial = "64", .min = 1, .max = 65536, .help = "images per rank and step"},
	{.name = "device", .kind = GN_OPTION_CHOICE, .offset = FIELD(device), .value_name = "NAME", .initial = "host",
	 .choices = GN_DEVICE_CHOICES,
	 .help = "host: oneDNN; cuda: a GPU for each rank of a node; auto: cuda where there is one; ref: the plain-C oracle, slow"},
	{.name = "precision", .kind = GN_OPTION_CHOICE, .offset = FIELD(precision), .value_name = "NAME", .initial = "fp32",
	 .choices = GN_PRECISION_CHOICES, .help = "of activations; fp16 and tf32 on GPUs alone"},
	{.name = "transport", .kind = GN_OPTION_CHOICE, .offset = FIELD(transport), .value_name = "NAME",
	 .initial = "auto", .choices = "auto|tcp|shm|rc|ud", .help = "what may carry messages (sets UCX_TLS)"},
	{.name = "threads", .kind = GN_OPTION_INT, .offset = FIELD(threads), .value_name = "N", .initial = "0", .min = 0,
	 .max = 4096, .help = "compute threads per rank; 0: its share of the processors it may use"},
	{.name = "loader-threads", .kind = GN_OPTION_INT, .offset = FIELD(loader_threads), .value_name = "N",
	 .initial = "2", .min = 1, .max = 1024, .help = "threads per rank that read and decode"},
	{.name = "prefetch", .kind = GN_OPTION_SIZE, .offset = FIELD(prefetch), .value_name = "BYTES", .initial = "256M",
	 .min = 0, .max = 1e13, .help = "memory for batches read ahead, for a GPU 0.9 MB an image of side 224; three batches are always kept"},
};

static const struct gn_command command = {
	.name = "eval",
	.summary = "evaluate a checkpoint: top-1, top-5 and loss over a dataset",
	.positional = "",
	.description = "Prints one JSON object: {\"images\", \"top1\", \"top5\", \"loss\", ...} with top1 and top5 as "
		       "fractions. Counts are exact for any number of ranks. The network and its input come from the "
		       "checkpoint.",
	.examples = "  gannet eval --data val --checkpoint run1\n",
	.options = options,
	.option_count = sizeof options / sizeof *options,
};

static void print_score(const struct gn_score *score, const char *folder, uint64_t step)
{
	double images = (double)score->images;
	struct gn_json j;

	gn_json_init(&j);
	gn_json_object(&j, NULL);
	gn_json_uint(&j, "images", score->images);
	gn_json_double(&j, "top1", (double)score->top1 / images);
	gn_json_double(&j, "top5", (double)score->top5 / images);
	gn_json_double(&j, "loss", score->loss_sum / images);
	gn_json_uint(&j, "step", step);
	gn_json_string(&j, "checkpoint", folder);
	gn_json_end(&j);
	puts(gn_json_text(&j));
	gn_json_release(&j);
}

static enum gn_status evaluate(const struct gn_evaluate_options *o, struct gn_world *world, struct gn_log *log,
			       struct gn_err *err)
{
	struct gn_comm_options co = {.transport = o->transport};
	char folder[PATH_MAX] = "";
	struct gn_score score;
	struct gn_comm *comm;
	uint64_t step;
	enum gn_status status = gn_comm_create(world, &co, log, &comm, err);

	if (status)
		return status;
	gn_world_announce(world, "evaluating", GN_EVALUATE_STALL_MS);
	status = gn_evaluate(o, comm, log, folder, &step, &score, err);
	if (!status && gn_comm_rank(comm) == 0)
		print_score(&score, folder, step);
	gn_comm_destroy(comm);
	return status;
}

static int run(const void *target, const struct gn_text_list *positional)
{
	const struct gn_world_options world_options = {0};
	struct gn_log *log = gn_cmd_log();
	struct gn_world *world;
	struct gn_err err;
	enum gn_status status = gn_world_create(&world_options, log, &world, &err);

	(void)positional;
	if (!status) {
		status = evaluate(target, world, log, &err);
		gn_world_destroy(world);
	}
	if (status)
		gn_log_error(log, "eval: %s", err.text);
	gn_log_destroy(log);
	return gn_cmd_exit_code(status);
}

const struct gn_cmd gn_cmd_eval = {&command, run, sizeof(struct gn_evaluate_options)};
