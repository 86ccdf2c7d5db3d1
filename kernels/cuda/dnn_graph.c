/* The computation of a pass as operations and tensors of a cuDNN graph. */
#include "kernels/cuda/dnn_internal.h"

static cudnnDataType_t data_type(enum gn_cuda_type type)
{
	return type == GN_CUDA_F32 ? CUDNN_DATA_FLOAT : type == GN_CUDA_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
}

/* Dimensions are in the order NCHW; the strides describe memory: NHWC. */
static cudnnBackendDescriptor_t tensor(struct gn_dnn_graph *g, int64_t id, cudnnDataType_t type, int n, int c, int h, int w)
{
	cudnnBackendDescriptor_t t = gn_dnn_make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR, "tensor");
	const int64_t dims[4] = {n, c, h, w};
	const int64_t strides[4] = {(int64_t)h * w * c, 1, (int64_t)w * c, c};
	const int64_t alignment = 16;
	const _Bool is_virtual = id >= GN_DNN_ID_VIRTUAL;

	gn_dnn_set(g, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
	gn_dnn_set(g, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
	gn_dnn_set(g, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
	gn_dnn_set(g, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
	gn_dnn_set(g, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
	gn_dnn_set(g, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
	gn_dnn_finalize(g, t, "cudnnBackendFinalize of a tensor");
	return t;
}

static cudnnBackendDescriptor_t channels(struct gn_dnn_graph *g, int64_t id, int count)
{
	return tensor(g, id, CUDNN_DATA_FLOAT, 1, count, 1, 1);
}

static cudnnBackendDescriptor_t input(struct gn_dnn_graph *g, int64_t id)
{
	const struct gn_dnn_conv *c = g->conv;

	return tensor(g, id, data_type(c->type), c->n, c->c, c->h, c->w);
}

static cudnnBackendDescriptor_t output(struct gn_dnn_graph *g, int64_t id, cudnnDataType_t type)
{
	const struct gn_dnn_conv *c = g->conv;

	return tensor(g, id, type, c->n, c->out_c, c->out_h, c->out_w);
}

static cudnnBackendDescriptor_t weight(struct gn_dnn_graph *g)
{
	const struct gn_dnn_conv *c = g->conv;

	return tensor(g, GN_DNN_ID_WEIGHT, data_type(c->type), c->out_c, c->groups ? c->c / c->groups : c->c, c->kernel,
		      c->kernel);
}

static cudnnBackendDescriptor_t window(struct gn_dnn_graph *g)
{
	cudnnBackendDescriptor_t d = gn_dnn_make(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, "convolution");
	const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
	const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
	const int64_t two = 2, strides[2] = {g->conv->stride, g->conv->stride}, pads[2] = {g->conv->pad, g->conv->pad};
	const int64_t dilations[2] = {1, 1};

	gn_dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &two);
	gn_dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
	gn_dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
	gn_dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pads);
	gn_dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pads);
	gn_dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides);
	gn_dnn_set(g, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilations);
	gn_dnn_finalize(g, d, "cudnnBackendFinalize of a convolution");
	return d;
}

/* The attribute names of one of the three convolution operations. */
struct names {
	cudnnBackendDescriptorType_t kind;
	cudnnBackendAttributeName_t conv, x, weight, y, alpha, beta;
};

static const struct names forward_names = {
	CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
	CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
	CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
	CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
	CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
	CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
	CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
};

static const struct names data_names = {
	CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
	CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
	CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
	CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
	CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
	CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
	CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
};

static const struct names weight_names = {
	CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
	CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
	CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
	CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
	CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
	CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
	CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
};

static void add_node(struct gn_dnn_graph *g, cudnnBackendDescriptor_t node, const char *what)
{
	gn_dnn_finalize(g, node, what);
	if (!g->status)
		g->nodes[g->node_count++] = node;
}

static void convolve(struct gn_dnn_graph *g, const struct names *names, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y)
{
	cudnnBackendDescriptor_t conv = window(g), w = weight(g), node = gn_dnn_make(g, names->kind, "convolution operation");
	const float one = 1, zero = 0;

	gn_dnn_set(g, node, names->conv, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &conv);
	gn_dnn_set(g, node, names->x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x);
	gn_dnn_set(g, node, names->weight, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w);
	gn_dnn_set(g, node, names->y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y);
	gn_dnn_set(g, node, names->alpha, CUDNN_TYPE_FLOAT, 1, &one);
	gn_dnn_set(g, node, names->beta, CUDNN_TYPE_FLOAT, 1, &zero);
	add_node(g, node, "cudnnBackendFinalize of a convolution operation");
}

static void put(struct gn_dnn_graph *g, cudnnBackendDescriptor_t node, cudnnBackendAttributeName_t name,
		cudnnBackendDescriptor_t tensor_or_description)
{
	gn_dnn_set(g, node, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensor_or_description);
}

/* Creates an operation without tensors. */
static cudnnBackendDescriptor_t begin_pointwise(struct gn_dnn_graph *g, cudnnPointwiseMode_t mode)
{
	cudnnBackendDescriptor_t what = gn_dnn_make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "pointwise");
	cudnnBackendDescriptor_t node = gn_dnn_make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "pointwise operation");
	const cudnnDataType_t type = CUDNN_DATA_FLOAT;

	gn_dnn_set(g, what, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
	gn_dnn_set(g, what, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
	gn_dnn_finalize(g, what, "cudnnBackendFinalize of a pointwise descriptor");
	put(g, node, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what);
	return node;
}

/* y = x (mode) b; b NULL for modes with one operand. */
static void pointwise(struct gn_dnn_graph *g, cudnnPointwiseMode_t mode, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
		      cudnnBackendDescriptor_t y)
{
	cudnnBackendDescriptor_t node = begin_pointwise(g, mode);

	put(g, node, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
	if (b)
		put(g, node, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
	put(g, node, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
	add_node(g, node, "cudnnBackendFinalize of a pointwise operation");
}

/* Intermediate results stay float. */
static void bias_and_more(struct gn_dnn_graph *g)
{
	int64_t next = GN_DNN_ID_VIRTUAL;
	cudnnBackendDescriptor_t x = input(g, GN_DNN_ID_X), y = output(g, GN_DNN_ID_Y, data_type(g->conv->type));
	cudnnBackendDescriptor_t bias = channels(g, GN_DNN_ID_BIAS, g->conv->out_c);
	cudnnBackendDescriptor_t last = output(g, next++, CUDNN_DATA_FLOAT), to;

	convolve(g, &forward_names, x, last);
	to = g->pass == GN_DNN_FORWARD_BIAS ? y : output(g, next++, CUDNN_DATA_FLOAT);
	pointwise(g, CUDNN_POINTWISE_ADD, last, bias, to);
	last = to;
	if (g->pass == GN_DNN_FORWARD_BIAS_ADD_RELU) {
		cudnnBackendDescriptor_t added = output(g, GN_DNN_ID_ADDED, data_type(g->conv->type));

		to = output(g, next++, CUDNN_DATA_FLOAT);
		pointwise(g, CUDNN_POINTWISE_ADD, last, added, to);
		last = to;
	}
	if (g->pass != GN_DNN_FORWARD_BIAS)
		pointwise(g, CUDNN_POINTWISE_RELU_FWD, last, NULL, y);
}

/* Per channel of y. */
static void statistics(struct gn_dnn_graph *g, cudnnBackendDescriptor_t y)
{
	cudnnBackendDescriptor_t sum = channels(g, GN_DNN_ID_SUM, g->conv->out_c);
	cudnnBackendDescriptor_t squares = channels(g, GN_DNN_ID_SQUARES, g->conv->out_c), node;
	const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
	const cudnnDataType_t type = CUDNN_DATA_FLOAT;

	node = gn_dnn_make(g, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, "statistics operation");
	gn_dnn_set(g, node, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
	gn_dnn_set(g, node, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
	put(g, node, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, y);
	put(g, node, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sum);
	put(g, node, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, squares);
	add_node(g, node, "cudnnBackendFinalize of a statistics operation");
}

static cudnnBackendDescriptor_t float_input(struct gn_dnn_graph *g, int64_t id)
{
	const struct gn_dnn_conv *c = g->conv;

	return tensor(g, id, CUDNN_DATA_FLOAT, c->n, c->c, c->h, c->w);
}

/* relu(x * scale + shift), a virtual tensor: not written. */
static cudnnBackendDescriptor_t norm(struct gn_dnn_graph *g)
{
	int64_t next = GN_DNN_ID_VIRTUAL;
	cudnnDataType_t type = data_type(g->conv->type);
	cudnnBackendDescriptor_t x = input(g, GN_DNN_ID_X);
	cudnnBackendDescriptor_t scale = tensor(g, GN_DNN_ID_SCALE, type, 1, g->conv->c, 1, 1);
	cudnnBackendDescriptor_t shift = tensor(g, GN_DNN_ID_SHIFT, type, 1, g->conv->c, 1, 1);
	cudnnBackendDescriptor_t scaled = float_input(g, next++), shifted = float_input(g, next++), passed = input(g, next++);

	pointwise(g, CUDNN_POINTWISE_MUL, x, scale, scaled);
	pointwise(g, CUDNN_POINTWISE_ADD, scaled, shift, shifted);
	pointwise(g, CUDNN_POINTWISE_RELU_FWD, shifted, NULL, passed);
	return passed;
}

/* dx = dy where x is above zero. */
static void relu_back(struct gn_dnn_graph *g, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t dy, cudnnBackendDescriptor_t dx)
{
	cudnnBackendDescriptor_t node = begin_pointwise(g, CUDNN_POINTWISE_RELU_BWD);

	put(g, node, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
	put(g, node, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy);
	put(g, node, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dx);
	add_node(g, node, "cudnnBackendFinalize of a relu's gradient");
}

/* The sums over the gradient behind the relu. cuDNN's operation also needs the factors of the next step. */
static void norm_weight_back(struct gn_dnn_graph *g, cudnnBackendDescriptor_t z, cudnnBackendDescriptor_t mean,
			     cudnnBackendDescriptor_t inverse, cudnnBackendDescriptor_t weight, cudnnBackendDescriptor_t dy)
{
	cudnnBackendDescriptor_t node = gn_dnn_make(g, CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR, "norm's gradient");
	const cudnnDataType_t type = CUDNN_DATA_FLOAT;
	int count = g->conv->c;

	gn_dnn_set(g, node, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
	put(g, node, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, mean);
	put(g, node, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, inverse);
	put(g, node, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, weight);
	put(g, node, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, z);
	put(g, node, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, dy);
	put(g, node, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, channels(g, GN_DNN_ID_DNORM_WEIGHT, count));
	put(g, node, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC, channels(g, GN_DNN_ID_DNORM_BIAS, count));
	put(g, node, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, channels(g, GN_DNN_ID_FACTORS, count));
	put(g, node, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, channels(g, GN_DNN_ID_FACTORS + 1, count));
	put(g, node, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS, channels(g, GN_DNN_ID_FACTORS + 2, count));
	add_node(g, node, "cudnnBackendFinalize of a norm's gradient");
}

static void data_and_norm_back(struct gn_dnn_graph *g)
{
	int64_t next = GN_DNN_ID_VIRTUAL;
	int count = g->conv->c;
	cudnnBackendDescriptor_t y = output(g, GN_DNN_ID_Y, data_type(g->conv->type));
	cudnnBackendDescriptor_t z = input(g, GN_DNN_ID_Z), x = input(g, GN_DNN_ID_X);
	cudnnBackendDescriptor_t mean = channels(g, GN_DNN_ID_MEAN, count), inverse = channels(g, GN_DNN_ID_INVERSE, count);
	cudnnBackendDescriptor_t weight_of_norm = channels(g, GN_DNN_ID_NORM_WEIGHT, count);
	cudnnBackendDescriptor_t bias = channels(g, GN_DNN_ID_NORM_BIAS, count);
	cudnnBackendDescriptor_t dx = float_input(g, next++), centred = float_input(g, next++), normal = float_input(g, next++);
	cudnnBackendDescriptor_t scaled = float_input(g, next++), shifted = float_input(g, next++);

	convolve(g, &data_names, dx, y);
	pointwise(g, CUDNN_POINTWISE_SUB, z, mean, centred);
	pointwise(g, CUDNN_POINTWISE_MUL, centred, inverse, normal);
	pointwise(g, CUDNN_POINTWISE_MUL, normal, weight_of_norm, scaled);
	pointwise(g, CUDNN_POINTWISE_ADD, scaled, bias, shifted);
	relu_back(g, shifted, dx, x);
	norm_weight_back(g, z, mean, inverse, weight_of_norm, x);
}

void gn_dnn_graph_build(struct gn_dnn_graph *g)
{
	const struct names *names = &forward_names;
	cudnnBackendDescriptor_t x = NULL, y;

	switch (g->pass) {
	case GN_DNN_BACKWARD_DATA:
		names = &data_names;
		break;
	case GN_DNN_BACKWARD_WEIGHT:
		names = &weight_names;
		break;
	case GN_DNN_FORWARD_BIAS:
	case GN_DNN_FORWARD_BIAS_RELU:
	case GN_DNN_FORWARD_BIAS_ADD_RELU:
		bias_and_more(g);
		return;
	case GN_DNN_BACKWARD_DATA_NORM:
		data_and_norm_back(g);
		return;
	case GN_DNN_NORM_BACKWARD_WEIGHT:
		names = &weight_names;
		x = norm(g);
		break;
	case GN_DNN_NORM_FORWARD:
	case GN_DNN_NORM_FORWARD_STATISTICS:
		x = norm(g);
		break;
	case GN_DNN_FORWARD_STATISTICS:
	case GN_DNN_FORWARD:
	case GN_DNN_PASSES:
		break;
	}
	y = output(g, GN_DNN_ID_Y, data_type(g->conv->type));
	convolve(g, names, x ? x : input(g, GN_DNN_ID_X), y);
	if (g->pass == GN_DNN_FORWARD_STATISTICS || g->pass == GN_DNN_NORM_FORWARD_STATISTICS)
		statistics(g, y);
}
