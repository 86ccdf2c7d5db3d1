/* Fully connected layer on plain memory: PyTorch's weight layout is used unchanged, because a copy is expensive (VGG's weights take
 * 400 MB). */
#include "kernels/host/onednn_internal.h"

struct linear {
	struct gn_dnnl_op *op;
	gn_dnnl_md in, out, weight, bias;
};

static enum gn_status describe(struct linear *l, struct gn_err *err)
{
	const struct gn_layout *in = &l->op->base.desc.in[0];
	int classes = l->op->base.desc.channels_out;
	int64_t features = (int64_t)in->c * in->h * in->w;
	dnnl_dims_t in_shape = {in->n, features}, out_shape = {in->n, classes}, weight_shape = {classes, features};
	dnnl_dims_t bias_shape = {classes};
	enum gn_status s = gn_dnnl_md_plain(l->op, 2, in_shape, &l->in, err);

	if (!s)
		s = gn_dnnl_md_plain(l->op, 2, out_shape, &l->out, err);
	if (!s)
		s = gn_dnnl_md_plain(l->op, 2, weight_shape, &l->weight, err);
	return s ? s : gn_dnnl_md_plain(l->op, 1, bias_shape, &l->bias, err);
}

static enum gn_status build_forward(struct linear *l, dnnl_primitive_desc_t *pd, struct gn_err *err)
{
	struct gn_dnnl_op *op = l->op;
	int bias = op->base.desc.bias;
	const struct gn_dnnl_context context = {op->engine, op->attr, NULL};
	enum gn_status s = gn_dnnl_check(
		gn_dnnl_linear_forward_pd(pd, &context, op->base.desc.training ? dnnl_forward_training : dnnl_forward_inference,
					  l->in, l->weight, bias ? l->bias : NULL, l->out),
		"linear layer", err);

	if (s)
		return s;
	dnnl_exec_arg_t args[] = {
		{DNNL_ARG_SRC, gn_dnnl_memory(op, GN_ROLE_IN, 0, l->in, err)},
		{DNNL_ARG_WEIGHTS, gn_dnnl_memory(op, GN_ROLE_WEIGHT, 0, l->weight, err)},
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
	enum gn_status s = gn_dnnl_check(gn_dnnl_linear_backward_data_pd(&pd, &context, l->in, l->weight, l->out),
					 "input gradient of a linear layer", err);

	if (s)
		return s;
	gn_dnnl_group(op);
	dnnl_exec_arg_t args[] = {
		{DNNL_ARG_DIFF_DST, gn_dnnl_memory(op, GN_ROLE_DOUT, 0, l->out, err)},
		{DNNL_ARG_WEIGHTS, gn_dnnl_memory(op, GN_ROLE_WEIGHT, 0, l->weight, err)},
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
	enum gn_status s = gn_dnnl_op_alloc(base, &l.op, err);

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
