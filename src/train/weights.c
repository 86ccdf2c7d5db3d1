#include "src/train/weights.h"

#include "src/base/sha256.h"
#include "src/base/strbuf.h"
#include "src/train/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char counter_suffix[] = ".num_batches_tracked";

static size_t tensor_count(const struct gn_model *m)
{
	return (size_t)gn_model_param_count(m) + (size_t)gn_model_buffer_count(m);
}

/* The i-th tensor: parameters first, then buffers. */
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

enum gn_status gn_weights_save(const char *path, const struct gn_model *model, const float *params,
			       const float *buffers, uint64_t steps, char hex[65], uint64_t *len_bytes,
			       struct gn_err *err)
{
	static const char *const metadata[] = {"format", "pt"};
	size_t count = 0, room = 2 * tensor_count(model) + 1;
	struct gn_tensor_entry *entries = calloc(room, sizeof *entries);
	const int64_t counter = (int64_t)steps;
	enum gn_status status;

	if (!entries)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to write %s", path);
	for (size_t i = 0; i < tensor_count(model); i++) {
		const struct gn_param *p = tensor(model, i);

		describe(p, is_buffer(p) ? buffers : params, &entries[count++]);
		if (p->kind == GN_BUFFER_VAR)
			describe_counter(model, p, &counter, &entries[count++]);
	}
	status = gn_safetensors_write(path, entries, count, metadata, 1, hex, len_bytes, err);
	free(entries);
	return status;
}

static enum gn_status load_one(const struct gn_safetensors *file, const char *path, const struct gn_param *p,
			       float *data, struct gn_err *err)
{
	const struct gn_tensor_entry *e = gn_safetensors_find(file, p->name);

	if (!e)
		return gn_err_set(err, GN_ERR_DATA, "%s has no tensor '%s': are these weights of another model?", path,
				  p->name);
	if (e->type != GN_TENSOR_F32 || e->dims != p->dims ||
	    memcmp(e->shape, p->shape, (size_t)p->dims * sizeof *p->shape))
		return gn_err_set(err, GN_ERR_DATA,
				  "%s: tensor '%s' has another type or shape than this model's: another model, or "
				  "another number of classes?", path, p->name);
	return gn_safetensors_read(file, e, data + p->offset, err);
}

/* A tensor that the model does not know means that the file is of another model. */
static enum gn_status check_foreign(const struct gn_safetensors *file, const char *path, const struct gn_model *model,
				    struct gn_err *err)
{
	size_t suffix = sizeof counter_suffix - 1;

	for (size_t i = 0; i < gn_safetensors_count(file); i++) {
		const char *name = gn_safetensors_entry(file, i)->name;
		size_t len = strlen(name), k = 0;

		if (len > suffix && !strcmp(name + len - suffix, counter_suffix))
			continue;
		while (k < tensor_count(model) && strcmp(tensor(model, k)->name, name))
			k++;
		if (k == tensor_count(model))
			return gn_err_set(err, GN_ERR_DATA, "%s has a tensor '%s' that %s lacks: weights of another "
					  "model?", path, name, gn_model_name(model));
	}
	return GN_OK;
}

enum gn_status gn_weights_load(const char *path, const struct gn_model *model, float *params, float *buffers,
			       struct gn_err *err)
{
	struct gn_safetensors *file;
	enum gn_status status = gn_safetensors_open(path, &file, err);

	if (status)
		return status;
	status = check_foreign(file, path, model, err);
	for (size_t i = 0; i < tensor_count(model) && !status; i++) {
		const struct gn_param *p = tensor(model, i);

		status = load_one(file, path, p, is_buffer(p) ? buffers : params, err);
	}
	gn_safetensors_close(file);
	return status;
}

enum gn_status gn_weights_layout_digest(const struct gn_model *model, char hex[65], struct gn_err *err)
{
	struct gn_strbuf text;
	enum gn_status status;

	gn_strbuf_init(&text);
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
