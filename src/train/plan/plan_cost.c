#include "src/train/plan/plan_cost.h"
#include "src/train/plan/plan_internal.h"

#include <math.h>
#include <string.h>

int gn_plan_winograd(const struct gn_plan *p)
{
	int count = 0;

	for (int i = 0; p && i < p->op_count; i++)
		count += p->ops[i].info.winograd;
	return count;
}

int gn_plan_op_count(const struct gn_plan *p)
{
	return p->op_count;
}

/* A batch norm, sum or convolution with what runs along. */
static const char *kind_of(const struct gn_plan_op *o)
{
	static const char *const norms[] = {"batch norm", "batch norm+relu", "batch norm+sum", "batch norm+sum+relu"};
	static const char *const convs[] = {"convolution", "convolution+relu", "convolution+sum", "convolution+sum+relu"};

	switch (o->kind) {
	case GN_OP_CONV:
		return convs[o->with_relu + 2 * (o->in[1] >= 0)];
	case GN_OP_BATCH_NORM:
		return norms[o->with_relu + 2 * (o->in[1] >= 0)];
	case GN_OP_RELU:
		return "relu";
	case GN_OP_MAX_POOL:
		return "max pooling";
	case GN_OP_ADAPTIVE_AVG_POOL:
		return "average pooling";
	case GN_OP_ADD:
		return o->with_relu ? "sum+relu" : "sum";
	case GN_OP_LINEAR:
		return "linear";
	case GN_OP_DROPOUT:
		return "dropout";
	case GN_OP_REORDER:
		return "reorder";
	case GN_OP_ACTIVATION:
		return "activation";
	case GN_OP_SCALE:
		return "scaling";
	case GN_OP_CHANNEL_SCALE:
		return "layer scale";
	case GN_OP_DROP_PATH:
		return "stochastic depth";
	case GN_OP_LAYER_NORM:
		return "layer norm";
	case GN_OP_TOKENS:
		return "tokens";
	case GN_OP_ATTENTION:
		return "attention";
	case GN_OP_FIRST_PIXEL:
		return "first pixel";
	case GN_OP_CONJUGATE:
		return "exchange";
	}
	return "";
}

static double bytes_of(const struct gn_plan *p, int tensor)
{
	return tensor < 0 ? 0 : (double)gn_layout_bytes(&p->tensors[tensor].layout);
}

static const struct gn_param *weight_of(const struct gn_plan *p, const struct gn_plan_op *o)
{
	int has = o->kind == GN_OP_CONV || o->kind == GN_OP_LINEAR;

	return has && o->param[0] >= 0 ? gn_model_param(p->model, o->param[0]) : NULL;
}

/* One multiplication and one addition for each weight at each place of the output. */
static double product_flops(const struct gn_plan *p, const struct gn_plan_op *o)
{
	const struct gn_layout *out = &p->tensors[o->out].layout;
	const struct gn_param *w = weight_of(p, o);

	if (o->kind == GN_OP_ATTENTION) /* q k^T, and the probabilities times v */
		return 4.0 * out->c * out->n * out->h * out->w * out->h * out->w;
	return w ? 2 * (double)w->count * out->n * out->h * out->w : 0;
}

/* The gradient of the weights reads input and output's gradient, that of the input the latter and the weights. */
static void product_backward(const struct gn_plan *p, const struct gn_plan_op *o, double weight, struct gn_plan_cost *c)
{
	double in = bytes_of(p, o->in[0]), out = bytes_of(p, o->out);
	double dweight = weight_of(p, o) ? (double)weight_of(p, o)->count * sizeof(float) : 0;
	int wants_din = !gn_plan_is_images(p, &p->tensors[o->in[0]]);

	c->flops[1] = c->flops[0] * (1 + wants_din);
	c->bytes[1] = in + out + dweight + wants_din * (out + weight + in);
}

static void norm_backward(const struct gn_plan *p, const struct gn_plan_op *o, struct gn_plan_cost *c)
{
	double x = bytes_of(p, o->in[0]);
	int two_parts = p->tensors[o->out].more_grad >= 0, next = p->tensors[o->out].last_consumer;

	/* Sums: x, dy, with a sum also y, the second part and the masked gradient. Then x and dy once more, and dx. */
	c->bytes[1] = o->in[1] >= 0 ? (4 + two_parts) * x + 3 * x : 2 * x + 3 * x;
	/* and x to y, before that */
	if (next >= 0 && p->ops[next].recomputes >= 0 && &p->ops[p->ops[next].recomputes] == o)
		c->bytes[1] += 2 * x;
}

static void backward(const struct gn_plan *p, const struct gn_plan_op *o, double weight, struct gn_plan_cost *c)
{
	double in = bytes_of(p, o->in[0]), out = bytes_of(p, o->out);

	switch (o->kind) {
	case GN_OP_CONV:
	case GN_OP_LINEAR:
		product_backward(p, o, weight, c);
		break;
	case GN_OP_BATCH_NORM:
		norm_backward(p, o, c);
		break;
	case GN_OP_RELU:
		c->bytes[1] = 3 * out;
		break;
	case GN_OP_ADD:
		c->bytes[1] = (3 + o->with_relu) * out;
		break;
	case GN_OP_ATTENTION: /* the first product again, and two for each of forward's */
		c->flops[1] = 2.5 * c->flops[0];
		c->bytes[1] = 2 * in + out;
		break;
	default:
		c->bytes[1] = (double)o->info.workspace_bytes + in + out;
	}
	for (int k = 0; k < 2; k++)
		c->bytes[1] += o->adds[k] ? 3 * bytes_of(p, o->in[k]) : 0;
}

/* Passes over a weight for one product, in bytes of each number: where it is rounded first, read, written and read again. Weights
 * that stay have been before. */
static double weight_bytes(const struct gn_plan *p, const struct gn_plan_op *o)
{
	if (o->info.in[0].element_bytes != sizeof(uint16_t))
		return sizeof(float);
	return p->options.frozen ? sizeof(uint16_t) : sizeof(float) + 2 * sizeof(uint16_t);
}

/* 36 products for each tile of 4 x 4 in place of 9 for each place of the output. */
static void filtered_products(const struct gn_plan_op *o, struct gn_plan_cost *c)
{
	const struct gn_layout *out = &c->out;
	const double left = 36 * ceil(out->h / 4.) * ceil(out->w / 4.) / (9. * out->h * out->w);

	for (int k = 0; k < 2; k++)
		c->products[k] = c->flops[k] * (o->info.winograd ? left : 1);
}

void gn_plan_op_cost(const struct gn_plan *p, int index, struct gn_plan_cost *out)
{
	const struct gn_plan_op *o = &p->ops[index];
	const struct gn_param *w = weight_of(p, o);
	double weight = w ? (double)w->count * weight_bytes(p, o) : 0, in = bytes_of(p, o->in[0]);

	*out = (struct gn_plan_cost){.kind = kind_of(o), .name = gn_model_node(p->model, o->core)->name,
				     .out = p->tensors[o->out].layout};
	memcpy(out->exchange, o->info.exchange, sizeof out->exchange);
	out->flops[0] = product_flops(p, o);
	out->bytes[0] = in + bytes_of(p, o->in[1]) + bytes_of(p, o->out) + weight;
	if (o->kind == GN_OP_BATCH_NORM && p->options.training)
		out->bytes[0] += in; /* once for the statistics */
	if (p->options.training) {
		out->bytes[0] += (double)o->info.workspace_bytes * (o->kind == GN_OP_MAX_POOL);
		backward(p, o, weight, out);
	}
	filtered_products(o, out);
}

int gn_plan_op_engines(const struct gn_plan *p, int index, struct gn_op_engine out[GN_OP_ENGINES_MAX])
{
	return gn_op_engines(p->ops[index].op, out);
}
