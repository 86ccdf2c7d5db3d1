/* From the graph to operators: relu joins the batch norm or sum before it, a batch norm the sum that alone reads it, and a
 * reorder goes wherever an operator wants its input in another layout than it comes in. A relu before a max pooling changes places
 * with it. */
#include "src/train/plan/plan_internal.h"

#include <stdlib.h>

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
	[GN_LAYER_ACTIVATION] = GN_OP_ACTIVATION,
	[GN_LAYER_SCALE] = GN_OP_SCALE,
	[GN_LAYER_CHANNEL_SCALE] = GN_OP_CHANNEL_SCALE,
	[GN_LAYER_DROP_PATH] = GN_OP_DROP_PATH,
	[GN_LAYER_LAYER_NORM] = GN_OP_LAYER_NORM,
	[GN_LAYER_TOKENS] = GN_OP_TOKENS,
	[GN_LAYER_ATTENTION] = GN_OP_ATTENTION,
	[GN_LAYER_FIRST_PIXEL] = GN_OP_FIRST_PIXEL,
	[GN_LAYER_CONJUGATE] = GN_OP_CONJUGATE,
};

static const char *kind_name(enum gn_layer kind)
{
	static const char *const names[] = {"input",           "convolution", "batch norm",   "relu",   "max pooling",
					    "average pooling", "sum",         "linear layer", "dropout",
					    "activation",      "scaling",     "layer scale",  "stochastic depth", "layer norm",
					    "tokens",	      "attention",   "first pixel",  "exchange among ranks"};

	return names[kind];
}

static int add_tensor(struct gn_plan *p, const struct gn_layout *layout, int producer)
{
	p->tensors[p->tensor_count] = (struct gn_plan_tensor){
		.layout = *layout, .producer = producer, .last_consumer = -1, .data = -1, .grad = -1, .more_grad = -1};
	return p->tensor_count++;
}

/* Takes over op. */
static int add_op(struct gn_plan *p, struct gn_op *op, const struct gn_op_desc *desc, int node, int a, int b)
{
	int index = p->op_count++, in[2] = {a, b};
	struct gn_plan_op *o = &p->ops[index];

	*o = (struct gn_plan_op){.op = op,
				 .info = *gn_op_info(op),
				 .kind = desc->kind,
				 .with_relu = desc->relu,
				 .node = node,
				 .core = node,
				 .in = {a, b},
				 .param = {-1, -1},
				 .buffer = -1,
				 .conv = -1,
				 .norm = -1,
				 .workspace = -1,
				 .recomputes = -1,
				 .statistics = -1};
	for (int i = 0; i < 2; i++) {
		if (in[i] < 0)
			continue;
		p->tensors[in[i]].consumers++;
		p->tensors[in[i]].last_consumer = index;
	}
	o->out = add_tensor(p, &o->info.out, index);
	return o->out;
}

/* Images are brought into the plan as the first that reads them wants: only their type can differ then. */
static void retype_images(struct gn_plan_tensor *images, const struct gn_layout *wanted)
{
	struct gn_layout l = images->layout;

	l.element_bytes = wanted->element_bytes;
	if (images->producer < 0 && !images->consumers && gn_layout_equal(&l, wanted))
		images->layout = l;
}

/* *tensor becomes one in the wanted layout. */
static enum gn_status reorder_to(struct gn_plan *p, int node, const struct gn_layout *wanted, int *tensor,
				 struct gn_err *err)
{
	struct gn_plan_tensor *t = &p->tensors[*tensor];
	struct gn_op_desc desc = {
		.kind = GN_OP_REORDER, .training = p->options.training, .needs_din = !gn_plan_is_images(p, t),
		.device = gn_compute_ops(p->device.compute)};
	struct gn_op *op;
	enum gn_status s;

	if (gn_plan_is_images(p, t))
		retype_images(t, wanted);
	if (gn_layout_equal(wanted, &t->layout))
		return GN_OK;
	desc.in[0] = t->layout;
	desc.out = *wanted;
	s = gn_op_create(p->options.backend, &desc, &op, err);
	if (!s)
		*tensor = add_op(p, op, &desc, node, *tensor, -1);
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

static int is_frozen(const struct builder *b)
{
	return b->p->options.frozen && b->p->options.backend != GN_BACKEND_REF;
}

/* A node of this kind reads, alone, what this one gives. */
static int feeds(const struct builder *b, int node, enum gn_layer reader)
{
	const struct gn_model *m = b->p->model;

	for (int i = node + 1; b->uses_of_node[node] == 1 && i < gn_model_node_count(m); i++)
		if (gn_model_node(m, i)->input[0] == node)
			return gn_model_node(m, i)->kind == reader;
	return 0;
}

/* The link from this batch norm to the convolution that alone reads what it and its relu give; or of the convolution to the batch
 * norm whose output it reads. On a GPU, where nothing else reads what is between them. */
static struct gn_op_conv_bn *conv_bn_of(const struct builder *b, int node, int in, int relu)
{
	const struct gn_plan *p = b->p;
	enum gn_layer kind = gn_model_node(p->model, node)->kind;
	int producer = p->tensors[in].producer;

	if (p->options.backend != GN_BACKEND_CUDA || !p->options.training)
		return NULL;
	if (kind == GN_LAYER_CONV)
		return producer >= 0 ? p->ops[producer].conv_bn : NULL;
	return kind == GN_LAYER_BATCH_NORM && relu && feeds(b, node + 1, GN_LAYER_CONV) ? &p->conv_bns[node] : NULL;
}

static struct gn_op_desc describe(const struct builder *b, const struct gn_shm *n, const int *in, int relu)
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
		.add = (n->kind == GN_LAYER_BATCH_NORM || n->kind == GN_LAYER_CONV) && in[1] >= 0,
		.bf16 = o->bf16 && n->kind == GN_LAYER_CONV,
		.emulate = o->emulate,
		.convolution = o->convolution,
		.training = o->training,
		.frozen = is_frozen(b) && n->kind == GN_LAYER_CONV,
		.groups = n->groups,
		.heads = n->heads,
		.activation = n->activation,
		.eps = n->eps,
		.momentum = n->momentum,
		.rate = n->kind == GN_LAYER_DROP_PATH ? n->rate * o->drop_path : n->rate,
		.seed = o->seed,
		.slice_begin = n->slice_begin,
		.slice_of = n->slice_of,
		.conjugate = n->conjugate,
		.members = o->training && o->group && n->kind == GN_LAYER_BATCH_NORM ? o->group->members : 0,
		.device = gn_compute_ops(b->p->device.compute),
	};

	for (int i = 0; i < 2; i++) {
		if (in[i] < 0)
			continue;
		d.in[i] = b->p->tensors[in[i]].layout;
		d.needs_din |= o->training && !gn_plan_is_images(b->p, &b->p->tensors[in[i]]);
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

/* Relu can join the node before it when nothing else reads that one's output. */
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
	const struct gn_shm *n = gn_model_node(m, node);

	if (n->kind != GN_LAYER_ADD || n->input[0] == n->input[1] || !is_relu_of(b, node))
		return -1;
	for (int k = 0; k < 2; k++)
		if (gn_model_node(m, n->input[k])->kind == GN_LAYER_BATCH_NORM && b->uses_of_node[n->input[k]] == 1)
			return n->input[k];
	return -1;
}

/* The sum that this batch norm waits for, which comes later; -1: none. */
static int sum_of_norm(const struct builder *b, int node)
{
	for (int i = node + 1; i < gn_model_node_count(b->p->model); i++)
		if (norm_of_sum(b, i) == node)
			return i;
	return -1;
}

/* In inference: the node whose memory holds what this one gives. */
static int root_of(const struct builder *b, int node)
{
	const struct gn_model *m = b->p->model;

	for (;;) {
		enum gn_layer kind = gn_model_node(m, node)->kind;

		if (kind != GN_LAYER_DROPOUT && !(kind == GN_LAYER_RELU && is_relu_of(b, node - 1)))
			return node;
		node = gn_model_node(m, node)->input[0];
	}
}

/* The sum may overwrite what it adds: nothing reads that later, and the convolution itself reads something else. */
static int takes_over(const struct builder *b, int sum, int norm, int conv)
{
	const struct gn_model *m = b->p->model;
	const struct gn_shm *n = gn_model_node(m, sum);
	int other = root_of(b, n->input[n->input[0] == norm]);

	if (other == 0 || other == root_of(b, gn_model_node(m, conv)->input[0]))
		return 0;
	for (int i = sum + 1; i < gn_model_node_count(m); i++)
		for (int k = 0; k < 2; k++)
			if (gn_model_node(m, i)->input[k] >= 0 && root_of(b, gn_model_node(m, i)->input[k]) == other)
				return 0;
	return 1;
}

/* The convolution that takes this batch norm in; -1: none. */
static int conv_of_norm(const struct builder *b, int norm)
{
	const struct gn_model *m = b->p->model;
	int conv = gn_model_node(m, norm)->input[0], sum;

	if (!is_frozen(b) || gn_model_node(m, norm)->kind != GN_LAYER_BATCH_NORM ||
	    gn_model_node(m, conv)->kind != GN_LAYER_CONV || b->uses_of_node[conv] != 1)
		return -1;
	sum = sum_of_norm(b, norm);
	return sum < 0 || takes_over(b, sum, norm, conv) ? conv : -1;
}

/* Nodes that run together with one that comes later. */
static int waits(const struct builder *b, int node)
{
	const struct gn_model *m = b->p->model;

	if (gn_model_node(m, node)->kind == GN_LAYER_BATCH_NORM)
		return sum_of_norm(b, node) >= 0;
	for (int i = node + 1; gn_model_node(m, node)->kind == GN_LAYER_CONV && i < gn_model_node_count(m); i++)
		if (gn_model_node(m, i)->input[0] == node)
			return conv_of_norm(b, i) == node;
	return 0;
}

/* The operator for nodes that run together. core: the one with the weights. */
struct joint {
	int core, norm; /* norm: taken into core's weights; -1: none */
	int other;	/* node that is added, or second input; -1: none */
	int relu;
};

static struct joint join(const struct builder *b, int node, int relu)
{
	const struct gn_model *m = b->p->model;
	const struct gn_shm *n = gn_model_node(m, node);
	int norm = norm_of_sum(b, node), conv;
	struct joint j = {.core = norm < 0 ? node : norm, .norm = -1, .other = n->input[1], .relu = relu};

	if (norm >= 0)
		j.other = n->input[n->input[0] == norm];
	conv = conv_of_norm(b, j.core);
	if (conv >= 0) {
		j.norm = j.core;
		j.core = conv;
	}
	return j;
}

static enum gn_status build_node(struct builder *b, int node, int relu, struct gn_err *err)
{
	struct gn_plan *p = b->p;
	struct joint j = join(b, node, relu);
	const struct gn_shm *n = gn_model_node(p->model, j.core);
	int in[2] = {b->tensor_of_node[n->input[0]], j.other < 0 ? -1 : b->tensor_of_node[j.other]};
	int own = is_frozen(b) && n->kind == GN_LAYER_CONV;
	struct gn_op_desc desc = describe(b, n, in, relu);
	struct gn_weight_layout comes = weight_of(p, j.core);
	const struct gn_op_info *info;
	struct gn_plan_op *o;
	struct gn_op *op = NULL;
	enum gn_status s;

	desc.stream = (uint32_t)(n->number ? n->number : node + gn_model_origin(p->model).node);
	desc.conv_bn = desc.add ? NULL : conv_bn_of(b, j.core, in[0], relu);
	desc.statistics = p->options.training && n->kind == GN_LAYER_CONV && feeds(b, j.core, GN_LAYER_BATCH_NORM);
	desc.bias |= j.norm >= 0;
	desc.weight = comes;
	if (own)
		desc.weight.order = GN_WEIGHT_ANY;
	s = gn_op_create(p->options.backend, &desc, &op, err);
	if (s)
		goto fail;
	info = gn_op_info(op);
	for (int i = 0; !s && i < 2; i++)
		if (in[i] >= 0)
			s = reorder_to(p, node, &info->in[i], &in[i], err);
	if (s)
		goto fail;
	b->tensor_of_node[node] = add_op(p, op, &desc, node, in[0], in[1]);
	o = &p->ops[p->op_count - 1];
	o->core = j.core;
	o->conv_bn = desc.kind == GN_OP_BATCH_NORM ? desc.conv_bn : NULL;
	take_params(p, j.core, o);
	if (own) {
		o->conv = j.core;
		o->norm = j.norm;
		if (comes.order == GN_WEIGHT_ANY)
			comes.order = GN_WEIGHT_PLAIN;
		p->weights[o->param[0]] = comes;
	}
	return GN_OK;
fail:
	gn_op_destroy(op);
	return gn_err_prefix(err, "%s, %s %s", gn_model_name(p->model), kind_name(n->kind), n->name), s;
}

/* This relu, which stands alone, and the max pooling after it may change places: nothing else reads what comes in, or is
 * between them. */
static int may_follow_pool(const struct builder *b, int relu)
{
	const struct gn_model *m = b->p->model;

	return gn_model_node(m, relu)->kind == GN_LAYER_RELU && relu + 1 < gn_model_node_count(m) &&
	       gn_model_node(m, relu + 1)->kind == GN_LAYER_MAX_POOL && gn_model_node(m, relu + 1)->input[0] == relu &&
	       b->uses_of_node[relu] == 1 && b->uses_of_node[gn_model_node(m, relu)->input[0]] == 1;
}

/* The largest of values that are not below zero is that of all, or zero: the same result from a quarter of the pixels, and what is
 * pooled need not be kept for backward. */
static enum gn_status build_pool_first(struct builder *b, int relu, struct gn_err *err)
{
	int from = gn_model_node(b->p->model, relu)->input[0], pool = relu + 1;
	enum gn_status s;

	b->tensor_of_node[relu] = b->tensor_of_node[from];
	s = build_node(b, pool, 0, err);
	b->tensor_of_node[from] = b->tensor_of_node[pool];
	if (!s)
		s = build_node(b, relu, 0, err);
	b->tensor_of_node[pool] = b->tensor_of_node[relu];
	return s;
}

/* Dropout and stochastic depth that change nothing. */
static int is_left_out(const struct gn_plan *p, int node)
{
	const struct gn_shm *n = gn_model_node(p->model, node);

	if (n->kind == GN_LAYER_DROP_PATH)
		return !p->options.training || !(n->rate * p->options.drop_path > 0);
	return n->kind == GN_LAYER_DROPOUT && !(p->options.training && p->options.dropout);
}

static enum gn_status build_all(struct builder *b, struct gn_err *err)
{
	struct gn_plan *p = b->p;
	const struct gn_model *m = p->model;
	struct gn_layout images = {p->options.batch,
				   gn_model_channels(m),
				   gn_model_side(m),
				   gn_model_side(m),
				   p->options.pixels ? 0 : 1,
				   p->options.backend == GN_BACKEND_REF ? (int)sizeof(double) : (int)sizeof(float)};
	int count = gn_model_node_count(m);
	enum gn_status s = GN_OK;

	b->tensor_of_node[0] = add_tensor(p, p->options.input ? p->options.input : &images, -1);
	for (int i = 1; !s && i < count; i++) {
		enum gn_layer kind = gn_model_node(m, i)->kind;
		int takes_relu = kind == GN_LAYER_BATCH_NORM || kind == GN_LAYER_ADD || (kind == GN_LAYER_CONV && is_frozen(b));
		int relu = takes_relu && is_relu_of(b, i);

		if (is_left_out(p, i)) {
			b->tensor_of_node[i] = b->tensor_of_node[gn_model_node(m, i)->input[0]];
			continue;
		}
		if (waits(b, i))
			continue;
		if (may_follow_pool(b, i)) {
			s = build_pool_first(b, i, err);
			i++;
			continue;
		}
		s = build_node(b, i, relu, err);
		if (!s && relu) {
			b->tensor_of_node[i + 1] = b->tensor_of_node[i];
			i++;
		}
	}
	p->logits_tensor = b->tensor_of_node[count - 1];
	if (!s && gn_model_is_end(m)) {
		struct gn_layout plain = p->tensors[p->logits_tensor].layout;

		plain.block = 1;
		plain.element_bytes = images.element_bytes;
		s = reorder_to(p, count - 1, &plain, &p->logits_tensor, err);
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
	p->conv_bns = calloc(count, sizeof *p->conv_bns);
	b.tensor_of_node = calloc(count, sizeof *b.tensor_of_node);
	b.uses_of_node = calloc(count, sizeof *b.uses_of_node);
	if (!p->ops || !p->tensors || !p->conv_bns || !b.tensor_of_node || !b.uses_of_node) {
		s = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a plan");
		goto out;
	}
	for (int i = 1; i < count; i++)
		for (int k = 0; k < 2; k++)
			if (gn_model_node(p->model, i)->input[k] >= 0)
				b.uses_of_node[gn_model_node(p->model, i)->input[k]]++;
	if (gn_compute_ops(p->device.compute))
		gn_op_device_begin(gn_compute_ops(p->device.compute));
	s = build_all(&b, err);
	if (!s && gn_compute_ops(p->device.compute))
		s = gn_op_device_end(gn_compute_ops(p->device.compute), err);
	for (int i = 0; !s && i < p->op_count; i++)
		p->ops[i].info = *gn_op_info(p->ops[i].op);
out:
	free(b.tensor_of_node);
	free(b.uses_of_node);
	return s;
}
