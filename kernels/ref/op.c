/* The reference implementation behind the operator interface: float parameters are widened into scratch memory, results are
 * narrowed. */
#include "kernels/backend.h"
#include "kernels/ref/ref.h"

#include <string.h>

struct ref_op {
	struct gn_op base;
	struct gn_ref_window window;
	size_t weights, biases; /* elements */
	uint64_t step;
	double *weight, *bias, *dweight, *dbias; /* in scratch */
};

static struct ref_op *self(struct gn_op *op)
{
	return (struct ref_op *)op;
}

static void widen(size_t count, const float *from, double *to)
{
	for (size_t i = 0; from && i < count; i++)
		to[i] = from[i];
}

static void narrow(size_t count, const double *from, float *to)
{
	for (size_t i = 0; to && i < count; i++)
		to[i] = (float)from[i];
}

static enum gn_status bind(struct gn_op *op, struct gn_err *err)
{
	struct ref_op *r = self(op);

	(void)err;
	r->weight = op->buffers.scratch;
	r->dweight = r->weight + r->weights;
	r->bias = r->dweight + r->weights;
	r->dbias = r->bias + r->biases;
	return GN_OK;
}

static void update_running(const struct ref_op *r, const double *mean, const double *var)
{
	double count = (double)r->window.n * r->window.h * r->window.w, m = r->base.desc.momentum;
	float *to_mean = r->base.buffers.running_mean, *to_var = r->base.buffers.running_var;

	for (int c = 0; c < r->window.c; c++) {
		to_mean[c] = (float)((1 - m) * to_mean[c] + m * mean[c]);
		to_var[c] = (float)((1 - m) * to_var[c] + m * var[c] * count / (count - 1));
	}
}

/* The factors of all maps in the workspace. */
static const double *factors_of(struct ref_op *r, uint64_t step)
{
	const struct gn_op_desc *d = &r->base.desc;
	double *factors = r->base.buffers.workspace;
	float *images = (float *)(void *)(factors + (size_t)d->in[0].n * d->in[0].c);

	if (d->kind == GN_OP_SCALE)
		memcpy(factors, r->base.buffers.in[1], (size_t)d->in[0].n * d->in[0].c * sizeof *factors);
	if (d->kind == GN_OP_DROP_PATH)
		gn_drop_path_factors(d, step, images);
	for (int i = 0; d->kind != GN_OP_SCALE && i < d->in[0].n * d->in[0].c; i++)
		factors[i] = d->kind == GN_OP_DROP_PATH ? images[i / d->in[0].c] : r->weight[i % d->in[0].c];
	return factors;
}

static void scale_backward(struct ref_op *r, const double *dy)
{
	const struct gn_op_desc *d = &r->base.desc;
	const struct gn_op_buffers *b = &r->base.buffers;
	size_t maps = (size_t)d->in[0].n * d->in[0].c;
	double *factors = b->workspace, *sums = d->kind == GN_OP_SCALE ? b->din[1] : d->kind == GN_OP_CHANNEL_SCALE ? factors + 2 * maps : NULL;

	gn_ref_scale_backward(maps, (size_t)d->in[0].h * d->in[0].w, b->in[0], factors, dy, b->din[0], sums);
	for (size_t c = 0; c < r->weights; c++)
		r->dweight[c] = 0;
	for (size_t i = 0; r->weights && i < maps; i++)
		r->dweight[i % r->weights] += sums[i];
}

/* Statistics are in the workspace: those of the batch in training, else the running ones. */
static void batch_norm_forward(struct ref_op *r, const double *x, double *y)
{
	const struct gn_ref_window *w = &r->window;
	double *mean = r->base.buffers.workspace, *var = mean + w->c;
	size_t map = (size_t)w->h * w->w;

	if (r->base.desc.training) {
		gn_ref_batch_norm_statistics(w->n, w->c, map, x, mean, var);
		update_running(r, mean, var);
	} else {
		widen(w->c, r->base.buffers.running_mean, mean);
		widen(w->c, r->base.buffers.running_var, var);
	}
	gn_ref_batch_norm_forward(w->n, w->c, map, x, mean, var, r->base.desc.eps, r->weight, r->bias, y);
}

/* A slice draws the mask of the whole. */
static void drop(const struct gn_op_desc *d, size_t count, const double *x, uint64_t step, double *y)
{
	size_t part = count / (size_t)d->in[0].n;

	for (int n = 0; d->slice_of && n < d->in[0].n; n++)
		gn_ref_dropout((size_t)n * d->slice_of + d->slice_begin, part, x + (size_t)n * part, d->rate, d->seed, d->stream, step,
				    y + (size_t)n * part);
	if (!d->slice_of)
		gn_ref_dropout(0, count, x, d->rate, d->seed, d->stream, step, y);
}

static void dropout_forward(const struct gn_op_desc *d, size_t count, const double *x, uint64_t step, double *y)
{
	if (d->training)
		drop(d, count, x, step, y);
	else
		memmove(y, x, count * sizeof *y);
}

/* Of the layers of networks of tokens. */
static void tokens_forward(struct ref_op *r, const double *x, double *y)
{
	const struct gn_op_desc *d = &r->base.desc;
	int n = d->in[0].n, c = r->base.info.out.c;
	size_t map = (size_t)d->in[0].h * d->in[0].w;

	if (d->kind == GN_OP_TOKENS)
		gn_ref_tokens_forward(n, c, map, x, r->weight, r->bias, y);
	else if (d->kind == GN_OP_ATTENTION)
		gn_ref_attention_forward(n, d->heads, c / d->heads, map, x, y, r->base.buffers.workspace);
	else
		for (size_t i = 0; i < (size_t)n * c; i++)
			y[i] = x[i * map];
}

/* The operator alone, with what its buffers hold. */
static void forward_of_kind(struct ref_op *r, size_t count)
{
	const struct gn_op_desc *d = &r->base.desc;
	const struct gn_op_buffers *b = &r->base.buffers;
	const double *x = b->in[0];
	double *y = b->out;

	switch (d->kind) {
	case GN_OP_CONV:
		gn_ref_conv_forward(&r->window, x, r->weight, d->bias ? r->bias : NULL, y);
		break;
	case GN_OP_BATCH_NORM:
		batch_norm_forward(r, x, y);
		break;
	case GN_OP_RELU:
		gn_ref_relu_forward(count, x, y);
		break;
	case GN_OP_MAX_POOL:
		gn_ref_max_pool_forward(&r->window, x, y, b->workspace);
		break;
	case GN_OP_ADAPTIVE_AVG_POOL:
		gn_ref_adaptive_avg_pool_forward(&r->window, x, y);
		break;
	case GN_OP_ADD:
		gn_ref_add_forward(count, x, b->in[1], y);
		break;
	case GN_OP_LINEAR:
		gn_ref_linear_forward(d->in[0].n, r->weights / d->channels_out, d->channels_out, x, r->weight,
				      d->bias ? r->bias : NULL, y);
		break;
	case GN_OP_DROPOUT:
		dropout_forward(d, count, x, r->step, y);
		break;
	case GN_OP_REORDER:
		memcpy(y, x, count * sizeof *y);
		break;
	case GN_OP_ACTIVATION:
		gn_ref_activation_forward(d->activation, count, x, y);
		break;
	case GN_OP_SCALE:
	case GN_OP_CHANNEL_SCALE:
	case GN_OP_DROP_PATH:
		gn_ref_scale_forward((size_t)d->in[0].n * d->in[0].c, (size_t)d->in[0].h * d->in[0].w, x, factors_of(r, r->step), y);
		break;
	case GN_OP_LAYER_NORM:
		gn_ref_layer_norm_forward(d->in[0].n, d->in[0].c, (size_t)d->in[0].h * d->in[0].w, x, d->eps, r->weight, r->bias, y);
		break;
	case GN_OP_TOKENS:
	case GN_OP_ATTENTION:
	case GN_OP_FIRST_PIXEL:
		tokens_forward(r, x, y);
		break;
	case GN_OP_CONJUGATE:
		break; /* gn_conjugate_create */
	}
}

static enum gn_status forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	struct ref_op *r = self(op);
	double *y = op->buffers.out;
	size_t count = gn_layout_elements(&op->info.out);

	(void)err;
	r->step = step;
	widen(r->weights, op->buffers.weight, r->weight);
	widen(r->biases, op->buffers.bias, r->bias);
	forward_of_kind(r, count);
	if (op->desc.add)
		gn_ref_add_forward(count, y, op->buffers.in[1], y);
	if (op->desc.relu)
		gn_ref_relu_forward(count, y, y);
	return GN_OK;
}

static void batch_norm_backward(struct ref_op *r, const double *dy)
{
	const struct gn_ref_window *w = &r->window;
	const double *mean = r->base.buffers.workspace, *var = mean + w->c;

	gn_ref_batch_norm_backward(w->n, w->c, (size_t)w->h * w->w, r->base.buffers.in[0], dy, mean, var,
				   r->base.desc.eps, r->weight, r->base.buffers.din[0], r->dweight, r->dbias);
}

static void conv_backward(struct ref_op *r, const double *dy)
{
	const struct gn_op_buffers *b = &r->base.buffers;

	if (b->din[0])
		gn_ref_conv_backward_data(&r->window, dy, r->weight, b->din[0]);
	gn_ref_conv_backward_weight(&r->window, b->in[0], dy, r->dweight, r->base.desc.bias ? r->dbias : NULL);
}

/* Applies the gradient of a fused relu first, into the first input's gradient or, for batch norm, into the workspace. */
static const double *before_relu(struct ref_op *r, size_t count)
{
	struct gn_op_buffers *b = &r->base.buffers;
	double *masked = r->base.desc.kind == GN_OP_BATCH_NORM ? (double *)b->workspace + 2 * r->window.c : b->din[0];

	if (!r->base.desc.relu)
		return b->dout;
	gn_ref_relu_backward(count, b->out, b->dout, masked);
	return masked;
}

static void tokens_backward(struct ref_op *r, const double *dy)
{
	const struct gn_op_desc *d = &r->base.desc;
	const struct gn_op_buffers *b = &r->base.buffers;
	int n = d->in[0].n, c = r->base.info.out.c;
	size_t map = (size_t)d->in[0].h * d->in[0].w;
	double *dx = b->din[0];

	if (d->kind == GN_OP_TOKENS) {
		gn_ref_tokens_backward(n, c, map, dy, dx, r->dweight, r->dbias);
	} else if (d->kind == GN_OP_ATTENTION) {
		gn_ref_attention_backward(n, d->heads, c / d->heads, map, b->in[0], dy, dx, b->workspace);
	} else {
		memset(dx, 0, gn_layout_bytes(&r->base.info.in[0]));
		for (size_t i = 0; i < (size_t)n * c; i++)
			dx[i * map] = dy[i];
	}
}

/* Gradients of the operator alone. */
static void backward_of_kind(struct ref_op *r, size_t count, const double *dy)
{
	const struct gn_op_desc *d = &r->base.desc;
	const struct gn_op_buffers *b = &r->base.buffers;

	switch (d->kind) {
	case GN_OP_CONV:
		conv_backward(r, dy);
		break;
	case GN_OP_BATCH_NORM:
		if (d->add)
			memmove(b->din[1], dy, count * sizeof *dy);
		batch_norm_backward(r, dy);
		break;
	case GN_OP_RELU:
		gn_ref_relu_backward(count, b->out, dy, b->din[0]);
		break;
	case GN_OP_MAX_POOL:
		gn_ref_max_pool_backward(&r->window, dy, b->workspace, b->din[0]);
		break;
	case GN_OP_ADAPTIVE_AVG_POOL:
		gn_ref_adaptive_avg_pool_backward(&r->window, dy, b->din[0]);
		break;
	case GN_OP_ADD:
		memmove(b->din[0], dy, count * sizeof *dy);
		memcpy(b->din[1], dy, count * sizeof *dy);
		break;
	case GN_OP_LINEAR:
		gn_ref_linear_backward(d->in[0].n, r->weights / d->channels_out, d->channels_out, b->in[0], dy,
				       r->weight, b->din[0], r->dweight, d->bias ? r->dbias : NULL);
		break;
	case GN_OP_DROPOUT:
		drop(d, count, dy, r->step, b->din[0]);
		break;
	case GN_OP_REORDER:
		memcpy(b->din[0], dy, count * sizeof *dy);
		break;
	case GN_OP_ACTIVATION:
		gn_ref_activation_backward(d->activation, count, b->in[0], dy, b->din[0]);
		break;
	case GN_OP_SCALE:
	case GN_OP_CHANNEL_SCALE:
	case GN_OP_DROP_PATH:
		scale_backward(r, dy);
		break;
	case GN_OP_LAYER_NORM:
		gn_ref_layer_norm_backward(d->in[0].n, d->in[0].c, (size_t)d->in[0].h * d->in[0].w, b->in[0], dy, d->eps, r->weight,
					   b->din[0], r->dweight, r->dbias);
		break;
	case GN_OP_TOKENS:
	case GN_OP_ATTENTION:
	case GN_OP_FIRST_PIXEL:
		tokens_backward(r, dy);
		break;
	case GN_OP_CONJUGATE:
		break;
	}
}

static enum gn_status backward(struct gn_op *op, struct gn_err *err)
{
	struct ref_op *r = self(op);
	const struct gn_op_buffers *b = &op->buffers;
	size_t count = gn_layout_elements(&op->info.out);
	const double *dy = before_relu(r, count);

	(void)err;
	widen(r->weights, b->weight, r->weight);
	backward_of_kind(r, count, dy);
	narrow(r->weights, r->dweight, b->dweight);
	narrow(r->biases, r->dbias, b->dbias);
	return GN_OK;
}

static const struct gn_op_class class = {.bind = bind, .forward = forward, .backward = backward};

static int is_scale(const struct gn_op_desc *d)
{
	return d->kind == GN_OP_SCALE || d->kind == GN_OP_CHANNEL_SCALE || d->kind == GN_OP_DROP_PATH;
}

static void set_sizes(struct ref_op *r)
{
	const struct gn_op_desc *d = &r->base.desc;
	const struct gn_layout *in = &d->in[0];
	struct gn_op_info *info = &r->base.info;

	if (d->kind == GN_OP_CONV)
		r->weights = (size_t)d->channels_out * gn_conv_weight_shape(d).in * d->kernel * d->kernel;
	if (d->kind == GN_OP_LINEAR)
		r->weights = (size_t)d->channels_out * in->c * in->h * in->w;
	if (d->kind == GN_OP_CONV || d->kind == GN_OP_LINEAR)
		r->biases = d->bias ? d->channels_out : 0;
	if (d->kind == GN_OP_BATCH_NORM || d->kind == GN_OP_LAYER_NORM)
		r->weights = r->biases = in->c;
	if (d->kind == GN_OP_CHANNEL_SCALE)
		r->weights = in->c;
	if (d->kind == GN_OP_TOKENS) {
		r->weights = in->c;
		r->biases = (size_t)in->c * (1 + (size_t)in->h * in->w);
	}
	if (d->kind == GN_OP_ATTENTION)
		info->workspace_bytes = 2 * (size_t)in->h * in->w * sizeof(double);
	if (is_scale(d))
		info->workspace_bytes = 3 * (size_t)in->n * in->c * sizeof(double);
	info->scratch_bytes = 2 * (r->weights + r->biases) * sizeof(double);
	if (d->kind == GN_OP_MAX_POOL)
		info->workspace_bytes = gn_layout_elements(&info->out) * sizeof(int64_t);
	if (d->kind == GN_OP_BATCH_NORM)
		info->workspace_bytes = (2 * (size_t)in->c + (d->relu ? gn_layout_elements(in) : 0)) * sizeof(double);
}

enum gn_status gn_ref_op_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	struct ref_op *r = (struct ref_op *)gn_op_alloc(sizeof *r, &class, base, err);
	const struct gn_op_desc *d = &base->desc;
	struct gn_op_info *info;

	if (!r)
		return GN_ERR_NO_MEMORY;
	info = &r->base.info;
	for (int i = 0; i < 2; i++) {
		info->in[i].block = 1;
		info->in[i].element_bytes = sizeof(double);
	}
	info->out.block = 1;
	info->out.element_bytes = sizeof(double);
	r->window = (struct gn_ref_window){d->in[0].n,  d->in[0].c,  d->in[0].h, d->in[0].w, info->out.c,
					   info->out.h, info->out.w, d->kernel,  d->stride,  d->pad, d->groups};
	set_sizes(r);
	info->backward_reads_in = d->kind == GN_OP_CONV || d->kind == GN_OP_LINEAR || d->kind == GN_OP_BATCH_NORM ||
				  d->kind == GN_OP_ACTIVATION || d->kind == GN_OP_LAYER_NORM || d->kind == GN_OP_ATTENTION || is_scale(d);
	info->backward_reads_out = d->kind == GN_OP_RELU || d->relu;
	info->in_place = d->kind == GN_OP_RELU || d->kind == GN_OP_DROPOUT;
	*out = &r->base;
	return GN_OK;
}
