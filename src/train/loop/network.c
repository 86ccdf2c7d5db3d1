#include "src/train/loop/network.h"

#include "data/sample/augment.h"
#include "src/base/alloc.h"
#include "src/base/sha256.h"
#include "src/base/status.h"
#include "src/base/strbuf.h"
#include "src/base/text.h"
#include "src/train/loop/input.h"
#include "src/train/model/model.h"
#include "src/train/model/safetensors.h"
#include "src/train/model/weights.h"
#include "transport/coll/agree.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The network described in the metadata of a file written by gannet export: its name, and the preprocessing of images.
 *
 * The file may come from anywhere: an unknown network name, and a "preprocessing" that is not a JSON object, count as absent; a
 * JSON object with an invalid value is GN_ERR_DATA, naming it.
 */

struct weights_about {
	char model[32];		     /* "": absent */
	int64_t side;		     /* 0: absent */
	int exif_rotate;	     /* images are turned as their EXIF orientation says; -1: absent */
	int64_t resize_shorter;	     /* 0: images of nearly that side are not resized; -1: absent */
	int is_bicubic;		     /* else bilinear; -1: absent */
	int channels;		     /* of mean and deviation, 1 or 3; 0: absent */
	double mean[3], deviation[3]; /* a single channel is stored three times */
	/* gn_input_classes_digest() of the class names; "" without them, or if they had bytes that JSON cannot hold (U+FFFD) */
	char classes_digest[65];
};

enum { SIDE_MAX = 4096, RESIZE_MAX = 8192 }; /* limits of the corresponding options */

/* *out is unchanged if the key is absent. Returns 0, or -1 for anything but an integer from 1 to most. */
static int get_length(const json_t *object, const char *key, int64_t most, int64_t *out)
{
	const json_t *value = json_object_get(object, key);

	if (!value)
		return 0;
	if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > most)
		return -1;
	*out = json_integer_value(value);
	return 0;
}

/* *out is unchanged if the key is absent. */
static int get_filter(const json_t *object, int *out)
{
	const json_t *value = json_object_get(object, "interpolation");
	const char *text = json_string_value(value);

	if (!value)
		return 0;
	if (!text || (strcmp(text, "bicubic") && strcmp(text, "bilinear")))
		return -1;
	*out = !strcmp(text, "bicubic");
	return 0;
}

/* Returns the number of values, 1 or 3; 0 if the key is absent, or -1. They are converted to float later. */
static int get_values(const json_t *object, const char *key, double least, double out[3])
{
	const json_t *array = json_object_get(object, key);
	size_t count = json_array_size(array);

	if (!array)
		return 0;
	if (count != 1 && count != 3)
		return -1;
	for (size_t c = 0; c < 3; c++) {
		const json_t *value = json_array_get(array, count == 1 ? 0 : c);

		if (!json_is_number(value) || !(json_number_value(value) >= least) || json_number_value(value) > 1e6)
			return -1;
		out[c] = json_number_value(value);
	}
	return (int)count;
}

/* Returns the key with an invalid value, or NULL. */
static const char *parse_preprocessing(const json_t *object, struct weights_about *out)
{
	int means = get_values(object, "mean", -1e6, out->mean);
	int deviations = get_values(object, "deviation", 1e-6, out->deviation);

	if (get_length(object, "center_crop", SIDE_MAX, &out->side))
		return "center_crop";
	if (json_is_null(json_object_get(object, "resize_shorter")))
		out->resize_shorter = 0;
	else if (get_length(object, "resize_shorter", RESIZE_MAX, &out->resize_shorter))
		return "resize_shorter";
	if (json_is_boolean(json_object_get(object, "exif_orientation")))
		out->exif_rotate = json_is_true(json_object_get(object, "exif_orientation"));
	if (get_filter(object, &out->is_bicubic))
		return "interpolation";
	if (means < 0)
		return "mean";
	if (deviations < 0 || deviations != means)
		return "deviation";
	out->channels = means;
	return NULL;
}

/* text: NULL or a JSON array of names, each of which counts with a zero byte behind it. hex is unchanged where the conversion to JSON changed one. */
static enum gn_status digest_classes(const char *text, char hex[65], struct gn_err *err)
{
	struct gn_strbuf names = {0};
	json_t *list = text ? json_loads(text, 0, NULL) : NULL;
	size_t count = json_array_size(list), k = 0;
	enum gn_status status = GN_OK;

	for (const char *name; k < count && (name = json_string_value(json_array_get(list, k))) && !strstr(name, "\xef\xbf\xbd"); k++)
		gn_strbuf_append(&names, name, strlen(name) + 1);
	if (count && k == count)
		status = gn_strbuf_failed(&names) ? gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the class names")
						  : gn_sha256_buffer(gn_strbuf_text(&names), names.len, hex, err);
	gn_strbuf_release(&names);
	json_decref(list);
	return status;
}

/* err is required. */
static enum gn_status weights_about(const char *path, struct weights_about *out, struct gn_err *err)
{
	struct weights_about about = {.exif_rotate = -1, .resize_shorter = -1, .is_bicubic = -1};
	struct gn_safetensors *file;
	const char *model, *text, *wrong = NULL;
	json_t *preprocessing;
	enum gn_status status = gn_safetensors_open(path, NULL, &file, err);

	if (status)
		return status;
	model = gn_safetensors_metadata(file, "model");
	text = gn_safetensors_metadata(file, "preprocessing");
	preprocessing = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
	if (model && gn_model_is_known(model))
		snprintf(about.model, sizeof about.model, "%s", model);
	if (json_is_object(preprocessing))
		wrong = parse_preprocessing(preprocessing, &about);
	if (wrong)
		status = gn_err_set(err, GN_ERR_DATA, "%s: '%s' of the metadata's preprocessing is missing or invalid: export the "
				    "file again", path, wrong);
	else
		status = digest_classes(gn_safetensors_metadata(file, "class_names"), about.classes_digest, err);
	json_decref(preprocessing);
	gn_safetensors_close(file);
	if (!status)
		*out = about;
	return status;
}

enum gn_status gn_network_options_check(const struct gn_network_options *o, struct gn_err *err)
{
	if (!o->checkpoint == !o->weights)
		return gn_err_set(err, GN_ERR_USAGE, "give either --checkpoint DIR or --weights FILE");
	if (o->weights && o->average)
		return gn_err_set(err, GN_ERR_USAGE, "--ema is of checkpoints: for weights write a file with gannet export --ema");
	if (o->checkpoint && (o->model || o->mean || o->deviation))
		return gn_err_set(err, GN_ERR_USAGE, "--model, --mean and --deviation are for --weights: a checkpoint says them itself");
	if (o->weights && o->checkpoint_key)
		return gn_err_set(err, GN_ERR_USAGE, "--checkpoint-key is of checkpoints: gannet export writes plain weights");
	return gn_data_key_check(o->checkpoint_key, err);
}

static void warn_values(const struct gn_network_options *o, const char *option, const char *given, const double *used,
			const double *said, int count, struct gn_log *log)
{
	char text[100] = "";
	int differs = 0;

	for (int c = 0; c < count; c++) {
		size_t len = strlen(text);

		differs |= used[c] != said[c];
		snprintf(text + len, sizeof text - len, "%s%.9g", c ? "," : "", said[c]);
	}
	if (given && differs)
		gn_log_warn(log, "--%s %s is used, not %s, which %s says of itself", option, given, text, o->weights);
}

/* Options go before what the file says; a resize that is meant for another side is not taken from it. */
static void take_sizes(const struct gn_network_options *o, const struct weights_about *about, const char *model,
		       struct gn_log *log, struct gn_checkpoint_info *info)
{
	int64_t resize = about->resize_shorter, used;

	info->side = o->side ? o->side : about->side ? about->side : gn_model_default_side(model);
	if (about->side && info->side != about->side)
		gn_log_warn(log, "--side %" PRId64 " is used, not %" PRId64 ", which %s says of itself%s", o->side, about->side,
			    o->weights, o->resize_shorter < 0 ? "; images are resized as is usual for that side" : "");
	if (about->side && info->side != about->side)
		resize = -1;
	used = o->resize_shorter >= 0 ? o->resize_shorter : resize >= 0 ? resize : 0;
	if (resize >= 0 && gn_crop_resize_evaluation(info->side, used) != gn_crop_resize_evaluation(info->side, resize))
		gn_log_warn(log, "--resize %" PRId64 " is used, not %" PRId64 "%s, which %s says of itself", used, resize,
			    resize ? "" : " (the usual)", o->weights);
	info->input.exif_rotate = about->exif_rotate;
	info->input.resize_shorter = used;
	info->input.interpolation = about->is_bicubic > 0 ? GN_BICUBIC : GN_BILINEAR;
	if (about->is_bicubic >= 0 && o->interpolation && strcmp(o->interpolation, "auto") &&
	    strcmp(o->interpolation, gn_interpolation_name(info->input.interpolation)))
		gn_log_warn(log, "--interpolation %s is used, not %s, which %s says of itself", o->interpolation,
			    gn_interpolation_name(info->input.interpolation), o->weights);
}

static enum gn_status take_values(const struct gn_network_options *o, const struct weights_about *about,
				  struct gn_log *log, struct gn_checkpoint_info *info, struct gn_err *err)
{
	enum gn_status status = gn_input_parse(o->mean, o->deviation, (int)info->channels, &info->input, err);

	if (!status)
		status = gn_input_check(o->mean, o->deviation, &info->input, err);
	if (status || !about->channels)
		return status;
	if (about->channels != info->channels)
		return gn_err_set(err, GN_ERR_DATA, "%s: the metadata's preprocessing is for %d channel%s, the weights are for %lld: "
				  "export the file again", o->weights, about->channels, about->channels == 1 ? "" : "s",
				  (long long)info->channels);
	warn_values(o, "mean", o->mean, info->input.mean, about->mean, about->channels, log);
	warn_values(o, "deviation", o->deviation, info->input.deviation, about->deviation, about->channels, log);
	if (!o->mean)
		memcpy(info->input.mean, about->mean, sizeof about->mean);
	if (!o->deviation)
		memcpy(info->input.deviation, about->deviation, sizeof about->deviation);
	return GN_OK;
}

/* The network that a file of weights is for: what options do not say the file does. */
static enum gn_status describe_weights(const struct gn_network_options *o, struct gn_log *log, struct gn_checkpoint_info *info,
				       struct gn_err *err)
{
	struct weights_about about;
	const char *model;
	struct gn_model *like;
	enum gn_status status = weights_about(o->weights, &about, err);

	if (status)
		return status;
	model = o->model ? o->model : about.model;
	if (!*model)
		return gn_err_set(err, GN_ERR_USAGE, "%s does not say of which network it is: give --model NAME", o->weights);
	if (*about.model && strcmp(model, about.model))
		gn_log_warn(log, "--model %s is used, not %s, which %s says of itself", model, about.model, o->weights);
	take_sizes(o, &about, model, log, info);
	status = gn_model_create(model, 1, 0, (int)info->side, &like, err);
	if (status)
		return status;
	status = gn_weights_sizes(o->weights, like, &info->channels, &info->classes, err);
	memcpy(info->classes_digest, about.classes_digest, sizeof info->classes_digest);
	if (!status)
		status = take_values(o, &about, log, info, err);
	snprintf(info->model, sizeof info->model, "%s", gn_model_name(like));
	gn_model_destroy(like);
	return status;
}

/* On rank 0. */
static enum gn_status find_network(const struct gn_network_options *o, struct gn_log *log, char *folder,
				   struct gn_checkpoint_info *info, struct gn_err *err)
{
	struct gn_data_key key;
	struct stat st;
	enum gn_status status;

	if (o->checkpoint && !stat(o->checkpoint, &st) && S_ISREG(st.st_mode))
		return gn_err_set(err, GN_ERR_USAGE, "--checkpoint %s is a file; use --weights FILE", o->checkpoint);
	if (o->checkpoint_key && (status = gn_data_key_read(o->checkpoint_key, &key, err)))
		return status;
	status = o->weights ? describe_weights(o, log, info, err)
			    : gn_checkpoint_find(o->checkpoint, o->checkpoint_key ? &key : NULL, log, folder, info, err);
	gn_data_key_wipe(&key);
	/* a resize that is meant for another side is not taken */
	if (!status && o->checkpoint && o->side && o->side != info->side) {
		gn_log_info(log, "images of side %" PRId64 ", not %" PRId64 " as in training%s", o->side, info->side,
			    o->resize_shorter < 0 ? ", resized as is usual for that side" : "");
		info->side = o->side;
		info->input.resize_shorter = 0;
	}
	if (!status && o->resize_shorter >= 0)
		info->input.resize_shorter = o->resize_shorter;
	if (!status && o->interpolation && strcmp(o->interpolation, "auto"))
		status = gn_interpolation_parse(o->interpolation, &info->input.interpolation, err);
	return status;
}

enum gn_status gn_network_find(const struct gn_network_options *options, struct gn_comm *comm, struct gn_log *log, char *folder,
			       struct gn_checkpoint_info *out, struct gn_err *err)
{
	struct gn_checkpoint_info info = {0};
	enum gn_status status = GN_OK;

	if (gn_comm_rank(comm) == 0)
		status = find_network(options, log, folder, &info, err);
	status = gn_agree_status(comm, status, err);
	if (!status)
		status = gn_comm_broadcast(comm, &info, sizeof info, 0, err);
	if (!status)
		*out = info;
	return status;
}

enum gn_status gn_network_create(const struct gn_checkpoint_info *info, struct gn_network *out, struct gn_err *err)
{
	struct gn_network n = {0};
	enum gn_status status = gn_model_create(info->model, (int)info->classes, (int)info->channels, (int)info->side, &n.model, err);

	if (status)
		return status;
	n.params = gn_alloc_aligned(gn_model_param_elements(n.model) * sizeof(float));
	n.buffers = gn_alloc_aligned(gn_model_buffer_elements(n.model) * sizeof(float));
	if (n.params && n.buffers) {
		*out = n;
		return GN_OK;
	}
	gn_network_release(&n);
	return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the parameters of %s", info->model);
}

void gn_network_release(struct gn_network *n)
{
	gn_model_destroy(n->model);
	free(n->params);
	free(n->buffers);
	*n = (struct gn_network){0};
}

/* On rank 0. */
static enum gn_status load_checkpoint(const struct gn_network_options *o, const char *folder, const struct gn_checkpoint_info *info,
				      const struct gn_network *n, struct gn_err *err)
{
	struct gn_checkpoint_arrays plain = {.params = n->params, .buffers = n->buffers};
	struct gn_checkpoint_arrays averaged = {.average_params = n->params, .average_buffers = n->buffers};
	struct gn_data_key key;
	enum gn_status status = o->checkpoint_key ? gn_data_key_read(o->checkpoint_key, &key, err) : GN_OK;

	if (!status)
		status = gn_checkpoint_load(folder, info, o->checkpoint_key ? &key : NULL, n->model, o->average ? &averaged : &plain, err);
	gn_data_key_wipe(&key);
	return status;
}

/* Rank 0 reads the checkpoint, the others receive it. */
enum gn_status gn_network_load(const struct gn_network_options *options, const char *folder, struct gn_checkpoint_info *info,
			       const struct gn_network *n, struct gn_comm *comm, struct gn_log *log, struct gn_err *err)
{
	struct gn_strbuf ignored = {0};
	size_t params = gn_model_param_elements(n->model) * sizeof(float);
	size_t buffers = gn_model_buffer_elements(n->model) * sizeof(float);
	enum gn_status status = GN_OK;

	if (gn_comm_rank(comm) == 0 && options->weights)
		status = gn_weights_import(options->weights, n->model, 0, n->params, n->buffers, log, &ignored, err);
	else if (gn_comm_rank(comm) == 0)
		status = load_checkpoint(options, folder, info, n, err);
	gn_strbuf_release(&ignored);
	status = gn_agree_status(comm, status, err);
	if (!status)
		status = gn_comm_broadcast(comm, n->params, params, 0, err);
	if (!status && buffers)
		status = gn_comm_broadcast(comm, n->buffers, buffers, 0, err);
	return status;
}

enum gn_status gn_network_class_names(const struct gn_network_options *options, const char *folder, char **names, struct gn_err *err)
{
	*names = NULL;
	return options->weights ? gn_weights_class_names(options->weights, names, err) : gn_checkpoint_class_names(folder, names, err);
}

void gn_network_classes_differ(const struct gn_dataset *data, const char *names, char *out, size_t size)
{
	json_t *list = json_loads(names, 0, NULL);
	size_t theirs = json_array_size(list), ours = gn_dataset_classes(data), k = 0;
	char here[120], there[120];

	*out = 0;
	while (k < ours && k < theirs && json_is_string(json_array_get(list, k)) &&
	       !strcmp(gn_dataset_class_name(data, (uint32_t)k), json_string_value(json_array_get(list, k))))
		k++;
	if (k < theirs && json_is_string(json_array_get(list, k)))
		snprintf(out, size, "; class %zu is %s here and %s there", k,
			 gn_text_exact(k < ours ? gn_dataset_class_name(data, (uint32_t)k) : "missing", here, sizeof here),
			 gn_text_exact(json_string_value(json_array_get(list, k)), there, sizeof there));
	else if (k < ours)
		snprintf(out, size, "; class %zu, '%.100s', is missing there", k, gn_dataset_class_name(data, (uint32_t)k));
	json_decref(list);
}
