#include "kernels/backend.h"
#include "src/base/half.h"
#include "src/base/philox.h"

#include <stdlib.h>
#include <string.h>

size_t gn_layout_elements(const struct gn_layout *l)
{
	size_t c = l->block > 1 ? ((size_t)l->c + l->block - 1) / l->block * l->block : (size_t)l->c;

	return (size_t)l->n * c * l->h * l->w;
}

size_t gn_layout_bytes(const struct gn_layout *l)
{
	return gn_layout_elements(l) * l->element_bytes;
}

int gn_layout_equal(const struct gn_layout *a, const struct gn_layout *b)
{
	return a->n == b->n && a->c == b->c && a->h == b->h && a->w == b->w && a->block == b->block &&
	       a->element_bytes == b->element_bytes;
}

void gn_tensor_load(const struct gn_layout *l, const float *from, void *to)
{
	size_t count = gn_layout_elements(l);
	double *wide = to;

	if (l->element_bytes == sizeof(float)) {
		memcpy(to, from, count * sizeof(float));
		return;
	}
	if (gn_layout_is_bf16(l)) {
		uint16_t *restrict narrow = to;

#pragma omp parallel for simd schedule(static)
		for (size_t i = 0; i < count; i++)
			narrow[i] = gn_bf16_of_f32(from[i]);
		return;
	}
	for (size_t i = 0; i < count; i++)
		wide[i] = from[i];
}

void gn_tensor_store(const struct gn_layout *l, const void *from, float *to)
{
	size_t count = gn_layout_elements(l);
	const double *wide = from;

	if (l->element_bytes == sizeof(float)) {
		memcpy(to, from, count * sizeof(float));
		return;
	}
	if (gn_layout_is_bf16(l)) {
		const uint16_t *narrow = from;

		for (size_t i = 0; i < count; i++)
			to[i] = gn_f32_of_bf16(narrow[i]);
		return;
	}
	for (size_t i = 0; i < count; i++)
		to[i] = (float)wide[i];
}

void gn_tensor_accumulate(const struct gn_layout *l, const void *from, void *to)
{
	size_t count = gn_layout_elements(l);

	if (l->element_bytes == sizeof(float)) {
		const float *restrict a = from;
		float *restrict b = to;

#pragma omp parallel for simd schedule(static)
		for (size_t i = 0; i < count; i++)
			b[i] += a[i];
	} else if (gn_layout_is_bf16(l)) {
		const uint16_t *restrict a = from;
		uint16_t *restrict b = to;

#pragma omp parallel for simd schedule(static)
		for (size_t i = 0; i < count; i++)
			b[i] = gn_bf16_of_f32(gn_f32_of_bf16(b[i]) + gn_f32_of_bf16(a[i]));
	} else {
		const double *a = from;
		double *b = to;

		for (size_t i = 0; i < count; i++)
			b[i] += a[i];
	}
}

struct gn_weight_shape gn_conv_weight_shape(const struct gn_op_desc *d)
{
	size_t groups = d->groups > 1 ? (size_t)d->groups : 1;

	return (struct gn_weight_shape){(size_t)d->channels_out, (size_t)d->in[0].c / groups, (size_t)d->kernel * (size_t)d->kernel};
}

void gn_drop_path_factors(const struct gn_op_desc *d, uint64_t step, float *factors)
{
	const uint32_t key[2] = {(uint32_t)d->seed, (uint32_t)(d->seed >> 32)};

	for (int i = 0; i < d->in[0].n; i++) {
		uint32_t counter[4] = {(uint32_t)i / 4, d->stream, (uint32_t)step, (uint32_t)(step >> 32) << 16 | GN_RNG_DROPOUT}, draw[4];

		gn_philox(counter, key, draw);
		factors[i] = !d->training ? 1 : draw[i % 4] / 4294967296.0 < d->rate ? 0 : (float)(1 / (1 - d->rate));
	}
}

static enum gn_status check_weight(const struct gn_op_desc *d, struct gn_err *err)
{
	struct gn_weight_shape s = gn_conv_weight_shape(d);

	if (d->kind != GN_OP_CONV && d->weight.order != GN_WEIGHT_PLAIN && d->weight.order != GN_WEIGHT_ANY)
		return gn_err_set(err, GN_ERR_USAGE, "only convolutions support weights in another order");
	if (d->groups > 1 && d->weight.order != GN_WEIGHT_ANY && d->weight.order != GN_WEIGHT_PLAIN)
		return gn_err_set(err, GN_ERR_USAGE, "weights of several groups are only in PyTorch's order");
	if (d->kind == GN_OP_CONV && d->weight.order != GN_WEIGHT_ANY && !gn_weight_fits(&s, d->weight))
		return gn_err_set(err, GN_ERR_USAGE, "weights of %dx%d channels do not fill blocks of %d", d->channels_out,
				  d->in[0].c, d->weight.block);
	return GN_OK;
}

static enum gn_status window_side(const struct gn_op_desc *d, int in, int *out, struct gn_err *err)
{
	if (d->kernel < 1 || d->stride < 1 || d->pad < 0 || d->pad >= d->kernel)
		return gn_err_set(err, GN_ERR_USAGE, "kernel %d, stride %d, padding %d is not a valid window", d->kernel,
				  d->stride, d->pad);
	if (in + 2 * d->pad < d->kernel)
		return gn_err_set(err, GN_ERR_USAGE,
				  "an input of side %d is smaller than the window of %d: use larger images", in,
				  d->kernel);
	*out = (in + 2 * d->pad - d->kernel) / d->stride + 1;
	return GN_OK;
}

static enum gn_status window_shape(const struct gn_op_desc *d, struct gn_layout *out, struct gn_err *err)
{
	enum gn_status s = window_side(d, d->in[0].h, &out->h, err);

	return s ? s : window_side(d, d->in[0].w, &out->w, err);
}

static enum gn_status check_input(const struct gn_layout *in, struct gn_err *err)
{
	double bytes = 8.0 * in->n * (in->c + 16.0) * in->h * in->w;

	if (in->n < 1 || in->c < 1 || in->h < 1 || in->w < 1)
		return gn_err_set(err, GN_ERR_USAGE, "a tensor of %dx%dx%dx%d is empty", in->n, in->c, in->h,
				  in->w);
	if (bytes > 1e12)
		return gn_err_set(err, GN_ERR_USAGE, "a tensor of %dx%dx%dx%d is too large", in->n, in->c, in->h,
				  in->w);
	return GN_OK;
}

static enum gn_status same_shape(const struct gn_layout *a, const struct gn_layout *b, struct gn_err *err)
{
	if (a->n == b->n && a->c == b->c && a->h == b->h && a->w == b->w)
		return GN_OK;
	return gn_err_set(err, GN_ERR_USAGE, "cannot add %dx%dx%d and %dx%dx%d", a->c, a->h, a->w, b->c, b->h, b->w);
}

static enum gn_status conv_shape(const struct gn_op_desc *d, struct gn_layout *out, struct gn_err *err)
{
	enum gn_status s = window_shape(d, out, err);

	out->c = d->channels_out;
	if (!s && d->groups > 1 && (d->channels_out % d->groups || d->in[0].c % d->groups))
		s = gn_err_set(err, GN_ERR_USAGE, "%d groups do not divide %d input and %d output channels", d->groups, d->in[0].c,
			       d->channels_out);
	if (!s && (d->relu || d->add) && d->training)
		s = gn_err_set(err, GN_ERR_UNSUPPORTED, "a convolution fuses sum and relu only in inference");
	return s || !d->add ? s : same_shape(out, &d->in[1], err);
}

/* Sets the logical shape of the output; the layout is that of the first input. */
static enum gn_status infer(const struct gn_op_desc *d, struct gn_layout *out, struct gn_err *err)
{
	const struct gn_layout *in = &d->in[0];

	*out = *in;
	switch (d->kind) {
	case GN_OP_CONV:
		return conv_shape(d, out, err);
	case GN_OP_MAX_POOL:
		return window_shape(d, out, err);
	case GN_OP_ADAPTIVE_AVG_POOL:
		out->h = out->w = d->out_side;
		return GN_OK;
	case GN_OP_LINEAR:
		out->c = d->channels_out;
		out->h = out->w = 1;
		return GN_OK;
	case GN_OP_BATCH_NORM:
		if (d->training && (double)in->n * in->h * in->w * (d->members > 1 ? d->members : 1) < 2)
			return gn_err_set(
				err, GN_ERR_USAGE,
				"batch statistics of a single value per channel: use a larger batch or image");
		return d->add ? same_shape(in, &d->in[1], err) : GN_OK;
	case GN_OP_ADD:
		return same_shape(in, &d->in[1], err);
	case GN_OP_REORDER:
		*out = d->out;
		return GN_OK;
	case GN_OP_SCALE:
		return d->in[1].n == in->n && d->in[1].c == in->c && d->in[1].h == 1 && d->in[1].w == 1 ? GN_OK :
			gn_err_set(err, GN_ERR_USAGE, "factors of %dx%dx%dx%d for a tensor of %dx%dx%dx%d", d->in[1].n, d->in[1].c,
				   d->in[1].h, d->in[1].w, in->n, in->c, in->h, in->w);
	case GN_OP_TOKENS:
		out->h = 1 + in->h * in->w;
		out->w = 1;
		return GN_OK;
	case GN_OP_ATTENTION:
		out->c = in->c / 3;
		return d->heads > 0 && in->c % (3 * d->heads) == 0 ? GN_OK :
			gn_err_set(err, GN_ERR_USAGE, "attention of %d heads over %d channels: they must be three times a multiple of the heads",
				   d->heads, in->c);
	case GN_OP_FIRST_PIXEL:
		out->h = out->w = 1;
		return GN_OK;
	case GN_OP_CONJUGATE:
		out->c *= d->conjugate.kind >= GN_CONJUGATE_GATHER ? d->conjugate.ranks : 1;
		return GN_OK;
	case GN_OP_RELU:
	case GN_OP_DROPOUT:
	case GN_OP_ACTIVATION:
	case GN_OP_CHANNEL_SCALE:
	case GN_OP_DROP_PATH:
	case GN_OP_LAYER_NORM:
		return GN_OK;
	}
	return gn_err_set(err, GN_ERR_USAGE, "unknown operator kind %d", (int)d->kind);
}

enum gn_status gn_op_create(enum gn_backend backend, const struct gn_op_desc *desc, struct gn_op **out,
			    struct gn_err *err)
{
	struct gn_op base = {.desc = *desc};
	enum gn_status s = check_input(&desc->in[0], err);

	if (!s)
		s = infer(desc, &base.info.out, err);
	if (!s)
		s = check_input(&base.info.out, err);
	if (!s)
		s = check_weight(desc, err);
	if (!s && desc->members > 1 && backend == GN_BACKEND_REF)
		s = gn_err_set(err, GN_ERR_UNSUPPORTED, "the reference backend has no batch norm over several ranks");
	if (s)
		return s;
	if (desc->bf16 && backend == GN_BACKEND_REF)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "the reference backend computes only in double precision");
	base.info.in[0] = desc->in[0];
	base.info.in[1] = desc->in[1];
	if (desc->weight.order != GN_WEIGHT_ANY)
		base.info.weight = desc->weight;
	if (backend == GN_BACKEND_REF && base.info.weight.order != GN_WEIGHT_PLAIN)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "the reference backend supports only weights in PyTorch's order");
	if (desc->kind == GN_OP_CONJUGATE)
		return gn_conjugate_create(backend, &base, out, err);
	if (backend == GN_BACKEND_CUDA)
		return desc->device ? desc->device->create(desc->device, &base, out, err)
				    : gn_err_set(err, GN_ERR_USAGE, "a GPU operator needs a device");
	return backend == GN_BACKEND_REF ? gn_ref_op_create(&base, out, err) : gn_host_op_create(&base, out, err);
}

int gn_backend_has_bf16(enum gn_backend backend)
{
	return backend == GN_BACKEND_HOST && gn_host_has_bf16();
}

int gn_backend_has_winograd(enum gn_backend backend)
{
	return backend == GN_BACKEND_HOST && gn_host_winograd_lanes() > 0;
}

struct gn_op *gn_op_alloc(size_t size, const struct gn_op_class *class, const struct gn_op *base, struct gn_err *err)
{
	struct gn_op *op = calloc(1, size);

	if (!op) {
		gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an operator");
		return NULL;
	}
	*op = *base;
	op->class = class;
	return op;
}

void gn_op_destroy(struct gn_op *op)
{
	if (!op)
		return;
	if (op->class->destroy)
		op->class->destroy(op);
	free(op);
}

void gn_op_device_begin(struct gn_op_device *d)
{
	d->begin(d);
}

enum gn_status gn_op_device_end(struct gn_op_device *d, struct gn_err *err)
{
	return d->end(d, err);
}

const struct gn_op_info *gn_op_info(const struct gn_op *op)
{
	return &op->info;
}

enum gn_status gn_op_bind(struct gn_op *op, const struct gn_op_buffers *buffers, struct gn_err *err)
{
	op->buffers = *buffers;
	return op->class->bind ? op->class->bind(op, err) : GN_OK;
}

enum gn_status gn_op_freeze(struct gn_op *op, struct gn_err *err)
{
	return op->class->freeze ? op->class->freeze(op, err) : GN_OK;
}

enum gn_status gn_op_forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	return op->class->forward(op, step, err);
}

enum gn_status gn_op_forward_rest(struct gn_op *op, struct gn_err *err)
{
	return op->info.sum_count || op->info.exchange[0].kind ? op->class->forward_rest(op, err) : GN_OK;
}

enum gn_status gn_op_recompute(struct gn_op *op, struct gn_err *err)
{
	return op->class->recompute ? op->class->recompute(op, err)
				    : gn_err_set(err, GN_ERR_UNSUPPORTED, "the operator cannot recompute its output");
}

enum gn_status gn_op_backward(struct gn_op *op, struct gn_err *err)
{
	return op->class->backward(op, err);
}

enum gn_status gn_op_backward_rest(struct gn_op *op, struct gn_err *err)
{
	return op->info.sum_count || op->info.exchange[1].kind ? op->class->backward_rest(op, err) : GN_OK;
}

double *gn_op_sums(const struct gn_op *op)
{
	return op->info.sum_count ? op->sums : NULL;
}

int gn_op_engines(const struct gn_op *op, struct gn_op_engine out[GN_OP_ENGINES_MAX])
{
	return op->class->engines ? op->class->engines(op, out) : 0;
}

void *gn_op_values(const struct gn_op *op)
{
	return op->buffers.scratch;
}

enum gn_status gn_targets_check(const struct gn_targets *t, int batch, int classes, struct gn_err *err)
{
	for (int i = 0; i < batch; i++) {
		int32_t label = t->labels[i], pair = t->pair_labels && label >= 0 ? t->pair_labels[i] : 0;

		if (label >= classes || pair < 0 || pair >= classes)
			return gn_err_set(err, GN_ERR_DATA, "label %d of image %d of the batch is out of range: %d classes",
					  (int)(label >= classes ? label : pair), i, classes);
	}
	return GN_OK;
}

int gn_targets_main_label(const struct gn_targets *t, int image)
{
	return t->pair_labels && t->lambdas[image] < 0.5f ? t->pair_labels[image] : t->labels[image];
}

double gn_targets_mean_weight(const struct gn_targets *targets, int batch)
{
	double sum = 0;
	int counted = 0;

	for (int i = 0; i < batch; i++) {
		if (targets->labels[i] < 0)
			continue;
		sum += targets->class_weights && !targets->pair_labels ? targets->class_weights[targets->labels[i]] : 1;
		counted++;
	}
	return counted ? sum / counted : 0;
}

enum gn_status gn_softmax_cross_entropy_mixed(enum gn_backend backend, int batch, int classes, const void *logits,
					      const struct gn_targets *targets, double smoothing, double *loss,
					      void *dlogits, struct gn_err *err)
{
	enum gn_status s = gn_targets_check(targets, batch, classes, err);
	int counted = 0;

	for (int i = 0; i < batch; i++)
		counted += targets->labels[i] >= 0;
	if (!s && backend == GN_BACKEND_CUDA)
		s = gn_err_set(err, GN_ERR_USAGE, "on a GPU use gn_cuda_softmax_cross_entropy");
	if (s)
		return s;
	*loss = backend == GN_BACKEND_REF
			? gn_ref_softmax_cross_entropy(batch, classes, logits, targets, counted, smoothing, dlogits)
			: gn_host_softmax_cross_entropy(batch, classes, logits, targets, counted, smoothing, dlogits);
	return GN_OK;
}
