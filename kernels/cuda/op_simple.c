/* Operators with one kernel per direction: relu, sum, pools, dropout, reorder. */
#include "kernels/cuda/ops_internal.h"
#include "src/base/philox.h"

static size_t elements(const struct gn_op *op)
{
	return gn_layout_elements(&op->info.out);
}

static enum gn_status pointwise_forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	const struct gn_op_buffers *b = &op->buffers;
	int relu = op->desc.kind == GN_OP_RELU || op->desc.relu;

	(void)step;
	return gn_cuda_add(gn_cuda_op_stream(op), gn_cuda_op_type(op), b->in[0], op->desc.kind == GN_OP_ADD ? b->in[1] : NULL, relu, b->out,
			   elements(op), err);
}

/* Computes the gradient before the relu, if any, for the first input, and copies it to the second. */
static enum gn_status pointwise_backward(struct gn_op *op, struct gn_err *err)
{
	const struct gn_op_buffers *b = &op->buffers;
	struct gn_cuda_stream *s = gn_cuda_op_stream(op);
	void *first = b->din[0] ? b->din[0] : b->din[1];
	enum gn_status status = GN_OK;

	if (op->desc.kind == GN_OP_RELU || op->desc.relu)
		status = gn_cuda_relu_grad(s, gn_cuda_op_type(op), b->out, b->dout, b->more_dout, first, elements(op), err);
	else if (first != b->dout || b->more_dout)
		status = gn_cuda_add(s, gn_cuda_op_type(op), b->dout, b->more_dout, 0, first, elements(op), err);
	if (!status && b->din[1] && b->din[1] != first)
		status = gn_cuda_copy(s, b->din[1], first, gn_layout_bytes(&op->info.out), err);
	return status;
}

static enum gn_status pointwise_create(struct gn_cuda_ops *o, const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	static const struct gn_op_class class = {.forward = pointwise_forward, .backward = pointwise_backward};
	struct gn_op *op = gn_cuda_op_alloc(o, sizeof *op, &class, base, err);

	if (!op)
		return GN_ERR_NO_MEMORY;
	op->info.backward_reads_out = op->desc.kind == GN_OP_RELU || op->desc.relu;
	op->info.in_place = 1;
	op->info.sums_gradients = 1;
	*out = op;
	return GN_OK;
}

static struct gn_cuda_window window_of(const struct gn_op *op)
{
	const struct gn_op_desc *d = &op->desc;

	return (struct gn_cuda_window){d->in[0].n,     d->in[0].c, d->in[0].h, d->in[0].w, op->info.out.h,
				       op->info.out.w, d->kernel,  d->stride,  d->pad};
}

static enum gn_status max_pool_forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	struct gn_cuda_window w = window_of(op);
	const struct gn_op_buffers *b = &op->buffers;

	(void)step;
	return gn_cuda_max_pool(gn_cuda_op_stream(op), gn_cuda_op_type(op), &w, b->in[0], b->out, b->workspace, err);
}

static enum gn_status max_pool_backward(struct gn_op *op, struct gn_err *err)
{
	struct gn_cuda_window w = window_of(op);
	const struct gn_op_buffers *b = &op->buffers;

	return b->din[0] ? gn_cuda_max_pool_grad(gn_cuda_op_stream(op), gn_cuda_op_type(op), &w, b->dout, b->workspace, b->din[0], err) : GN_OK;
}

static enum gn_status average_pool_forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	struct gn_cuda_window w = window_of(op);

	(void)step;
	return gn_cuda_average_pool(gn_cuda_op_stream(op), gn_cuda_op_type(op), &w, op->buffers.in[0], op->buffers.out, err);
}

static enum gn_status average_pool_backward(struct gn_op *op, struct gn_err *err)
{
	struct gn_cuda_window w = window_of(op);
	const struct gn_op_buffers *b = &op->buffers;

	return b->din[0] ? gn_cuda_average_pool_grad(gn_cuda_op_stream(op), gn_cuda_op_type(op), &w, b->dout, b->din[0], err) : GN_OK;
}

static enum gn_status pool_create(struct gn_cuda_ops *o, const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	static const struct gn_op_class max_class = {.forward = max_pool_forward, .backward = max_pool_backward};
	static const struct gn_op_class average_class = {.forward = average_pool_forward, .backward = average_pool_backward};
	int is_max = base->desc.kind == GN_OP_MAX_POOL;
	struct gn_op *op = gn_cuda_op_alloc(o, sizeof *op, is_max ? &max_class : &average_class, base, err);

	if (!op)
		return GN_ERR_NO_MEMORY;
	if (is_max)
		op->info.workspace_bytes = elements(op); /* argmax of every window */
	*out = op;
	return GN_OK;
}

static struct gn_cuda_dropout masks_of(const struct gn_op *op)
{
	const struct gn_op_desc *d = &op->desc;

	return (struct gn_cuda_dropout){d->rate, d->seed, d->stream, GN_RNG_DROPOUT, gn_cuda_ops_of(op)->step};
}

static enum gn_status dropout_forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	struct gn_cuda_dropout d = masks_of(op);
	const struct gn_op_buffers *b = &op->buffers;

	(void)step;
	if (op->desc.training)
		return gn_cuda_drop(gn_cuda_op_stream(op), gn_cuda_op_type(op), &d, b->in[0], b->out, elements(op), err);
	return b->out == b->in[0] ? GN_OK : gn_cuda_copy(gn_cuda_op_stream(op), b->out, b->in[0], gn_layout_bytes(&op->info.out), err);
}

static enum gn_status dropout_backward(struct gn_op *op, struct gn_err *err)
{
	struct gn_cuda_dropout d = masks_of(op);
	const struct gn_op_buffers *b = &op->buffers;

	return b->din[0] ? gn_cuda_drop(gn_cuda_op_stream(op), gn_cuda_op_type(op), &d, b->dout, b->din[0], elements(op), err) : GN_OK;
}

static enum gn_status dropout_create(struct gn_cuda_ops *o, const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	static const struct gn_op_class class = {.forward = dropout_forward, .backward = dropout_backward};
	struct gn_op *op = gn_cuda_op_alloc(o, sizeof *op, &class, base, err);

	if (!op)
		return GN_ERR_NO_MEMORY;
	/* masks follow PyTorch's order of elements */
	op->info.in[0].block = op->info.out.block = 1;
	op->info.in_place = 1;
	*out = op;
	return GN_OK;
}

/* Reorders a to b. */
static enum gn_status change_order(const struct gn_op *op, const struct gn_layout *a, const void *from, const struct gn_layout *b,
				   void *to, struct gn_err *err)
{
	enum gn_cuda_type type = gn_cuda_op_type(op);
	enum gn_cuda_type from_type = a->element_bytes == 4 ? GN_CUDA_F32 : type;
	enum gn_cuda_type to_type = b->element_bytes == 4 ? GN_CUDA_F32 : type;
	struct gn_cuda_order o = {from_type, to_type, a->n, a->c, a->h * a->w, b->block == 0};

	if (a->block == b->block)
		return gn_cuda_cast(gn_cuda_op_stream(op), from_type, from, to_type, to, gn_layout_elements(a), err);
	return gn_cuda_reorder(gn_cuda_op_stream(op), &o, from, to, err);
}

static enum gn_status reorder_forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	(void)step;
	return change_order(op, &op->info.in[0], op->buffers.in[0], &op->info.out, op->buffers.out, err);
}

static enum gn_status reorder_backward(struct gn_op *op, struct gn_err *err)
{
	const struct gn_op_buffers *b = &op->buffers;

	return b->din[0] ? change_order(op, &op->info.out, b->dout, &op->info.in[0], b->din[0], err) : GN_OK;
}

static int is_known(const struct gn_cuda_ops *o, const struct gn_layout *l)
{
	return (l->block == 0 || l->block == 1) &&
	       (l->element_bytes == 4 || l->element_bytes == (int)gn_cuda_type_bytes(o->options.type));
}

static enum gn_status reorder_create(struct gn_cuda_ops *o, const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	static const struct gn_op_class class = {.forward = reorder_forward, .backward = reorder_backward};
	struct gn_op *op;

	if (!is_known(o, &base->info.in[0]) || !is_known(o, &base->info.out))
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "GPU tensors must be NCHW or NHWC, in float or the network's type");
	op = gn_op_alloc(sizeof *op, &class, base, err);
	if (!op)
		return GN_ERR_NO_MEMORY;
	*out = op;
	return GN_OK;
}

enum gn_status gn_cuda_simple_create(struct gn_cuda_ops *o, const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	switch (base->desc.kind) {
	case GN_OP_RELU:
	case GN_OP_ADD:
		return pointwise_create(o, base, out, err);
	case GN_OP_MAX_POOL:
	case GN_OP_ADAPTIVE_AVG_POOL:
		return pool_create(o, base, out, err);
	case GN_OP_DROPOUT:
		return dropout_create(o, base, out, err);
	case GN_OP_REORDER:
		return reorder_create(o, base, out, err);
	default:
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "unknown operator kind %d", (int)base->desc.kind);
	}
}
