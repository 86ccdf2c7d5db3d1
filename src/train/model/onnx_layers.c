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

static const struct gn_shm *layer_of(const struct gn_onnx *g, int layer)
{
	return gn_model_node(g->model, layer);
}

static const char *input_of(const struct gn_onnx *g, int layer, int number)
{
	return g->values[layer_of(g, layer)->input[number]];
}

const struct gn_param *gn_onnx_param(const struct gn_onnx *g, int layer, enum gn_param_kind kind)
{
	const struct gn_param *p;

	for (int i = 0; (p = gn_model_state(g->model, i)); i++)
		if (p->node == layer && p->kind == kind)
			return p;
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
	const float *gamma = g->params + gn_onnx_param(g, norm, GN_PARAM_BN_WEIGHT)->offset;
	const float *beta = g->params + gn_onnx_param(g, norm, GN_PARAM_BN_BIAS)->offset;
	const float *mean = g->buffers + gn_onnx_param(g, norm, GN_BUFFER_MEAN)->offset;
	const float *var = g->buffers + gn_onnx_param(g, norm, GN_BUFFER_VAR)->offset;

	*factor = gamma[channel] / sqrt((double)var[channel] + layer_of(g, norm)->eps);
	*shift = beta[channel] - *factor * mean[channel];
}

/* The weight of a linear layer over the channels of each pixel is OI, too. */
static void weight_shape(const struct gn_onnx *g, int conv, int64_t shape[4])
{
	const struct gn_param *w = gn_onnx_param(g, conv, GN_PARAM_WEIGHT);
	int kernel = layer_of(g, conv)->kernel;

	shape[0] = w->shape[0];
	shape[1] = w->shape[1];
	shape[2] = shape[3] = kernel;
}

/* Initialisers of a convolution's weight and bias with the batch norm in them. */
static void add_folded(struct gn_onnx *g, int conv, int norm, const char *bias_name)
{
	const struct gn_param *w = gn_onnx_param(g, conv, GN_PARAM_WEIGHT), *b = gn_onnx_param(g, conv, GN_PARAM_BIAS);
	size_t channels = (size_t)w->shape[0], each = w->count / channels;
	int64_t shape[4];
	float *weight, *bias;

	weight_shape(g, conv, shape);
	weight = gn_onnx_add_own_tensor(g, w->name, 4, shape);
	bias = gn_onnx_add_own_tensor(g, bias_name, 1, shape);

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
	const struct gn_param *w = gn_onnx_param(g, layer, GN_PARAM_WEIGHT), *b = gn_onnx_param(g, layer, GN_PARAM_BIAS);
	int norm = folded_into(g, layer);
	char bias[GN_ONNX_NAME_MAX];
	int64_t shape[4];

	snprintf(bias, sizeof bias, "%.64s.bias", l->name);
	if (norm >= 0) {
		add_folded(g, layer, norm, bias);
	} else {
		weight_shape(g, layer, shape);
		gn_onnx_add_tensor(g, w->name, 4, shape, g->params + w->offset);
		if (b)
			gn_onnx_add_param(g, b);
	}
	gn_onnx_add(g, "Conv", g->values[layer], INPUTS(input_of(g, layer, 0), w->name, norm >= 0 ? bias : b ? b->name : NULL),
		    ATTRIBUTES(ATTRIBUTE_PAIR("kernel_shape", l->kernel), ATTRIBUTE_PAIR("strides", l->stride),
			       ATTRIBUTE_FOUR("pads", l->pad), ATTRIBUTE_INT("group", l->groups ? l->groups : 1)));
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
		p[i] = gn_onnx_param(g, layer, kinds[i]);
		gn_onnx_add_param(g, p[i]);
	}
	gn_onnx_add(g, "BatchNormalization", g->values[layer],
		    INPUTS(input_of(g, layer, 0), p[0]->name, p[1]->name, p[2]->name, p[3]->name),
		    ATTRIBUTES(ATTRIBUTE_REAL("epsilon", (float)layer_of(g, layer)->eps)));
}

static void add_relu(struct gn_onnx *g, int layer)
{
	gn_onnx_add(g, "Relu", g->values[layer], INPUTS(input_of(g, layer, 0)), NULL);
}

const char *gn_onnx_constant(struct gn_onnx *g, float value, char name[GN_ONNX_NAME_MAX])
{
	float *scalar;

	snprintf(name, GN_ONNX_NAME_MAX, "constant.%.9g", value);
	for (size_t i = 0; i < g->tensor_count; i++)
		if (!strcmp(g->tensors[i].name, name))
			return name;
	scalar = gn_onnx_add_own_tensor(g, name, 0, NULL);
	if (scalar)
		*scalar = value;
	return name;
}

/* x (1 + erf(x / sqrt 2)) / 2, which is an operator only from set 20 on. */
static void add_gelu(struct gn_onnx *g, const char *input, const char *output)
{
	char half[GN_ONNX_NAME_MAX], one[GN_ONNX_NAME_MAX], root[GN_ONNX_NAME_MAX], values[4][GN_ONNX_NAME_MAX];

	for (int i = 0; i < 4; i++)
		snprintf(values[i], sizeof values[i], "%.64s.%d", output, i);
	gn_onnx_add(g, "Mul", values[0], INPUTS(input, gn_onnx_constant(g, 0.70710678F, root)), NULL);
	gn_onnx_add(g, "Erf", values[1], INPUTS(values[0]), NULL);
	gn_onnx_add(g, "Add", values[2], INPUTS(values[1], gn_onnx_constant(g, 1, one)), NULL);
	gn_onnx_add(g, "Mul", values[3], INPUTS(input, gn_onnx_constant(g, 0.5F, half)), NULL);
	gn_onnx_add(g, "Mul", output, INPUTS(values[3], values[2]), NULL);
}

static void add_activation(struct gn_onnx *g, int layer)
{
	static const float sixth = 1.0F / 6;
	const char *input = input_of(g, layer, 0), *output = g->values[layer];
	char low[GN_ONNX_NAME_MAX], high[GN_ONNX_NAME_MAX];

	switch (layer_of(g, layer)->activation) {
	case GN_ACTIVATION_RELU6:
		gn_onnx_add(g, "Clip", output, INPUTS(input, gn_onnx_constant(g, 0, low), gn_onnx_constant(g, 6, high)), NULL);
		break;
	case GN_ACTIVATION_SILU:
		snprintf(low, sizeof low, "%.64s.sigmoid", output);
		gn_onnx_add(g, "Sigmoid", low, INPUTS(input), NULL);
		gn_onnx_add(g, "Mul", output, INPUTS(input, low), NULL);
		break;
	case GN_ACTIVATION_HARD_SWISH:
		gn_onnx_add(g, "HardSwish", output, INPUTS(input), NULL);
		break;
	case GN_ACTIVATION_HARD_SIGMOID:
		gn_onnx_add(g, "HardSigmoid", output, INPUTS(input),
			    ATTRIBUTES(ATTRIBUTE_REAL("alpha", sixth), ATTRIBUTE_REAL("beta", 0.5F)));
		break;
	case GN_ACTIVATION_SIGMOID:
		gn_onnx_add(g, "Sigmoid", output, INPUTS(input), NULL);
		break;
	case GN_ACTIVATION_GELU:
		add_gelu(g, input, output);
		break;
	}
}

static void add_scale(struct gn_onnx *g, int layer)
{
	gn_onnx_add(g, "Mul", g->values[layer], INPUTS(input_of(g, layer, 0), input_of(g, layer, 1)), NULL);
}

static void add_channel_scale(struct gn_onnx *g, int layer)
{
	const struct gn_param *p = gn_onnx_param(g, layer, GN_PARAM_LAYER_SCALE);

	gn_onnx_add_param(g, p);
	gn_onnx_add(g, "Mul", g->values[layer], INPUTS(input_of(g, layer, 0), p->name), NULL);
}

/* Over the channels, which the operator wants last. */
static void add_layer_norm(struct gn_onnx *g, int layer)
{
	static const struct gn_onnx_attribute last = {.name = "perm", .is_list = 1, .count = 4, .ints = {0, 2, 3, 1}};
	static const struct gn_onnx_attribute first = {.name = "perm", .is_list = 1, .count = 4, .ints = {0, 3, 1, 2}};
	const struct gn_param *w = gn_onnx_param(g, layer, GN_PARAM_BN_WEIGHT), *b = gn_onnx_param(g, layer, GN_PARAM_BN_BIAS);
	char moved[GN_ONNX_NAME_MAX], normed[GN_ONNX_NAME_MAX];

	snprintf(moved, sizeof moved, "%.64s.last", g->values[layer]);
	snprintf(normed, sizeof normed, "%.64s.normed", g->values[layer]);
	gn_onnx_add_param(g, w);
	gn_onnx_add_param(g, b);
	gn_onnx_add(g, "Transpose", moved, INPUTS(input_of(g, layer, 0)), ATTRIBUTES(last));
	gn_onnx_add(g, "LayerNormalization", normed, INPUTS(moved, w->name, b->name),
		    ATTRIBUTES(ATTRIBUTE_INT("axis", -1), ATTRIBUTE_REAL("epsilon", (float)layer_of(g, layer)->eps)));
	gn_onnx_add(g, "Transpose", g->values[layer], INPUTS(normed), ATTRIBUTES(first));
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
	const struct gn_param *w = gn_onnx_param(g, layer, GN_PARAM_WEIGHT), *b = gn_onnx_param(g, layer, GN_PARAM_BIAS);
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
	[GN_LAYER_ACTIVATION] = {"activation", add_activation},
	[GN_LAYER_SCALE] = {"scale", add_scale},
	[GN_LAYER_CHANNEL_SCALE] = {"layer_scale", add_channel_scale},
	[GN_LAYER_DROP_PATH] = {"drop_path", add_alias},
	[GN_LAYER_LAYER_NORM] = {"layer_norm", add_layer_norm},
	[GN_LAYER_TOKENS] = {"tokens", gn_onnx_add_tokens},
	[GN_LAYER_ATTENTION] = {"attention", gn_onnx_add_attention},
	[GN_LAYER_FIRST_PIXEL] = {"first_pixel", gn_onnx_add_first_pixel},
};

static enum gn_status refuse(const struct gn_onnx *g, int layer, struct gn_err *err)
{
	int named = layer;

	while (!*layer_of(g, named)->name && layer_of(g, named)->input[0] >= 0)
		named = layer_of(g, named)->input[0];
	return gn_err_set(err, GN_ERR_UNSUPPORTED, "%s cannot be exported to ONNX: layer %d, %s%s, is of kind %d, which has no operator there; "
			  "export to .safetensors", gn_model_name(g->model), layer, named == layer ? "" : "after ",
			  layer_of(g, named)->name, (int)layer_of(g, layer)->kind);
}

enum gn_status gn_onnx_add_layers(struct gn_onnx *g, struct gn_err *err)
{
	int count = gn_model_node_count(g->model);

	for (int i = 0; i < count; i++) {
		const struct gn_shm *l = layer_of(g, i);

		if ((size_t)l->kind >= sizeof operators / sizeof *operators || !operators[l->kind].add)
			return refuse(g, i, err);
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
