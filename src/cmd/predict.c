#include "src/cmd/cmd.h"

#include "src/base/data_key.h"
#include "src/cmd/key_option.h"
#include "src/cmd/network_options.h"
#include "src/cmd/predict_output.h"
#include "src/cmd/stop.h"
#include "src/cmd/world_options.h"
#include "src/train/loop/evaluate.h"

#define FIELD(name) offsetof(struct gn_predict_options, name)

static const struct gn_option options[] = {
	GN_CMD_NETWORK_OPTIONS(FIELD),
	GN_CMD_KEY_OPTION(FIELD(key_file)),
	{.name = "top", .kind = GN_OPTION_INT, .offset = FIELD(top), .value_name = "K", .initial = "5", .min = 1, .max = 1000,
	 .help = "classes per image, the most probable first"},
	{.name = "json", .kind = GN_OPTION_FLAG, .offset = FIELD(json), .help = "print one JSON object per image"},
	{.name = "csv", .kind = GN_OPTION_FLAG, .offset = FIELD(csv), .help = "print comma-separated values with a heading"},
	{.name = "npy", .kind = GN_OPTION_TEXT, .offset = FIELD(npy), .value_name = "FILE.npy",
	 .help = "also write the logits as a NumPy array, float32, one row per image in the order of the output, NaN for those passed over; "
		 "FILE.names.txt has the images' names, one per line"},
	{.name = "batch", .letter = 'b', .kind = GN_OPTION_INT, .offset = FIELD(batch), .value_name = "N",
	 .initial = "16", .min = 1, .max = 65536, .help = "images per rank and step"},
	GN_CMD_COMPUTE_OPTIONS(FIELD),
	GN_CMD_WORLD_OPTIONS(struct gn_predict_options, world),
};

static const struct gn_command command = {
	.name = "predict",
	.summary = "predict the classes of images: files, folders, archives, datasets",
	.positional = "SOURCE...",
	.description = "Each SOURCE is an image file (JPEG or PNG), a folder or a tar archive of images (folders in it have no meaning), or "
		       "a dataset written by gannet pack (labels have no meaning). For each image, in the order of the sources, a line is "
		       "printed with its name and the most probable classes with their probabilities. Names are SOURCE, or SOURCE/NAME for "
		       "what is inside it.\n\n"
		       "Images that cannot be decoded are named on standard error and passed over; the exit code is then 3, after all others "
		       "have been predicted. With --json and --csv they have a line with the error. Files that are no images by their name "
		       "(text, hidden files) are ignored.\n\n"
		       "The network and its input come from the checkpoint, or from the metadata of a file written by gannet export. Images "
		       "are resized, cropped and normalised as by gannet eval, PNG and CMYK images after the conversion of gannet pack. On "
		       "several ranks, which need the same sources, each decodes and computes its share; rank 0 prints.",
	.examples = "  gannet predict --checkpoint run1 photo.jpg\n"
		    "  gannet predict --weights w.safetensors --top 1 --csv photos/ >w.csv\n"
		    "  srun --mpi=pmix gannet predict --checkpoint run1 --json a.tar >a.jsonl\n",
	GN_OPTIONS(options),
	.positional_min = 1,
	.positional_max = 65536,
};

static enum gn_status predict(const struct gn_predict_options *o, const struct gn_text_list *sources, struct gn_world *world,
			      struct gn_log *log, uint64_t *bad, struct gn_err *err)
{
	struct gn_comm_options co = {.transport = o->transport, .strict = o->transport_strict};
	struct gn_predict_sink sink = {NULL, gn_predict_output_begin, gn_predict_output_image};
	struct gn_predict_output *output = NULL;
	struct gn_comm *comm;
	uint64_t images = 0;
	enum gn_status status = gn_comm_create(world, &co, log, &comm, err);

	if (status)
		return status;
	gn_world_set_phase(world, "predicting", GN_EVALUATE_STALL_MS);
	status = gn_predict_output_create(o, log, &output, err);
	sink.context = output;
	if (!status)
		status = gn_predict(o, sources, &sink, comm, log, &images, bad, err);
	if (!status && gn_comm_rank(comm) == 0) {
		/* before files without a row get their names */
		if (!images)
			status = gn_err_set(err, GN_ERR_DATA, "no image in what was given: JPEG and PNG files are read, folders and archives of them, and datasets");
		if (!status)
			status = gn_predict_output_finish(output, err);
		if (!status)
			gn_log_info(log, "%llu image%s predicted, %llu passed over", (unsigned long long)(images - *bad),
				    gn_text_plural(images - *bad), (unsigned long long)*bad);
	}
	gn_predict_output_destroy(output);
	gn_comm_destroy(comm);
	return status;
}

static enum gn_status check(const struct gn_predict_options *o, struct gn_err *err)
{
	enum gn_status status;

	if (o->json && o->csv)
		return gn_err_set(err, GN_ERR_USAGE, "--json and --csv cannot be combined: both are standard output");
	status = gn_network_options_check(&o->network, err);
	return status ? status : gn_data_key_check(o->key_file, err);
}

static int run(const void *target, const struct gn_text_list *positional)
{
	const struct gn_predict_options *o = target;
	struct gn_log *log = gn_cmd_log();
	struct gn_stop *stop = NULL;
	struct gn_world *world;
	struct gn_err err;
	uint64_t bad = 0;
	enum gn_status status = check(o, &err);
	int code;

	if (!status)
		status = gn_stop_create(log, "standard output has whole lines, of the images before; --npy has written nothing", &stop, &err);
	if (status) {
		gn_cmd_decline(log, "predict", &err);
	} else if (!(status = gn_world_create(&o->world, log, &world, &err))) {
		status = predict(o, positional, world, log, &bad, &err);
		gn_world_destroy(world);
	}
	code = status ? gn_cmd_fail_on(log, "predict", &err) : bad ? GN_EXIT_DATA : GN_EXIT_DONE;
	gn_stop_destroy(stop);
	gn_log_destroy(log);
	return code;
}

const struct gn_cmd gn_cmd_predict = {.command = &command, .run = run, .options_size = sizeof(struct gn_predict_options), .joins = 1};
