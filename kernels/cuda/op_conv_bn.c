/* A convolution fused with the preceding batch norm and relu.
 *
 * Forward: the convolution normalises the batch norm's input while it reads it, again for the weight gradient, and the batch norm's
 * output is never written: two passes over memory less. Backward: the convolution masks its input gradient with the relu and
 * computes the batch norm's sums: one pass less. cuDNN 9 has precompiled engines for all of it in f16, and none for the weight
 * gradient in bf16, without which the output has to be written anyway (tests/gpu/test_dnn prints the table).
 */
#include "kernels/cuda/autotune.h"
#include "kernels/cuda/op_conv.h"

void gn_cuda_conv_bn_plan(struct gn_cuda_conv *c, struct gn_dnn *dnn)
{
	const struct gn_op_desc *d = &c->base.desc;
	enum gn_dnn_pass pass = c->counting ? GN_DNN_NORM_FORWARD_STATISTICS : GN_DNN_NORM_FORWARD;

	/* sums in float lose precision that f32 needs */
	if (!d->conv_bn || !d->training || d->bias || !d->needs_din || c->conv.type == GN_CUDA_F32 || c->conv.groups)
		return;
	/* the second is useful only together with the first */
	if (!gn_dnn_plan_get(dnn, &c->conv, GN_DNN_NORM_BACKWARD_WEIGHT, &c->norm_weight, NULL) && c->norm_weight &&
	    gn_dnn_plan_get(dnn, &c->conv, pass, &c->norm_forward, NULL))
		c->norm_weight = NULL;
	(void)gn_dnn_plan_get(dnn, &c->conv, GN_DNN_BACKWARD_DATA_NORM, &c->norm_data, NULL);
}

size_t gn_cuda_conv_bn_room_bytes(const struct gn_cuda_conv *c)
{
	const struct gn_dnn_plan *plans[] = {c->norm_forward, c->norm_weight, c->norm_data};
	size_t most = 0;

	for (int i = 0; i < 3; i++)
		if (plans[i] && gn_dnn_plan_workspace_bytes(plans[i]) > most)
			most = gn_dnn_plan_workspace_bytes(plans[i]);
	return most;
}

/* Each struct holds only the tensors of its graph. */
static struct gn_dnn_data forward_data(const struct gn_cuda_conv *c)
{
	const struct gn_op_buffers *b = &c->base.buffers;
	struct gn_dnn_data norm = {0}, d;

	gn_cuda_norm_show(c->base.desc.conv_bn->norm, &norm);
	d = (struct gn_dnn_data){
		.x = (void *)norm.z, .scale = norm.scale, .shift = norm.shift, .weight = gn_cuda_conv_weight(c), .y = b->out};
	if (c->counting) {
		d.sum = b->statistics;
		d.squares = b->statistics + c->conv.out_c;
	}
	return d;
}

static struct gn_dnn_data weight_data(const struct gn_cuda_conv *c)
{
	struct gn_dnn_data norm = {0};

	gn_cuda_norm_show(c->base.desc.conv_bn->norm, &norm);
	return (struct gn_dnn_data){.x = (void *)norm.z, .scale = norm.scale, .shift = norm.shift,
				    .weight = gn_cuda_conv_weight_gradient(c), .y = (void *)c->base.buffers.dout};
}

static struct gn_dnn_data data_data(const struct gn_cuda_conv *c)
{
	struct gn_dnn_data d = {0};

	gn_cuda_norm_show(c->base.desc.conv_bn->norm, &d);
	d.scale = d.shift = NULL;
	d.x = c->base.buffers.din[0];
	d.weight = gn_cuda_conv_weight(c);
	d.y = (void *)c->base.buffers.dout;
	return d;
}

enum gn_status gn_cuda_conv_bn_forward(struct gn_cuda_conv *c, struct gn_err *err)
{
	struct gn_dnn_data d = forward_data(c);

	return gn_dnn_run(c->norm_forward, &d, c->base.buffers.scratch, err);
}

enum gn_status gn_cuda_conv_bn_weight_back(struct gn_cuda_conv *c, struct gn_err *err)
{
	struct gn_dnn_data d = weight_data(c);

	return gn_dnn_run(c->norm_weight, &d, c->base.buffers.scratch, err);
}

enum gn_status gn_cuda_conv_bn_data_back(struct gn_cuda_conv *c, struct gn_err *err)
{
	struct gn_dnn_data d = data_data(c);

	return gn_dnn_run(c->norm_data, &d, c->base.buffers.scratch, err);
}

enum { APART, TOGETHER, WAYS };

static enum gn_status normalise(void *context, int way, struct gn_err *err)
{
	struct gn_cuda_conv *c = context;
	enum gn_status status = way == TOGETHER ? GN_OK : gn_cuda_norm_apply(c->base.desc.conv_bn->norm, err);

	if (!status)
		status = way == TOGETHER ? gn_cuda_conv_bn_forward(c, err) : gn_cuda_conv_forward(c, err);
	if (!status)
		status = way == TOGETHER ? gn_cuda_conv_bn_weight_back(c, err) : gn_cuda_conv_weight_back(c, err);
	return status;
}

static enum gn_status sum(void *context, int way, struct gn_err *err)
{
	struct gn_cuda_conv *c = context;
	enum gn_status status = way == TOGETHER ? gn_cuda_conv_bn_data_back(c, err) : gn_cuda_conv_data_back(c, err);

	return status || way == TOGETHER ? status : gn_cuda_norm_grad_sums(c->base.desc.conv_bn->norm, err);
}

static enum gn_status is_faster(struct gn_cuda_conv *c, enum gn_status (*run)(void *, int, struct gn_err *), int *yes,
				struct gn_err *err)
{
	struct gn_cuda_candidates list = {WAYS, run, c, 0};
	int way = APART;
	enum gn_status status = gn_cuda_autotune(gn_cuda_op_stream(&c->base), &list, &way, err);

	*yes = way == TOGETHER;
	return status;
}

enum gn_status gn_cuda_conv_bn_choose(struct gn_cuda_conv *c, struct gn_err *err)
{
	struct gn_op_conv_bn *conv_bn = c->base.desc.conv_bn;
	const struct gn_op_buffers *b = &c->base.buffers;
	struct gn_dnn_data forward, weight, data;
	enum gn_status status = GN_OK;

	if (!conv_bn || !conv_bn->norm || !b->din[0] || (c->counting && !b->statistics))
		return GN_OK;
	conv_bn->defers = c->norm_weight != NULL;
	conv_bn->sums = c->norm_data != NULL;
	if (!gn_cuda_ops_of(&c->base)->options.tune)
		return GN_OK;
	forward = forward_data(c);
	weight = weight_data(c);
	data = data_data(c);
	/* initialises the batch norm's input, and the output computed from it */
	if ((status = gn_cuda_randomise(gn_cuda_op_stream(&c->base), c->conv.type, forward.x, gn_layout_elements(&c->base.info.in[0]), 4, err)) ||
	    (status = gn_cuda_randomise(gn_cuda_op_stream(&c->base), c->conv.type, (void *)forward.scale, (size_t)c->conv.c, 5, err)) ||
	    (status = gn_cuda_randomise(gn_cuda_op_stream(&c->base), c->conv.type, (void *)forward.shift, (size_t)c->conv.c, 6, err)))
		return status;
	if (conv_bn->defers && !(status = gn_dnn_tune(c->norm_forward, &forward, b->scratch, err)) &&
	    !(status = gn_dnn_tune(c->norm_weight, &weight, b->scratch, err)))
		status = is_faster(c, normalise, &conv_bn->defers, err);
	if (!status && conv_bn->sums && !(status = gn_dnn_tune(c->norm_data, &data, b->scratch, err)))
		status = is_faster(c, sum, &conv_bn->sums, err);
	return status;
}
