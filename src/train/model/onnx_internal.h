/* An ONNX graph while it is built: encoded nodes, and tensors that are written later. Private to the onnx files.
 *
 * A failure (no memory, a name that is too long) is remembered in the graph and reported by gn_onnx_write().
 */
#ifndef GN_TRAIN_MODEL_ONNX_INTERNAL_H
#define GN_TRAIN_MODEL_ONNX_INTERNAL_H

#include "src/base/strbuf.h"
#include "src/train/model/onnx.h"

enum { GN_ONNX_NAME_MAX = 80 };

/* Numbers of onnx.proto's TensorProto.DataType. */
enum gn_onnx_type { GN_ONNX_FLOAT = 1, GN_ONNX_UINT8 = 2 };

struct gn_onnx_tensor {
	char name[GN_ONNX_NAME_MAX];
	int dims; /* 0: a scalar */
	int64_t shape[4];
	size_t count;
	const float *data;
	float *own; /* what data points to, if the graph made it; NULL: borrowed */
};

struct gn_onnx {
	const struct gn_model *model;
	const float *params, *buffers;
	const struct gn_onnx_options *options;
	struct gn_strbuf nodes; /* fields of GraphProto */
	struct gn_onnx_tensor *tensors;
	size_t tensor_count, tensor_room;
	char (*values)[GN_ONNX_NAME_MAX]; /* by layer of the model, the name of its output */
	int failed;
};

struct gn_onnx_attribute {
	const char *name;
	int is_real, is_list;
	int count;
	int64_t ints[8];
	float real;
};

/* Appends an operator. inputs ends with NULL; attributes ends with one without a name; NULL: none. */
void gn_onnx_add(struct gn_onnx *g, const char *operator, const char *output, const char *const *inputs,
		 const struct gn_onnx_attribute *attributes);
/* Appends an initialiser of borrowed data, which has to live until the file is written. */
void gn_onnx_add_tensor(struct gn_onnx *g, const char *name, int dims, const int64_t *shape, const float *data);
/* The same with an array of its own, which is zero, for the caller to fill; NULL when there is no memory. */
float *gn_onnx_add_own_tensor(struct gn_onnx *g, const char *name, int dims, const int64_t *shape);
/* Initialisers of a parameter or buffer of the model. */
void gn_onnx_add_param(struct gn_onnx *g, const struct gn_param *p);
/* The layer's parameter or buffer of that kind; NULL: it has none. */
const struct gn_param *gn_onnx_param(const struct gn_onnx *g, int layer, enum gn_param_kind kind);

/* onnx_tokens.c: a vision transformer's layers. */
void gn_onnx_add_tokens(struct gn_onnx *g, int layer);
void gn_onnx_add_attention(struct gn_onnx *g, int layer);
void gn_onnx_add_first_pixel(struct gn_onnx *g, int layer);

/* The name of a scalar initialiser of that value. */
const char *gn_onnx_constant(struct gn_onnx *g, float value, char name[GN_ONNX_NAME_MAX]);

/* Appends the operators of all layers by the table. GN_ERR_UNSUPPORTED names a layer without an entry. */
enum gn_status gn_onnx_add_layers(struct gn_onnx *g, struct gn_err *err);

#endif
