/* Operators of mobile networks and of networks of tokens: activations, scaling of maps, layer norm, tokens, the first pixel. */
#include "kernels/cuda/layers.h"
#include "kernels/cuda/ops_internal.h"
#include "src/base/philox.h"

static int pixels_of(const struct gn_op *op)
{
	return op->desc.in[0].h * op->desc.in[0].w;
}

static enum gn_status activation_forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	(void)step;
	return gn_cuda_activate(gn_cuda_op_stream(op), gn_cuda_op_type(op), op->desc.activation, op->buffers.in[0], op->buffers.out,
				gn_layout_elements(&op->info.out), err);
}

static enum gn_status activation_backward(struct gn_op *op, struct gn_err *err)
{
	const struct gn_op_buffers *b = &op->buffers;

	return gn_cuda_activate_grad(gn_cuda_op_stream(op), gn_cuda_op_type(op), op->desc.activation, b->in[0], b->dout, b->more_dout, b->din[0],
				     gn_layout_elements(&op->info.out), err);
}

/* The factors of an operator, of whose draws masks is the description. */
static struct gn_cuda_factors factors_of(const struct gn_op *op, struct gn_cuda_dropout *masks)
{
	const struct gn_op_desc *d = &op->desc;
	struct gn_cuda_factors f = {.type = gn_cuda_op_type(op), .n = d->in[0].n, .pixels = pixels_of(op), .channels = d->in[0].c};

	*masks = (struct gn_cuda_dropout){d->training ? d->rate : 0, d->seed, d->stream, GN_RNG_DROPOUT, gn_cuda_ops_of(op)->step};
	if (d->kind == GN_OP_SCALE)
		f.by_map = op->buffers.workspace; /* a copy: nothing preserves the second input until backward */
	else if (d->kind == GN_OP_CHANNEL_SCALE)
		f.by_channel = op->buffers.weight;
	else
		f.by_image = masks;
	return f;
}

static enum gn_status scale_forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	struct gn_cuda_dropout masks;
	struct gn_cuda_factors f = factors_of(op, &masks);
	enum gn_status status = GN_OK;

	(void)step;
	if (op->desc.kind == GN_OP_SCALE)
		status = gn_cuda_copy(gn_cuda_op_stream(op), op->buffers.workspace, op->buffers.in[1], op->info.workspace_bytes, err);
	return status ? status : gn_cuda_scale_maps(gn_cuda_op_stream(op), &f, op->buffers.in[0], op->buffers.out, err);
}

/* The sums first: the gradient of the input may replace that of the output. */
static enum gn_status scale_backward(struct gn_op *op, struct gn_err *err)
{
	const struct gn_op_buffers *b = &op->buffers;
	struct gn_cuda_dropout masks;
	struct gn_cuda_factors f = factors_of(op, &masks);
	enum gn_status status = GN_OK;

	if (op->desc.kind != GN_OP_DROP_PATH)
		status = gn_cuda_scale_maps_sums(gn_cuda_op_stream(op), &f, b->in[0], b->dout, b->scratch, b->din[1], b->dweight, err);
	return status || !b->din[0] ? status : gn_cuda_scale_maps(gn_cuda_op_stream(op), &f, b->dout, b->din[0], err);
}

static struct gn_cuda_layer_norm norm_of(const struct gn_op *op)
{
	const struct gn_op_buffers *b = &op->buffers;
	size_t rows = gn_cuda_op_rows(&op->desc.in[0]);

	return (struct gn_cuda_layer_norm){.type = gn_cuda_op_type(op), .rows = rows, .channels = op->desc.in[0].c, .eps = op->desc.eps,
					   .weight = b->weight, .bias = b->bias, .mean = b->workspace,
					   .inverse = (float *)b->workspace + rows, .scratch = b->scratch};
}

static enum gn_status norm_forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	struct gn_cuda_layer_norm l = norm_of(op);

	(void)step;
	return gn_cuda_layer_norm(gn_cuda_op_stream(op), &l, op->buffers.in[0], op->buffers.out, err);
}

static enum gn_status norm_backward(struct gn_op *op, struct gn_err *err)
{
	const struct gn_op_buffers *b = &op->buffers;
	struct gn_cuda_layer_norm l = norm_of(op);

	return gn_cuda_layer_norm_grad(gn_cuda_op_stream(op), &l, b->in[0], b->dout, b->din[0], b->dweight, b->dbias, err);
}

static enum gn_status tokens_forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	const struct gn_op_buffers *b = &op->buffers;

	(void)step;
	return gn_cuda_tokens(gn_cuda_op_stream(op), gn_cuda_op_type(op), op->info.out.n, pixels_of(op), op->info.out.c, b->in[0], b->weight, b->bias,
			      b->out, err);
}

static enum gn_status tokens_backward(struct gn_op *op, struct gn_err *err)
{
	const struct gn_op_buffers *b = &op->buffers;

	return gn_cuda_tokens_grad(gn_cuda_op_stream(op), gn_cuda_op_type(op), op->info.out.n, pixels_of(op), op->info.out.c, b->dout, b->din[0],
				   b->dweight, b->dbias, err);
}

static enum gn_status first_forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	(void)step;
	return gn_cuda_first_pixel(gn_cuda_op_stream(op), gn_cuda_op_type(op), op->info.out.n, pixels_of(op), op->info.out.c, 0, op->buffers.in[0],
				   op->buffers.out, err);
}

static enum gn_status first_backward(struct gn_op *op, struct gn_err *err)
{
	return gn_cuda_first_pixel(gn_cuda_op_stream(op), gn_cuda_op_type(op), op->info.out.n, pixels_of(op), op->info.out.c, 1, op->buffers.dout,
				   op->buffers.din[0], err);
}

static void describe(const struct gn_cuda_ops *o, struct gn_op *op)
{
	const struct gn_layout *in = &op->desc.in[0];
	size_t rows = gn_cuda_op_rows(in);
	struct gn_op_info *info = &op->info;

	info->in_place = op->desc.kind != GN_OP_TOKENS && op->desc.kind != GN_OP_FIRST_PIXEL;
	info->backward_reads_in = info->in_place && op->desc.kind != GN_OP_DROP_PATH;
	info->sums_gradients = op->desc.kind == GN_OP_ACTIVATION;
	if (op->desc.kind == GN_OP_SCALE || op->desc.kind == GN_OP_CHANNEL_SCALE)
		info->scratch_bytes = (size_t)in->n * (size_t)in->c * sizeof(float);
	if (op->desc.kind == GN_OP_SCALE)
		info->workspace_bytes = (size_t)in->n * (size_t)in->c * gn_cuda_type_bytes(o->options.type);
	if (op->desc.kind == GN_OP_LAYER_NORM) {
		info->workspace_bytes = 2 * rows * sizeof(float);
		info->scratch_bytes = gn_cuda_batch_norm_scratch_bytes(o->stream, rows, in->c);
	}
}

enum gn_status gn_cuda_layer_create(struct gn_cuda_ops *o, const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	static const struct gn_op_class activation = {.forward = activation_forward, .backward = activation_backward};
	static const struct gn_op_class scale = {.forward = scale_forward, .backward = scale_backward};
	static const struct gn_op_class norm = {.forward = norm_forward, .backward = norm_backward};
	static const struct gn_op_class tokens = {.forward = tokens_forward, .backward = tokens_backward};
	static const struct gn_op_class first = {.forward = first_forward, .backward = first_backward};
	const struct gn_op_class *class = base->desc.kind == GN_OP_ACTIVATION	? &activation
					  : base->desc.kind == GN_OP_LAYER_NORM	? &norm
					  : base->desc.kind == GN_OP_TOKENS	? &tokens
					  : base->desc.kind == GN_OP_FIRST_PIXEL ? &first
										 : &scale;
	struct gn_op *op = gn_cuda_op_alloc(o, sizeof *op, class, base, err);

	if (!op)
		return GN_ERR_NO_MEMORY;
	describe(o, op);
	*out = op;
	return GN_OK;
}
