/* Linear layers as operators, by cuBLASLt.
 *
 * The multiplied weight and bias are copies in the operator's type, made in the forward pass and used in backward, too; f32 is used
 * directly. The gradients of weight and bias are float and written to their destination. Kernels add a bias, and compute its
 * gradient, where no algorithm does.
 */
#include "kernels/cuda/ops_internal.h"

struct linear_op {
	struct gn_op base;
	struct gn_blas_linear shape;
	struct gn_blas_plan *forward, *data, *weight;
	int is_tuned;
	int adds_bias, sums_bias; /* cuBLASLt adds the bias in forward, and sums its gradient in backward */
	size_t weight_bytes, room_bytes; /* of the copy; scratch of cuBLASLt, followed by partial sums of the bias gradient */
	struct gn_cuda_batch_norm sums;
};

static struct linear_op *self(struct gn_op *op)
{
	return (struct linear_op *)op;
}

static int copies(const struct linear_op *l)
{
	return l->shape.type != GN_CUDA_F32;
}

static size_t weights(const struct linear_op *l)
{
	return (size_t)l->shape.out_c * (size_t)l->shape.c;
}

static void *weight_of(const struct linear_op *l)
{
	return copies(l) ? l->base.buffers.workspace : (void *)l->base.buffers.weight;
}

static void *bias_of(const struct linear_op *l)
{
	return copies(l) ? (char *)l->base.buffers.workspace + l->weight_bytes : (void *)l->base.buffers.bias;
}

static struct gn_blas_data forward_data(const struct linear_op *l)
{
	const struct gn_op_buffers *b = &l->base.buffers;

	return (struct gn_blas_data){(void *)b->in[0], weight_of(l), b->out, l->adds_bias ? bias_of(l) : NULL};
}

static struct gn_blas_data data_data(const struct linear_op *l)
{
	return (struct gn_blas_data){l->base.buffers.din[0], weight_of(l), (void *)l->base.buffers.dout, NULL};
}

static struct gn_blas_data weight_data(const struct linear_op *l)
{
	const struct gn_op_buffers *b = &l->base.buffers;

	return (struct gn_blas_data){(void *)b->in[0], b->dweight, (void *)b->dout, l->sums_bias ? b->dbias : NULL};
}

/* Fills what the passes read, except parameters, with random numbers. */
static enum gn_status randomise(const struct linear_op *l, struct gn_err *err)
{
	const struct gn_op_buffers *b = &l->base.buffers;
	size_t in = (size_t)l->shape.n * (size_t)l->shape.c, out = (size_t)l->shape.n * (size_t)l->shape.out_c;
	enum gn_status status = gn_cuda_randomise(gn_cuda_op_stream(&l->base), l->shape.type, (void *)b->in[0], in, 0, err);

	if (!status && b->dout)
		status = gn_cuda_randomise(gn_cuda_op_stream(&l->base), l->shape.type, (void *)b->dout, out, 1, err);
	if (!status && copies(l))
		status = gn_cuda_randomise(gn_cuda_op_stream(&l->base), l->shape.type, weight_of(l), weights(l), 2, err);
	return status;
}

static enum gn_status bind(struct gn_op *op, struct gn_err *err)
{
	struct linear_op *l = self(op);
	const struct gn_op_buffers *b = &op->buffers;
	char *sums = (char *)b->scratch + l->room_bytes;
	struct gn_blas_data forward = forward_data(l), data = data_data(l), weight = weight_data(l);
	enum gn_status status = GN_OK;

	l->sums.sums = (double *)sums;
	l->sums.scratch = sums + gn_cuda_padded(2 * (size_t)l->shape.out_c * sizeof(double));
	if (!gn_cuda_ops_of(op)->options.tune || l->is_tuned)
		return GN_OK;
	status = randomise(l, err);
	if (!status)
		status = gn_blas_tune(l->forward, &forward, b->scratch, err);
	if (!status && l->data && b->din[0])
		status = gn_blas_tune(l->data, &data, b->scratch, err);
	if (!status && l->weight)
		status = gn_blas_tune(l->weight, &weight, b->scratch, err);
	l->is_tuned = !status;
	return status;
}

static enum gn_status copy_weights(const struct linear_op *l, struct gn_err *err)
{
	const struct gn_op_buffers *b = &l->base.buffers;
	enum gn_status status;

	if (!copies(l))
		return GN_OK;
	status = gn_cuda_cast(gn_cuda_op_stream(&l->base), GN_CUDA_F32, b->weight, l->shape.type, weight_of(l), weights(l), err);
	if (!status && l->adds_bias)
		status = gn_cuda_cast(gn_cuda_op_stream(&l->base), GN_CUDA_F32, b->bias, l->shape.type, bias_of(l), (size_t)l->shape.out_c, err);
	return status;
}

static enum gn_status forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	struct linear_op *l = self(op);
	struct gn_blas_data data = forward_data(l);
	enum gn_status status = copy_weights(l, err);

	(void)step;
	if (!status)
		status = gn_blas_run(l->forward, &data, op->buffers.scratch, err);
	if (!status && op->desc.bias && !l->adds_bias)
		status = gn_cuda_bias(gn_cuda_op_stream(&l->base), l->shape.type, op->buffers.bias, NULL, 0, op->buffers.out, (size_t)l->shape.n,
				      l->shape.out_c, err);
	return status;
}

static enum gn_status backward(struct gn_op *op, struct gn_err *err)
{
	struct linear_op *l = self(op);
	const struct gn_op_buffers *b = &op->buffers;
	struct gn_blas_data data = data_data(l), weight = weight_data(l);
	enum gn_status status = gn_blas_run(l->weight, &weight, b->scratch, err);

	if (!status && op->desc.bias && !l->sums_bias) {
		status = gn_cuda_batch_norm_statistics(gn_cuda_op_stream(&l->base), &l->sums, b->dout, 0, err);
		if (!status)
			status = gn_cuda_sums_to_float(gn_cuda_op_stream(&l->base), l->sums.sums, b->dbias, l->shape.out_c, err);
	}
	/* a first layer may have memory for an input gradient that is not needed */
	if (!status && l->data && b->din[0])
		status = gn_blas_run(l->data, &data, b->scratch, err);
	return status;
}

static void destroy(struct gn_op *op)
{
	struct linear_op *l = self(op);

	gn_blas_plan_destroy(l->forward);
	gn_blas_plan_destroy(l->data);
	gn_blas_plan_destroy(l->weight);
}

/* Plans a pass with its bias if an algorithm supports it, else without. */
static enum gn_status plan_with_bias(struct linear_op *l, struct gn_blas *blas, enum gn_blas_pass with, enum gn_blas_pass without,
				     int *has_bias, struct gn_blas_plan **out, struct gn_err *err)
{
	*has_bias = l->base.desc.bias && !gn_blas_plan_create(blas, &l->shape, with, out, NULL);
	return *has_bias ? GN_OK : gn_blas_plan_create(blas, &l->shape, without, out, err);
}

static enum gn_status plan(struct linear_op *l, struct gn_blas *blas, struct gn_err *err)
{
	const struct gn_op_desc *d = &l->base.desc;
	enum gn_status status = plan_with_bias(l, blas, GN_BLAS_FORWARD_BIAS, GN_BLAS_FORWARD, &l->adds_bias, &l->forward, err);

	if (!status && d->training)
		status = plan_with_bias(l, blas, GN_BLAS_BACKWARD_WEIGHT_BIAS, GN_BLAS_BACKWARD_WEIGHT, &l->sums_bias, &l->weight,
					err);
	if (!status && d->training && d->needs_din)
		status = gn_blas_plan_create(blas, &l->shape, GN_BLAS_BACKWARD_DATA, &l->data, err);
	return status;
}

static void describe(struct linear_op *l, const struct gn_cuda_ops *o)
{
	const struct gn_blas_plan *plans[] = {l->forward, l->data, l->weight};
	struct gn_op_info *info = &l->base.info;

	for (int i = 0; i < 3; i++)
		if (plans[i] && gn_blas_plan_workspace_bytes(plans[i]) > l->room_bytes)
			l->room_bytes = gn_blas_plan_workspace_bytes(plans[i]);
	l->room_bytes = gn_cuda_padded(l->room_bytes);
	if (copies(l)) {
		l->weight_bytes = gn_cuda_padded(weights(l) * gn_cuda_type_bytes(l->shape.type));
		info->workspace_bytes = l->weight_bytes + gn_cuda_padded((size_t)l->shape.out_c * gn_cuda_type_bytes(l->shape.type));
	}
	info->scratch_bytes = l->room_bytes;
	info->backward_reads_in = 1;
	if (l->weight && l->base.desc.bias && !l->sums_bias) {
		l->sums.type = l->shape.type;
		l->sums.rows = (size_t)l->shape.n;
		l->sums.channels = l->shape.out_c;
		info->scratch_bytes += gn_cuda_padded(2 * (size_t)l->shape.out_c * sizeof(double)) +
				       gn_cuda_batch_norm_scratch_bytes(o->stream, l->sums.rows, l->sums.channels);
	}
}

enum gn_status gn_cuda_linear_create(struct gn_cuda_ops *o, const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	static const struct gn_op_class class = {.bind = bind, .forward = forward, .backward = backward, .destroy = destroy};
	const struct gn_layout *in = &base->desc.in[0];
	struct linear_op *l = (struct linear_op *)gn_cuda_op_alloc(o, sizeof *l, &class, base, err);
	enum gn_status status;

	if (!l)
		return GN_ERR_NO_MEMORY;
	l->shape = (struct gn_blas_linear){o->options.type, in->n, in->c * in->h * in->w, base->desc.channels_out};
	/* rows in PyTorch's order; with a single pixel both orders are the same */
	l->base.info.in[0].block = l->base.info.out.block = in->h * in->w == 1 ? in->block : 1;
	l->base.info.weight.order = GN_WEIGHT_PLAIN;
	status = plan(l, o->blas, err);
	if (status) {
		gn_op_destroy(&l->base);
		return status;
	}
	describe(l, o);
	*out = &l->base;
	return GN_OK;
}
