/* Max pooling and reorders. */
#include "kernels/host/onednn_internal.h"

struct pool {
	struct gn_dnnl_op *op;
	struct gn_dnnl_window window;
	gn_dnnl_md in, out, argmax;
};

static enum gn_status forward_descriptor(struct pool *p, dnnl_primitive_desc_t *out, struct gn_err *err)
{
	const struct gn_dnnl_context context = {p->op->engine, p->op->attr, NULL};
	dnnl_prop_kind_t kind = p->op->base.desc.training ? dnnl_forward_training : dnnl_forward_inference;

	return gn_dnnl_check(gn_dnnl_max_pool_forward_pd(out, &context, kind, p->in, p->out, &p->window), "max pooling", err);
}

static enum gn_status build_forward(struct pool *p, const_dnnl_primitive_desc_t pd, struct gn_err *err)
{
	struct gn_dnnl_op *op = p->op;
	int training = op->base.desc.training;

	if (training) {
		p->argmax = gn_dnnl_query(pd, dnnl_query_workspace_md, 0);
		op->base.info.workspace_bytes = dnnl_memory_desc_get_size(p->argmax);
	}
	dnnl_exec_arg_t args[] = {
		{DNNL_ARG_SRC, gn_dnnl_memory(op, GN_ROLE_IN, 0, p->in, err)},
		{DNNL_ARG_DST, gn_dnnl_memory(op, GN_ROLE_OUT, 0, p->out, err)},
		{DNNL_ARG_WORKSPACE, training ? gn_dnnl_memory(op, GN_ROLE_WORKSPACE, 0, p->argmax, err) : NULL},
	};
	return gn_dnnl_append(op, &op->forward, pd, args, training ? 3 : 2, err);
}

static enum gn_status build_backward(struct pool *p, const_dnnl_primitive_desc_t forward_pd, struct gn_err *err)
{
	struct gn_dnnl_op *op = p->op;
	const struct gn_dnnl_context context = {op->engine, op->attr, forward_pd};
	dnnl_primitive_desc_t pd;
	enum gn_status s = gn_dnnl_check(gn_dnnl_max_pool_backward_pd(&pd, &context, p->in, p->out, &p->window),
					 "gradient of max pooling", err);

	if (s)
		return s;
	gn_dnnl_group(op);
	dnnl_exec_arg_t args[] = {
		{DNNL_ARG_DIFF_DST, gn_dnnl_memory(op, GN_ROLE_DOUT, 0, p->out, err)},
		{DNNL_ARG_WORKSPACE, gn_dnnl_memory(op, GN_ROLE_WORKSPACE, 0, p->argmax, err)},
		{DNNL_ARG_DIFF_SRC, gn_dnnl_memory(op, GN_ROLE_DIN, 0, p->in, err)},
	};
	s = gn_dnnl_append(op, &op->backward, pd, args, 3, err);
	dnnl_primitive_desc_destroy(pd);
	return s;
}

static enum gn_status describe(struct pool *p, struct gn_err *err)
{
	const struct gn_op_desc *d = &p->op->base.desc;
	const struct gn_layout *in = &d->in[0], *out = &p->op->base.info.out;
	struct gn_dnnl_window *w = &p->window;
	enum gn_status s;

	w->kernel[0] = w->kernel[1] = d->kernel;
	w->stride[0] = w->stride[1] = d->stride;
	w->pad_begin[0] = w->pad_begin[1] = d->pad;
	w->pad_end[0] = (out->h - 1) * d->stride + d->kernel - in->h - d->pad;
	w->pad_end[1] = (out->w - 1) * d->stride + d->kernel - in->w - d->pad;
	s = gn_dnnl_md_of_layout(p->op, in, &p->in, err);
	return s ? s : gn_dnnl_md_of_layout(p->op, out, &p->out, err);
}

enum gn_status gn_dnnl_max_pool_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	struct pool p = {0};
	dnnl_primitive_desc_t pd = NULL;
	enum gn_status s = gn_dnnl_op_alloc(base, NULL, &p.op, err);

	if (s)
		return s;
	s = describe(&p, err);
	if (!s)
		s = forward_descriptor(&p, &pd, err);
	if (!s)
		s = build_forward(&p, pd, err);
	if (!s && base->desc.training)
		s = build_backward(&p, pd, err);
	dnnl_primitive_desc_destroy(pd);
	if (s)
		gn_op_destroy(&p.op->base);
	else
		*out = &p.op->base;
	return s;
}

static enum gn_status build_reorder(struct gn_dnnl_op *op, struct gn_err *err)
{
	gn_dnnl_md in, out;
	enum gn_status s = gn_dnnl_md_of_layout(op, &op->base.desc.in[0], &in, err);

	if (!s)
		s = gn_dnnl_md_of_layout(op, &op->base.info.out, &out, err);
	if (!s)
		s = gn_dnnl_append_reorder(op, &op->forward, gn_dnnl_memory(op, GN_ROLE_IN, 0, in, err),
					   gn_dnnl_memory(op, GN_ROLE_OUT, 0, out, err), err);
	if (s || !op->base.desc.training || !op->base.desc.needs_din)
		return s;
	gn_dnnl_group(op);
	return gn_dnnl_append_reorder(op, &op->backward, gn_dnnl_memory(op, GN_ROLE_DOUT, 0, out, err),
				      gn_dnnl_memory(op, GN_ROLE_DIN, 0, in, err), err);
}

enum gn_status gn_dnnl_reorder_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	struct gn_dnnl_op *op;
	enum gn_status s = gn_dnnl_op_alloc(base, NULL, &op, err);

	if (s)
		return s;
	s = build_reorder(op, err);
	if (s)
		gn_op_destroy(&op->base);
	else
		*out = &op->base;
	return s;
}
