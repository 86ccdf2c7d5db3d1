#include "src/train/plan/contention.h"
#include "src/train/plan/plan_internal.h"

#include <stdlib.h>
#include <string.h>

/* Of gradients in half precision. */
#define FIRST_LOSS_SCALE 1024.0

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
	if (gn_model_origin(m).node && !o->input)
		return gn_err_set(err, GN_ERR_USAGE, "a plan of a part of %s needs the layout of its input", gn_model_name(m));
	if (gn_model_tensor(m).ranks && !o->no_memory && (!o->tensor || o->frozen))
		return gn_err_set(err, GN_ERR_USAGE, "a plan of a slice of %s needs the ranks that have the others, and is not frozen", gn_model_name(m));
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
	p->loss_scale = options->fp16 ? FIRST_LOSS_SCALE : 1;
	p->batches.crops = options->pixels != NULL;
	if (options->pixels)
		p->batches.pixels = *options->pixels;
	if (!s && !options->device)
		s = gn_plan_device_open(options, &p->own_device, err);
	p->device = options->device ? *options->device : p->own_device;
	if (!s)
		s = gn_plan_build(p, err);
	if (!s)
		s = gn_bn_folding_place(p, err);
	if (!s)
		s = gn_plan_place(p, err);
	p->options.weights = NULL; /* not needed any more */
	p->options.pixels = NULL;
	p->options.input = NULL;
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
	if (p->device.stream)
		(void)gn_stream_wait(p->device.stream, NULL);
	gn_plan_parts_release(p);
	gn_plan_batches_release(p);
	for (int i = 0; i < p->op_count; i++)
		gn_op_destroy(p->ops[i].op);
	gn_buffer_free(&p->arena_buffer);
	gn_buffer_free(&p->weight_buffer);
	gn_buffer_free(&p->loss_buffer);
	gn_buffer_free(&p->numbers_buffer);
	if (p->device.device)
		gn_pinned_free(p->device.device, p->losses);
	gn_plan_device_close(&p->own_device);
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

/* o NULL: the loss. */
static void mark(const struct gn_plan *p, const struct gn_plan_op *o, int backward, int ended)
{
	const struct gn_plan_profiler *w = p->options.profiler;
	const struct gn_plan_mark m = {o ? (int)(o - p->ops) : p->op_count, o ? o->node : -1, backward, ended};

	if (w)
		w->mark(w->context, &m);
}

void gn_plan_profile(struct gn_plan *p, const struct gn_plan_profiler *profiler)
{
	p->options.profiler = profiler;
}

/* --- positions --- */

/* Around the sums over ranks of an operator that has them; others are complete with GN_BEFORE_SUMS. */
enum { GN_BEFORE_SUMS = 1, GN_AFTER_SUMS = 2 };

static enum gn_status queue_forward(struct gn_plan *p, const struct gn_plan_op *o, int halves, uint64_t number, struct gn_err *err)
{
	enum gn_status s;

	mark(p, o, 0, 0);
	s = halves & GN_BEFORE_SUMS ? gn_op_forward(o->op, number, err) : GN_OK;
	if (!s && halves & GN_AFTER_SUMS)
		s = gn_op_forward_rest(o->op, err);
	mark(p, o, 0, 1);
	return s;
}

struct gn_class_slice gn_plan_classes(const struct gn_plan *p)
{
	const struct gn_model_tensor t = gn_model_tensor(p->model);

	return (struct gn_class_slice){t.first_class, t.classes, gn_model_classes(p->model), t.ranks};
}

/* Around the exchange among ranks that divide the classes. */
static enum gn_status queue_sliced_loss(struct gn_plan *p, const struct gn_loss_args *a, int halves, struct gn_err *err)
{
	const struct gn_class_slice slice = gn_plan_classes(p);
	const size_t numbers = (size_t)a->batch * GN_SLICED_LOSS_NUMBERS * (size_t)gn_model_tensor(p->model).rank;
	enum gn_status s = GN_OK;

	if (halves & GN_BEFORE_SUMS)
		s = gn_sliced_loss_begin(p->options.backend, a, &slice, p->loss_numbers + numbers, err);
	if (!s && halves & GN_AFTER_SUMS)
		gn_sliced_loss_end(p->options.backend, a, &slice, p->loss_numbers);
	return s;
}

/* In inference nobody reads the gradient, and it goes to scratch memory. */
static enum gn_status queue_loss(struct gn_plan *p, int halves, struct gn_err *err)
{
	const struct gn_plan_tensor *last = &p->tensors[p->logits_tensor];
	struct gn_loss_args a = {
		.batch = p->options.batch, .classes = gn_model_classes(p->model), .logits = gn_plan_address(p, last->data),
		.targets = p->batches.targets, .smoothing = p->options.label_smoothing, .grad_scale = p->loss_scale,
		.dlogits = gn_plan_address(p, p->options.training ? last->grad : p->scratch), .rows = p->loss_rows, .out = p->loss,
		.mean = p->options.mean_loss, .mean_weight = p->options.mean_weight, .correct = p->options.correct,
		.share = p->options.share > 0 ? p->options.share : 1.0 / (p->options.batches > 1 ? p->options.batches : 1),
	};
	enum gn_status s;

	if (!gn_model_is_end(p->model))
		return GN_OK;
	a.targets.class_weights = p->options.class_weights;
	mark(p, NULL, 0, 0);
	s = p->loss_numbers ? queue_sliced_loss(p, &a, halves, err) : gn_compute_loss(p->device.compute, &a, err);
	mark(p, NULL, 0, 1);
	return s;
}

static enum gn_status add_gradients(struct gn_plan *p, const struct gn_plan_op *o, struct gn_err *err)
{
	enum gn_status s = GN_OK;

	for (int k = 0; k < 2 && !s; k++) {
		const struct gn_plan_tensor *in = o->adds[k] ? &p->tensors[o->in[k]] : NULL;

		if (in)
			s = gn_compute_add_tensor(p->device.compute, &in->layout, gn_plan_address(p, p->temporary),
						  gn_plan_address(p, in->grad), err);
	}
	return s;
}

/* The output that the next operator reads, once more. */
static enum gn_status recompute(const struct gn_plan *p, const struct gn_plan_op *o, struct gn_err *err)
{
	enum gn_status s;

	mark(p, o, 1, 0);
	s = gn_op_recompute(o->op, err);
	mark(p, o, 1, 1);
	return s;
}

/* The gradients of o are one range of the array: weight and bias are neighbours. */
static enum gn_status accumulate(struct gn_plan *p, const struct gn_plan_op *o, const float *accumulated, struct gn_err *err)
{
	const struct gn_param *first, *last;

	if (o->param[0] < 0)
		return GN_OK;
	first = gn_model_param(p->model, o->param[0]);
	last = o->param[1] < 0 ? first : gn_model_param(p->model, o->param[1]);
	return gn_compute_add(p->device.compute, accumulated + first->offset, p->bound.grads + first->offset,
			      last->offset + last->count - first->offset, err);
}

static enum gn_status queue_backward(struct gn_plan *p, const struct gn_plan_op *o, int halves, const float *accumulated,
				     struct gn_err *err)
{
	enum gn_status s = o->recomputes < 0 || !(halves & GN_BEFORE_SUMS) ? GN_OK : recompute(p, &p->ops[o->recomputes], err);

	mark(p, o, 1, 0);
	if (!s && halves & GN_BEFORE_SUMS)
		s = gn_op_backward(o->op, err);
	if (!s && halves & GN_AFTER_SUMS) {
		s = gn_op_backward_rest(o->op, err);
		if (!s)
			s = add_gradients(p, o, err);
	}
	mark(p, o, 1, 1);
	return s || !accumulated || !(halves & GN_AFTER_SUMS) ? s : accumulate(p, o, accumulated, err);
}

enum gn_status gn_plan_queue(struct gn_plan *p, const struct gn_plan_range *range, uint64_t number, const float *accumulated,
			     struct gn_err *err)
{
	gn_contention_look();
	for (int at = range->first; at < range->end; at++) {
		const struct gn_plan_op *o = at == p->op_count ? NULL : &p->ops[at < p->op_count ? at : 2 * p->op_count - at];
		int before = range->resumes && at == range->first ? 0 : GN_BEFORE_SUMS;
		int halves = before | (range->is_suspended && at == range->end - 1 ? 0 : GN_AFTER_SUMS);
		enum gn_status s = !o ? queue_loss(p, halves, err) : at < p->op_count ? queue_forward(p, o, halves, number, err) :
										queue_backward(p, o, halves, accumulated, err);

		if (s && o) {
			p->phase = GN_PHASE_NEW;
			gn_err_prefix(err, "%s, node %d %s", gn_model_name(p->model), o->node, gn_model_node(p->model, o->node)->name);
		}
		if (s)
			return s;
	}
	return GN_OK;
}

/* --- one batch, call by call --- */

/* Of the classes that this rank has, and then of all. */
static enum gn_status gather_logits(struct gn_plan *p, struct gn_err *err)
{
	const struct gn_class_slice slice = gn_plan_classes(p);
	const struct gn_plan_tensor *last = &p->tensors[p->logits_tensor];
	const size_t batch = (size_t)p->options.batch, own = (size_t)slice.count, block = batch * own;
	const struct gn_op_exchange x = {GN_EXCHANGE_GATHER, block, sizeof(float)};
	float *all = (float *)(void *)p->loss_numbers;
	enum gn_status s = gn_compute_store(p->device.compute, &last->layout, gn_plan_address(p, last->data),
					    all + (size_t)gn_model_tensor(p->model).rank * block, err);

	if (!s)
		s = p->options.tensor->exchange(p->options.tensor, p->device.stream, &x, all, err);
	for (size_t i = 0; i < batch * (size_t)slice.ranks && !s; i++)
		memcpy(p->logits + i % batch * (size_t)slice.classes + i / batch * own, all + i * own, own * sizeof *all);
	return s;
}

enum gn_status gn_plan_forward(struct gn_plan *p, const void *images, uint64_t number, const float **logits,
			       struct gn_err *err)
{
	const struct gn_plan_tensor *last = &p->tensors[p->logits_tensor];
	enum gn_status s;

	if (p->options.training && (p->options.group || p->options.tensor))
		return gn_err_set(err, GN_ERR_USAGE, "a forward pass of a plan that exchanges among ranks and trains: it only runs steps");
	if (p->options.no_memory)
		return gn_err_set(err, GN_ERR_USAGE, "a forward pass of a plan without memory");
	if (p->options.frozen && !p->frozen)
		return gn_err_set(err, GN_ERR_USAGE, "a forward pass of a plan that has not frozen its weights yet");
	s = gn_plan_stage(p, images, NULL, err);
	if (!s)
		s = gn_plan_take_batch(p, err);
	if (!s)
		s = gn_compute_set_number(p->device.compute, number, err);
	if (!s)
		s = gn_plan_queue_forward(p, number, err);
	if (!s && gn_model_is_end(p->model))
		s = p->loss_numbers ? gather_logits(p, err)
				    : gn_compute_store(p->device.compute, &last->layout, gn_plan_address(p, last->data), p->logits, err);
	if (!s)
		s = gn_stream_wait(p->device.stream, err);
	if (s)
		return s;
	p->phase = GN_PHASE_FORWARD;
	*logits = gn_model_is_end(p->model) ? p->logits : NULL;
	return GN_OK;
}

enum gn_status gn_plan_loss_mixed(struct gn_plan *p, const struct gn_targets *targets, double *loss, struct gn_err *err)
{
	enum gn_status s;

	if (p->phase != GN_PHASE_FORWARD)
		return gn_err_set(err, GN_ERR_USAGE, "a loss without a forward pass before it");
	s = gn_plan_set_targets(p, targets, err);
	if (!s)
		s = queue_loss(p, GN_BEFORE_SUMS | GN_AFTER_SUMS, err);
	if (!s)
		s = gn_stream_copy(p->device.stream, p->losses, p->loss, sizeof *p->loss, err);
	if (!s)
		s = gn_stream_wait(p->device.stream, err);
	p->loss_count = !s;
	if (!s)
		s = gn_plan_check_labels(p, err);
	if (s)
		return s;
	p->phase = p->options.training ? GN_PHASE_LOSS : GN_PHASE_NEW;
	*loss = p->losses->loss;
	return GN_OK;
}

enum gn_status gn_plan_loss(struct gn_plan *p, const int32_t *labels, double *loss, struct gn_err *err)
{
	struct gn_targets targets = {.labels = labels};

	return gn_plan_loss_mixed(p, &targets, loss, err);
}

enum gn_status gn_plan_backward(struct gn_plan *p, void (*ready)(void *context, int param), void *context,
				struct gn_err *err)
{
	enum gn_status s = GN_OK;

	if (p->phase != GN_PHASE_LOSS)
		return gn_err_set(err, GN_ERR_USAGE, "a backward pass without a loss of a training plan before it");
	for (int i = p->op_count - 1; i >= 0 && !s; i--) {
		const struct gn_plan_range one = {.first = 2 * p->op_count - i, .end = 2 * p->op_count - i + 1};

		s = gn_plan_queue(p, &one, 0, NULL, err);
		for (int k = 1; ready && k >= 0 && !s; k--)
			if (p->ops[i].param[k] >= 0)
				ready(context, p->ops[i].param[k]);
	}
	if (!s && p->loss_scale != 1)
		s = gn_compute_scale(p->device.compute, p->bound.grads, 1 / p->loss_scale, gn_model_param_elements(p->model), err);
	if (!s)
		s = gn_stream_wait(p->device.stream, err);
	p->phase = GN_PHASE_NEW;
	return s;
}

const struct gn_layout *gn_plan_output_layout(const struct gn_plan *p)
{
	return &p->tensors[p->logits_tensor].layout;
}

const void *gn_plan_output(const struct gn_plan *p)
{
	return gn_plan_address(p, p->tensors[p->logits_tensor].data);
}

const void *gn_plan_input_gradient(const struct gn_plan *p)
{
	return gn_plan_address(p, p->tensors[0].grad);
}

size_t gn_plan_input_bytes(const struct gn_plan *p)
{
	const struct gn_layout *l = &p->tensors[0].layout;

	return gn_model_origin(p->model).node ? gn_layout_bytes(l) : gn_layout_elements(l) * sizeof(float);
}

const struct gn_plan_device *gn_plan_device(const struct gn_plan *p)
{
	return &p->device;
}

const struct gn_weight_layout *gn_plan_weights(const struct gn_plan *p)
{
	return p->weights;
}

size_t gn_plan_bytes(const struct gn_plan *p)
{
	return p->arena_bytes;
}
