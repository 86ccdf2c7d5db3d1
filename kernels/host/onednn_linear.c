/* Fully connected layers on rows, of one image each or of one token each; tokens are NHWC maps of one column. PyTorch's weight layout is
 * used unchanged, because a copy is expensive (VGG's weights take 400 MB) and oneDNN's blocked products of rows are no faster. With
 * bfloat16, which only tokens have, weights are copied in that type, and products accumulate in float and round once; weights, bias and
 * their gradients stay float. */
#include "kernels/host/onednn_internal.h"

struct linear {
	struct gn_dnnl_op *op;
	gn_dnnl_md in, out, bias;
	gn_dnnl_md weight, weight_used; /* the caller's, float; what is multiplied */
};

static int has_tokens(const struct linear *l)
{
	return l->op->base.desc.kind == GN_OP_CONV;
}

static enum gn_status describe(struct linear *l, struct gn_err *err)
{
	const struct gn_layout *in = &l->op->base.desc.in[0];
	int64_t classes = l->op->base.desc.channels_out, pixels = (int64_t)in->h * in->w;
	int64_t rows = has_tokens(l) ? in->n * pixels : in->n, features = has_tokens(l) ? in->c : in->c * pixels;
	dnnl_dims_t in_shape = {rows, features}, out_shape = {rows, classes}, weight_shape = {classes, features};
	dnnl_dims_t bias_shape = {classes};
	dnnl_data_type_t type = has_tokens(l) && l->op->base.desc.bf16 ? dnnl_bf16 : dnnl_f32;
	enum gn_status s = gn_dnnl_md_plain(l->op, 2, in_shape, type, &l->in, err);

	if (!s)
		s = gn_dnnl_md_plain(l->op, 2, out_shape, type, &l->out, err);
	if (!s)
		s = gn_dnnl_md_plain(l->op, 2, weight_shape, dnnl_f32, &l->weight, err);
	if (!s)
		s = gn_dnnl_md_plain(l->op, 1, bias_shape, dnnl_f32, &l->bias, err);
	return s ? s : gn_dnnl_md_plain(l->op, 2, weight_shape, type, &l->weight_used, err);
}

/* The caller's weights, or a copy in bfloat16, made by a preceding step; with desc.frozen made once. */
static dnnl_memory_t weights_for(struct linear *l, struct gn_dnnl_list *list, struct gn_err *err)
{
	dnnl_memory_t mine = gn_dnnl_memory(l->op, GN_ROLE_WEIGHT, 0, l->weight, err), copy;

	if (!mine || dnnl_memory_desc_equal(l->weight_used, l->weight))
		return mine;
	if (l->op->base.desc.frozen) {
		list = &l->op->freeze;
		l->op->base.info.workspace_bytes = dnnl_memory_desc_get_size(l->weight_used);
		copy = gn_dnnl_memory(l->op, GN_ROLE_WORKSPACE, 0, l->weight_used, err);
	} else {
		copy = gn_dnnl_scratch(l->op, l->weight_used, err);
	}
	return copy && !gn_dnnl_append_reorder(l->op, list, mine, copy, err) ? copy : NULL;
}

static enum gn_status build_forward(struct linear *l, dnnl_primitive_desc_t *pd, struct gn_err *err)
{
	struct gn_dnnl_op *op = l->op;
	int bias = op->base.desc.bias;
	const struct gn_dnnl_context context = {op->engine, op->attr, NULL};
	enum gn_status s = gn_dnnl_check(
		gn_dnnl_linear_forward_pd(pd, &context, op->base.desc.training ? dnnl_forward_training : dnnl_forward_inference,
					  l->in, l->weight_used, bias ? l->bias : NULL, l->out),
		"linear layer", err);

	if (s)
		return s;
	dnnl_exec_arg_t args[] = {
		{DNNL_ARG_SRC, gn_dnnl_memory(op, GN_ROLE_IN, 0, l->in, err)},
		{DNNL_ARG_WEIGHTS, weights_for(l, &op->forward, err)},
		{DNNL_ARG_DST, gn_dnnl_memory(op, GN_ROLE_OUT, 0, l->out, err)},
		{DNNL_ARG_BIAS, bias ? gn_dnnl_memory(op, GN_ROLE_BIAS, 0, l->bias, err) : NULL},
	};
	return gn_dnnl_append(op, &op->forward, *pd, args, bias ? 4 : 3, err);
}

static enum gn_status build_backward_data(struct linear *l, const_dnnl_primitive_desc_t forward, struct gn_err *err)
{
	struct gn_dnnl_op *op = l->op;
	const struct gn_dnnl_context context = {op->engine, op->attr, forward};
	dnnl_primitive_desc_t pd;
	enum gn_status s = gn_dnnl_check(gn_dnnl_linear_backward_data_pd(&pd, &context, l->in, l->weight_used, l->out),
					 "input gradient of a linear layer", err);

	if (s)
		return s;
	gn_dnnl_group(op);
	dnnl_exec_arg_t args[] = {
		{DNNL_ARG_DIFF_DST, gn_dnnl_memory(op, GN_ROLE_DOUT, 0, l->out, err)},
		{DNNL_ARG_WEIGHTS, weights_for(l, &op->backward, err)},
		{DNNL_ARG_DIFF_SRC, gn_dnnl_memory(op, GN_ROLE_DIN, 0, l->in, err)},
	};
	s = gn_dnnl_append(op, &op->backward, pd, args, 3, err);
	dnnl_primitive_desc_destroy(pd);
	return s;
}

static enum gn_status build_backward_weight(struct linear *l, const_dnnl_primitive_desc_t forward, struct gn_err *err)
{
	struct gn_dnnl_op *op = l->op;
	int bias = op->base.desc.bias;
	const struct gn_dnnl_context context = {op->engine, op->attr, forward};
	dnnl_primitive_desc_t pd;
	enum gn_status s = gn_dnnl_check(
		gn_dnnl_linear_backward_weight_pd(&pd, &context, l->in, l->weight, bias ? l->bias : NULL, l->out),
		"weight gradient of a linear layer", err);

	if (s)
		return s;
	gn_dnnl_group(op);
	dnnl_exec_arg_t args[] = {
		{DNNL_ARG_SRC, gn_dnnl_memory(op, GN_ROLE_IN, 0, l->in, err)},
		{DNNL_ARG_DIFF_DST, gn_dnnl_memory(op, GN_ROLE_DOUT, 0, l->out, err)},
		{DNNL_ARG_DIFF_WEIGHTS, gn_dnnl_memory(op, GN_ROLE_DWEIGHT, 0, l->weight, err)},
		{DNNL_ARG_DIFF_BIAS, bias ? gn_dnnl_memory(op, GN_ROLE_DBIAS, 0, l->bias, err) : NULL},
	};
	s = gn_dnnl_append(op, &op->backward, pd, args, bias ? 4 : 3, err);
	dnnl_primitive_desc_destroy(pd);
	return s;
}

enum gn_status gn_dnnl_linear_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	struct linear l = {0};
	dnnl_primitive_desc_t pd = NULL;
	enum gn_status s = gn_dnnl_op_alloc(base, NULL, &l.op, err);

	if (s)
		return s;
	s = describe(&l, err);
	if (!s)
		s = build_forward(&l, &pd, err);
	if (!s && base->desc.training && base->desc.needs_din)
		s = build_backward_data(&l, pd, err);
	if (!s && base->desc.training)
		s = build_backward_weight(&l, pd, err);
	l.op->base.info.backward_reads_in = 1;
	dnnl_primitive_desc_destroy(pd);
	if (s)
		gn_op_destroy(&l.op->base);
	else
		*out = &l.op->base;
	return s;
}

int gn_dnnl_tokens_fit(const struct gn_op *base)
{
	const struct gn_op_desc *d = &base->desc;

	return d->kind == GN_OP_CONV && d->kernel == 1 && d->stride == 1 && d->pad == 0 && d->groups <= 1 && !d->relu && !d->add &&
	       d->in[0].block == 0 && d->in[0].w == 1 && (!d->bf16 || gn_host_has_bf16()) &&
	       (d->weight.order == GN_WEIGHT_PLAIN || d->weight.order == GN_WEIGHT_ANY);
}

enum gn_status gn_dnnl_tokens_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	struct gn_op rows = *base;

	rows.info.in[0].block = rows.info.out.block = 0;
	rows.info.in[0].element_bytes = rows.info.out.element_bytes = base->desc.bf16 ? sizeof(uint16_t) : sizeof(float);
	rows.info.weight = (struct gn_weight_layout){GN_WEIGHT_PLAIN, 0};
	return gn_dnnl_linear_create(&rows, out, err);
}
