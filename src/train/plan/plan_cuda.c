/* A plan on a GPU whose caller's arrays lie on the host: parameters go there before a forward pass, gradients come back
 * behind a backward pass, each as soon as its operator is through. */
#include "src/train/plan/plan_cuda.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* What cuDNN may take for one convolution; its fastest ways to do the first layer of a network are greedy. */
#define WORKSPACE_LIMIT ((size_t)1 << 30)
/* Gradients in half precision are this much larger, until they overflow. */
#define FIRST_LOSS_SCALE 1024.0
#define LOSS_SCALE_MAX 65536.0
enum { GOOD_STEPS = 1000 };

struct gn_plan_cuda *gn_plan_cuda_of(const struct gn_plan *p)
{
	return (struct gn_plan_cuda *)p->device;
}

int gn_plan_cuda_rescale(struct gn_plan_cuda *d, int finite)
{
	double before = d->loss_scale;

	if (d->type != GN_CUDA_F16)
		return 0;
	d->good_steps = finite ? d->good_steps + 1 : 0;
	if (!finite && d->loss_scale > 1)
		d->loss_scale /= 2;
	if (d->good_steps >= GOOD_STEPS && d->loss_scale < LOSS_SCALE_MAX) {
		d->loss_scale *= 2;
		d->good_steps = 0;
	}
	return d->loss_scale != before;
}

static void destroy(struct gn_plan_device *base)
{
	struct gn_plan_cuda *d = (struct gn_plan_cuda *)base;

	gn_plan_cuda_stay_release(d);
	/* streams wait for what was given to them */
	gn_cuda_stream_destroy(d->upload);
	gn_cuda_stream_destroy(d->download);
	if (d->stream)
		(void)gn_cuda_stream_wait(d->stream, NULL);
	for (int i = 0; i < GN_PLAN_SLOTS; i++) {
		gn_cuda_event_destroy(d->slots[i].uploaded);
		gn_cuda_event_destroy(d->slots[i].taken);
		if (d->device)
			gn_cuda_pinned_free(d->device, d->slots[i].pinned);
	}
	for (int i = 0; d->complete && d->complete[i]; i++)
		gn_cuda_event_destroy(d->complete[i]);
	for (int i = 0; d->home && d->home[i]; i++)
		gn_cuda_event_destroy(d->home[i]);
	for (int i = 0; i < 3; i++)
		gn_cuda_unregister(d->device, d->pinned_arrays[i]);
	if (d->device)
		gn_cuda_pinned_free(d->device, d->outcome);
	gn_cuda_ops_destroy(d->ops);
	gn_cuda_arena_destroy(d->arena);
	gn_cuda_stream_destroy(d->stream);
	gn_cuda_device_destroy(d->device);
	free(d->complete);
	free(d->home);
	free(d);
}

static void freeze(struct gn_plan *p)
{
	gn_plan_cuda_of(p)->stale = 1;
}

/* Parameters and buffers as the caller has them. */
static enum gn_status send_weights(struct gn_plan *p, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	enum gn_status status = gn_cuda_copy(d->stream, p->bound.params, p->params,
					     gn_model_param_elements(p->model) * sizeof(float), err);

	if (!status)
		status = gn_cuda_copy(d->stream, p->bound.buffers, p->buffers,
				      gn_model_buffer_elements(p->model) * sizeof(float), err);
	if (!status && p->own)
		status = gn_cuda_copy(d->stream, p->bound.own, p->own, p->own_elements * sizeof(float), err);
	return status;
}

static enum gn_status load(struct gn_plan *p, const void *images, uint64_t step, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	enum gn_status status = GN_OK;

	if (d->resident)
		return gn_err_set(err, GN_ERR_USAGE, "a forward pass by hand of a plan that stays on its device");
	if (!p->options.frozen || d->stale)
		status = send_weights(p, err);
	if (!status)
		d->stale = 0;
	if (!status)
		status = gn_plan_cuda_stage(p, images, NULL, err);
	if (!status)
		status = gn_plan_cuda_take(p, err);
	return status ? status : gn_cuda_ops_set_step(d->ops, step, err);
}

static enum gn_status store(struct gn_plan *p, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	const struct gn_plan_tensor *last = &p->tensors[p->logits_tensor];
	enum gn_status status = gn_cuda_copy(d->stream, p->logits, gn_plan_address(p, last->data),
					     gn_layout_bytes(&last->layout), err);

	return status ? status : gn_cuda_stream_wait(d->stream, err);
}

enum gn_status gn_plan_cuda_loss(struct gn_plan *p, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	const struct gn_plan_tensor *last = &p->tensors[p->logits_tensor];
	size_t batch = (size_t)p->options.batch;
	struct gn_cuda_loss_args a = {
		.type = GN_CUDA_F32,
		.batch = p->options.batch,
		.classes = gn_model_classes(p->model),
		.logits = gn_plan_address(p, last->data),
		.labels = d->labels,
		.pair_labels = d->has_mixup ? d->labels + batch : NULL,
		.lambdas = d->has_mixup ? (const float *)(d->labels + 2 * batch) : NULL,
		.smoothing = p->options.label_smoothing,
		.grad_scale = d->loss_scale,
		.dlogits = gn_plan_address(p, p->options.training ? last->grad : p->scratch),
		.rows = d->loss_rows,
		.out = d->loss,
	};

	return gn_cuda_softmax_cross_entropy(d->stream, &a, err);
}

static enum gn_status loss(struct gn_plan *p, const struct gn_targets *targets, double *out, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	size_t bytes = (size_t)p->options.batch * 4;
	enum gn_status status = gn_cuda_copy(d->stream, d->labels, targets->labels, bytes, err);

	d->has_mixup = targets->pair_labels != NULL;
	if (!status && targets->pair_labels)
		status = gn_cuda_copy(d->stream, (char *)d->labels + bytes, targets->pair_labels, bytes, err);
	if (!status && targets->pair_labels)
		status = gn_cuda_copy(d->stream, (char *)d->labels + 2 * bytes, targets->lambdas, bytes, err);
	if (!status)
		status = gn_plan_cuda_loss(p, err);
	if (!status)
		status = gn_cuda_copy(d->stream, &d->outcome->loss, d->loss, sizeof *d->loss, err);
	if (!status)
		status = gn_cuda_stream_wait(d->stream, err);
	if (!status && d->outcome->loss.bad)
		return gn_err_set(err, GN_ERR_DATA, "labels of %d images of the batch are none: there are only %d classes",
				  (int)d->outcome->loss.bad, gn_model_classes(p->model));
	if (!status)
		*out = d->outcome->loss.loss;
	return status;
}

static enum gn_status add(struct gn_plan *p, const struct gn_layout *l, const void *from, void *to, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	enum gn_cuda_type type = l->element_bytes == sizeof(float) ? GN_CUDA_F32 : d->type;

	return gn_cuda_add(d->stream, type, to, from, 0, to, gn_layout_elements(l), err);
}

/* The gradients of operator i: one stretch of the array, since weight and bias are neighbours. */
static int stretch(const struct gn_plan *p, int i, size_t *offset, size_t *count)
{
	const struct gn_plan_op *o = &p->ops[i];
	const struct gn_param *first, *last;

	if (o->param[0] < 0)
		return 0;
	first = gn_model_param(p->model, o->param[0]);
	last = o->param[1] < 0 ? first : gn_model_param(p->model, o->param[1]);
	*offset = first->offset;
	*count = last->offset + last->count - first->offset;
	return 1;
}

static enum gn_status went_back(struct gn_plan *p, int i, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	size_t offset, count;
	enum gn_status status = GN_OK;

	if (!stretch(p, i, &offset, &count))
		return GN_OK;
	if (d->resident)
		return gn_plan_cuda_leave(p, i, offset, count, err);
	if (d->loss_scale != 1)
		status = gn_cuda_scale(d->stream, GN_CUDA_F32, p->bound.grads + offset, 1 / d->loss_scale, count, err);
	if (status || (status = gn_cuda_event_record(d->complete[i], d->stream, err)) ||
	    (status = gn_cuda_stream_after(d->download, d->complete[i], err)) ||
	    (status = gn_cuda_copy(d->download, p->grads + offset, p->bound.grads + offset, count * sizeof(float), err)))
		return status;
	return gn_cuda_event_record(d->home[i], d->download, err);
}

/* The scale of the next step follows what this one's gradients were; the caller leaves out the update by its own look. */
static enum gn_status look_at_gradients(struct gn_plan *p, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	enum gn_status status = gn_cuda_fill(d->stream, d->nonfinite, 0, sizeof *d->nonfinite, err);

	if (!status)
		status = gn_cuda_find_nonfinite(d->stream, GN_CUDA_F32, p->bound.grads, gn_model_param_elements(p->model),
						d->nonfinite, err);
	if (!status)
		status = gn_cuda_copy(d->stream, &d->outcome->nonfinite, d->nonfinite, sizeof *d->nonfinite, err);
	return status;
}

static enum gn_status finish(struct gn_plan *p, void (*ready)(void *context, int param), void *context, struct gn_err *err)
{
	struct gn_plan_cuda *d = gn_plan_cuda_of(p);
	size_t buffers = gn_model_buffer_elements(p->model) * sizeof(float), offset, count;
	enum gn_status status = gn_cuda_copy(d->stream, p->buffers, p->bound.buffers, buffers, err);

	if (!status && d->type == GN_CUDA_F16)
		status = look_at_gradients(p, err);
	for (int i = p->op_count - 1; i >= 0 && !status; i--) {
		if (!stretch(p, i, &offset, &count))
			continue;
		status = gn_cuda_event_wait(d->home[i], err);
		for (int k = 1; ready && k >= 0 && !status; k--)
			if (p->ops[i].param[k] >= 0)
				ready(context, p->ops[i].param[k]);
	}
	if (!status)
		status = gn_cuda_stream_wait(d->stream, err);
	if (!status && d->type == GN_CUDA_F16)
		gn_plan_cuda_rescale(d, !d->outcome->nonfinite);
	return status;
}

/* The user's folder for what can be made again; NULL: none is known. */
static const char *plans_folder(char *out, size_t size)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int length = 0;

	if (cache && cache[0] == '/')
		length = snprintf(out, size, "%s/gannet/cudnn", cache);
	else if (home && home[0] == '/')
		length = snprintf(out, size, "%s/.cache/gannet/cudnn", home);
	return length > 0 && (size_t)length < size ? out : NULL;
}

static enum gn_status open_device(struct gn_plan_cuda *d, const struct gn_plan_options *o, struct gn_err *err)
{
	char folder[PATH_MAX];
	struct gn_cuda_ops_options oo = {
		.type = d->type, .tune = o->tune,
		.dnn = {.tf32 = o->tf32, .workspace_limit_bytes = WORKSPACE_LIMIT, .folder = plans_folder(folder, sizeof folder)}};
	int count;
	enum gn_status status = gn_cuda_device_count(&count, err);

	if (!status)
		status = gn_cuda_device_create(o->gpu % count, &d->device, err);
	if (!status)
		status = gn_cuda_stream_create(d->device, &d->stream, err);
	if (!status)
		status = gn_cuda_stream_create(d->device, &d->upload, err);
	if (!status)
		status = gn_cuda_stream_create(d->device, &d->download, err);
	return status ? status : gn_cuda_ops_create(d->stream, &oo, &d->ops, err);
}

enum gn_status gn_plan_cuda_create(const struct gn_plan *p, struct gn_plan_device **out, struct gn_err *err)
{
	static const struct gn_plan_device_class class = {
		.destroy = destroy, .place = gn_plan_cuda_place, .freeze = freeze, .load = load, .store = store, .loss = loss, .add = add,
		.went_back = went_back, .finish = finish, .reside = gn_plan_cuda_reside, .push = gn_plan_cuda_push,
		.pull = gn_plan_cuda_pull, .stage = gn_plan_cuda_stage, .gather = gn_plan_cuda_gather, .launch = gn_plan_cuda_launch,
		.gone_back = gn_plan_cuda_gone_back, .apply = gn_plan_cuda_apply, .result = gn_plan_cuda_result,
	};
	const struct gn_plan_options *o = &p->options;
	struct gn_plan_cuda *d;
	enum gn_status status;

	if (o->bf16 + o->fp16 + o->tf32 > 1)
		return gn_err_set(err, GN_ERR_USAGE, "only one of bf16, fp16 and tf32");
	if (!(d = calloc(1, sizeof *d)))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a plan");
	d->base.class = &class;
	d->type = o->bf16 ? GN_CUDA_BF16 : o->fp16 ? GN_CUDA_F16 : GN_CUDA_F32;
	d->loss_scale = o->fp16 ? FIRST_LOSS_SCALE : 1;
	d->staged = -1;
	d->stale = 1;
	d->crops = o->pixels != NULL;
	if (o->pixels)
		d->pixels = *o->pixels;
	status = open_device(d, o, err);
	if (status) {
		destroy(&d->base);
		return status;
	}
	d->base.ops = gn_cuda_ops_device(d->ops);
	d->base.ordinal = gn_cuda_device_info(d->device)->ordinal;
	*out = &d->base;
	return GN_OK;
}
