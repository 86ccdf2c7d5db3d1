/* The layers of a network as ONNX operators: a table with one function for each kind of layer. */
#include "src/train/model/model_internal.h"
#include "src/train/model/onnx_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define INPUTS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define ATTRIBUTES(...) ((const struct gn_onnx_attribute[]){__VA_ARGS__, {.name = NULL}})
#define ATTRIBUTE_INT(key, value) {.name = key, .count = 1, .ints = {value}}
#define ATTRIBUTE_PAIR(key, value) {.name = key, .is_list = 1, .count = 2, .ints = {value, value}}
#define ATTRIBUTE_FOUR(key, value) {.name = key, .is_list = 1, .count = 4, .ints = {value, value, value, value}}
#define ATTRIBUTE_REAL(key, value) {.name = key, .is_real = 1, .real = value}

static const double norm_eps = 1e-5;

static const struct gn_shm *layer_of(const struct gn_onnx *g, int layer)
{
	return gn_model_node(g->model, layer);
}

static const char *input_of(const struct gn_onnx *g, int layer, int number)
{
	return g->values[layer_of(g, layer)->input[number]];
}

/* The layer's parameter or buffer of that kind; NULL: it has none. */
static const struct gn_param *param_of(const struct gn_onnx *g, int layer, enum gn_param_kind kind)
{
	for (int i = 0; i < gn_model_param_count(g->model); i++)
		if (gn_model_param(g->model, i)->node == layer && gn_model_param(g->model, i)->kind == kind)
			return gn_model_param(g->model, i);
	for (int i = 0; i < gn_model_buffer_count(g->model); i++)
		if (gn_model_buffer(g->model, i)->node == layer && gn_model_buffer(g->model, i)->kind == kind)
			return gn_model_buffer(g->model, i);
	return NULL;
}

/* The batch norm that is folded into this convolution; -1: none. */
static int folded_into(const struct gn_onnx *g, int conv)
{
	int readers = 0, norm = -1;

	for (int i = 0; i < gn_model_node_count(g->model); i++)
		for (int k = 0; k < 2; k++)
			if (layer_of(g, i)->input[k] == conv) {
				readers++;
				norm = layer_of(g, i)->kind == GN_LAYER_BATCH_NORM ? i : -1;
			}
	return g->options->fold_batch_norm && readers == 1 ? norm : -1;
}

/* y = factor * x + shift of a batch norm in evaluation. */
static void line_of(const struct gn_onnx *g, int norm, size_t channel, double *factor, double *shift)
{
	const float *gamma = g->params + param_of(g, norm, GN_PARAM_BN_WEIGHT)->offset;
	const float *beta = g->params + param_of(g, norm, GN_PARAM_BN_BIAS)->offset;
	const float *mean = g->buffers + param_of(g, norm, GN_BUFFER_MEAN)->offset;
	const float *var = g->buffers + param_of(g, norm, GN_BUFFER_VAR)->offset;

	*factor = gamma[channel] / sqrt((double)var[channel] + norm_eps);
	*shift = beta[channel] - *factor * mean[channel];
}

/* Initialisers of a convolution's weight and bias with the batch norm in them. */
static void add_folded(struct gn_onnx *g, int conv, int norm, const char *bias_name)
{
	const struct gn_param *w = param_of(g, conv, GN_PARAM_WEIGHT), *b = param_of(g, conv, GN_PARAM_BIAS);
	size_t channels = (size_t)w->shape[0], each = w->count / channels;
	float *weight = gn_onnx_add_own_tensor(g, w->name, w->dims, w->shape);
	float *bias = gn_onnx_add_own_tensor(g, bias_name, 1, w->shape);

	for (size_t c = 0; weight && bias && c < channels; c++) {
		double factor, shift;

		line_of(g, norm, c, &factor, &shift);
		bias[c] = (float)(shift + (b ? factor * g->params[b->offset + c] : 0));
		for (size_t i = c * each; i < (c + 1) * each; i++)
			weight[i] = (float)(factor * g->params[w->offset + i]);
	}
}

static void add_conv(struct gn_onnx *g, int layer)
{
	const struct gn_shm *l = layer_of(g, layer);
	const struct gn_param *w = param_of(g, layer, GN_PARAM_WEIGHT), *b = param_of(g, layer, GN_PARAM_BIAS);
	int norm = folded_into(g, layer);
	char bias[GN_ONNX_NAME_MAX];

	snprintf(bias, sizeof bias, "%.64s.bias", l->name);
	if (norm >= 0) {
		add_folded(g, layer, norm, bias);
	} else {
		gn_onnx_add_param(g, w);
		if (b)
			gn_onnx_add_param(g, b);
	}
	gn_onnx_add(g, "Conv", g->values[layer], INPUTS(input_of(g, layer, 0), w->name, b || norm >= 0 ? bias : NULL),
		    ATTRIBUTES(ATTRIBUTE_PAIR("kernel_shape", l->kernel), ATTRIBUTE_PAIR("strides", l->stride),
			       ATTRIBUTE_FOUR("pads", l->pad)));
}

static void add_alias(struct gn_onnx *g, int layer)
{
	memcpy(g->values[layer], input_of(g, layer, 0), sizeof g->values[layer]);
}

static void add_batch_norm(struct gn_onnx *g, int layer)
{
	static const enum gn_param_kind kinds[] = {GN_PARAM_BN_WEIGHT, GN_PARAM_BN_BIAS, GN_BUFFER_MEAN, GN_BUFFER_VAR};
	const struct gn_param *p[4];
	int conv = layer_of(g, layer)->input[0];

	if (layer_of(g, conv)->kind == GN_LAYER_CONV && folded_into(g, conv) == layer) {
		add_alias(g, layer);
		return;
	}
	for (int i = 0; i < 4; i++) {
		p[i] = param_of(g, layer, kinds[i]);
		gn_onnx_add_param(g, p[i]);
	}
	gn_onnx_add(g, "BatchNormalization", g->values[layer],
		    INPUTS(input_of(g, layer, 0), p[0]->name, p[1]->name, p[2]->name, p[3]->name),
		    ATTRIBUTES(ATTRIBUTE_REAL("epsilon", (float)norm_eps)));
}

static void add_relu(struct gn_onnx *g, int layer)
{
	gn_onnx_add(g, "Relu", g->values[layer], INPUTS(input_of(g, layer, 0)), NULL);
}

static void add_sum(struct gn_onnx *g, int layer)
{
	gn_onnx_add(g, "Add", g->values[layer], INPUTS(input_of(g, layer, 0), input_of(g, layer, 1)), NULL);
}

static void add_max_pool(struct gn_onnx *g, int layer)
{
	const struct gn_shm *l = layer_of(g, layer);

	gn_onnx_add(g, "MaxPool", g->values[layer], INPUTS(input_of(g, layer, 0)),
		    ATTRIBUTES(ATTRIBUTE_PAIR("kernel_shape", l->kernel), ATTRIBUTE_PAIR("strides", l->stride),
			       ATTRIBUTE_FOUR("pads", l->pad)));
}

/* The matrix [in][out], or [out][in], of averages over the windows of PyTorch's adaptive pooling. */
static void add_averages(struct gn_onnx *g, const char *name, int in, int out, int is_left)
{
	float *m = gn_onnx_add_own_tensor(g, name, 2, is_left ? (const int64_t[]){out, in} : (const int64_t[]){in, out});

	for (int o = 0; m && o < out; o++) {
		int first = o * in / out, end = ((o + 1) * in + out - 1) / out;

		for (int i = first; i < end; i++)
			m[is_left ? o * in + i : i * out + o] = 1.0F / (float)(end - first);
	}
}

/* Windows of adaptive pooling differ in size where the sides do not divide, which no operator of ONNX has: two products with matrices. */
static void add_adaptive_avg_pool(struct gn_onnx *g, int layer)
{
	int out = layer_of(g, layer)->out_side;
	struct gn_map in = g->model->maps[layer_of(g, layer)->input[0]];
	char rows[GN_ONNX_NAME_MAX], columns[GN_ONNX_NAME_MAX], half[GN_ONNX_NAME_MAX];

	if (out == in.h && out == in.w) {
		add_alias(g, layer);
		return;
	}
	if (out == 1) {
		gn_onnx_add(g, "GlobalAveragePool", g->values[layer], INPUTS(input_of(g, layer, 0)), NULL);
		return;
	}
	snprintf(rows, sizeof rows, "%.64s.rows", g->values[layer]);
	snprintf(columns, sizeof columns, "%.64s.columns", g->values[layer]);
	snprintf(half, sizeof half, "%.64s.half", g->values[layer]);
	add_averages(g, rows, in.h, out, 1);
	add_averages(g, columns, in.w, out, 0);
	gn_onnx_add(g, "MatMul", half, INPUTS(input_of(g, layer, 0), columns), NULL);
	gn_onnx_add(g, "MatMul", g->values[layer], INPUTS(rows, half), NULL);
}

static void add_linear(struct gn_onnx *g, int layer)
{
	const struct gn_param *w = param_of(g, layer, GN_PARAM_WEIGHT), *b = param_of(g, layer, GN_PARAM_BIAS);
	char flat[GN_ONNX_NAME_MAX];

	snprintf(flat, sizeof flat, "%.64s.flat", g->values[layer]);
	gn_onnx_add_param(g, w);
	if (b)
		gn_onnx_add_param(g, b);
	gn_onnx_add(g, "Flatten", flat, INPUTS(input_of(g, layer, 0)), ATTRIBUTES(ATTRIBUTE_INT("axis", 1)));
	gn_onnx_add(g, "Gemm", g->values[layer], INPUTS(flat, w->name, b ? b->name : NULL), ATTRIBUTES(ATTRIBUTE_INT("transB", 1)));
}

/* (x - 255 mean) / (255 deviation): of pixels, as uint8. */
static void add_input(struct gn_onnx *g, int layer)
{
	int channels = gn_model_channels(g->model);
	const int64_t shape[] = {channels, 1, 1};
	float *mean, *scale;

	if (!g->options->pixel_input) {
		snprintf(g->values[layer], sizeof g->values[layer], "input");
		return;
	}
	mean = gn_onnx_add_own_tensor(g, "input.mean", 3, shape);
	scale = gn_onnx_add_own_tensor(g, "input.scale", 3, shape);
	for (int c = 0; mean && scale && c < channels; c++) {
		int k = channels == 3 ? c : 0;

		mean[c] = (float)(255 * g->options->mean[k]);
		scale[c] = (float)(1 / (255 * g->options->deviation[k]));
	}
	gn_onnx_add(g, "Cast", "input.float", INPUTS("input"), ATTRIBUTES(ATTRIBUTE_INT("to", GN_ONNX_FLOAT)));
	gn_onnx_add(g, "Sub", "input.centred", INPUTS("input.float", "input.mean"), NULL);
	gn_onnx_add(g, "Mul", g->values[layer], INPUTS("input.centred", "input.scale"), NULL);
}

static const struct {
	const char *name;
	void (*add)(struct gn_onnx *g, int layer);
} operators[] = {
	[GN_LAYER_INPUT] = {"normalised", add_input},
	[GN_LAYER_CONV] = {"conv", add_conv},
	[GN_LAYER_BATCH_NORM] = {"norm", add_batch_norm},
	[GN_LAYER_RELU] = {"relu", add_relu},
	[GN_LAYER_MAX_POOL] = {"max_pool", add_max_pool},
	[GN_LAYER_ADAPTIVE_AVG_POOL] = {"avg_pool", add_adaptive_avg_pool},
	[GN_LAYER_ADD] = {"add", add_sum},
	[GN_LAYER_LINEAR] = {"linear", add_linear},
	[GN_LAYER_DROPOUT] = {"dropout", add_alias},
};

enum gn_status gn_onnx_add_layers(struct gn_onnx *g, struct gn_err *err)
{
	int count = gn_model_node_count(g->model);

	for (int i = 0; i < count; i++) {
		const struct gn_shm *l = layer_of(g, i);

		if ((size_t)l->kind >= sizeof operators / sizeof *operators || !operators[l->kind].add)
			return gn_err_set(err, GN_ERR_UNSUPPORTED, "%s cannot be exported to ONNX: layer %d (%s) is of kind %d, which has no "
					  "operator there; export to .safetensors", gn_model_name(g->model), i, l->name, (int)l->kind);
		if (*l->name)
			snprintf(g->values[i], sizeof g->values[i], "%s", l->name);
		else
			snprintf(g->values[i], sizeof g->values[i], "%s_%d", operators[l->kind].name, i);
		if (i == count - 1)
			snprintf(g->values[i], sizeof g->values[i], "logits");
		operators[l->kind].add(g, i);
	}
	return GN_OK;
}
