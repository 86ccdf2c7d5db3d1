/* Batch norm as an operator: statistics of a batch or of a group of processes, with fused addition and relu. */
#include "kernels/cuda/ops_internal.h"

struct norm_op {
	struct gn_op base;
	struct gn_cuda_batch_norm norm;
	/* For the following convolution, with desc.conv_bn: */
	void *scale, *shift;
	float *dweight, *dbias, *factors;
};

static struct norm_op *self(struct gn_op *op)
{
	return (struct norm_op *)op;
}

/* Size of a per-channel array; cuDNN needs tensors at multiples of 16 bytes. */
static size_t array_bytes(const struct gn_op *op)
{
	return ((size_t)op->desc.in[0].c * sizeof(float) + 15) / 16 * 16;
}

enum { KEPT = 2, KEPT_WITH_CONV_BN = 9 };

static enum gn_status bind(struct gn_op *op, struct gn_err *err)
{
	struct norm_op *n = self(op);
	const struct gn_op_buffers *b = &op->buffers;
	size_t each = array_bytes(op);
	char *kept = b->workspace;

	(void)err;
	n->norm.weight = b->weight;
	n->norm.bias = b->bias;
	n->norm.running_mean = b->running_mean;
	n->norm.running_var = b->running_var;
	n->norm.mean = (float *)kept;
	n->norm.inverse = (float *)(kept + each);
	if (op->desc.conv_bn) {
		n->scale = kept + 2 * each;
		n->shift = kept + 3 * each;
		n->dweight = (float *)(kept + 4 * each);
		n->dbias = (float *)(kept + 5 * each);
		n->factors = (float *)(kept + 6 * each);
		*op->desc.conv_bn = (struct gn_op_conv_bn){.norm = op};
	}
	n->norm.sums = b->scratch;
	op->sums = n->norm.sums;
	n->norm.scratch = (char *)b->scratch + gn_cuda_padded(2 * (size_t)n->norm.channels * sizeof(double));
	return GN_OK;
}

static size_t total_rows(const struct norm_op *n)
{
	return n->norm.rows * (size_t)(n->base.desc.members > 1 ? n->base.desc.members : 1);
}

static enum gn_status forward_rest(struct gn_op *op, struct gn_err *err)
{
	struct norm_op *n = self(op);
	struct gn_cuda_stream *s = gn_cuda_ops_of(op)->stream;
	enum gn_status status = GN_OK;

	if (op->desc.training && (op->info.sum_count || op->buffers.statistics))
		status = gn_cuda_batch_norm_finish(s, &n->norm, total_rows(n), err);
	if (status)
		return status;
	if (op->desc.conv_bn && op->desc.conv_bn->defers)
		return gn_cuda_batch_norm_affine(s, &n->norm, n->scale, n->shift, err);
	return gn_cuda_norm_apply(op, err);
}

static enum gn_status forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	struct norm_op *n = self(op);
	const struct gn_op_buffers *b = &op->buffers;
	struct gn_cuda_stream *s = gn_cuda_ops_of(op)->stream;
	enum gn_status status;

	(void)step;
	if (!op->desc.training)
		status = gn_cuda_batch_norm_running(s, &n->norm, err);
	else if (b->statistics)
		status = gn_cuda_sums_to_double(s, b->statistics, n->norm.sums, 2 * n->norm.channels, err);
	else
		status = gn_cuda_batch_norm_statistics(s, &n->norm, b->in[0], op->info.sum_count ? 0 : n->norm.rows, err);
	return status || op->info.sum_count ? status : forward_rest(op, err);
}

void gn_cuda_norm_show(const struct gn_op *norm, struct gn_dnn_data *out)
{
	const struct norm_op *n = (const struct norm_op *)norm;

	out->z = norm->buffers.in[0];
	out->mean = n->norm.mean;
	out->inverse = n->norm.inverse;
	out->norm_weight = n->norm.weight;
	out->norm_bias = n->norm.bias;
	out->scale = n->scale;
	out->shift = n->shift;
	out->dnorm_weight = n->dweight;
	out->dnorm_bias = n->dbias;
	out->factors = n->factors;
}

enum gn_status gn_cuda_norm_apply(struct gn_op *op, struct gn_err *err)
{
	const struct gn_op_buffers *b = &op->buffers;

	return gn_cuda_batch_norm_apply(gn_cuda_ops_of(op)->stream, &self(op)->norm, b->in[0], op->desc.add ? b->in[1] : NULL, b->out,
					err);
}

static struct gn_cuda_batch_norm_grad grad_of(const struct gn_op *op)
{
	const struct gn_op_buffers *b = &op->buffers;

	return (struct gn_cuda_batch_norm_grad){
		.x = b->in[0],
		.y = op->desc.relu && op->desc.add ? b->out : NULL,
		.dout = b->dout,
		.more_dout = b->more_dout,
		.dx = b->din[0],
		.dadded = op->desc.add ? b->din[1] : NULL,
		.dweight = b->dweight,
		.dbias = b->dbias,
	};
}

enum gn_status gn_cuda_norm_grad_sums(struct gn_op *op, struct gn_err *err)
{
	struct gn_cuda_batch_norm_grad g = grad_of(op);

	return gn_cuda_batch_norm_grad_sums(gn_cuda_ops_of(op)->stream, &self(op)->norm, &g, err);
}

/* The sums computed by the following convolution. */
static enum gn_status take_sums(struct norm_op *n, struct gn_err *err)
{
	const struct gn_op_buffers *b = &n->base.buffers;
	struct gn_cuda_stream *s = gn_cuda_ops_of(&n->base)->stream;
	int channels = n->norm.channels;
	size_t bytes = (size_t)channels * sizeof(float);
	enum gn_status status = gn_cuda_sums_to_double(s, n->dbias, n->norm.sums, channels, err);

	if (!status)
		status = gn_cuda_sums_to_double(s, n->dweight, n->norm.sums + channels, channels, err);
	if (!status)
		status = gn_cuda_copy(s, b->dbias, n->dbias, bytes, err);
	return status ? status : gn_cuda_copy(s, b->dweight, n->dweight, bytes, err);
}

static enum gn_status backward_rest(struct gn_op *op, struct gn_err *err)
{
	struct norm_op *n = self(op);
	struct gn_cuda_batch_norm_grad g = grad_of(op);
	struct gn_cuda_batch_norm norm = n->norm;

	if (op->desc.conv_bn && op->desc.conv_bn->sums)
		norm.relu = 0;
	return g.dx ? gn_cuda_batch_norm_grad_apply(gn_cuda_ops_of(op)->stream, &norm, &g, total_rows(n), err) : GN_OK;
}

static enum gn_status backward(struct gn_op *op, struct gn_err *err)
{
	enum gn_status status = op->desc.conv_bn && op->desc.conv_bn->sums ? take_sums(self(op), err) : gn_cuda_norm_grad_sums(op, err);

	return status || op->info.sum_count ? status : backward_rest(op, err);
}

enum gn_status gn_cuda_norm_create(struct gn_cuda_ops *o, const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	static const struct gn_op_class class = {.bind = bind, .forward = forward, .forward_rest = forward_rest, .backward = backward,
						 .backward_rest = backward_rest};
	const struct gn_op_desc *d = &base->desc;
	struct norm_op *n = (struct norm_op *)gn_cuda_op_alloc(o, sizeof *n, &class, base, err);
	struct gn_op_info *info;
	size_t channels = (size_t)d->in[0].c;

	if (!n)
		return GN_ERR_NO_MEMORY;
	n->norm.type = o->options.type;
	n->norm.rows = gn_cuda_op_rows(&d->in[0]);
	n->norm.channels = d->in[0].c;
	n->norm.relu = d->relu;
	n->norm.eps = d->eps;
	n->norm.momentum = d->momentum;
	info = &n->base.info;
	info->workspace_bytes = (d->conv_bn ? KEPT_WITH_CONV_BN : KEPT) * array_bytes(&n->base);
	info->scratch_bytes = gn_cuda_padded(2 * channels * sizeof(double)) +
			      gn_cuda_batch_norm_scratch_bytes(o->stream, n->norm.rows, n->norm.channels);
	info->sum_count = d->training && d->members > 1 ? 2 * channels : 0;
	info->backward_reads_in = 1;
	info->backward_reads_out = d->relu && d->add;
	/* without an addend dx may alias dout; with one, dadded does */
	info->in_place = !d->add;
	info->second_gradient_in_place = d->add;
	info->sums_gradients = 1;
	*out = &n->base;
	return GN_OK;
}
