/* Nodes, attributes and tensors as messages of onnx.proto (Apache-2.0, github.com/onnx/onnx, onnx/onnx.proto): field numbers are from there. */
#include "src/train/model/onnx_internal.h"

#include "src/base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

void gn_onnx_put_int(struct gn_strbuf *s, int field, int64_t value)
{
	put_key(s, field, WIRE_VARINT);
	put_varint(s, (uint64_t)value);
}

void gn_onnx_put_head(struct gn_strbuf *s, int field, uint64_t len_bytes)
{
	put_key(s, field, WIRE_BYTES);
	put_varint(s, len_bytes);
}

void gn_onnx_put_text(struct gn_strbuf *s, int field, const char *text)
{
	gn_onnx_put_head(s, field, strlen(text));
	gn_strbuf_puts(s, text);
}

void gn_onnx_put_message(struct gn_strbuf *s, int field, struct gn_strbuf *message)
{
	gn_onnx_put_head(s, field, message->len);
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

	gn_onnx_put_text(&s, NAME, a->name);
	if (a->is_real)
		put_float(&s, F, a->real);
	for (int i = 0; i < a->count; i++)
		gn_onnx_put_int(&s, a->is_list ? INTS : I, a->ints[i]);
	gn_onnx_put_int(&s, TYPE, a->is_real ? TYPE_FLOAT : a->is_list ? TYPE_INTS : TYPE_INT);
	gn_onnx_put_message(node, 5, &s);
}

void gn_onnx_add(struct gn_onnx *g, const char *operator, const char *output, const char *const *inputs,
		 const struct gn_onnx_attribute *attributes)
{
	enum { INPUT = 1, OUTPUT = 2, NAME = 3, OP_TYPE = 4, NODE = 1 };
	struct gn_strbuf s = {0};

	for (; *inputs; inputs++)
		gn_onnx_put_text(&s, INPUT, *inputs);
	gn_onnx_put_text(&s, OUTPUT, output);
	gn_onnx_put_text(&s, NAME, output);
	gn_onnx_put_text(&s, OP_TYPE, operator);
	for (; attributes && attributes->name; attributes++)
		put_attribute(&s, attributes);
	gn_onnx_put_message(&g->nodes, NODE, &s);
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
