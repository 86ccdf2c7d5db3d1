#include "src/train/model/weights.h"

#include "src/base/half.h"
#include "src/base/sha256.h"
#include "src/base/strbuf.h"
#include "src/train/model/safetensors.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char counter_suffix[] = ".num_batches_tracked";

static size_t tensor_count(const struct gn_model *m)
{
	return (size_t)gn_model_param_count(m) + (size_t)gn_model_buffer_count(m);
}

/* Tensor number i: parameters first, then buffers. */
static const struct gn_param *tensor(const struct gn_model *m, size_t i)
{
	size_t params = (size_t)gn_model_param_count(m);

	return i < params ? gn_model_param(m, (int)i) : gn_model_buffer(m, (int)(i - params));
}

static int is_buffer(const struct gn_param *p)
{
	return p->kind == GN_BUFFER_MEAN || p->kind == GN_BUFFER_VAR;
}

static void describe(const struct gn_param *p, const float *data, struct gn_tensor_entry *e)
{
	memset(e, 0, sizeof *e);
	snprintf(e->name, sizeof e->name, "%s", p->name);
	e->type = GN_TENSOR_F32;
	e->dims = p->dims;
	memcpy(e->shape, p->shape, sizeof p->shape);
	e->len_bytes = p->count * sizeof(float);
	e->data = data + p->offset;
}

static void describe_counter(const struct gn_model *m, const struct gn_param *var, const int64_t *steps,
			     struct gn_tensor_entry *e)
{
	memset(e, 0, sizeof *e);
	snprintf(e->name, sizeof e->name, "%s%s", gn_model_node(m, var->node)->name, counter_suffix);
	e->type = GN_TENSOR_I64;
	e->len_bytes = sizeof *steps;
	e->data = steps;
}

enum gn_status gn_weights_save(const char *path, const struct gn_data_key *key, const struct gn_model *model, const float *params,
			       const float *buffers, uint64_t steps, char hex[65], uint64_t *len_bytes,
			       struct gn_err *err)
{
	static const char *const metadata[] = {"format", "pt"};
	size_t count = 0, room = 2 * tensor_count(model) + 1;
	struct gn_tensor_entry *entries = calloc(room, sizeof *entries);
	const int64_t counter = (int64_t)steps;
	struct gn_err why;
	enum gn_status status = GN_OK;

	if (!entries)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to write %s", path);
	for (size_t i = 0; i < tensor_count(model); i++) {
		const struct gn_param *p = tensor(model, i);

		describe(p, is_buffer(p) ? buffers : params, &entries[count++]);
		if (p->kind == GN_BUFFER_VAR)
			describe_counter(model, p, &counter, &entries[count++]);
	}
	for (size_t i = 0; i < count && !status; i++)
		if (gn_safetensors_check_finite(path, &entries[i], entries[i].data, &why))
			status = gn_err_set(err, GN_ERR_FAILED, "%s", why.text);
	if (!status)
		status = gn_safetensors_write(path, key, entries, count, metadata, 1, hex, len_bytes, err);
	free(entries);
	return status;
}

static void put_shape(struct gn_strbuf *out, const int64_t *shape, int dims)
{
	gn_strbuf_puts(out, "[");
	for (int d = 0; d < dims; d++)
		gn_strbuf_printf(out, "%s%lld", d ? "," : "", (long long)shape[d]);
	gn_strbuf_puts(out, "]");
}

/* Whether p is the last layer's weight or bias and the shapes differ only in the number of classes. */
static int has_other_classes(const struct gn_tensor_entry *e, const struct gn_model *model, const struct gn_param *p)
{
	int count = gn_model_param_count(model);
	int last = p == gn_model_param(model, count - 1) || p == gn_model_param(model, count - 2);

	for (int d = 1; last && d < p->dims; d++)
		last = e->dims == p->dims && e->shape[d] == p->shape[d];
	return last && e->dims == p->dims;
}

static enum gn_status wrong_shape(const struct gn_tensor_entry *e, const char *path, const struct gn_model *model,
				  const struct gn_param *p, struct gn_err *err)
{
	struct gn_strbuf text = {0};

	put_shape(&text, e->shape, e->dims);
	gn_strbuf_puts(&text, " there and ");
	put_shape(&text, p->shape, p->dims);
	gn_err_set(err, GN_ERR_DATA, "%s: tensor '%s' is %s in this model: %s", path, p->name, gn_strbuf_text(&text),
		   has_other_classes(e, model, p) ? "the number of classes of the last layer must equal the dataset's (train --init-head skip begins with a new layer)"
						  : "another model, or images of another side?");
	gn_strbuf_release(&text);
	return GN_ERR_DATA;
}

/* Converts half precision to fp32, which is exact. */
static enum gn_status read_halves(const struct gn_safetensors *file, const char *path, const struct gn_tensor_entry *e, float *out,
				  struct gn_err *err)
{
	uint16_t *halves = malloc(e->len_bytes + 1);
	enum gn_status status = halves ? gn_safetensors_read(file, e, halves, err)
				       : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to read %s", path);

	for (size_t i = 0; !status && i < e->len_bytes / sizeof *halves; i++)
		out[i] = e->type == GN_TENSOR_F16 ? gn_f32_of_f16(halves[i]) : gn_f32_of_bf16(halves[i]);
	free(halves);
	return status;
}

static enum gn_status load_one(const struct gn_safetensors *file, const char *path, const struct gn_model *model,
			       const struct gn_param *p, float *data, struct gn_err *err)
{
	const struct gn_tensor_entry *e = gn_safetensors_find(file, p->name);

	if (e->dims != p->dims || memcmp(e->shape, p->shape, (size_t)p->dims * sizeof *p->shape))
		return wrong_shape(e, path, model, p, err);
	if (e->type == GN_TENSOR_F16 || e->type == GN_TENSOR_BF16)
		return read_halves(file, path, e, data + p->offset, err);
	if (e->type != GN_TENSOR_F32)
		return gn_err_set(err, GN_ERR_DATA, "%s: tensor '%s' has type %s: only F32, F16 and BF16 are supported", path,
				  p->name,
				  gn_safetensors_type_name(e->type));
	return gn_safetensors_read(file, e, data + p->offset, err);
}

/* Appends name number count to a list that ends with "and 12 more". */
enum { LISTED_MAX = 5 };

static void put_name(struct gn_strbuf *out, const char *name, size_t count)
{
	if (count <= LISTED_MAX)
		gn_strbuf_printf(out, "%s%s", count > 1 ? ", " : "", name);
}

static void end_names(struct gn_strbuf *out, size_t count)
{
	if (count > LISTED_MAX)
		gn_strbuf_printf(out, " and %zu more", count - LISTED_MAX);
}

/* Whether all names have the prefix of PyTorch's DataParallel or DistributedDataParallel. */
static int is_wrapped(const struct gn_safetensors *file)
{
	size_t count = gn_safetensors_count(file), i = 0;

	while (i < count && !strncmp(gn_safetensors_entry(file, i)->name, "module.", 7))
		i++;
	return count && i == count;
}

/* Weight or bias of the last layer, whose size is the number of classes. */
static int is_head(const struct gn_model *model, const struct gn_param *p)
{
	return p->node == gn_model_param(model, gn_model_param_count(model) - 1)->node && !is_buffer(p);
}

static enum gn_status check_missing(const struct gn_safetensors *file, const char *path, const struct gn_model *model, int without_head,
				    struct gn_err *err)
{
	struct gn_strbuf names = {0};
	size_t missing = 0;

	for (size_t i = 0; i < tensor_count(model); i++)
		if (!gn_safetensors_find(file, tensor(model, i)->name) && !(without_head && is_head(model, tensor(model, i))))
			put_name(&names, tensor(model, i)->name, ++missing);
	end_names(&names, missing);
	if (missing && is_wrapped(file))
		gn_err_set(err, GN_ERR_DATA, "%s: all names start with 'module.', the prefix of DistributedDataParallel: save "
			   "model.module.state_dict()", path);
	else if (missing)
		gn_err_set(err, GN_ERR_DATA, "%s has no tensor %s, which %s needs: are these weights of another model?", path,
			   gn_strbuf_text(&names), gn_model_name(model));
	gn_strbuf_release(&names);
	return missing ? GN_ERR_DATA : GN_OK;
}

/* Whether the model has no tensor of that name. Counters of batch norm are known but unused. */
static int is_foreign(const struct gn_model *model, const char *name)
{
	size_t suffix = sizeof counter_suffix - 1, len = strlen(name);

	if (len > suffix && !strcmp(name + len - suffix, counter_suffix))
		return 0;
	for (size_t k = 0; k < tensor_count(model); k++)
		if (!strcmp(tensor(model, k)->name, name))
			return 0;
	return 1;
}

static void list_foreign(const struct gn_safetensors *file, const struct gn_model *model, struct gn_strbuf *names)
{
	size_t count = 0;

	for (size_t i = 0; i < gn_safetensors_count(file); i++)
		if (is_foreign(model, gn_safetensors_entry(file, i)->name))
			put_name(names, gn_safetensors_entry(file, i)->name, ++count);
	end_names(names, count);
}

static enum gn_status import(const char *path, const struct gn_data_key *key, const struct gn_model *model, int without_head, float *params,
			     float *buffers, struct gn_strbuf *ignored, struct gn_err *err)
{
	struct gn_safetensors *file;
	enum gn_status status = gn_safetensors_open(path, key, &file, err);

	if (status)
		return status;
	status = check_missing(file, path, model, without_head, err);
	for (size_t i = 0; i < tensor_count(model) && !status; i++) {
		const struct gn_param *p = tensor(model, i);

		if (!without_head || !is_head(model, p))
			status = load_one(file, path, model, p, is_buffer(p) ? buffers : params, err);
	}
	if (!status)
		list_foreign(file, model, ignored);
	gn_safetensors_close(file);
	return status;
}

enum gn_status gn_weights_import(const char *path, const struct gn_model *model, int without_head, float *params, float *buffers,
				 struct gn_strbuf *ignored, struct gn_err *err)
{
	return import(path, NULL, model, without_head, params, buffers, ignored, err);
}

/* An unknown tensor means that the file belongs to another model. */
enum gn_status gn_weights_load(const char *path, const struct gn_data_key *key, const struct gn_model *model, float *params, float *buffers,
			       struct gn_err *err)
{
	struct gn_strbuf foreign = {0};
	enum gn_status status = import(path, key, model, 0, params, buffers, &foreign, err);

	if (!status && foreign.len)
		status = gn_err_set(err, GN_ERR_DATA, "%s has a tensor %s that %s lacks: weights of another model?", path,
				    gn_strbuf_text(&foreign), gn_model_name(model));
	gn_strbuf_release(&foreign);
	return status;
}

/* One dimension of the tensor with p's name, whose other dimensions must equal p's. */
static enum gn_status find_size(const struct gn_safetensors *file, const char *path, const struct gn_param *p, int axis,
				int64_t most, int64_t *out, struct gn_err *err)
{
	const struct gn_tensor_entry *e = gn_safetensors_find(file, p->name);
	int fits = e && e->dims == p->dims;

	for (int d = 0; fits && d < p->dims; d++)
		fits = d == axis ? e->shape[d] >= 1 && e->shape[d] <= most : e->shape[d] == p->shape[d];
	if (!fits)
		return gn_err_set(err, GN_ERR_DATA, "%s has no tensor '%s' of this model's shape: weights of another model, or "
				  "for images of another side?", path, p->name);
	*out = e->shape[axis];
	return GN_OK;
}

enum gn_status gn_weights_sizes(const char *path, const struct gn_model *like, int64_t *channels, int64_t *classes,
				struct gn_err *err)
{
	const struct gn_param *first = gn_model_param(like, 0), *head = NULL;
	int64_t found[2];
	struct gn_safetensors *file;
	enum gn_status status = gn_safetensors_open(path, NULL, &file, err);

	if (status)
		return status;
	for (int i = 0; i < gn_model_param_count(like); i++)
		if (gn_model_param(like, i)->dims == 2)
			head = gn_model_param(like, i);
	status = find_size(file, path, first, 1, 3, &found[0], err);
	if (!status)
		status = find_size(file, path, head, 0, 1 << 24, &found[1], err);
	gn_safetensors_close(file);
	if (status)
		return status;
	*channels = found[0];
	*classes = found[1];
	return GN_OK;
}

/* Appends each name with a zero byte. Returns 0, or -1 when the names were changed by the conversion to JSON. */
static int append_names(const json_t *list, struct gn_strbuf *names)
{
	for (size_t k = 0; k < json_array_size(list); k++) {
		const char *name = json_string_value(json_array_get(list, k));

		if (!name || strstr(name, "\xef\xbf\xbd"))
			return -1;
		gn_strbuf_append(names, name, strlen(name) + 1);
	}
	return json_array_size(list) ? 0 : -1;
}

enum gn_status gn_weights_class_names(const char *path, char **names, struct gn_err *err)
{
	struct gn_safetensors *file;
	const char *text;
	enum gn_status status = gn_safetensors_open(path, NULL, &file, err);

	if (status)
		return status;
	text = gn_safetensors_metadata(file, "class_names");
	*names = text ? strdup(text) : NULL;
	if (text && !*names)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the class names in %s", path);
	gn_safetensors_close(file);
	return status;
}

enum gn_status gn_weights_classes_digest(const char *path, char hex[65], struct gn_err *err)
{
	struct gn_safetensors *file;
	struct gn_strbuf names = {0};
	const char *text;
	json_t *list;
	enum gn_status status = gn_safetensors_open(path, NULL, &file, err);

	if (status)
		return status;
	text = gn_safetensors_metadata(file, "class_names");
	list = text ? json_loads(text, 0, NULL) : NULL;
	if (append_names(list, &names))
		hex[0] = 0;
	else if (gn_strbuf_failed(&names))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the class names in %s", path);
	else
		status = gn_sha256_buffer(gn_strbuf_text(&names), names.len, hex, err);
	gn_strbuf_release(&names);
	json_decref(list);
	gn_safetensors_close(file);
	return status;
}

enum gn_status gn_weights_layout_digest(const struct gn_model *model, char hex[65], struct gn_err *err)
{
	struct gn_strbuf text = {0};
	enum gn_status status;

	for (size_t i = 0; i < tensor_count(model); i++) {
		const struct gn_param *p = tensor(model, i);

		gn_strbuf_printf(&text, "%s@%zu", p->name, p->offset);
		for (int d = 0; d < p->dims; d++)
			gn_strbuf_printf(&text, ",%lld", (long long)p->shape[d]);
		gn_strbuf_puts(&text, "\n");
	}
	if (gn_strbuf_failed(&text))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a digest");
	else
		status = gn_sha256_buffer(text.text, text.len, hex, err);
	gn_strbuf_release(&text);
	return status;
}
