#include "src/train/model/weights_about.h"

#include "src/base/sha256.h"
#include "src/base/strbuf.h"
#include "src/train/model/model.h"
#include "src/train/model/safetensors.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

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
static const char *parse_preprocessing(const json_t *object, struct gn_weights_about *out)
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

enum gn_status gn_weights_about(const char *path, struct gn_weights_about *out, struct gn_err *err)
{
	struct gn_weights_about about = {.exif_rotate = -1, .resize_shorter = -1, .is_bicubic = -1};
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
