#include "src/train/model/weights.h"

#include "src/base/half.h"
#include "src/base/sha256.h"
#include "src/base/strbuf.h"
#include "src/train/model/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char counter_suffix[] = ".num_batches_tracked";

static int is_buffer(const struct gn_param *p)
{
	return p->kind == GN_BUFFER_MEAN || p->kind == GN_BUFFER_VAR;
}

static void describe(const struct gn_param *p, const float *data, struct gn_tensor_entry *e)
{
	*e = (struct gn_tensor_entry){.type = GN_TENSOR_F32, .dims = p->dims, .len_bytes = p->count * sizeof(float), .data = data + p->offset};
	snprintf(e->name, sizeof e->name, "%s", p->name);
	memcpy(e->shape, p->shape, sizeof p->shape);
}

static void describe_counter(const struct gn_model *m, const struct gn_param *var, const int64_t *steps,
			     struct gn_tensor_entry *e)
{
	*e = (struct gn_tensor_entry){.type = GN_TENSOR_I64, .len_bytes = sizeof *steps, .data = steps};
	snprintf(e->name, sizeof e->name, "%s%s", gn_model_node(m, var->node)->name, counter_suffix);
}

enum gn_status gn_weights_save(const char *path, const struct gn_data_key *key, const struct gn_model *model, const float *params,
			       const float *buffers, uint64_t steps, char hex[65], uint64_t *len_bytes,
			       struct gn_err *err)
{
	static const char *const metadata[] = {"format", "pt"};
	const struct gn_param *p;
	size_t count = 0, room = 2 * (size_t)(gn_model_param_count(model) + gn_model_buffer_count(model)) + 1;
	struct gn_tensor_entry *entries = calloc(room, sizeof *entries);
	const int64_t counter = (int64_t)steps;
	struct gn_err why;
	enum gn_status status = GN_OK;

	if (!entries)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to write %s", path);
	for (int i = 0; (p = gn_model_state(model, i)); i++) {
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

/* Weight or bias of the last layer, whose size is the number of classes. */
static int is_head(const struct gn_model *model, const struct gn_param *p)
{
	return p->node == gn_model_param(model, gn_model_param_count(model) - 1)->node && !is_buffer(p);
}

/* Whether the shapes differ only in the number of classes. */
static int has_other_classes(const struct gn_tensor_entry *e, const struct gn_model *model, const struct gn_param *p)
{
	int rest = is_head(model, p) && e->dims == p->dims;

	for (int d = 1; rest && d < p->dims; d++)
		rest = e->shape[d] == p->shape[d];
	return rest;
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
						  : "another model, images of another side, or other --channels?");
	gn_strbuf_release(&text);
	return GN_ERR_DATA;
}

/* Converts half precision, which is exact, and doubles to fp32. */
static enum gn_status read_others(const struct gn_safetensors *file, const struct gn_tensor_entry *e, void *data, struct gn_err *err)
{
	float *out = data;
	void *there = malloc(e->len_bytes + 1);
	const uint16_t *halves = there;
	const double *doubles = there;
	enum gn_status status = there ? gn_safetensors_read(file, e, there, err)
				      : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to read tensor '%s'", e->name);

	for (size_t i = 0; !status && i < e->len_bytes / gn_safetensors_type_bytes(e->type); i++)
		out[i] = e->type == GN_TENSOR_F64 ? (float)doubles[i] : e->type == GN_TENSOR_F16 ? gn_f32_of_f16(halves[i]) : gn_f32_of_bf16(halves[i]);
	free(there);
	return status;
}

/* The next side that is not 1, from *d on; 0: there is none. */
static int64_t next_side(const int64_t *shape, int dims, int *d)
{
	while (*d < dims && shape[*d] == 1)
		++*d;
	return *d < dims ? shape[(*d)++] : 0;
}

/* Whether the shapes are the same but for sides of 1, of which libraries have more or fewer. */
static int fits(const struct gn_tensor_entry *e, const struct gn_param *p)
{
	int64_t of_file, side;
	int i = 0, k = 0;

	do {
		of_file = next_side(e->shape, e->dims, &i);
		side = next_side(p->shape, p->dims, &k);
	} while (of_file && of_file == side);
	return of_file == side && e->len_bytes / gn_safetensors_type_bytes(e->type) == p->count;
}

static enum gn_status load_one(const struct gn_safetensors *file, const char *path, const struct gn_model *model,
			       const struct gn_param *p, float *data, struct gn_err *err)
{
	const struct gn_tensor_entry *e = gn_safetensors_find(file, p->name);
	enum gn_status status = GN_OK;

	for (int k = 0; !e && k < 3 && !status; k++) {
		struct gn_param third = *p;

		snprintf(third.name, sizeof third.name, "%.69s/%d", p->name, k);
		third.shape[0] /= 3;
		third.count /= 3;
		third.offset += (size_t)k * third.count;
		status = load_one(file, path, model, &third, data, err);
	}
	if (!e)
		return status;
	if (e->type != GN_TENSOR_F32 && e->type != GN_TENSOR_F16 && e->type != GN_TENSOR_BF16 && e->type != GN_TENSOR_F64)
		return gn_err_set(err, GN_ERR_DATA, "%s: tensor '%s' has type %s: only F32, F16, BF16 and F64 are supported", path, p->name,
				  gn_safetensors_type_name(e->type));
	if (!fits(e, p))
		return wrong_shape(e, path, model, p, err);
	return (e->type == GN_TENSOR_F32 ? gn_safetensors_read : read_others)(file, e, data + p->offset, err);
}

/* Appends name number count to a list that ends after some. */
static void put_name(struct gn_strbuf *out, const char *name, size_t count)
{
	enum { LISTED_MAX = 5 };

	if (count <= LISTED_MAX)
		gn_strbuf_printf(out, "%s%s", count > 1 ? ", " : "", name);
	else if (count == LISTED_MAX + 1)
		gn_strbuf_puts(out, " and others");
}

/* Whole, or as thirds; and not without the prefix, too, if there is one. */
static int is_there(const struct gn_safetensors *file, const char *prefix, const struct gn_param *p)
{
	char name[GN_TENSOR_NAME_MAX + sizeof p->name + 2];
	int thirds = 0;

	for (int k = 0; k < 3; k++) {
		snprintf(name, sizeof name, "%s%s/%d", prefix, p->name, k);
		thirds += p->shape[0] % 3 == 0 && gn_safetensors_find(file, name);
	}
	snprintf(name, sizeof name, "%s%s", prefix, p->name);
	return (thirds == 3 || gn_safetensors_find(file, name)) && (!*prefix || !gn_safetensors_find(file, p->name));
}

size_t gn_weights_missing(const struct gn_safetensors *file, const char *prefix, const struct gn_model *model, int without_head,
			  struct gn_strbuf *names)
{
	const struct gn_param *p;
	size_t missing = 0;

	for (int i = 0; (p = gn_model_state(model, i)) && (names || !missing); i++)
		if (!(without_head && is_head(model, p)) && !is_there(file, prefix, p) && ++missing && names)
			put_name(names, p->name, missing);
	return missing;
}

/* Whether the model has no tensor of that name. Counters of batch norm are known but unused. */
static int is_foreign(const struct gn_model *model, const char *name)
{
	size_t suffix = sizeof counter_suffix - 1, len = strlen(name), whole = strcspn(name, "/");
	const struct gn_param *p;

	if (len > suffix && !strcmp(name + len - suffix, counter_suffix))
		return 0;
	for (int k = 0; (p = gn_model_state(model, k)); k++)
		if (!strncmp(p->name, name, whole) && !p->name[whole])
			return 0;
	return 1;
}

static void list_foreign(const struct gn_safetensors *file, const struct gn_model *model, struct gn_strbuf *names)
{
	size_t count = 0;

	for (size_t i = 0; i < gn_safetensors_count(file); i++)
		if (is_foreign(model, gn_safetensors_entry(file, i)->name))
			put_name(names, gn_safetensors_entry(file, i)->name, ++count);
}

/* ignored NULL: an unknown tensor is an error, because the file belongs to another model. */
static enum gn_status load_all(const struct gn_safetensors *file, const char *path, const struct gn_model *model, int without_head, float *params,
			       float *buffers, struct gn_strbuf *ignored, struct gn_err *err)
{
	struct gn_strbuf names = {0}, *foreign = ignored ? ignored : &names;
	const struct gn_param *p;
	enum gn_status status = GN_OK;

	if (gn_weights_missing(file, "", model, without_head, &names))
		status = gn_err_set(err, GN_ERR_DATA, "%s has no tensor %s, which %s needs; its first one is '%s': %s", path,
				    gn_strbuf_text(&names), gn_model_name(model), gn_safetensors_entry(file, 0)->name,
				    !without_head && !gn_weights_missing(file, "", model, 1, NULL)
					    ? "the last layer alone is missing (train --init-head skip begins with a new one)"
					    : "are these weights of another model?");
	for (int i = 0; !status && (p = gn_model_state(model, i)); i++)
		if (!without_head || !is_head(model, p))
			status = load_one(file, path, model, p, is_buffer(p) ? buffers : params, err);
	if (!status)
		list_foreign(file, model, foreign);
	if (!status && names.len)
		status = gn_err_set(err, GN_ERR_DATA, "%s has a tensor %s that %s lacks: weights of another model?", path, gn_strbuf_text(&names),
				    gn_model_name(model));
	gn_strbuf_release(&names);
	return status;
}

enum gn_status gn_weights_import(const char *path, const struct gn_model *model, int without_head, float *params, float *buffers,
				 struct gn_log *log, struct gn_strbuf *ignored, struct gn_err *err)
{
	struct gn_safetensors *file;
	enum gn_status status = gn_weights_open(path, model, log, &file, err);

	if (status)
		return status;
	status = load_all(file, path, model, without_head, params, buffers, ignored, err);
	gn_safetensors_close(file);
	if (!status && ignored && ignored->len)
		gn_log_warn(log, "%s has tensors that %s lacks, which are ignored: %s", path, gn_model_name(model), gn_strbuf_text(ignored));
	return status;
}

enum gn_status gn_weights_load(const char *path, const struct gn_data_key *key, const struct gn_model *model, float *params, float *buffers,
			       struct gn_err *err)
{
	struct gn_safetensors *file;
	enum gn_status status = gn_safetensors_open(path, key, &file, err);

	if (status)
		return status;
	status = load_all(file, path, model, 0, params, buffers, NULL, err);
	gn_safetensors_close(file);
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

enum gn_status gn_weights_sizes(const char *path, const struct gn_model *like, int64_t *channels, int64_t *classes, struct gn_err *err)
{
	const struct gn_param *first = gn_model_param(like, 0), *head = gn_model_param(like, gn_model_param_count(like) - 2);
	int64_t found[2];
	struct gn_safetensors *file;
	enum gn_status status = gn_weights_open(path, like, NULL, &file, err);

	if (status)
		return status;
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

enum gn_status gn_weights_layout_digest(const struct gn_model *model, char hex[65], struct gn_err *err)
{
	struct gn_strbuf text = {0};
	const struct gn_param *p;
	enum gn_status status;

	for (int i = 0; (p = gn_model_state(model, i)); i++) {
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
