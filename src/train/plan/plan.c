#include "src/train/plan/plan.h"
#include "src/train/plan/plan_internal.h"
#include "src/base/alloc.h"
#include "src/base/clock.h"

#include <stdlib.h>
#include <string.h>

static enum gn_status check_options(const struct gn_model *m, const struct gn_plan_options *o, const float *grads,
				    struct gn_err *err)
{
	if (o->batch < 1 || o->batch > 1 << 20)
		return gn_err_set(err, GN_ERR_USAGE, "a batch of %d images: 1 to %d are possible", o->batch, 1 << 20);
	if (!(o->label_smoothing >= 0 && o->label_smoothing <= 1))
		return gn_err_set(err, GN_ERR_USAGE, "label smoothing of %g is not between 0 and 1",
				  o->label_smoothing);
	if (o->training && o->frozen)
		return gn_err_set(err, GN_ERR_USAGE, "a training plan cannot be frozen");
	if (o->training && !grads && !o->no_memory)
		return gn_err_set(err, GN_ERR_USAGE, "a training plan needs memory for gradients");
	if ((o->fp16 || o->tf32) && o->backend != GN_BACKEND_CUDA)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "%s is for GPUs: use --device cuda, or fp32 or bf16",
				  o->fp16 ? "fp16" : "tf32");
	if (o->pixels && (o->backend != GN_BACKEND_CUDA || gn_model_channels(m) != 3))
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "images as crops are for GPUs, in three channels");
	return GN_OK;
}

enum gn_status gn_plan_create(const struct gn_model *model, const struct gn_plan_options *options, float *params,
			      float *grads, float *buffers, struct gn_plan **out, struct gn_err *err)
{
	struct gn_plan *p;
	enum gn_status s = check_options(model, options, grads, err);

	if (s)
		return s;
	p = calloc(1, sizeof *p);
	if (!p)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a plan");
	p->model = model;
	p->options = *options;
	p->params = params;
	p->grads = grads;
	p->buffers = buffers;
	p->weights = calloc((size_t)gn_model_param_count(model) + 1, sizeof *p->weights);
	s = p->weights ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a plan");
	if (!s && options->backend == GN_BACKEND_CUDA)
		s = gn_plan_cuda_create(p, &p->device, err);
	if (!s)
		s = gn_plan_build(p, err);
	if (!s)
		s = gn_bn_folding_place(p, err);
	if (!s)
		s = gn_plan_place(p, err);
	p->options.weights = NULL; /* not needed any more */
	p->options.pixels = NULL;
	if (s)
		gn_plan_destroy(p);
	else
		*out = p;
	return s;
}

void gn_plan_destroy(struct gn_plan *p)
{
	if (!p)
		return;
	for (int i = 0; i < p->op_count; i++)
		gn_op_destroy(p->ops[i].op);
	if (p->device)
		p->device->class->destroy(p->device);
	else
		gn_pages_unmap(p->arena, p->arena_bytes);
	free(p->ops);
	free(p->tensors);
	free(p->conv_bns);
	free(p->storages);
	free(p->weights);
	free(p->own);
	free(p->own_room);
	free(p->logits);
	free(p);
}

static enum gn_status failed_in(struct gn_plan *p, const struct gn_plan_op *o, enum gn_status s, struct gn_err *err)
{
	p->phase = GN_PHASE_NEW;
	gn_err_prefix(err, "%s, node %d %s", gn_model_name(p->model), o->node, gn_model_node(p->model, o->node)->name);
	return s;
}

static uint64_t look(const struct gn_plan *p)
{
	return p->options.watch ? gn_clock_ns() : 0;
}

static void tell(const struct gn_plan *p, const struct gn_plan_op *o, int backward, uint64_t began_ns)
{
	const struct gn_plan_profiler *w = p->options.watch;

	if (w)
		w->ran(w->context, o->node, backward, began_ns, gn_clock_ns());
}

enum gn_status gn_plan_run_forward(struct gn_plan *p, uint64_t step, struct gn_err *err)
{
	enum gn_status s;

	for (int i = 0; i < p->op_count; i++) {
		uint64_t began = look(p);

		s = gn_op_forward(p->ops[i].op, step, err);
		if (s)
			return failed_in(p, &p->ops[i], s, err);
		tell(p, &p->ops[i], 0, began);
	}
	return GN_OK;
}

enum gn_status gn_plan_forward(struct gn_plan *p, const void *images, uint64_t step, const float **logits,
			       struct gn_err *err)
{
	const struct gn_plan_tensor *last = &p->tensors[p->logits_tensor];
	enum gn_status s = GN_OK;

	if (p->options.no_memory)
		return gn_err_set(err, GN_ERR_USAGE, "a forward pass of a plan without memory");
	if (p->options.frozen && !p->frozen)
		return gn_err_set(err, GN_ERR_USAGE, "a forward pass of a plan that has not frozen its weights yet");
	if (p->device)
		s = p->device->class->load(p, images, step, err);
	else
		gn_tensor_load(&p->tensors[0].layout, images, gn_plan_address(p, p->tensors[0].data));
	if (!s)
		s = gn_plan_run_forward(p, step, err);
	if (!s && p->device)
		s = p->device->class->store(p, err);
	if (s)
		return s;
	if (!p->device)
		gn_tensor_store(&last->layout, gn_plan_address(p, last->data), p->logits);
	p->phase = GN_PHASE_FORWARD;
	*logits = p->logits;
	return GN_OK;
}

/* In inference nobody wants the gradient and it goes to scratch memory. */
enum gn_status gn_plan_loss_mixed(struct gn_plan *p, const struct gn_targets *targets, double *loss, struct gn_err *err)
{
	const struct gn_plan_tensor *last = &p->tensors[p->logits_tensor];
	enum gn_status s;

	if (p->phase != GN_PHASE_FORWARD)
		return gn_err_set(err, GN_ERR_USAGE, "a loss without a forward pass before it");
	if (p->device)
		s = p->device->class->loss(p, targets, loss, err);
	else
		s = gn_softmax_cross_entropy_mixed(p->options.backend, p->options.batch, gn_model_classes(p->model),
					   gn_plan_address(p, last->data), targets, p->options.label_smoothing, loss,
					   gn_plan_address(p, p->options.training ? last->grad : p->scratch), err);
	if (!s)
		p->phase = p->options.training ? GN_PHASE_LOSS : GN_PHASE_NEW;
	return s;
}

enum gn_status gn_plan_loss(struct gn_plan *p, const int32_t *labels, double *loss, struct gn_err *err)
{
	struct gn_targets targets = {.labels = labels};

	return gn_plan_loss_mixed(p, &targets, loss, err);
}

static enum gn_status add_gradients(struct gn_plan *p, const struct gn_plan_op *o, struct gn_err *err)
{
	enum gn_status s = GN_OK;

	for (int k = 0; k < 2 && !s; k++) {
		const struct gn_plan_tensor *in = o->adds[k] ? &p->tensors[o->in[k]] : NULL;

		if (in && p->device)
			s = p->device->class->add(p, &in->layout, gn_plan_address(p, p->temporary), gn_plan_address(p, in->grad), err);
		else if (in)
			gn_tensor_accumulate(&in->layout, gn_plan_address(p, p->temporary), gn_plan_address(p, in->grad));
	}
	return s;
}

/* What the next operator reads, once more. */
static enum gn_status recompute(const struct gn_plan *p, const struct gn_plan_op *o, struct gn_err *err)
{
	uint64_t began = look(p);
	enum gn_status s = gn_op_recompute(o->op, err);

	if (!s)
		tell(p, o, 1, began);
	return s;
}

enum gn_status gn_plan_run_backward(struct gn_plan *p, void (*ready)(void *context, int param), void *context,
				    struct gn_err *err)
{
	enum gn_status s;

	for (int i = p->op_count - 1; i >= 0; i--) {
		const struct gn_plan_op *o = &p->ops[i];
		uint64_t began;

		s = o->recomputes < 0 ? GN_OK : recompute(p, &p->ops[o->recomputes], err);
		began = look(p);
		if (!s)
			s = gn_op_backward(o->op, err);
		if (!s)
			s = add_gradients(p, o, err);
		if (!s && p->device)
			s = p->device->class->went_back(p, i, err);
		if (s)
			return failed_in(p, o, s, err);
		tell(p, o, 1, began);
		for (int k = 1; ready && k >= 0; k--)
			if (o->param[k] >= 0)
				ready(context, o->param[k]);
	}
	return GN_OK;
}

enum gn_status gn_plan_backward(struct gn_plan *p, void (*ready)(void *context, int param), void *context,
				struct gn_err *err)
{
	enum gn_status s;

	if (p->phase != GN_PHASE_LOSS)
		return gn_err_set(err, GN_ERR_USAGE, "a backward pass without a loss of a training plan before it");
	s = gn_plan_run_backward(p, p->device ? NULL : ready, context, err);
	if (!s && p->device)
		s = p->device->class->finish(p, ready, context, err);
	p->phase = GN_PHASE_NEW;
	return s;
}

/* The calls of a run that stays on its device. */
static enum gn_status no_device(struct gn_err *err)
{
	return gn_err_set(err, GN_ERR_UNSUPPORTED, "a plan on the host has nothing to stay on");
}

enum gn_status gn_plan_reside(struct gn_plan *p, const struct gn_plan_update *update, struct gn_err *err)
{
	return p->device ? p->device->class->reside(p, update, err) : no_device(err);
}

enum gn_status gn_plan_push(struct gn_plan *p, struct gn_err *err)
{
	return p->device ? p->device->class->push(p, err) : no_device(err);
}

enum gn_status gn_plan_pull(struct gn_plan *p, struct gn_err *err)
{
	return p->device ? p->device->class->pull(p, err) : no_device(err);
}

enum gn_status gn_plan_stage(struct gn_plan *p, const void *images, const struct gn_targets *targets, struct gn_err *err)
{
	return p->device ? p->device->class->stage(p, images, targets, err) : no_device(err);
}

enum gn_status gn_plan_gather(struct gn_plan *p, uint64_t number, struct gn_err *err)
{
	return p->device ? p->device->class->gather(p, number, err) : no_device(err);
}

enum gn_status gn_plan_launch(struct gn_plan *p, uint64_t step, const struct gn_optim_update *u, struct gn_err *err)
{
	return p->device ? p->device->class->launch(p, step, u, err) : no_device(err);
}

float *gn_plan_sums(const struct gn_plan *p)
{
	return p->device ? p->bound.grads : NULL;
}

enum gn_status gn_plan_went_back(struct gn_plan *p, int *done, struct gn_err *err)
{
	return p->device ? p->device->class->gone_back(p, done, err) : no_device(err);
}

enum gn_status gn_plan_apply(struct gn_plan *p, struct gn_err *err)
{
	return p->device ? p->device->class->apply(p, err) : no_device(err);
}

enum gn_status gn_plan_result(struct gn_plan *p, struct gn_plan_result *out, struct gn_err *err)
{
	return p->device ? p->device->class->result(p, out, err) : no_device(err);
}

int gn_plan_gpu(const struct gn_plan *p)
{
	return p->device ? p->device->ordinal : -1;
}

const char *gn_plan_mode(const struct gn_plan *p)
{
	return p->manner;
}

const struct gn_weight_layout *gn_plan_weights(const struct gn_plan *p)
{
	return p->weights;
}

size_t gn_plan_bytes(const struct gn_plan *p)
{
	return p->arena_bytes;
}
