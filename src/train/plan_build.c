/* From the graph to operators: relu joins the batch norm or sum before it, a batch norm the sum that alone reads it, and a
 * reorder goes wherever an operator wants its input in another layout than it comes in. */
#include "src/train/plan_internal.h"

#include <stdlib.h>
#include <string.h>

struct builder {
	struct gn_plan *p;
	int *tensor_of_node;
	int *uses_of_node;
};

static const enum gn_op_kind kinds[] = {
	[GN_LAYER_CONV] = GN_OP_CONV,
	[GN_LAYER_BATCH_NORM] = GN_OP_BATCH_NORM,
	[GN_LAYER_RELU] = GN_OP_RELU,
	[GN_LAYER_MAX_POOL] = GN_OP_MAX_POOL,
	[GN_LAYER_ADAPTIVE_AVG_POOL] = GN_OP_ADAPTIVE_AVG_POOL,
	[GN_LAYER_ADD] = GN_OP_ADD,
	[GN_LAYER_LINEAR] = GN_OP_LINEAR,
	[GN_LAYER_DROPOUT] = GN_OP_DROPOUT,
};

static const char *kind_name(enum gn_layer kind)
{
	static const char *const names[] = {"input",           "convolution", "batch norm",   "relu",   "max pooling",
					    "average pooling", "sum",         "linear layer", "dropout"};

	return names[kind];
}

static int add_tensor(struct gn_plan *p, const struct gn_layout *layout, int producer)
{
	p->tensors[p->tensor_count] = (struct gn_plan_tensor){
		.layout = *layout, .producer = producer, .last_consumer = -1, .data = -1, .grad = -1, .more_grad = -1};
	return p->tensor_count++;
}

/* Takes over op. */
static int add_op(struct gn_plan *p, struct gn_op *op, int node, int a, int b)
{
	int index = p->op_count++, in[2] = {a, b};
	struct gn_plan_op *o = &p->ops[index];

	*o = (struct gn_plan_op){.op = op,
				 .info = *gn_op_info(op),
				 .node = node,
				 .in = {a, b},
				 .param = {-1, -1},
				 .buffer = -1,
				 .workspace = -1};
	for (int i = 0; i < 2; i++) {
		if (in[i] < 0)
			continue;
		p->tensors[in[i]].consumers++;
		p->tensors[in[i]].last_consumer = index;
	}
	o->out = add_tensor(p, &o->info.out, index);
	return o->out;
}

/* *tensor becomes one in the wanted layout. */
static enum gn_status reorder_to(struct gn_plan *p, int node, const struct gn_layout *wanted, int *tensor,
				 struct gn_err *err)
{
	const struct gn_plan_tensor *t = &p->tensors[*tensor];
	struct gn_op_desc desc = {
		.kind = GN_OP_REORDER, .training = p->options.training, .needs_din = t->producer >= 0};
	struct gn_op *op;
	enum gn_status s;

	if (gn_layout_equal(wanted, &t->layout))
		return GN_OK;
	desc.in[0] = t->layout;
	desc.out = *wanted;
	s = gn_op_create(p->options.backend, &desc, &op, err);
	if (!s)
		*tensor = add_op(p, op, node, *tensor, -1);
	return s;
}

/* How the weight of a node comes. */
static struct gn_weight_layout weight_of(const struct gn_plan *p, int node)
{
	const struct gn_weight_layout plain = {GN_WEIGHT_PLAIN, 0};

	for (int i = 0; p->options.weights && i < gn_model_param_count(p->model); i++)
		if (gn_model_param(p->model, i)->node == node && gn_model_param(p->model, i)->kind == GN_PARAM_WEIGHT)
			return p->options.weights[i];
	return plain;
}

static struct gn_op_desc describe(const struct builder *b, const struct gn_node *n, const int *in, int relu)
{
	const struct gn_plan_options *o = &b->p->options;
	struct gn_op_desc d = {
		.kind = kinds[n->kind],
		.channels_out = n->channels_out,
		.kernel = n->kernel,
		.stride = n->stride,
		.pad = n->pad,
		.out_side = n->out_side,
		.bias = n->bias,
		.relu = relu,
		.add = n->kind == GN_LAYER_BATCH_NORM && in[1] >= 0,
		.training = o->training,
		.eps = 1e-5,
		.momentum = 0.1,
		.rate = n->rate,
		.seed = o->seed,
		.group = o->training && n->kind == GN_LAYER_BATCH_NORM ? o->group : NULL,
	};

	for (int i = 0; i < 2; i++) {
		if (in[i] < 0)
			continue;
		d.in[i] = b->p->tensors[in[i]].layout;
		d.needs_din |= o->training && b->p->tensors[in[i]].producer >= 0;
	}
	return d;
}

/* The parameters and buffers of the node: weight and bias, mean and variance are neighbours. */
static void take_params(struct gn_plan *p, int node, struct gn_plan_op *o)
{
	const struct gn_model *m = p->model;

	for (int i = gn_model_param_count(m) - 1; i >= 0; i--) {
		if (gn_model_param(m, i)->node != node)
			continue;
		o->param[1] = o->param[0];
		o->param[0] = i;
	}
	for (int i = gn_model_buffer_count(m) - 1; i >= 0; i--)
		if (gn_model_buffer(m, i)->node == node)
			o->buffer = i;
	if (o->param[0] >= 0)
		p->weights[o->param[0]] = o->info.weight;
}

/* Relu can join the node before it when nobody else looks at what that one gives. */
static int is_relu_of(const struct builder *b, int node)
{
	const struct gn_model *m = b->p->model;

	return node + 1 < gn_model_node_count(m) && gn_model_node(m, node + 1)->kind == GN_LAYER_RELU &&
	       gn_model_node(m, node + 1)->input[0] == node && b->uses_of_node[node] == 1;
}

/* The batch norm that joins this sum: its result goes nowhere else, and a relu follows. -1: none does. */
static int norm_of_sum(const struct builder *b, int node)
{
	const struct gn_model *m = b->p->model;
	const struct gn_node *n = gn_model_node(m, node);

	if (n->kind != GN_LAYER_ADD || n->input[0] == n->input[1] || !is_relu_of(b, node))
		return -1;
	for (int k = 0; k < 2; k++)
		if (gn_model_node(m, n->input[k])->kind == GN_LAYER_BATCH_NORM && b->uses_of_node[n->input[k]] == 1)
			return n->input[k];
	return -1;
}

/* Batch norms that wait for their sum, which comes later. */
static int waits_for_sum(const struct builder *b, int node)
{
	for (int i = node + 1; i < gn_model_node_count(b->p->model); i++)
		if (norm_of_sum(b, i) == node)
			return 1;
	return 0;
}

/* norm: joins the sum that `node` is; -1: nothing does. */
static enum gn_status build_node(struct builder *b, int node, int relu, int norm, struct gn_err *err)
{
	struct gn_plan *p = b->p;
	const struct gn_node *sum = gn_model_node(p->model, node), *n = norm < 0 ? sum : gn_model_node(p->model, norm);
	int other = norm < 0 ? n->input[1] : sum->input[sum->input[0] == norm];
	int in[2] = {b->tensor_of_node[n->input[0]], other < 0 ? -1 : b->tensor_of_node[other]};
	struct gn_op_desc desc = describe(b, n, in, relu);
	const struct gn_op_info *info;
	struct gn_op *op = NULL;
	enum gn_status s;

	desc.stream = (uint32_t)node;
	desc.weight = weight_of(p, norm < 0 ? node : norm);
	s = gn_op_create(p->options.backend, &desc, &op, err);
	if (s)
		goto fail;
	info = gn_op_info(op);
	for (int i = 0; !s && i < 2; i++)
		if (in[i] >= 0)
			s = reorder_to(p, node, &info->in[i], &in[i], err);
	if (s)
		goto fail;
	b->tensor_of_node[node] = add_op(p, op, node, in[0], in[1]);
	take_params(p, norm < 0 ? node : norm, &p->ops[p->op_count - 1]);
	return GN_OK;
fail:
	gn_op_destroy(op);
	return gn_err_prefix(err, "%s, %s %s", gn_model_name(p->model), kind_name(n->kind), n->name), s;
}

static enum gn_status build_all(struct builder *b, struct gn_err *err)
{
	struct gn_plan *p = b->p;
	const struct gn_model *m = p->model;
	struct gn_layout images = {p->options.batch,
				   gn_model_channels(m),
				   gn_model_side(m),
				   gn_model_side(m),
				   1,
				   p->options.backend == GN_BACKEND_REF ? (int)sizeof(double) : (int)sizeof(float)};
	int count = gn_model_node_count(m);
	enum gn_status s = GN_OK;

	b->tensor_of_node[0] = add_tensor(p, &images, -1);
	for (int i = 1; !s && i < count; i++) {
		enum gn_layer kind = gn_model_node(m, i)->kind;
		int relu = (kind == GN_LAYER_BATCH_NORM || kind == GN_LAYER_ADD) && is_relu_of(b, i);

		if (kind == GN_LAYER_DROPOUT && !(p->options.training && p->options.dropout)) {
			b->tensor_of_node[i] = b->tensor_of_node[gn_model_node(m, i)->input[0]];
			continue;
		}
		if (kind == GN_LAYER_BATCH_NORM && waits_for_sum(b, i))
			continue;
		s = build_node(b, i, relu, norm_of_sum(b, i), err);
		if (!s && relu) {
			b->tensor_of_node[i + 1] = b->tensor_of_node[i];
			i++;
		}
	}
	if (!s) {
		struct gn_layout plain = p->tensors[b->tensor_of_node[count - 1]].layout;

		plain.block = 1;
		s = reorder_to(p, count - 1, &plain, &b->tensor_of_node[count - 1], err);
		p->logits_tensor = b->tensor_of_node[count - 1];
	}
	return s;
}

enum gn_status gn_plan_build(struct gn_plan *p, struct gn_err *err)
{
	int count = gn_model_node_count(p->model);
	struct builder b = {.p = p};
	enum gn_status s;

	/* a node gives at most itself and a reorder of each input */
	p->ops = calloc(3 * (size_t)count + 1, sizeof *p->ops);
	p->tensors = calloc(3 * (size_t)count + 2, sizeof *p->tensors);
	b.tensor_of_node = calloc(count, sizeof *b.tensor_of_node);
	b.uses_of_node = calloc(count, sizeof *b.uses_of_node);
	if (!p->ops || !p->tensors || !b.tensor_of_node || !b.uses_of_node) {
		s = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a plan");
		goto out;
	}
	for (int i = 1; i < count; i++)
		for (int k = 0; k < 2; k++)
			if (gn_model_node(p->model, i)->input[k] >= 0)
				b.uses_of_node[gn_model_node(p->model, i)->input[k]]++;
	s = build_all(&b, err);
out:
	free(b.tensor_of_node);
	free(b.uses_of_node);
	return s;
}
