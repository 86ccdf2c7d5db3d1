/* Convolutions as operators, and linear layers that cuBLASLt does not support: cuDNN multiplies, and kernels do the rest.
 *
 * A linear layer is a convolution of images of one pixel. The multiplied weights are a copy in the operator's type, made in the
 * forward pass and used in backward, too; f32 weights in OHWI are used directly. The weight gradient is computed in the operator's
 * type and widened.
 */
#include "kernels/cuda/autotune.h"
#include "kernels/cuda/op_conv.h"

static struct gn_cuda_conv *self(struct gn_op *op)
{
	return (struct gn_cuda_conv *)op;
}

/* Input channels of a group. */
static int inputs_of(const struct gn_cuda_conv *c)
{
	return c->conv.groups ? c->conv.c / c->conv.groups : c->conv.c;
}

/* Converts the caller's float weights to the multiplied copy, or the gradient back. */
static enum gn_status change_weight(const struct gn_cuda_conv *c, int back, const void *from, void *to, struct gn_err *err)
{
	enum gn_cuda_type type = c->conv.type;
	int pixels = c->conv.kernel * c->conv.kernel;
	struct gn_cuda_order o = {back ? type : GN_CUDA_F32, back ? GN_CUDA_F32 : type, c->conv.out_c, inputs_of(c), pixels, !back};

	if (c->base.info.weight.order == GN_WEIGHT_PLAIN)
		return gn_cuda_reorder(gn_cuda_op_stream(&c->base), &o, from, to, err);
	return gn_cuda_cast(gn_cuda_op_stream(&c->base), o.from_type, from, o.to_type, to, c->weights, err);
}

void *gn_cuda_conv_weight(const struct gn_cuda_conv *c)
{
	return c->copies ? c->base.buffers.workspace : (void *)c->base.buffers.weight;
}

void *gn_cuda_conv_weight_gradient(const struct gn_cuda_conv *c)
{
	return c->copies ? (char *)c->base.buffers.scratch + c->room_bytes : (void *)c->base.buffers.dweight;
}

static struct gn_dnn_data forward_data(const struct gn_cuda_conv *c)
{
	const struct gn_op_buffers *b = &c->base.buffers;
	struct gn_dnn_data d = {.x = (void *)b->in[0], .weight = gn_cuda_conv_weight(c), .y = b->out};

	if (c->fused) {
		d.bias = b->bias;
		d.added = c->base.desc.add ? b->in[1] : NULL;
	}
	return d;
}

static struct gn_dnn_data data_data(const struct gn_cuda_conv *c)
{
	return (struct gn_dnn_data){.x = c->base.buffers.din[0], .weight = gn_cuda_conv_weight(c), .y = (void *)c->base.buffers.dout};
}

static struct gn_dnn_data weight_data(const struct gn_cuda_conv *c)
{
	return (struct gn_dnn_data){
		.x = (void *)c->base.buffers.in[0], .weight = gn_cuda_conv_weight_gradient(c), .y = (void *)c->base.buffers.dout};
}

/* Two ways to compute the forward pass with the sums of its output's channels. */
enum { AFTER, WITHIN, WAYS };

static enum gn_status count(void *context, int way, struct gn_err *err)
{
	struct gn_cuda_conv *c = context;
	const struct gn_op_buffers *b = &c->base.buffers;
	struct gn_dnn_data data = forward_data(c);
	enum gn_status status;

	if (way == WITHIN) {
		data.sum = b->statistics;
		data.squares = b->statistics + c->conv.out_c;
		return gn_dnn_run(c->counting, &data, b->scratch, err);
	}
	status = gn_dnn_run(c->forward, &data, b->scratch, err);
	if (!status)
		status = gn_cuda_batch_norm_statistics(gn_cuda_op_stream(&c->base), &c->sums, b->out, 0, err);
	return status ? status : gn_cuda_sums_to_float(gn_cuda_op_stream(&c->base), c->sums.sums, b->statistics, 2 * c->conv.out_c, err);
}

/* An engine with statistics saves a pass over the output, but may be slower by more than that. */
static enum gn_status choose_candidate(struct gn_cuda_conv *c, struct gn_err *err)
{
	const struct gn_op_buffers *b = &c->base.buffers;
	struct gn_dnn_data data = forward_data(c);
	struct gn_cuda_candidates list = {WAYS, count, c, 0};
	enum gn_status status;
	int way;

	data.sum = b->statistics;
	data.squares = b->statistics + c->conv.out_c;
	status = gn_dnn_tune(c->counting, &data, b->scratch, err);
	if (!status)
		status = gn_cuda_autotune(gn_cuda_op_stream(&c->base), &list, &way, err);
	if (!status)
		c->counts_after = way == AFTER;
	return status;
}

/* Fills what the passes read, except parameters, with random numbers. */
static enum gn_status randomise(const struct gn_cuda_conv *c, struct gn_err *err)
{
	const struct gn_op_buffers *b = &c->base.buffers;
	const struct gn_op_info *info = &c->base.info;
	const struct {
		void *x;
		size_t count;
	} all[] = {{(void *)b->in[0], gn_layout_elements(&info->in[0])},
		   {c->base.desc.add ? (void *)b->in[1] : NULL, gn_layout_elements(&info->out)},
		   {(void *)b->dout, gn_layout_elements(&info->out)},
		   {c->copies ? gn_cuda_conv_weight(c) : NULL, c->weights}};
	enum gn_status status = GN_OK;

	for (size_t i = 0; i < sizeof all / sizeof *all && !status; i++)
		if (all[i].x)
			status = gn_cuda_randomise(gn_cuda_op_stream(&c->base), c->conv.type, all[i].x, all[i].count, i, err);
	return status;
}

static enum gn_status bind(struct gn_op *op, struct gn_err *err)
{
	struct gn_cuda_conv *c = self(op);
	const struct gn_op_buffers *b = &op->buffers;
	char *sums = (char *)b->scratch + c->room_bytes + c->dweight_bytes;
	struct gn_dnn_data forward = forward_data(c), data = data_data(c), weight = weight_data(c);
	enum gn_status status = GN_OK;

	c->sums.sums = (double *)sums;
	c->sums.scratch = sums + gn_cuda_padded(2 * (size_t)c->conv.out_c * sizeof(double));
	if (!gn_cuda_ops_of(op)->options.tune)
		return gn_cuda_conv_bn_choose(c, err);
	if (c->is_tuned)
		return GN_OK;
	status = randomise(c, err);
	if (!status)
		status = gn_dnn_tune(c->forward, &forward, b->scratch, err);
	if (!status && c->counting && b->statistics)
		status = choose_candidate(c, err);
	if (!status && c->data && b->din[0])
		status = gn_dnn_tune(c->data, &data, b->scratch, err);
	if (!status && c->weight)
		status = gn_dnn_tune(c->weight, &weight, b->scratch, err);
	if (!status)
		status = gn_cuda_conv_bn_choose(c, err);
	c->is_tuned = !status;
	return status;
}

enum gn_status gn_cuda_conv_forward(struct gn_cuda_conv *c, struct gn_err *err)
{
	const struct gn_op_buffers *b = &c->base.buffers;
	struct gn_dnn_data data = forward_data(c);

	if (c->counting && b->statistics)
		return count(c, c->counts_after ? AFTER : WITHIN, err);
	return gn_dnn_run(c->forward, &data, b->scratch, err);
}

enum gn_status gn_cuda_conv_weight_back(struct gn_cuda_conv *c, struct gn_err *err)
{
	struct gn_dnn_data data = weight_data(c);

	return gn_dnn_run(c->weight, &data, c->base.buffers.scratch, err);
}

enum gn_status gn_cuda_conv_data_back(struct gn_cuda_conv *c, struct gn_err *err)
{
	struct gn_dnn_data data = data_data(c);

	return gn_dnn_run(c->data, &data, c->base.buffers.scratch, err);
}

static enum gn_status forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	struct gn_cuda_conv *c = self(op);
	const struct gn_op_desc *d = &op->desc;
	const struct gn_op_buffers *b = &op->buffers;
	enum gn_status status = c->copies ? change_weight(c, 0, b->weight, gn_cuda_conv_weight(c), err) : GN_OK;

	(void)step;
	if (!status)
		status = d->conv_bn && d->conv_bn->defers ? gn_cuda_conv_bn_forward(c, err) : gn_cuda_conv_forward(c, err);
	if (status || c->fused || !(d->bias || d->add || d->relu))
		return status;
	return gn_cuda_bias(gn_cuda_op_stream(&c->base), c->conv.type, d->bias ? b->bias : NULL, d->add ? b->in[1] : NULL, d->relu, b->out,
			    gn_cuda_op_rows(&op->info.out), c->conv.out_c, err);
}

static enum gn_status backward(struct gn_op *op, struct gn_err *err)
{
	struct gn_cuda_conv *c = self(op);
	const struct gn_op_buffers *b = &op->buffers;
	const struct gn_op_conv_bn *conv_bn = op->desc.conv_bn;
	enum gn_status status = conv_bn && conv_bn->defers ? gn_cuda_conv_bn_weight_back(c, err) : gn_cuda_conv_weight_back(c, err);

	if (!status && c->copies)
		status = change_weight(c, 1, gn_cuda_conv_weight_gradient(c), b->dweight, err);
	if (!status && op->desc.bias)
		status = gn_cuda_batch_norm_statistics(gn_cuda_op_stream(&c->base), &c->sums, b->dout, 0, err);
	if (!status && op->desc.bias)
		status = gn_cuda_sums_to_float(gn_cuda_op_stream(&c->base), c->sums.sums, b->dbias, c->conv.out_c, err);
	/* a first layer may have memory for an input gradient that is not needed */
	if (!status && c->data && b->din[0])
		status = conv_bn && conv_bn->sums ? gn_cuda_conv_bn_data_back(c, err) : gn_cuda_conv_data_back(c, err);
	return status;
}

/* The plans that forward() and backward() run. */
static int engines(const struct gn_op *op, struct gn_op_engine *out)
{
	const struct gn_cuda_conv *c = (const struct gn_cuda_conv *)op;
	const struct gn_op_conv_bn *conv_bn = op->desc.conv_bn;
	const int defers = conv_bn && conv_bn->defers, sums = conv_bn && conv_bn->sums;
	const int within = c->counting && op->buffers.statistics && !c->counts_after;
	const struct gn_dnn_plan *const plans[] = {defers ? c->norm_forward : within ? c->counting : c->forward, sums ? c->norm_data : c->data,
						   defers ? c->norm_weight : c->weight};
	int count = 0;

	for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
		if (plans[i])
			gn_dnn_plan_describe(plans[i], &out[count++]);
	return count;
}

/* Plans belong to the gn_dnn. */
static void destroy(struct gn_op *op)
{
	struct gn_cuda_conv **at = &gn_cuda_ops_of(op)->waiting;

	while (*at && *at != self(op))
		at = &(*at)->next;
	if (*at)
		*at = (*at)->next;
}

/* Plans the forward pass with its fused operations if an engine supports it, else without. */
static enum gn_status plan_forward(struct gn_cuda_conv *c, struct gn_dnn *dnn, struct gn_err *err)
{
	const struct gn_op_desc *d = &c->base.desc;
	enum gn_dnn_pass pass = d->add ? GN_DNN_FORWARD_BIAS_ADD_RELU : d->relu ? GN_DNN_FORWARD_BIAS_RELU : GN_DNN_FORWARD_BIAS;
	int wanted = d->bias && (!d->add || d->relu);
	enum gn_status status = wanted ? gn_dnn_plan_get(dnn, &c->conv, pass, &c->forward, NULL) : GN_ERR_UNSUPPORTED;

	c->fused = status == GN_OK;
	return c->fused ? GN_OK : gn_dnn_plan_get(dnn, &c->conv, GN_DNN_FORWARD, &c->forward, err);
}

/* Requests all plans; repeated while cuDNN records requests instead of planning. */
static enum gn_status plan(struct gn_cuda_conv *c, struct gn_dnn *dnn, struct gn_err *err)
{
	const struct gn_op_desc *d = &c->base.desc;
	enum gn_status status = plan_forward(c, dnn, err);

	/* sums of squares in float lose precision that f32 needs; they follow the sums in memory, which is aligned for cuDNN only behind a
	 * multiple of 4 channels */
	if (!status && d->training && d->statistics && !d->bias && c->conv.type != GN_CUDA_F32 && !c->conv.groups && c->conv.out_c % 4 == 0)
		(void)gn_dnn_plan_get(dnn, &c->conv, GN_DNN_FORWARD_STATISTICS, &c->counting, NULL);
	if (!status && d->training)
		status = gn_dnn_plan_get(dnn, &c->conv, GN_DNN_BACKWARD_WEIGHT, &c->weight, err);
	if (!status && d->training && d->needs_din)
		status = gn_dnn_plan_get(dnn, &c->conv, GN_DNN_BACKWARD_DATA, &c->data, err);
	if (!status)
		gn_cuda_conv_bn_plan(c, dnn);
	return status;
}

static size_t most(size_t a, size_t b)
{
	return a > b ? a : b;
}

static void describe(struct gn_cuda_conv *c, const struct gn_cuda_ops *o)
{
	const struct gn_op_desc *d = &c->base.desc;
	struct gn_op_info *info = &c->base.info;
	size_t copy_bytes = c->copies ? gn_cuda_padded(c->weights * gn_cuda_type_bytes(c->conv.type)) : 0;

	c->room_bytes = gn_dnn_plan_workspace_bytes(c->forward);
	if (c->counting) {
		c->room_bytes = most(c->room_bytes, gn_dnn_plan_workspace_bytes(c->counting));
		info->statistics_bytes = 2 * (size_t)c->conv.out_c * sizeof(float);
	}
	if (c->weight)
		c->room_bytes = most(c->room_bytes, gn_dnn_plan_workspace_bytes(c->weight));
	if (c->data)
		c->room_bytes = most(c->room_bytes, gn_dnn_plan_workspace_bytes(c->data));
	c->room_bytes = gn_cuda_padded(most(c->room_bytes, gn_cuda_conv_bn_room_bytes(c)));
	c->dweight_bytes = d->training ? copy_bytes : 0;
	info->workspace_bytes = copy_bytes;
	info->scratch_bytes = c->room_bytes + c->dweight_bytes;
	info->backward_reads_in = 1;
	if (c->counting || (d->training && d->bias)) {
		c->sums.type = c->conv.type;
		c->sums.rows = gn_cuda_op_rows(&info->out);
		c->sums.channels = c->conv.out_c;
		info->scratch_bytes += gn_cuda_padded(2 * (size_t)c->conv.out_c * sizeof(double)) +
				       gn_cuda_batch_norm_scratch_bytes(o->stream, c->sums.rows, c->sums.channels);
	}
}

/* A linear layer takes its input in PyTorch's order and treats it as one pixel with many channels. */
static void set_shape(struct gn_cuda_conv *c, const struct gn_cuda_ops *o)
{
	const struct gn_op_desc *d = &c->base.desc;
	const struct gn_layout *in = &d->in[0], *out = &c->base.info.out;
	struct gn_op_info *info = &c->base.info;

	if (d->kind == GN_OP_LINEAR) {
		c->conv = (struct gn_dnn_conv){o->options.type, in->n, in->c * in->h * in->w, 1, 1, d->channels_out, 1, 1, 1, 1, 0, 0};
		/* with a single pixel both orders are the same */
		info->in[0].block = info->out.block = in->h * in->w == 1 ? in->block : 1;
		info->weight.order = GN_WEIGHT_PLAIN;
	} else {
		c->conv = (struct gn_dnn_conv){o->options.type, in->n,     in->c,     in->h,	 in->w, out->c,
					       out->h,	      out->w, d->kernel, d->stride, d->pad,   d->groups > 1 ? d->groups : 0};
		if (d->weight.order == GN_WEIGHT_ANY)
			info->weight.order = c->conv.groups ? GN_WEIGHT_PLAIN : GN_WEIGHT_OHWI;
	}
	c->weights = (size_t)c->conv.out_c * (size_t)inputs_of(c) * (size_t)c->conv.kernel * (size_t)c->conv.kernel;
	c->copies = c->conv.type != GN_CUDA_F32 ||
		    (info->weight.order == GN_WEIGHT_PLAIN && c->conv.kernel > 1 && inputs_of(c) > 1);
}

enum gn_status gn_cuda_conv_create(struct gn_cuda_ops *o, const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	static const struct gn_op_class class = {.bind = bind, .forward = forward, .backward = backward, .destroy = destroy, .engines = engines};
	enum gn_weight_order order = base->desc.kind == GN_OP_CONV ? base->desc.weight.order : GN_WEIGHT_PLAIN;
	struct gn_cuda_conv *c;
	enum gn_status status;

	if (order != GN_WEIGHT_ANY && order != GN_WEIGHT_OHWI && order != GN_WEIGHT_PLAIN)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "GPU weights must be in PyTorch's order or OHWI");
	c = (struct gn_cuda_conv *)gn_cuda_op_alloc(o, sizeof *c, &class, base, err);
	if (!c)
		return GN_ERR_NO_MEMORY;
	set_shape(c, o);
	if (o->collects) {
		c->next = o->waiting;
		o->waiting = c;
	} else if ((status = plan(c, o->dnn, err))) {
		gn_op_destroy(&c->base);
		return status;
	} else {
		describe(c, o);
	}
	*out = &c->base;
	return GN_OK;
}

enum gn_status gn_cuda_conv_plan_waiting(struct gn_cuda_ops *o, struct gn_err *err)
{
	enum gn_status status = GN_OK;
	int planned;

	/* the set of plans depends on the result of others */
	do {
		for (struct gn_cuda_conv *c = o->waiting; c && !status; c = c->next)
			status = plan(c, o->dnn, err);
		if (status)
			return status;
		status = gn_dnn_plan_noted(o->dnn, &planned, err);
	} while (!status && planned);
	while (!status && o->waiting) {
		describe(o->waiting, o);
		o->waiting = o->waiting->next;
	}
	return status;
}
