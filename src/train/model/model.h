/* A network as a graph of layers with torchvision's parameter names: a description without tensors and devices.
 *
 * Nodes are in topological order; node 0 is the input image. A builder function per family (resnet.c, vgg.c, lenet.c) appends
 * nodes. Shapes depend on the input size and are inferred when a plan is created.
 *
 * Thread safety: constant after creation.
 */
#ifndef GN_TRAIN_MODEL_MODEL_H
#define GN_TRAIN_MODEL_MODEL_H

#include "kernels/op.h"
#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum gn_layer {
	GN_LAYER_INPUT,
	GN_LAYER_CONV,       /* bias optional */
	GN_LAYER_BATCH_NORM, /* unbiased running variance, as in PyTorch */
	GN_LAYER_RELU,
	GN_LAYER_MAX_POOL,
	GN_LAYER_ADAPTIVE_AVG_POOL,
	GN_LAYER_ADD,
	GN_LAYER_LINEAR, /* flattens its input in channel, row, column order */
	GN_LAYER_DROPOUT,
	GN_LAYER_ACTIVATION,
	GN_LAYER_SCALE,		/* the first input's maps by the second input, one factor each */
	GN_LAYER_CHANNEL_SCALE, /* by a parameter per channel */
	GN_LAYER_DROP_PATH,	/* stochastic depth: in training a whole image becomes 0 */
	GN_LAYER_LAYER_NORM,	/* over the channels of each pixel */
	GN_LAYER_TOKENS,	/* pixels after a class token, plus an embedding of their positions: one column */
	GN_LAYER_ATTENTION,	/* multi-head self-attention over the pixels, of queries, keys and values as channels */
	GN_LAYER_FIRST_PIXEL,
	GN_LAYER_CONJUGATE	/* of a slice: where a tensor passes between ranks; with a bias it has the layer's before it */
};

struct gn_shm {
	enum gn_layer kind;
	char name[64];           /* torchvision's prefix, "layer1.0.conv1"; "" for layers without parameters */
	int input[2];            /* nodes; -1: none */
	int channels_out;        /* conv, linear */
	int kernel, stride, pad; /* conv, max pool */
	int out_side;            /* adaptive average pool */
	int bias;                /* conv, linear */
	int groups;              /* conv; 0: one */
	int heads;               /* attention */
	enum gn_activation activation;
	double eps, momentum;    /* batch norm; eps: layer norm */
	double rate;             /* dropout; drop path: the share of the network's probability that this depth has */
	/* Of a slice: the node of the whole network; of dropout, elements of an image before the slice, and in all (0: it is not sliced). */
	int number;
	size_t slice_begin, slice_of;
	struct gn_conjugate_desc conjugate;
};

enum gn_param_kind {
	GN_PARAM_WEIGHT,
	GN_PARAM_BIAS,
	GN_PARAM_BN_WEIGHT, /* and layer norm's */
	GN_PARAM_BN_BIAS,
	GN_PARAM_LAYER_SCALE, /* a factor per channel, 1e-6 at first */
	GN_PARAM_TOKEN, /* the class token, 0 at first */
	GN_PARAM_POSITION, /* the embedding of positions */
	GN_BUFFER_MEAN,
	GN_BUFFER_VAR
};

/* Elements of a whole tensor that a slice has, one after the other: of each of `blocks` ranges of `stride` elements `len` from `begin` on. */
struct gn_param_slice {
	size_t blocks, stride, begin, len;
	int is_copy; /* all of it, as every rank, and this is not the first one */
};

/* A trainable tensor or a batch norm buffer, in the order of torchvision's state dict; but vit's class token is behind conv_proj. */
struct gn_param {
	char name[72]; /* "layer1.0.conv1.weight" */
	enum gn_param_kind kind;
	int node;
	int dims;
	int64_t shape[4]; /* PyTorch's: conv OIHW, linear OI; layer scale C, 1, 1; then 1 */
	size_t count;     /* elements */
	size_t offset;    /* in elements from the start of the flat array; parameters and buffers have separate arrays */
	struct gn_param_slice slice; /* of gn_model_slice; else zeros */
};

struct gn_model;

/* channels 0: the network's default (1 for lenet, 3 for others). An unknown name is GN_ERR_USAGE with a list of the known ones.
 * Unsuitable sides are detected by the plan. */
enum gn_status gn_model_create(const char *name, int classes, int channels, int side, struct gn_model **out,
			       struct gn_err *err);
void gn_model_destroy(struct gn_model *m);
/* "lenet|resnet20|resnet18|...", for option tables */
extern const char gn_model_names[];
/* Whether it is one of gn_model_names. */
int gn_model_is_known(const char *name);
/* The network's default side: 28, 32 or 224. */
int gn_model_default_side(const char *name);
/* Initial values as in torchvision. Convolutions are Kaiming-normal by fan-out and linear layers as PyTorch's Linear, unless the rule
 * says otherwise. */
enum gn_init_rule {
	GN_INIT_RESNET,
	GN_INIT_VGG,	      /* linear layers normal, deviation 0.01, bias 0: VGG, MobileNet */
	GN_INIT_EFFICIENTNET, /* linear layers uniform in +-1/sqrt(features), bias 0 */
	GN_INIT_CONVNEXT,     /* convolutions and linear layers normal, deviation 0.02, bias 0 */
	GN_INIT_VIT	      /* as torchvision's VisionTransformer, layer by layer */
};
enum gn_init_rule gn_model_init_rule(const struct gn_model *m);
/* torchvision's default probability of stochastic depth at the last block; 0: the network has none. */
double gn_model_drop_path(const struct gn_model *m);

const char *gn_model_name(const struct gn_model *m);
int gn_model_classes(const struct gn_model *m);
int gn_model_channels(const struct gn_model *m);
int gn_model_side(const struct gn_model *m);
int gn_model_node_count(const struct gn_model *m);
const struct gn_shm *gn_model_node(const struct gn_model *m, int index);
/* Parameters and buffers are numbered separately, each in order; the state dict interleaves them node by node. Offsets are
 * multiples of 16 elements. */
int gn_model_param_count(const struct gn_model *m);
const struct gn_param *gn_model_param(const struct gn_model *m, int index);
int gn_model_buffer_count(const struct gn_model *m);
const struct gn_param *gn_model_buffer(const struct gn_model *m, int index);
/* Parameters, then buffers; NULL: there is no such number. */
const struct gn_param *gn_model_state(const struct gn_model *m, int index);
/* Length of the flat parameter and buffer arrays in elements, including padding. */
size_t gn_model_param_elements(const struct gn_model *m);
size_t gn_model_buffer_elements(const struct gn_model *m);

/* --- parts, for the stages of a pipeline: model_slice.c --- */

/* Whether the network can be cut before this node: one tensor alone passes there, and the node is a layer with parameters that no operator
 * computes together with what is before it. So a residual block stays whole. */
int gn_model_can_cut(const struct gn_model *m, int node);
/* The first node of the layer or block of that name, "features.17" or "layer2": a part begins there. GN_ERR_USAGE: there is none, or it
 * cannot be cut there. */
enum gn_status gn_model_find_cut(const struct gn_model *m, const char *name, int *node, struct gn_err *err);
/* Nodes first .. end - 1 of a whole network, 1 <= first < end, as a model of its own: its node 0 is the output of node first - 1, or the
 * image; names are the whole one's. Both ends are where it can be cut, or its ends. */
enum gn_status gn_model_part(const struct gn_model *m, int first, int end, struct gn_model **out, struct gn_err *err);
/* Where a part lies in the whole: node i, i > 0, is the whole one's node + i; its arrays begin at these elements. Of a whole network 0. */
struct gn_model_origin {
	int node;
	size_t params, buffers;
};
struct gn_model_origin gn_model_origin(const struct gn_model *m);
/* Whether it ends with the network's logits. */
int gn_model_is_end(const struct gn_model *m);

/* --- slices, for ranks that divide the channels of each layer: model_slice.c --- */

/* Of a network what rank number `rank` of `ranks` has: of convolutions and linear layers the weights of its part of the outputs, with
 * what follows channel by channel, or, of linear layers whose input is sliced, of its part of the inputs; of attention its part of the
 * heads; and conjugate collectives between them. What ranks do not divide each has whole. Of a part, too: what it reads and gives is whole on
 * each rank, but for logits. Parameters and buffers have the whole network's
 * names and numbers. GN_ERR_USAGE: there is nothing that so many ranks divide. */
enum gn_status gn_model_slice(const struct gn_model *m, int rank, int ranks, struct gn_model **out, struct gn_err *err);
/* Of a slice; of another network ranks is 0. classes: of the logits, from first_class on; all, where ranks do not divide them. */
struct gn_model_tensor {
	int rank, ranks;
	int first_class, classes;
};
struct gn_model_tensor gn_model_tensor(const struct gn_model *m);
/* The elements of a flat array of parameters (or buffers) of the whole network that the slice has, to an array of the slice's, or back. */
void gn_model_slice_take(const struct gn_model *slice, const struct gn_model *whole, int buffers, const float *from, float *to);
void gn_model_slice_put(const struct gn_model *slice, const struct gn_model *whole, int buffers, const float *from, float *to);

#endif
