/* Tensors between torch's order on the host and an operator's on the device. */
#include "tests/gpu/ops.h"

void *ops_device_bytes(struct fixture *b, size_t bytes)
{
	return bytes ? fixture_bytes(b, NULL, bytes) : NULL;
}

/* By a reorder operator, as a plan does it. */
static void reorder(struct fixture *b, struct gn_cuda_ops *ops, const struct gn_layout *from, const void *a,
		    const struct gn_layout *to, void *out)
{
	struct gn_op_desc d = {.kind = GN_OP_REORDER, .in = {*from, *from}, .out = *to, .device = gn_cuda_ops_device(ops)};
	struct gn_op_buffers v = {.in = {a}, .out = out};
	struct gn_op *op;

	if (!fixture_ok(b, gn_op_create(GN_BACKEND_CUDA, &d, &op, &b->err), "reorder"))
		return;
	fixture_ok(b, gn_op_bind(op, &v, &b->err), "reorder");
	fixture_ok(b, gn_op_forward(op, 0, &b->err), "reorder");
	gn_op_destroy(op);
}

static struct gn_layout plain_of(const struct gn_layout *l)
{
	struct gn_layout p = *l;

	p.block = 1;
	p.element_bytes = 4;
	return p;
}

void *ops_to_device(struct fixture *b, struct gn_cuda_ops *ops, const struct gn_layout *l, const float *x)
{
	struct gn_layout p = plain_of(l);
	void *staged = fixture_bytes(b, x, gn_layout_bytes(&p)), *out = ops_device_bytes(b, gn_layout_bytes(l));

	if (staged && out)
		reorder(b, ops, &p, staged, l, out);
	return out;
}

void ops_from_device(struct fixture *b, struct gn_cuda_ops *ops, const struct gn_layout *l, const void *x, float *out)
{
	struct gn_layout p = plain_of(l);
	void *staged = ops_device_bytes(b, gn_layout_bytes(&p));

	if (!staged || !x)
		return;
	reorder(b, ops, l, x, &p, staged);
	fixture_fetch(b, out, staged, gn_layout_bytes(&p));
}
