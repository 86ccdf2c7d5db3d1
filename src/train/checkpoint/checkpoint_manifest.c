#include "src/train/checkpoint/checkpoint_internal.h"

#include "data/sample/augment.h"
#include "src/base/file.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char manifest_name[] = "manifest.json";
static const char format_name[] = "gannet-checkpoint";
/* of encrypted checkpoints the second */
enum { VERSION = 1, VERSION_ENCRYPTED = 2, FILES_MAX = 1 << 20 };
static const size_t manifest_max = 256u << 20, names_max = 8u << 20;

static void json_values(struct gn_json *j, const char *key, const double *values, int64_t count)
{
	gn_json_array(j, key);
	for (int64_t c = 0; c < count; c++)
		gn_json_double(j, NULL, values[c]);
	gn_json_end(j);
}

static void json_input(struct gn_json *j, const struct gn_input_spec *input)
{
	gn_json_object(j, "input");
	json_values(j, "mean", input->mean, 3);
	json_values(j, "deviation", input->deviation, 3);
	gn_json_int(j, "resize_shorter", input->resize_shorter);
	gn_json_string(j, "interpolation", gn_interpolation_name(input->interpolation));
	gn_json_bool(j, "exif_rotate", input->exif_rotate);
	gn_json_end(j);
}

void gn_checkpoint_put_preprocessing(struct gn_json *j, const char *key, const struct gn_checkpoint_info *info)
{
	const struct gn_loader_options lo = {
		.augment = GN_AUGMENT_NONE, .height = (uint32_t)info->side, .width = (uint32_t)info->side,
		.resize_shorter = (uint32_t)info->input.resize_shorter,
	};

	gn_json_object(j, key);
	gn_json_string(j, "color", info->channels == 1 ? "L" : "RGB");
	gn_json_bool(j, "exif_orientation", info->input.exif_rotate);
	if (gn_crop_resize(&lo))
		gn_json_uint(j, "resize_shorter", gn_crop_resize(&lo));
	else
		gn_json_null(j, "resize_shorter");
	gn_json_string(j, "interpolation", gn_interpolation_name(info->input.interpolation));
	gn_json_bool(j, "antialias", 1);
	gn_json_int(j, "center_crop", info->side);
	json_values(j, "mean", info->input.mean, info->channels);
	json_values(j, "deviation", info->input.deviation, info->channels);
	gn_json_end(j);
}

static void json_names(struct gn_json *j, const struct gn_dataset *d)
{
	size_t len = 0;

	for (uint32_t k = 0; d && k < gn_dataset_classes(d); k++)
		len += strlen(gn_dataset_class_name(d, k)) + 4;
	if (!len || len > names_max)
		return;
	gn_json_array(j, "class_names");
	for (uint32_t k = 0; k < gn_dataset_classes(d); k++)
		gn_json_string(j, NULL, gn_dataset_class_name(d, k));
	gn_json_end(j);
}

static void json_info(struct gn_json *j, const struct gn_checkpoint_info *info)
{
	gn_json_string(j, "format", format_name);
	gn_json_int(j, "version", info->key ? VERSION_ENCRYPTED : VERSION);
	gn_json_uint(j, "step", info->state.step);
	gn_json_uint(j, "epoch", info->state.epoch);
	gn_json_uint(j, "sample", info->state.sample);
	gn_json_uint(j, "seed", info->state.seed);
	gn_json_uint(j, "skipped", info->state.skipped);
	gn_json_string(j, "optimizer", gn_optim_name(info->optimizer));
	gn_json_int(j, "world_size", info->world_size);
	if (info->ranks > info->world_size)
		gn_json_int(j, "ranks", info->ranks);
	gn_json_int(j, "global_batch", info->global_batch);
	gn_json_object(j, "model");
	gn_json_string(j, "name", info->model);
	gn_json_int(j, "classes", info->classes);
	gn_json_int(j, "channels", info->channels);
	gn_json_int(j, "side", info->side);
	gn_json_string(j, "layout_sha256", info->layout_digest);
	gn_json_end(j);
	json_input(j, &info->input);
	gn_checkpoint_put_preprocessing(j, "preprocessing", info);
	json_names(j, info->names_of);
	gn_json_object(j, "dataset");
	gn_json_string(j, "digest", info->dataset_digest);
	gn_json_string(j, "classes_sha256", info->classes_digest);
	gn_json_end(j);
	if (info->number)
		gn_json_int(j, "number", info->number);
	if (info->cut[0])
		gn_json_string(j, "cut", info->cut);
	if (info->convolution[0])
		gn_json_string(j, "convolution", info->convolution);
	if (info->compress[0])
		gn_json_string(j, "compress", info->compress);
	if (info->options)
		gn_json_string(j, "options", info->options);
}

void gn_checkpoint_files_json(struct gn_json *j, const struct gn_checkpoint_file *files, size_t count)
{
	gn_json_array(j, "files");
	for (size_t i = 0; i < count; i++) {
		gn_json_object(j, NULL);
		gn_json_string(j, "name", files[i].name);
		gn_json_uint(j, "bytes", files[i].len_bytes);
		gn_json_string(j, "sha256", files[i].sha256);
		gn_json_end(j);
	}
	gn_json_end(j);
}

enum gn_status gn_checkpoint_manifest_write(const char *folder, const struct gn_checkpoint_info *info,
					    const struct gn_checkpoint_file *files, size_t count, struct gn_err *err)
{
	char path[PATH_MAX];
	struct gn_json j;
	enum gn_status status = gn_path_join(path, sizeof path, folder, manifest_name, err);

	if (status)
		return status;
	gn_json_begin(&j);
	json_info(&j, info);
	gn_checkpoint_files_json(&j, files, count);
	gn_json_end(&j);
	if (info->key)
		status = gn_checkpoint_sign(&j.text, info->key, err);
	else
		gn_strbuf_puts(&j.text, "\n");
	if (!status)
		status = gn_file_replace_text(path, &j.text, GN_REPLACE_SYNCED, err);
	gn_json_release(&j);
	return status;
}

static int get_text(const json_t *object, const char *key, char *out, size_t size)
{
	const char *text = json_string_value(json_object_get(object, key));

	if (!text || strlen(text) >= size)
		return -1;
	memcpy(out, text, strlen(text) + 1);
	return 0;
}

static int get_count(const json_t *object, const char *key, int64_t min, int64_t max, int64_t *out)
{
	const json_t *value = json_object_get(object, key);

	*out = json_integer_value(value);
	return json_is_integer(value) && *out >= min && *out <= max ? 0 : -1;
}

static int get_triple(const json_t *object, const char *key, double out[3])
{
	const json_t *array = json_object_get(object, key);

	for (size_t c = 0; c < 3; c++) {
		if (!json_is_number(json_array_get(array, c)))
			return -1;
		out[c] = json_number_value(json_array_get(array, c));
	}
	return 0;
}

/* Checkpoints of earlier versions lack this: they used SGD and skipped no step. */
static const char *parse_optimizer(const json_t *root, struct gn_checkpoint_info *info)
{
	const json_t *name = json_object_get(root, "optimizer");
	int64_t skipped = 0;
	int kind = name && json_is_string(name) ? gn_optim_find(json_string_value(name)) : name ? -1 : GN_OPTIM_SGD;

	if (kind < 0)
		return "optimizer";
	if (json_object_get(root, "skipped") && get_count(root, "skipped", 0, (int64_t)info->state.step, &skipped))
		return "skipped";
	info->optimizer = (enum gn_optim_kind)kind;
	info->state.skipped = (uint64_t)skipped;
	return NULL;
}

/* Returns the name of the first missing or invalid field, or NULL. */
static const char *parse_info(const json_t *root, struct gn_checkpoint_info *info)
{
	const json_t *model = json_object_get(root, "model"), *input = json_object_get(root, "input");
	const json_t *dataset = json_object_get(root, "dataset");
	int64_t step, epoch, sample, seed;
	char interpolation[16];

	if (get_count(root, "step", 0, INT64_MAX, &step))
		return "step";
	if (get_count(root, "epoch", 0, UINT32_MAX, &epoch))
		return "epoch";
	if (get_count(root, "sample", 0, INT64_MAX, &sample))
		return "sample";
	if (get_count(root, "seed", 0, INT64_MAX, &seed))
		return "seed";
	if (get_count(root, "world_size", 1, INT32_MAX, &info->world_size) ||
	    get_count(root, "global_batch", 1, INT64_MAX, &info->global_batch))
		return "world_size or global_batch";
	if (get_text(model, "name", info->model, sizeof info->model) ||
	    get_count(model, "classes", 1, 1 << 24, &info->classes) ||
	    get_count(model, "channels", 1, 3, &info->channels) || get_count(model, "side", 1, 1 << 16, &info->side) ||
	    get_text(model, "layout_sha256", info->layout_digest, sizeof info->layout_digest))
		return "model";
	if (get_triple(input, "mean", info->input.mean) || get_triple(input, "deviation", info->input.deviation) ||
	    get_count(input, "resize_shorter", 0, 1 << 16, &info->input.resize_shorter))
		return "input";
	/* absent before 0.2.0 */
	info->input.exif_rotate = json_is_true(json_object_get(input, "exif_rotate")); /* absent in older ones */
	if (json_object_get(input, "interpolation") &&
	    (get_text(input, "interpolation", interpolation, sizeof interpolation) ||
	     gn_interpolation_parse(interpolation, &info->input.interpolation, NULL)))
		return "input.interpolation";
	for (int c = 0; c < 3; c++)
		if (!(info->input.deviation[c] > 0))
			return "input.deviation";
	if (get_text(dataset, "digest", info->dataset_digest, sizeof info->dataset_digest) ||
	    get_text(dataset, "classes_sha256", info->classes_digest, sizeof info->classes_digest))
		return "dataset";
	info->is_encrypted = json_object_get(root, "encryption") != NULL;
	info->state = (struct gn_run_state){(uint64_t)step, (uint64_t)epoch, (uint64_t)sample, (uint64_t)seed, 0};
	info->ranks = info->world_size;
	if (json_object_get(root, "ranks") && get_count(root, "ranks", info->world_size, INT32_MAX, &info->ranks))
		return "ranks";
	if (json_object_get(root, "number") && get_count(root, "number", 1, INT64_MAX, &info->number))
		return "number";
	if (json_object_get(root, "cut") && get_text(root, "cut", info->cut, sizeof info->cut))
		return "cut";
	if (json_object_get(root, "convolution") && get_text(root, "convolution", info->convolution, sizeof info->convolution))
		return "convolution";
	if (json_object_get(root, "compress") && get_text(root, "compress", info->compress, sizeof info->compress))
		return "compress";
	return parse_optimizer(root, info);
}

/* File names are not trusted: a name with a slash, or one that starts with a dot, is refused. */
static int parse_file(const json_t *entry, struct gn_checkpoint_file *file)
{
	int64_t len_bytes;

	if (get_text(entry, "name", file->name, sizeof file->name) || !file->name[0] || file->name[0] == '.' ||
	    strchr(file->name, '/') || get_count(entry, "bytes", 0, INT64_MAX, &len_bytes) ||
	    get_text(entry, "sha256", file->sha256, sizeof file->sha256))
		return -1;
	file->len_bytes = (uint64_t)len_bytes;
	return 0;
}

static enum gn_status parse(const char *path, const json_t *root, struct gn_checkpoint_info *info,
			    struct gn_checkpoint_file **files, size_t *count, struct gn_err *err)
{
	const char *format = json_string_value(json_object_get(root, "format")), *bad;
	const json_t *list = json_object_get(root, "files");
	struct gn_checkpoint_file *found;
	int64_t version;

	if (!format || strcmp(format, format_name))
		return gn_err_set(err, GN_ERR_DATA, "%s is not the manifest of a Gannet checkpoint", path);
	if (get_count(root, "version", VERSION, INT64_MAX, &version))
		return gn_err_set(err, GN_ERR_DATA, "%s has no usable version", path);
	if (version > VERSION_ENCRYPTED)
		return gn_err_set(err, GN_ERR_UNSUPPORTED,
				  "%s has format version %" PRId64 ", this program knows up to %d: use the newer gannet that wrote "
				  "it, or remove this checkpoint to resume from an older one", path, version, VERSION_ENCRYPTED);
	bad = parse_info(root, info);
	if (bad)
		return gn_err_set(err, GN_ERR_DATA, "%s: field '%s' is missing or invalid", path, bad);
	if (!json_is_array(list) || !json_array_size(list) || json_array_size(list) > FILES_MAX)
		return gn_err_set(err, GN_ERR_DATA, "%s lists no files", path);
	found = calloc(json_array_size(list), sizeof *found);
	if (!found)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %s", path);
	for (size_t i = 0; i < json_array_size(list); i++) {
		if (parse_file(json_array_get(list, i), &found[i])) {
			free(found);
			return gn_err_set(err, GN_ERR_DATA, "%s: file %zu has no usable name, size or digest", path, i);
		}
	}
	for (size_t i = 0; i < json_array_size(list); i++)
		info->has_average |= !strcmp(found[i].name, "ema.safetensors");
	*files = found;
	*count = json_array_size(list);
	return GN_OK;
}

/* Loads any JSON. The caller releases *root. */
static enum gn_status load_manifest(const char *folder, char path[PATH_MAX], json_t **root, struct gn_err *err)
{
	char *text;
	json_error_t problem;
	size_t len;
	enum gn_status status = gn_path_join(path, PATH_MAX, folder, manifest_name, err);

	if (!status)
		status = gn_file_load(path, manifest_max, &text, &len, err);
	if (status)
		return status;
	*root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &problem);
	free(text);
	return *root ? GN_OK
		     : gn_err_set(err, GN_ERR_DATA, "%s is not JSON: line %d: %s", path, problem.line, problem.text);
}

enum gn_status gn_checkpoint_manifest_read(const char *folder, struct gn_checkpoint_info *info,
					   struct gn_checkpoint_file **files, size_t *count, struct gn_err *err)
{
	struct gn_checkpoint_info found = {0};
	char path[PATH_MAX];
	json_t *root;
	enum gn_status status = load_manifest(folder, path, &root, err);

	if (status)
		return status;
	status = parse(path, root, &found, files, count, err);
	json_decref(root);
	if (!status)
		*info = found;
	return status;
}

enum gn_status gn_checkpoint_options(const char *folder, char **options, struct gn_err *err)
{
	char path[PATH_MAX], *copy = NULL;
	const char *text;
	json_t *root;
	enum gn_status status = load_manifest(folder, path, &root, err);

	if (status)
		return status;
	text = json_string_value(json_object_get(root, "options"));
	if (text && !(copy = strdup(text)))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %s", path);
	json_decref(root);
	if (!status)
		*options = copy;
	return status;
}

enum gn_status gn_checkpoint_class_names(const char *folder, char **names, struct gn_err *err)
{
	char path[PATH_MAX], *text = NULL;
	json_t *root, *list;
	enum gn_status status = load_manifest(folder, path, &root, err);

	if (status)
		return status;
	list = json_object_get(root, "class_names");
	for (size_t i = 0; i < json_array_size(list) && !status; i++)
		if (!json_is_string(json_array_get(list, i)))
			status = gn_err_set(err, GN_ERR_DATA, "%s: class name %zu is not a string", path, i);
	if (!status && json_is_array(list) && !(text = json_dumps(list, 0)))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the class names in %s", path);
	json_decref(root);
	if (!status)
		*names = text;
	return status;
}
