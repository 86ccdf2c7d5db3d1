#include "src/train/model/model_internal.h"

#include "src/base/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char gn_model_names[] = "lenet|resnet20|resnet18|resnet34|resnet50|resnet101|resnet152|vgg16|mobilenet_v2|mobilenet_v3_large|"
			      "efficientnet_b0|convnext_tiny|vit_b_16";

static const struct family {
	const char *name;
	int channels, side, depth;
	void (*build)(struct gn_model *m); /* NULL: a residual network of that depth */
	int patch; /* sides are multiples of it; 0: any */
} families[] = {
	{"lenet", 1, 28, 0, gn_model_build_lenet, 0},
	{"resnet20", 3, 32, 20, NULL, 0},
	{"resnet18", 3, 224, 18, NULL, 0},
	{"resnet34", 3, 224, 34, NULL, 0},
	{"resnet50", 3, 224, 50, NULL, 0},
	{"resnet101", 3, 224, 101, NULL, 0},
	{"resnet152", 3, 224, 152, NULL, 0},
	{"vgg16", 3, 224, 0, gn_model_build_vgg16, 0},
	{"mobilenet_v2", 3, 224, 0, gn_model_build_mobilenet_v2, 0},
	{"mobilenet_v3_large", 3, 224, 0, gn_model_build_mobilenet_v3_large, 0},
	{"efficientnet_b0", 3, 224, 0, gn_model_build_efficientnet_b0, 0},
	{"convnext_tiny", 3, 224, 0, gn_model_build_convnext_tiny, 0},
	{"vit_b_16", 3, 224, 0, gn_model_build_vit_b_16, 16},
};

static const struct family *find(const char *name)
{
	for (size_t i = 0; i < sizeof families / sizeof *families; i++)
		if (!strcmp(families[i].name, name))
			return &families[i];
	return NULL;
}

/* Returns 0, or -1 when this or something before has failed. */
static int grow(struct gn_model *m, void *array, int count, size_t *room, size_t element_bytes)
{
	m->failed |= !m->failed && gn_array_grow(array, room, (size_t)count, element_bytes);
	return m->failed ? -1 : 0;
}

static int add_node(struct gn_model *m, const struct gn_shm *node, const char *name, struct gn_map map)
{
	size_t maps_room = m->node_room;

	if (grow(m, &m->maps, m->node_count, &maps_room, sizeof *m->maps) ||
	    grow(m, &m->nodes, m->node_count, &m->node_room, sizeof *m->nodes))
		return 0;
	m->nodes[m->node_count] = *node;
	if ((size_t)snprintf(m->nodes[m->node_count].name, sizeof node->name, "%s", name) >= sizeof node->name)
		m->failed = 1;
	m->maps[m->node_count] = map;
	return m->node_count++;
}

static struct gn_param describe(struct gn_model *m, int node, const char *suffix, enum gn_param_kind kind, int dims,
				const int64_t *shape, size_t offset)
{
	struct gn_param p = {.kind = kind, .node = node, .dims = dims, .count = 1, .offset = offset};
	int is_whole = !*m->nodes[node].name; /* the suffix */

	if ((size_t)snprintf(p.name, sizeof p.name, "%s%s%s", m->nodes[node].name, is_whole ? "" : ".", suffix) >= sizeof p.name)
		m->failed = 1;
	for (int i = 0; i < 4; i++)
		p.shape[i] = 1;
	for (int i = 0; i < dims; i++) {
		p.shape[i] = shape[i];
		p.count *= (size_t)shape[i];
	}
	return p;
}

static void add_param(struct gn_model *m, int node, const char *suffix, enum gn_param_kind kind, int dims,
		      const int64_t *shape)
{
	if (grow(m, &m->params, m->param_count, &m->param_room, sizeof *m->params))
		return;
	m->params[m->param_count] = describe(m, node, suffix, kind, dims, shape, m->param_elements);
	m->param_elements += gn_round_up(m->params[m->param_count++].count, 16);
}

static void add_buffer(struct gn_model *m, int node, const char *suffix, enum gn_param_kind kind, int64_t count)
{
	if (grow(m, &m->buffers, m->buffer_count, &m->buffer_room, sizeof *m->buffers))
		return;
	m->buffers[m->buffer_count] = describe(m, node, suffix, kind, 1, &count, m->buffer_elements);
	m->buffer_elements += gn_round_up(m->buffers[m->buffer_count++].count, 16);
}

static int window_side(int in, struct gn_window w)
{
	return in + 2 * w.pad < w.kernel ? 0 : (in + 2 * w.pad - w.kernel) / w.stride + 1;
}

static struct gn_map map_of(const struct gn_model *m, int node)
{
	return m->failed ? (struct gn_map){0} : m->maps[node];
}

/* dims: of the weight, 4, or 2 for a window of one pixel. */
static int add_conv(struct gn_model *m, const char *name, int input, int channels_out, struct gn_window window, int bias, int groups,
		    int dims, const char *weight_name, const char *bias_name)
{
	struct gn_shm n = {.kind = GN_LAYER_CONV, .input = {input, -1}, .channels_out = channels_out, .kernel = window.kernel,
			   .stride = window.stride, .pad = window.pad, .bias = bias, .groups = groups};
	struct gn_map in = map_of(m, input);
	struct gn_map out = {channels_out, window_side(in.h, window), window_side(in.w, window)};
	int64_t shape[4] = {channels_out, in.c / groups, window.kernel, window.kernel};
	int node = add_node(m, &n, name, out);

	add_param(m, node, weight_name, GN_PARAM_WEIGHT, dims, shape);
	if (bias)
		add_param(m, node, bias_name, GN_PARAM_BIAS, 1, shape);
	return node;
}

const char *gn_model_named(char name[GN_MODEL_NAME], const char *format, ...)
{
	va_list values;

	va_start(values, format);
	vsnprintf(name, GN_MODEL_NAME, format, values);
	va_end(values);
	return name;
}

int gn_model_add_conv(struct gn_model *m, const char *name, int input, int channels_out, struct gn_window window,
		      int bias)
{
	return add_conv(m, name, input, channels_out, window, bias, 1, 4, "weight", "bias");
}

int gn_model_add_depthwise(struct gn_model *m, const char *name, int input, struct gn_window window, int bias)
{
	int channels = m->failed ? 1 : map_of(m, input).c;

	return add_conv(m, name, input, channels, window, bias, channels, 4, "weight", "bias");
}

int gn_model_add_pixel_linear(struct gn_model *m, const char *name, int input, int features)
{
	return gn_model_add_named_linear(m, name, input, features, "weight", "bias");
}

int gn_model_add_named_linear(struct gn_model *m, const char *name, int input, int features, const char *weight, const char *bias)
{
	return add_conv(m, name, input, features, (struct gn_window){1, 1, 0}, 1, 1, 2, weight, bias);
}

int gn_model_add_tokens(struct gn_model *m, int input)
{
	struct gn_shm n = {.kind = GN_LAYER_TOKENS, .input = {input, -1}};
	struct gn_map map = map_of(m, input);
	int64_t token[3] = {1, 1, map.c}, position[3] = {1, 1 + (int64_t)map.h * map.w, map.c};
	int node = add_node(m, &n, "", (struct gn_map){map.c, 1 + map.h * map.w, 1});

	add_param(m, node, "class_token", GN_PARAM_TOKEN, 3, token);
	add_param(m, node, "encoder.pos_embedding", GN_PARAM_POSITION, 3, position);
	return node;
}

int gn_model_add_attention(struct gn_model *m, int input, int heads)
{
	struct gn_shm n = {.kind = GN_LAYER_ATTENTION, .input = {input, -1}, .heads = heads};
	struct gn_map map = map_of(m, input);

	map.c /= 3;
	return add_node(m, &n, "", map);
}

int gn_model_add_first_pixel(struct gn_model *m, int input)
{
	return add_node(m, &(struct gn_shm){.kind = GN_LAYER_FIRST_PIXEL, .input = {input, -1}}, "", (struct gn_map){map_of(m, input).c, 1, 1});
}

static int add_norm(struct gn_model *m, const char *name, int input, const struct gn_shm *layer)
{
	struct gn_map map = map_of(m, input);
	int64_t channels = map.c;
	int node = add_node(m, layer, name, map);

	add_param(m, node, "weight", GN_PARAM_BN_WEIGHT, 1, &channels);
	add_param(m, node, "bias", GN_PARAM_BN_BIAS, 1, &channels);
	return node;
}

int gn_model_add_layer_norm(struct gn_model *m, const char *name, int input, double eps)
{
	return add_norm(m, name, input, &(struct gn_shm){.kind = GN_LAYER_LAYER_NORM, .input = {input, -1}, .eps = eps});
}

int gn_model_add_channel_scale(struct gn_model *m, const char *name, int input)
{
	struct gn_shm n = {.kind = GN_LAYER_CHANNEL_SCALE, .input = {input, -1}};
	struct gn_map map = map_of(m, input);
	int64_t shape[3] = {map.c, 1, 1};
	int node = add_node(m, &n, name, map);

	add_param(m, node, "layer_scale", GN_PARAM_LAYER_SCALE, 3, shape);
	return node;
}

int gn_model_add_activation(struct gn_model *m, int input, enum gn_activation kind)
{
	return add_node(m, &(struct gn_shm){.kind = GN_LAYER_ACTIVATION, .input = {input, -1}, .activation = kind}, "", map_of(m, input));
}

int gn_model_add_scale(struct gn_model *m, int input, int factors)
{
	return add_node(m, &(struct gn_shm){.kind = GN_LAYER_SCALE, .input = {input, factors}}, "", map_of(m, input));
}

int gn_model_add_drop_path(struct gn_model *m, int input, double share)
{
	return add_node(m, &(struct gn_shm){.kind = GN_LAYER_DROP_PATH, .input = {input, -1}, .rate = share}, "", map_of(m, input));
}

int gn_model_add_batch_norm(struct gn_model *m, const char *name, int input)
{
	struct gn_shm n = {.kind = GN_LAYER_BATCH_NORM, .input = {input, -1}, .eps = m->norm_eps, .momentum = m->norm_momentum};
	int64_t channels = map_of(m, input).c;
	int node = add_norm(m, name, input, &n);

	add_buffer(m, node, "running_mean", GN_BUFFER_MEAN, channels);
	add_buffer(m, node, "running_var", GN_BUFFER_VAR, channels);
	return node;
}

int gn_model_add_relu(struct gn_model *m, int input)
{
	return add_node(m, &(struct gn_shm){.kind = GN_LAYER_RELU, .input = {input, -1}}, "", map_of(m, input));
}

int gn_model_add_max_pool(struct gn_model *m, int input, struct gn_window window)
{
	struct gn_shm n = {.kind = GN_LAYER_MAX_POOL, .input = {input, -1}, .kernel = window.kernel, .stride = window.stride, .pad = window.pad};
	struct gn_map in = map_of(m, input);

	return add_node(m, &n, "", (struct gn_map){in.c, window_side(in.h, window), window_side(in.w, window)});
}

int gn_model_add_adaptive_avg_pool(struct gn_model *m, int input, int out_side)
{
	return add_node(m, &(struct gn_shm){.kind = GN_LAYER_ADAPTIVE_AVG_POOL, .input = {input, -1}, .out_side = out_side}, "", (struct gn_map){map_of(m, input).c, out_side, out_side});
}

int gn_model_add_sum(struct gn_model *m, int a, int b)
{
	return add_node(m, &(struct gn_shm){.kind = GN_LAYER_ADD, .input = {a, b}}, "", map_of(m, a));
}

int gn_model_add_linear(struct gn_model *m, const char *name, int input, int features)
{
	struct gn_shm n = {.kind = GN_LAYER_LINEAR, .input = {input, -1}, .channels_out = features, .bias = 1};
	struct gn_map in = map_of(m, input);
	int64_t shape[2] = {features, (int64_t)in.c * in.h * in.w};
	int node = add_node(m, &n, name, (struct gn_map){features, 1, 1});

	add_param(m, node, "weight", GN_PARAM_WEIGHT, 2, shape);
	add_param(m, node, "bias", GN_PARAM_BIAS, 1, shape);
	return node;
}

int gn_model_add_dropout(struct gn_model *m, int input, double rate)
{
	return add_node(m, &(struct gn_shm){.kind = GN_LAYER_DROPOUT, .input = {input, -1}, .rate = rate}, "", map_of(m, input));
}

static void build(struct gn_model *m, const struct family *f)
{
	struct gn_shm input = {.kind = GN_LAYER_INPUT, .input = {-1, -1}};

	add_node(m, &input, "", (struct gn_map){m->channels, m->side, m->side});
	if (f->build)
		f->build(m);
	else
		gn_model_build_resnet(m, f->depth);
}

enum gn_status gn_model_create(const char *name, int classes, int channels, int side, struct gn_model **out,
			       struct gn_err *err)
{
	const struct family *f = find(name);
	struct gn_model *m;

	if (!f)
		return gn_err_set(err, GN_ERR_USAGE, "unknown model '%s'; known are %s", name, gn_model_names);
	if (classes < 1 || classes > 1000000)
		return gn_err_set(err, GN_ERR_USAGE, "%s with %d classes: the range is 1 to 1000000", name, classes);
	if (channels < 0 || channels > 1024)
		return gn_err_set(err, GN_ERR_USAGE, "%s with %d channels: the range is 1 to 1024", name, channels);
	if (side < 1 || side > 8192)
		return gn_err_set(err, GN_ERR_USAGE, "%s with images of side %d: the range is 1 to 8192", name, side);
	if (f->patch && side % f->patch)
		return gn_err_set(err, GN_ERR_USAGE, "%s with images of side %d: the side must be a multiple of %d, that of a patch", name, side,
				  f->patch);
	m = calloc(1, sizeof *m);
	if (!m)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the description of %s", name);
	m->name = f->name;
	m->classes = classes;
	m->channels = channels ? channels : f->channels;
	m->side = side;
	m->norm_eps = 1e-5;
	m->norm_momentum = 0.1;
	build(m, f);
	if (m->failed) {
		gn_model_destroy(m);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the description of %s", name);
	}
	*out = m;
	return GN_OK;
}

void gn_model_destroy(struct gn_model *m)
{
	if (!m)
		return;
	free(m->nodes);
	free(m->maps);
	free(m->params);
	free(m->buffers);
	free(m);
}

int gn_model_is_known(const char *name)
{
	return find(name) != NULL;
}

int gn_model_default_side(const char *name)
{
	const struct family *f = find(name);

	return f ? f->side : 224;
}

#define GETTER(TYPE, WHAT, VALUE)                       \
	TYPE gn_model_##WHAT(const struct gn_model *m)  \
	{                                               \
		return VALUE;                           \
	}
GETTER(enum gn_init_rule, init_rule, m->init_rule)
GETTER(double, drop_path, m->drop_path)
GETTER(const char *, name, m->name)
GETTER(int, classes, m->classes)
GETTER(int, channels, m->channels)
GETTER(int, side, m->side)
GETTER(int, node_count, m->node_count)
GETTER(int, param_count, m->param_count)
GETTER(int, buffer_count, m->buffer_count)
GETTER(size_t, param_elements, m->param_elements)
GETTER(size_t, buffer_elements, m->buffer_elements)

const struct gn_shm *gn_model_node(const struct gn_model *m, int index)
{
	return &m->nodes[index];
}

const struct gn_param *gn_model_param(const struct gn_model *m, int index)
{
	return &m->params[index];
}

const struct gn_param *gn_model_buffer(const struct gn_model *m, int index)
{
	return &m->buffers[index];
}

const struct gn_param *gn_model_state(const struct gn_model *m, int index)
{
	if (index < m->param_count)
		return &m->params[index];
	return index < m->param_count + m->buffer_count ? &m->buffers[index - m->param_count] : NULL;
}
