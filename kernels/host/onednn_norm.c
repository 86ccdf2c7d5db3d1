/* Batch normalisation, with the relu after it in the same pass where asked for. Workspace: mean, variance, then the mask. */
#include "kernels/host/onednn_internal.h"
#include "src/base/arena.h"

struct norm {
	struct gn_dnnl_op *op;
	unsigned flags;
	size_t mask_offset;
	dnnl_memory_desc_t data, vector;
	const dnnl_memory_desc_t *mask; /* NULL: none */
};

/* oneDNN gives the biased variance of the batch; torch keeps the unbiased one. */
static enum gn_status forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	const struct gn_op_buffers *b = &op->buffers;
	const struct gn_layout *in = &op->desc.in[0];
	const float *mean = b->workspace, *var = mean + in->c;
	double count = (double)in->n * in->h * in->w, m = op->desc.momentum;
	enum gn_status s = gn_dnnl_forward(op, step, err);

	if (s || !op->desc.training)
		return s;
	for (int c = 0; c < in->c; c++) {
		b->running_mean[c] = (float)((1 - m) * b->running_mean[c] + m * mean[c]);
		b->running_var[c] = (float)((1 - m) * b->running_var[c] + m * var[c] * count / (count - 1));
	}
	return GN_OK;
}

/* In inference the running statistics are copied where training has the batch's: binding is then the same. */
static enum gn_status forward_inference(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	const struct gn_op_buffers *b = &op->buffers;
	float *mean = b->workspace, *var = mean + op->desc.in[0].c;

	for (int c = 0; c < op->desc.in[0].c; c++) {
		mean[c] = b->running_mean[c];
		var[c] = b->running_var[c];
	}
	return forward(op, step, err);
}

static enum gn_status forward_descriptor(struct norm *n, dnnl_primitive_desc_t *out, struct gn_err *err)
{
	int training = n->op->base.desc.training;
	dnnl_batch_normalization_desc_t desc;
	enum gn_status s;

	s = gn_dnnl_check(dnnl_batch_normalization_forward_desc_init(
				  &desc, training ? dnnl_forward_training : dnnl_forward_inference, &n->data,
				  (float)n->op->base.desc.eps, n->flags), "batch norm", err);
	return s ? s : gn_dnnl_check(dnnl_primitive_desc_create(out, &desc, n->op->attr, n->op->engine, NULL), "batch norm",
				     err);
}

static enum gn_status build_forward(struct norm *n, const_dnnl_primitive_desc_t pd, struct gn_err *err)
{
	struct gn_dnnl_op *op = n->op;
	size_t channels = op->base.desc.in[0].c;
	dnnl_exec_arg_t args[] = {
		{DNNL_ARG_SRC, gn_dnnl_memory(op, GN_ROLE_IN, 0, &n->data, err)},
		{DNNL_ARG_DST, gn_dnnl_memory(op, GN_ROLE_OUT, 0, &n->data, err)},
		{DNNL_ARG_SCALE, gn_dnnl_memory(op, GN_ROLE_WEIGHT, 0, &n->vector, err)},
		{DNNL_ARG_SHIFT, gn_dnnl_memory(op, GN_ROLE_BIAS, 0, &n->vector, err)},
		{DNNL_ARG_MEAN, gn_dnnl_memory(op, GN_ROLE_WORKSPACE, 0, &n->vector, err)},
		{DNNL_ARG_VARIANCE, gn_dnnl_memory(op, GN_ROLE_WORKSPACE, channels * sizeof(float), &n->vector, err)},
		{DNNL_ARG_WORKSPACE, n->mask ? gn_dnnl_memory(op, GN_ROLE_WORKSPACE, n->mask_offset, n->mask, err) : NULL},
	};

	return gn_dnnl_append(op, &op->forward, pd, args, n->mask ? 7 : 6, err);
}

static enum gn_status build_backward(struct norm *n, const_dnnl_primitive_desc_t forward_pd, struct gn_err *err)
{
	struct gn_dnnl_op *op = n->op;
	size_t channels = op->base.desc.in[0].c;
	dnnl_batch_normalization_desc_t desc;
	dnnl_primitive_desc_t pd;
	enum gn_status s;

	s = gn_dnnl_check(dnnl_batch_normalization_backward_desc_init(&desc, dnnl_backward, &n->data, &n->data,
								      (float)op->base.desc.eps, n->flags),
			  "batch norm's gradient", err);
	if (!s)
		s = gn_dnnl_check(dnnl_primitive_desc_create(&pd, &desc, op->attr, op->engine, forward_pd),
				  "batch norm's gradient", err);
	if (s)
		return s;
	gn_dnnl_group(op);
	dnnl_exec_arg_t args[] = {
		{DNNL_ARG_SRC, gn_dnnl_memory(op, GN_ROLE_IN, 0, &n->data, err)},
		{DNNL_ARG_MEAN, gn_dnnl_memory(op, GN_ROLE_WORKSPACE, 0, &n->vector, err)},
		{DNNL_ARG_VARIANCE, gn_dnnl_memory(op, GN_ROLE_WORKSPACE, channels * sizeof(float), &n->vector, err)},
		{DNNL_ARG_DIFF_DST, gn_dnnl_memory(op, GN_ROLE_DOUT, 0, &n->data, err)},
		{DNNL_ARG_SCALE, gn_dnnl_memory(op, GN_ROLE_WEIGHT, 0, &n->vector, err)},
		{DNNL_ARG_SHIFT, gn_dnnl_memory(op, GN_ROLE_BIAS, 0, &n->vector, err)},
		{DNNL_ARG_DIFF_SRC, gn_dnnl_memory(op, GN_ROLE_DIN, 0, &n->data, err)},
		{DNNL_ARG_DIFF_SCALE, gn_dnnl_memory(op, GN_ROLE_DWEIGHT, 0, &n->vector, err)},
		{DNNL_ARG_DIFF_SHIFT, gn_dnnl_memory(op, GN_ROLE_DBIAS, 0, &n->vector, err)},
		{DNNL_ARG_WORKSPACE, n->mask ? gn_dnnl_memory(op, GN_ROLE_WORKSPACE, n->mask_offset, n->mask, err) : NULL},
	};
	s = gn_dnnl_append(op, &op->backward, pd, args, n->mask ? 10 : 9, err);
	dnnl_primitive_desc_destroy(pd);
	return s;
}

static void place_mask(struct norm *n, const_dnnl_primitive_desc_t pd)
{
	size_t channels = n->op->base.desc.in[0].c, mask_bytes = 0;

	n->mask_offset = (2 * channels * sizeof(float) + GN_ALIGN_BYTES - 1) / GN_ALIGN_BYTES * GN_ALIGN_BYTES;
	n->mask = gn_dnnl_query(pd, dnnl_query_workspace_md, 0);
	if (n->mask)
		mask_bytes = dnnl_memory_desc_get_size(n->mask);
	if (!mask_bytes)
		n->mask = NULL;
	n->op->base.info.workspace_bytes = n->mask_offset + mask_bytes;
}

enum gn_status gn_dnnl_batch_norm_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	static const struct gn_op_class training = {.bind = gn_dnnl_bind, .forward = forward,
						    .backward = gn_dnnl_backward, .destroy = gn_dnnl_destroy};
	static const struct gn_op_class inference = {.bind = gn_dnnl_bind, .forward = forward_inference,
						     .backward = gn_dnnl_backward, .destroy = gn_dnnl_destroy};
	struct norm n = {.flags = dnnl_use_scale | dnnl_use_shift};
	dnnl_dims_t channels = {base->desc.in[0].c};
	dnnl_primitive_desc_t pd = NULL;
	enum gn_status s = gn_dnnl_op_alloc(base, base->desc.training ? &training : &inference, &n.op, err);

	if (s)
		return s;
	if (base->desc.relu)
		n.flags |= dnnl_fuse_norm_relu;
	if (!base->desc.training)
		n.flags |= dnnl_use_global_stats;
	s = gn_dnnl_md_of_layout(&base->desc.in[0], &n.data, err);
	if (!s)
		s = gn_dnnl_md_plain(1, channels, &n.vector, err);
	if (!s)
		s = forward_descriptor(&n, &pd, err);
	if (!s) {
		place_mask(&n, pd);
		s = build_forward(&n, pd, err);
	}
	if (!s && base->desc.training)
		s = build_backward(&n, pd, err);
	n.op->base.info.backward_reads_in = 1;
	dnnl_primitive_desc_destroy(pd);
	if (s)
		gn_op_destroy(&n.op->base);
	else
		*out = &n.op->base;
	return s;
}
