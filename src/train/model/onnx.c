#include "src/train/model/onnx.h"

#include "src/base/alloc.h"
#include "src/base/file.h"
#include "src/base/version.h"
#include "src/train/model/onnx_internal.h"
#include "src/train/model/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { IR_VERSION = 8 }; /* the one of operator set 17 */

/* A file as it is written: everything before the graph's tensors, the tensors, everything after them. */
struct parts {
	struct gn_strbuf head, *tensor_heads, tail;
};

/* Nodes, attributes and tensors as messages of onnx.proto (Apache-2.0, github.com/onnx/onnx, onnx/onnx.proto): field numbers are from there. */

enum { WIRE_VARINT = 0, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

static void put_varint(struct gn_strbuf *s, uint64_t value)
{
	do {
		char byte = (char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));

		gn_strbuf_append(s, &byte, 1);
		value >>= 7;
	} while (value);
}

static void put_key(struct gn_strbuf *s, int field, int wire)
{
	put_varint(s, (uint64_t)field << 3 | (uint64_t)wire);
}

static void put_int(struct gn_strbuf *s, int field, int64_t value)
{
	put_key(s, field, WIRE_VARINT);
	put_varint(s, (uint64_t)value);
}

/* Key and length of a field whose len_bytes follow. */
static void put_head(struct gn_strbuf *s, int field, uint64_t len_bytes)
{
	put_key(s, field, WIRE_BYTES);
	put_varint(s, len_bytes);
}

static void put_text(struct gn_strbuf *s, int field, const char *text)
{
	put_head(s, field, strlen(text));
	gn_strbuf_puts(s, text);
}

/* Releases the message. */
static void put_message(struct gn_strbuf *s, int field, struct gn_strbuf *message)
{
	put_head(s, field, message->len);
	gn_strbuf_append(s, gn_strbuf_text(message), message->len);
	s->failed |= message->failed;
	gn_strbuf_release(message);
}

static void put_float(struct gn_strbuf *s, int field, float value)
{
	char bytes[4];

	memcpy(bytes, &value, sizeof bytes); /* little-endian, as the processors that Gannet runs on */
	put_key(s, field, WIRE_FIXED32);
	gn_strbuf_append(s, bytes, sizeof bytes);
}

/* AttributeProto */
static void put_attribute(struct gn_strbuf *node, const struct gn_onnx_attribute *a)
{
	enum { NAME = 1, F = 2, I = 3, INTS = 8, TYPE = 20, TYPE_FLOAT = 1, TYPE_INT = 2, TYPE_INTS = 7 };
	struct gn_strbuf s = {0};

	put_text(&s, NAME, a->name);
	if (a->is_real)
		put_float(&s, F, a->real);
	for (int i = 0; i < a->count; i++)
		put_int(&s, a->is_list ? INTS : I, a->ints[i]);
	put_int(&s, TYPE, a->is_real ? TYPE_FLOAT : a->is_list ? TYPE_INTS : TYPE_INT);
	put_message(node, 5, &s);
}

void gn_onnx_add(struct gn_onnx *g, const char *operator, const char *output, const char *const *inputs,
		 const struct gn_onnx_attribute *attributes)
{
	enum { INPUT = 1, OUTPUT = 2, NAME = 3, OP_TYPE = 4, NODE = 1 };
	struct gn_strbuf s = {0};

	for (; *inputs; inputs++)
		put_text(&s, INPUT, *inputs);
	put_text(&s, OUTPUT, output);
	put_text(&s, NAME, output);
	put_text(&s, OP_TYPE, operator);
	for (; attributes && attributes->name; attributes++)
		put_attribute(&s, attributes);
	put_message(&g->nodes, NODE, &s);
}

static struct gn_onnx_tensor *new_tensor(struct gn_onnx *g, const char *name, int dims, const int64_t *shape)
{
	struct gn_onnx_tensor *t;

	if (gn_array_grow(&g->tensors, &g->tensor_room, g->tensor_count, sizeof *t)) {
		g->failed = 1;
		return NULL;
	}
	t = &g->tensors[g->tensor_count++];
	*t = (struct gn_onnx_tensor){.dims = dims, .count = 1};
	if ((size_t)snprintf(t->name, sizeof t->name, "%s", name) >= sizeof t->name)
		g->failed = 1;
	for (int d = 0; d < dims; d++) {
		t->shape[d] = shape[d];
		t->count *= (size_t)shape[d];
	}
	return t;
}

void gn_onnx_add_tensor(struct gn_onnx *g, const char *name, int dims, const int64_t *shape, const float *data)
{
	struct gn_onnx_tensor *t = new_tensor(g, name, dims, shape);

	if (t)
		t->data = data;
}

float *gn_onnx_add_own_tensor(struct gn_onnx *g, const char *name, int dims, const int64_t *shape)
{
	struct gn_onnx_tensor *t = new_tensor(g, name, dims, shape);

	if (!t)
		return NULL;
	t->own = calloc(t->count, sizeof *t->own);
	t->data = t->own;
	if (!t->own)
		g->failed = 1;
	return t->own;
}

void gn_onnx_add_param(struct gn_onnx *g, const struct gn_param *p)
{
	int is_buffer = p->kind == GN_BUFFER_MEAN || p->kind == GN_BUFFER_VAR;

	gn_onnx_add_tensor(g, p->name, p->dims, p->shape, (is_buffer ? g->buffers : g->params) + p->offset);
}

static void put_dimension(struct gn_strbuf *shape, int64_t value, const char *name)
{
	enum { DIM = 1, VALUE = 1, PARAM = 2 };
	struct gn_strbuf s = {0};

	if (name)
		put_text(&s, PARAM, name);
	else
		put_int(&s, VALUE, value);
	put_message(shape, DIM, &s);
}

/* A ValueInfoProto of type [batch][sides...]. */
static void put_value(struct gn_strbuf *graph, int field, const char *name, enum gn_onnx_type type, const int *sides, int count,
		      const char *text)
{
	enum { NAME = 1, TYPE = 2, DOC_STRING = 3, TENSOR_TYPE = 1, ELEM_TYPE = 1, SHAPE = 2 };
	struct gn_strbuf shape = {0}, tensor = {0}, whole = {0}, value = {0};

	put_dimension(&shape, 0, "batch");
	for (int i = 0; i < count; i++)
		put_dimension(&shape, sides[i], NULL);
	put_int(&tensor, ELEM_TYPE, type);
	put_message(&tensor, SHAPE, &shape);
	put_message(&whole, TENSOR_TYPE, &tensor);
	put_text(&value, NAME, name);
	put_message(&value, TYPE, &whole);
	put_text(&value, DOC_STRING, text);
	put_message(graph, field, &value);
}

static void put_pair(struct gn_strbuf *out, int field, const char *key, const char *value)
{
	enum { KEY = 1, VALUE = 2 };
	struct gn_strbuf s = {0};

	put_text(&s, KEY, key);
	put_text(&s, VALUE, value);
	put_message(out, field, &s);
}

/* The last fields of GraphProto: name, input and output. */
static void put_ends(struct gn_strbuf *graph, const struct gn_onnx *g)
{
	enum { NAME = 2, INPUT = 11, OUTPUT = 12 };
	int side = gn_model_side(g->model), classes = gn_model_classes(g->model), pixels = g->options->pixel_input;
	const int sides[] = {gn_model_channels(g->model), side, side};

	put_text(graph, NAME, gn_model_name(g->model));
	put_value(graph, INPUT, "input", pixels ? GN_ONNX_UINT8 : GN_ONNX_FLOAT, sides, 3,
		  pixels ? "pixels of 0 to 255" : "pixels of 0 to 1, less the mean, divided by the deviation of the metadata's preprocessing");
	put_value(graph, OUTPUT, "logits", GN_ONNX_FLOAT, &classes, 1, "before softmax, in the order of the metadata's class_names");
}

/* A field of GraphProto with the tensor, up to its data. */
static void put_tensor_head(struct gn_strbuf *out, const struct gn_onnx_tensor *t)
{
	enum { INITIALIZER = 5, DIMS = 1, DATA_TYPE = 2, NAME = 8, RAW_DATA = 9 };
	size_t data_bytes = t->count * sizeof(float);
	struct gn_strbuf s = {0};

	for (int d = 0; d < t->dims; d++)
		put_int(&s, DIMS, t->shape[d]);
	put_int(&s, DATA_TYPE, GN_ONNX_FLOAT);
	put_text(&s, NAME, t->name);
	put_head(&s, RAW_DATA, data_bytes);
	put_head(out, INITIALIZER, s.len + data_bytes);
	gn_strbuf_append(out, gn_strbuf_text(&s), s.len);
	out->failed |= s.failed;
	gn_strbuf_release(&s);
}

/* ModelProto's fields before the graph, and the graph's key and length. */
static void put_model_head(struct gn_strbuf *out, const struct gn_onnx_options *options, uint64_t graph_bytes)
{
	enum { IR = 1, PRODUCER_NAME = 2, PRODUCER_VERSION = 3, GRAPH = 7, OPSET_IMPORT = 8, OPSET_VERSION = 2, METADATA_PROPS = 14 };
	struct gn_strbuf opset = {0};

	put_int(out, IR, IR_VERSION);
	put_text(out, PRODUCER_NAME, "gannet");
	put_text(out, PRODUCER_VERSION, gn_version());
	put_int(&opset, OPSET_VERSION, GN_ONNX_OPSET);
	put_message(out, OPSET_IMPORT, &opset);
	for (size_t i = 0; i < options->metadata_count; i++)
		put_pair(out, METADATA_PROPS, options->metadata[2 * i], options->metadata[2 * i + 1]);
	put_head(out, GRAPH, graph_bytes);
}

/* Encodes all but the data of tensors, and checks what the whole takes. */
static enum gn_status encode(const struct gn_onnx *g, struct parts *p, uint64_t *total, struct gn_err *err)
{
	uint64_t graph_bytes = g->nodes.len;
	int failed = g->failed | g->nodes.failed;
	enum gn_status status = GN_OK;

	put_ends(&p->tail, g);
	graph_bytes += p->tail.len;
	for (size_t i = 0; i < g->tensor_count; i++) {
		put_tensor_head(&p->tensor_heads[i], &g->tensors[i]);
		graph_bytes += p->tensor_heads[i].len + g->tensors[i].count * sizeof(float);
		failed |= p->tensor_heads[i].failed;
	}
	put_model_head(&p->head, g->options, graph_bytes);
	if (failed || p->head.failed || p->tail.failed)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the ONNX graph of %s", gn_model_name(g->model));
	*total = p->head.len + graph_bytes;
	if (*total > INT_MAX)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "%s with %d classes takes %llu bytes, and an ONNX file can have %d: export to "
				  ".safetensors", gn_model_name(g->model), gn_model_classes(g->model), (unsigned long long)*total, INT_MAX);
	/* a batch norm whose variance is negative is folded to NaN */
	for (size_t i = 0; i < g->tensor_count && !status; i++) {
		struct gn_tensor_entry e = {.type = GN_TENSOR_F32, .len_bytes = g->tensors[i].count * sizeof(float)};

		snprintf(e.name, sizeof e.name, "%s", g->tensors[i].name);
		status = gn_safetensors_check_finite("the ONNX graph", &e, g->tensors[i].data, err);
	}
	return status;
}

static enum gn_status write_parts(int fd, const char *path, const struct gn_onnx *g, const struct parts *p, struct gn_err *err)
{
	enum gn_status status = gn_write_full(fd, gn_strbuf_text(&p->head), p->head.len, path, err);

	if (!status)
		status = gn_write_full(fd, gn_strbuf_text(&g->nodes), g->nodes.len, path, err);
	for (size_t i = 0; i < g->tensor_count && !status; i++) {
		const struct gn_strbuf *head = &p->tensor_heads[i];

		status = gn_write_full(fd, gn_strbuf_text(head), head->len, path, err);
		if (!status)
			status = gn_write_full(fd, g->tensors[i].data, g->tensors[i].count * sizeof(float), path, err);
	}
	if (!status)
		status = gn_write_full(fd, gn_strbuf_text(&p->tail), p->tail.len, path, err);
	if (!status && fsync(fd))
		status = gn_err_errno(err, errno, "cannot sync %s", path);
	return status;
}

static enum gn_status write_file(const char *path, const struct gn_onnx *g, const struct parts *p, struct gn_err *err)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
	enum gn_status status;

	if (fd < 0)
		return gn_err_errno(err, errno, "cannot create %s", path);
	status = write_parts(fd, path, g, p, err);
	if (close(fd) && !status)
		status = gn_err_errno(err, errno, "cannot close %s", path);
	if (status)
		unlink(path);
	return status;
}

static enum gn_status encode_and_write(const char *path, const struct gn_onnx *g, uint64_t *len_bytes, struct gn_err *err)
{
	struct parts p = {.tensor_heads = calloc(g->tensor_count + 1, sizeof *p.tensor_heads)};
	uint64_t total = 0;
	enum gn_status status;

	if (!p.tensor_heads)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the ONNX graph of %s", gn_model_name(g->model));
	status = encode(g, &p, &total, err);
	if (!status)
		status = write_file(path, g, &p, err);
	if (!status)
		*len_bytes = total;
	for (size_t i = 0; i < g->tensor_count; i++)
		gn_strbuf_release(&p.tensor_heads[i]);
	free(p.tensor_heads);
	gn_strbuf_release(&p.head);
	gn_strbuf_release(&p.tail);
	return status;
}

enum gn_status gn_onnx_write(const char *path, const struct gn_model *model, const float *params, const float *buffers,
			     const struct gn_onnx_options *options, uint64_t *len_bytes, struct gn_err *err)
{
	struct gn_onnx g = {.model = model, .params = params, .buffers = buffers, .options = options};
	enum gn_status status;

	g.values = calloc((size_t)gn_model_node_count(model), sizeof *g.values);
	if (g.values)
		status = gn_onnx_add_layers(&g, err);
	else
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the ONNX graph of %s", gn_model_name(model));
	if (!status)
		status = encode_and_write(path, &g, len_bytes, err);
	for (size_t i = 0; i < g.tensor_count; i++)
		free(g.tensors[i].own);
	free(g.tensors);
	free(g.values);
	gn_strbuf_release(&g.nodes);
	return status;
}
