#include "src/cmd/cmd.h"

#include "src/base/data_key.h"
#include "src/base/json.h"
#include "src/cmd/key_option.h"
#include "src/cmd/network_options.h"
#include "src/cmd/stop.h"
#include "src/cmd/world_options.h"
#include "src/train/loop/evaluate.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#define FIELD(name) offsetof(struct gn_evaluate_options, name)

static const struct gn_option options[] = {
	GN_OPT_TEXT("data", FIELD(data), "DIR", "dataset to evaluate on", .required = 1),
	GN_CMD_KEY_OPTION(FIELD(key_file)),
	GN_CMD_NETWORK_OPTIONS(FIELD),
	GN_OPT_TEXT("logits", FIELD(logits), "FILE.npy", "write the logits as a NumPy array: float32, one row per image in the order of "
		    "the dataset"),
	GN_OPT_TEXT("per-class", FIELD(per_class), "FILE.json", "write accuracy, precision and F1 of each class, the confusion matrix, and "
		    "the calibration error (15 bins); -: print a table instead of the JSON object"),
	GN_OPT_INT("batch", FIELD(batch), "N", "64", 1, 65536, "images per rank and step", .letter = 'b'),
	GN_CMD_COMPUTE_OPTIONS(FIELD),
	GN_OPT_SIZE("prefetch", FIELD(prefetch), "BYTES", "256M", 0, 1e13, "memory for batches read ahead; at least three batches"),
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
		    "  gannet eval --data val --checkpoint run1 --per-class -\n"
		    "  gannet eval --data val --weights exported.safetensors\n"
		    "  gannet eval --data val --weights resnet50.safetensors --model resnet50\n",
	GN_OPTIONS(options),
};

static void print_score(const struct gn_evaluate_options *o, const struct gn_metrics *score, const char *folder, uint64_t step)
{
	double images = (double)score->images;
	struct gn_json j;

	gn_json_begin(&j);
	gn_json_put(&j, "images %lu top1 %g top5 %g loss %g nonfinite %lu", score->images, (double)score->top1 / images,
		    (double)score->top5 / images, score->loss_sum / images, score->nonfinite);
	if (o->network.weights) {
		gn_json_string(&j, "weights", o->network.weights);
	} else {
		gn_json_put(&j, "step %lu checkpoint %s", step, folder);
	}
	gn_cmd_print_json(&j);
}

static enum gn_status evaluate(const struct gn_evaluate_options *o, struct gn_world *world, struct gn_log *log,
			       struct gn_err *err)
{
	struct gn_comm_options co = {.transport = o->transport, .strict = o->transport_strict};
	char folder[PATH_MAX] = "";
	struct gn_strbuf classes = {0};
	struct gn_metrics score;
	struct gn_comm *comm;
	uint64_t step;
	enum gn_status status = gn_comm_create(world, &co, log, &comm, err);

	if (status)
		return status;
	gn_world_set_phase(world, "evaluating", GN_EVALUATE_STALL_MS);
	status = gn_evaluate(o, comm, log, folder, &step, &score, &classes, err);
	if (!status && gn_comm_rank(comm) == 0) {
		gn_metrics_warn(&score, log);
		if (classes.len)
			printf("%s%" PRIu64 " images: top-1 %.2f %%, top-5 %.2f %%, loss %.4f\n", gn_strbuf_text(&classes), score.images,
			       100.0 * (double)score.top1 / (double)score.images, 100.0 * (double)score.top5 / (double)score.images,
			       score.loss_sum / (double)score.images);
		else
			print_score(o, &score, folder, step);
	}
	gn_strbuf_release(&classes);
	gn_comm_destroy(comm);
	return status;
}

static int run(const void *target, const struct gn_text_list *positional)
{
	const struct gn_evaluate_options *o = target;
	struct gn_log *log = gn_cmd_log();
	struct gn_stop *stop = NULL;
	struct gn_world *world;
	struct gn_err err;
	enum gn_status status = gn_network_options_check(&o->network, &err);
	int code;

	(void)positional;
	if (!status)
		status = gn_data_key_check(o->key_file, &err);
	if (!status)
		status = gn_stop_create(log, "an evaluation has no parts: it has written nothing, and starts from the beginning", &stop, &err);
	if (status) {
		gn_cmd_decline(log, "eval", &err);
	} else if (!(status = gn_world_create(&o->world, log, &world, &err))) {
		status = evaluate(target, world, log, &err);
		gn_world_destroy(world);
	}
	code = status ? gn_cmd_fail_on(log, "eval", &err) : GN_EXIT_DONE;
	gn_stop_destroy(stop);
	gn_log_destroy(log);
	return code;
}

const struct gn_cmd gn_cmd_eval = {.command = &command, .run = run, .options_size = sizeof(struct gn_evaluate_options), .joins = 1};
