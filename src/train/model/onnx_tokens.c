/* A vision transformer's layers as ONNX operators: its column of tokens stays a map of one column, [batch][channels][tokens][1]. */
#include "src/train/model/model_internal.h"
#include "src/train/model/onnx_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define INPUTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static const char *input_of(const struct gn_onnx *g, int layer)
{
	return g->values[gn_model_node(g->model, layer)->input[0]];
}

/* "OUTPUT.SUFFIX", a value within the layer. */
static const char *value(const struct gn_onnx *g, int layer, const char *suffix, char name[GN_ONNX_NAME_MAX])
{
	snprintf(name, GN_ONNX_NAME_MAX, "%.64s.%s", g->values[layer], suffix);
	return name;
}

/* The name of a list of whole numbers, which is an operator: initialisers are float. */
static const char *list(struct gn_onnx *g, int layer, const char *suffix, int count, const int64_t *ints, char name[GN_ONNX_NAME_MAX])
{
	struct gn_onnx_attribute a[2] = {{.name = "value_ints", .is_list = 1, .count = count}, {.name = NULL}};

	memcpy(a[0].ints, ints, (size_t)count * sizeof *ints);
	gn_onnx_add(g, "Constant", value(g, layer, suffix, name), (const char *const[]){NULL}, a);
	return name;
}

static void add_reshape(struct gn_onnx *g, int layer, const char *suffix, const char *from, const int64_t shape[4], const char *to)
{
	char name[GN_ONNX_NAME_MAX];

	gn_onnx_add(g, "Reshape", to, INPUTS(from, list(g, layer, suffix, 4, shape, name)), NULL);
}

/* Indices begin to end - 1 of that axis. */
static void add_slice(struct gn_onnx *g, int layer, const char *suffix, const char *from, int64_t begin, int64_t end, int64_t axis,
		      const char *to)
{
	char text[3][GN_ONNX_NAME_MAX], names[3][GN_ONNX_NAME_MAX];
	const int64_t values[3] = {begin, end, axis};

	for (int i = 0; i < 3; i++) {
		snprintf(text[i], sizeof text[i], "%.8s.%d", suffix, i);
		list(g, layer, text[i], 1, &values[i], names[i]);
	}
	gn_onnx_add(g, "Slice", to, INPUTS(from, names[0], names[1], names[2]), NULL);
}

/* The rows and columns of the last two dimensions change places. */
static void add_transpose(struct gn_onnx *g, const char *from, const char *to)
{
	static const struct gn_onnx_attribute a[] = {{.name = "perm", .is_list = 1, .count = 4, .ints = {0, 1, 3, 2}}, {.name = NULL}};

	gn_onnx_add(g, "Transpose", to, INPUTS(from), a);
}

/* [channels][tokens][1]: the embedding of positions, whose first has the class token added. */
static void add_embedding(struct gn_onnx *g, int layer, const char *name)
{
	const struct gn_param *token = gn_onnx_param(g, layer, GN_PARAM_TOKEN), *position = gn_onnx_param(g, layer, GN_PARAM_POSITION);
	float *sum = gn_onnx_add_own_tensor(g, name, 3, (const int64_t[]){position->shape[2], position->shape[1], 1});

	for (size_t i = 0; sum && i < position->count; i++) {
		size_t c = i % (size_t)position->shape[2], t = i / (size_t)position->shape[2];

		sum[c * (size_t)position->shape[1] + t] = g->params[position->offset + i] + (t ? 0 : g->params[token->offset + c]);
	}
}

void gn_onnx_add_tokens(struct gn_onnx *g, int layer)
{
	static const int64_t one_above[8] = {0, 0, 1};
	char column[GN_ONNX_NAME_MAX], pads[GN_ONNX_NAME_MAX], padded[GN_ONNX_NAME_MAX], embedding[GN_ONNX_NAME_MAX];
	int channels = g->model->maps[layer].c;

	add_reshape(g, layer, "shape", input_of(g, layer), (const int64_t[]){0, channels, -1, 1}, value(g, layer, "column", column));
	gn_onnx_add(g, "Pad", value(g, layer, "padded", padded), INPUTS(column, list(g, layer, "pads", 8, one_above, pads)), NULL);
	add_embedding(g, layer, value(g, layer, "embedding", embedding));
	gn_onnx_add(g, "Add", g->values[layer], INPUTS(padded, embedding), NULL);
}

/* Queries, keys and values are [batch][heads][channels of a head][tokens]. */
void gn_onnx_add_attention(struct gn_onnx *g, int layer)
{
	static const struct gn_onnx_attribute last[] = {{.name = "axis", .count = 1, .ints = {-1}}, {.name = NULL}};
	enum { ALL, Q, K, V, QT, S, SCALED, P, PT, Y, COUNT };
	static const char *const suffixes[COUNT] = {"all", "q", "k", "v", "q.rows", "scores", "scaled", "weights", "weights.rows", "heads"};
	char v[COUNT][GN_ONNX_NAME_MAX], factor[GN_ONNX_NAME_MAX];
	int64_t heads = gn_model_node(g->model, layer)->heads, channels = g->model->maps[layer].c, size = channels / heads;

	for (int i = 0; i < COUNT; i++)
		value(g, layer, suffixes[i], v[i]);
	add_reshape(g, layer, "shape.in", input_of(g, layer), (const int64_t[]){0, 3 * heads, size, -1}, v[ALL]);
	for (int i = 0; i < 3; i++)
		add_slice(g, layer, suffixes[Q + i], v[ALL], i * heads, (i + 1) * heads, 1, v[Q + i]);
	add_transpose(g, v[Q], v[QT]);
	gn_onnx_add(g, "MatMul", v[S], INPUTS(v[QT], v[K]), NULL);
	gn_onnx_add(g, "Mul", v[SCALED], INPUTS(v[S], gn_onnx_constant(g, (float)(1 / sqrt((double)size)), factor)), NULL);
	gn_onnx_add(g, "Softmax", v[P], INPUTS(v[SCALED]), last);
	add_transpose(g, v[P], v[PT]);
	gn_onnx_add(g, "MatMul", v[Y], INPUTS(v[V], v[PT]), NULL);
	add_reshape(g, layer, "shape.out", v[Y], (const int64_t[]){0, channels, -1, 1}, g->values[layer]);
}

void gn_onnx_add_first_pixel(struct gn_onnx *g, int layer)
{
	add_slice(g, layer, "first", input_of(g, layer), 0, 1, 2, g->values[layer]);
}
