/* Writes a network as ONNX beside what Gannet computes of it. Weights, statistics of batch norm and pixels are the formula's, so that no
 * tensor is trivial.
 * usage: onnx_probe                     prints the names of all networks, one a line
 *        onnx_probe MODEL SIDE DIR      writes into DIR plain.onnx, folded.onnx (--fold-batch-norm --pixel-input), pixels.u8 and input.f32
 *                                       [3][channels][side][side], logits.f32 [3][10]   */
#include "src/base/alloc.h"
#include "src/base/file.h"
#include "src/train/model/init.h"
#include "src/train/model/onnx.h"
#include "src/train/plan/plan.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 3, CLASSES = 10 };

static const double means[3] = {0.485, 0.456, 0.406}, deviations[3] = {0.229, 0.224, 0.225};

struct probe {
	struct gn_model *model;
	float *params, *buffers, *input;
	unsigned char *pixels;
	size_t image; /* values */
};

static void fill(const struct gn_param *p, double centre, double width, float *array)
{
	for (size_t i = 0; i < p->count; i++)
		array[p->offset + i] = (float)(centre + width * gn_init_formula(p->name, i));
}

static int is_zero(const struct gn_param *p, const float *array)
{
	for (size_t i = 0; i < p->count; i++)
		if (array[p->offset + i] != 0)
			return 0;
	return 1;
}

/* Convolutions and linear layers keep their initial weights; all that begins as 0 or 1 gets values. */
static void fill_all(struct probe *p)
{
	for (int i = 0; i < gn_model_param_count(p->model); i++) {
		const struct gn_param *param = gn_model_param(p->model, i);

		if (param->kind == GN_PARAM_BIAS || param->kind == GN_PARAM_BN_BIAS)
			fill(param, 0, 0.2, p->params);
		else if (param->kind == GN_PARAM_BN_WEIGHT)
			fill(param, 0.6, 0.3, p->params);
		else if (is_zero(param, p->params))
			fill(param, 0, 0.1, p->params);
		else if (param->kind == GN_PARAM_LAYER_SCALE)
			fill(param, 0.4, 0.3, p->params);
	}
	for (int i = 0; i < gn_model_buffer_count(p->model); i++) {
		const struct gn_param *buffer = gn_model_buffer(p->model, i);
		int is_mean = buffer->kind == GN_BUFFER_MEAN;

		fill(buffer, is_mean ? 0 : 1, is_mean ? 0.3 : 0.5, p->buffers);
	}
}

static void draw(struct probe *p)
{
	int channels = gn_model_channels(p->model);
	size_t map = p->image / (size_t)channels;

	for (size_t i = 0; i < BATCH * p->image; i++) {
		size_t c = i / map % (size_t)channels;

		p->pixels[i] = (unsigned char)(127.5 + 127.5 * gn_init_formula("input", i));
		p->input[i] = (float)((p->pixels[i] / 255.0 - means[c]) / deviations[c]);
	}
}

static enum gn_status save(const char *dir, const char *name, const void *data, size_t len_bytes, struct gn_err *err)
{
	char path[PATH_MAX];
	enum gn_status status = gn_path_join(path, sizeof path, dir, name, err);

	return status ? status : gn_file_replace(path, data, len_bytes, err);
}

static enum gn_status save_onnx(const struct probe *p, const char *dir, const char *name, int folded, struct gn_err *err)
{
	struct gn_onnx_options o = {.fold_batch_norm = folded, .pixel_input = folded};
	char path[PATH_MAX];
	uint64_t len_bytes;
	enum gn_status status = gn_path_join(path, sizeof path, dir, name, err);

	memcpy(o.mean, means, sizeof o.mean);
	memcpy(o.deviation, deviations, sizeof o.deviation);
	return status ? status : gn_onnx_write(path, p->model, p->params, p->buffers, &o, &len_bytes, err);
}

static enum gn_status save_logits(const struct probe *p, const char *dir, struct gn_err *err)
{
	struct gn_plan_options o = {.backend = GN_BACKEND_HOST, .batch = BATCH};
	const float *logits;
	struct gn_plan *plan;
	enum gn_status status = gn_plan_create(p->model, &o, p->params, NULL, p->buffers, &plan, err);

	if (status)
		return status;
	status = gn_plan_forward(plan, p->input, 0, &logits, err);
	if (!status)
		status = save(dir, "logits.f32", logits, BATCH * CLASSES * sizeof *logits, err);
	gn_plan_destroy(plan);
	return status;
}

static enum gn_status run(struct probe *p, const char *dir, struct gn_err *err)
{
	enum gn_status status = gn_init_params(p->model, "seed:5", p->params, p->buffers, err);

	fill_all(p);
	draw(p);
	if (!status)
		status = save(dir, "pixels.u8", p->pixels, BATCH * p->image, err);
	if (!status)
		status = save(dir, "input.f32", p->input, BATCH * p->image * sizeof *p->input, err);
	if (!status)
		status = save_onnx(p, dir, "plain.onnx", 0, err);
	if (!status)
		status = save_onnx(p, dir, "folded.onnx", 1, err);
	if (!status)
		status = save_logits(p, dir, err);
	return status;
}

int main(int argc, char **argv)
{
	struct probe p = {0};
	struct gn_err err;
	enum gn_status status;

	if (argc != 4) {
		for (const char *c = gn_model_names; *c; c++)
			putchar(*c == '|' ? '\n' : *c);
		putchar('\n');
		return 0;
	}
	status = gn_model_create(argv[1], CLASSES, 0, atoi(argv[2]), &p.model, &err);
	if (!status) {
		p.image = (size_t)gn_model_channels(p.model) * (size_t)gn_model_side(p.model) * (size_t)gn_model_side(p.model);
		p.params = gn_alloc_aligned(gn_model_param_elements(p.model) * sizeof(float));
		p.buffers = gn_alloc_aligned((gn_model_buffer_elements(p.model) + 1) * sizeof(float));
		p.input = malloc(BATCH * p.image * sizeof(float));
		p.pixels = malloc(BATCH * p.image);
		status = p.params && p.buffers && p.input && p.pixels ? run(&p, argv[3], &err)
								      : gn_err_set(&err, GN_ERR_NO_MEMORY, "no memory for %s", argv[1]);
	}
	if (status)
		fprintf(stderr, "onnx_probe: %s\n", err.text);
	gn_model_destroy(p.model);
	free(p.params);
	free(p.buffers);
	free(p.input);
	free(p.pixels);
	return status ? 1 : 0;
}
