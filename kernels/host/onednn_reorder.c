/* Changes of a tensor's layout or type. */
#include "kernels/host/onednn_internal.h"

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
	enum gn_status s = gn_dnnl_op_alloc(base, &op, err);

	if (s)
		return s;
	s = build_reorder(op, err);
	if (s)
		gn_op_destroy(&op->base);
	else
		*out = &op->base;
	return s;
}
