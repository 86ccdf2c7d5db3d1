#include "src/train/optim/optimizer.h"

#include "src/train/optim/lr.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct gn_optimizer {
	const struct gn_model *model;
	struct gn_compute *compute;
	struct gn_optim rule;
	struct gn_optimizer_arrays arrays;
	struct gn_array slots[GN_OPTIM_SLOTS_MAX];
	struct gn_update *update;
	struct gn_replay *replay;
};

enum gn_status gn_ema_init(struct gn_ema *e, const struct gn_model *model, double decay, const struct gn_parts *parts,
			   struct gn_device *device, struct gn_err *err)
{
	enum gn_status status;

	*e = (struct gn_ema){.decay = decay, .parts = parts};
	status = gn_array_create(device, parts ? parts->elements : gn_model_param_elements(model), &e->params, err);
	if (!status)
		status = gn_array_create(device, gn_model_buffer_elements(model), &e->buffers, err);
	if (!status)
		return GN_OK;
	gn_ema_release(e);
	return gn_err_prefix(err, "moving average of the parameters"), status;
}

void gn_ema_release(struct gn_ema *e)
{
	gn_array_release(&e->params);
	gn_array_release(&e->buffers);
}

/* d after update number t. */
static double ema_decay(double decay, uint64_t t)
{
	return fmin(decay, (1 + (double)t) / (10 + (double)t));
}

void gn_ema_set(struct gn_ema *e, const float *params, const float *buffers)
{
	if (e->parts)
		gn_parts_pack(e->parts, params, e->params.host);
	else
		memcpy(e->params.host, params, e->params.count * sizeof(float));
	memcpy(e->buffers.host, buffers, e->buffers.count * sizeof(float));
}

static void swap(float *a, float *b, size_t count)
{
#pragma omp parallel for simd schedule(static) if (count > 1 << 14)
	for (size_t i = 0; i < count; i++) {
		float kept = a[i];

		a[i] = b[i];
		b[i] = kept;
	}
}

void gn_ema_swap(struct gn_ema *e, float *params, float *buffers)
{
	swap(e->params.host, params, e->params.count);
	swap(e->buffers.host, buffers, e->buffers.count);
}

static enum gn_status make_rule(const struct gn_optimizer_options *o, struct gn_optim *out, struct gn_err *err)
{
	static const double usual_eps[] = {[GN_OPTIM_LAMB] = 1e-6, [GN_OPTIM_ADAMW] = 1e-8, [GN_OPTIM_RMSPROP] = 1e-8};
	int kind = gn_optim_find(o->name);

	if (kind < 0)
		return gn_err_set(err, GN_ERR_USAGE, "optimizer '%s' is none of sgd, lars, lamb, adamw, rmsprop", o->name);
	if ((kind == GN_OPTIM_ADAMW || kind == GN_OPTIM_RMSPROP) && o->nesterov)
		return gn_err_set(err, GN_ERR_USAGE, "%s has no Nesterov momentum: leave --nesterov out", o->name);
	if (kind == GN_OPTIM_ADAMW && !(o->momentum < 1 && o->beta2 < 1))
		return gn_err_set(err, GN_ERR_USAGE, "adamw needs --momentum and --beta2 below 1, not %g and %g", o->momentum, o->beta2);
	if (kind == GN_OPTIM_LAMB && o->nesterov)
		return gn_err_set(err, GN_ERR_USAGE, "LAMB has no Nesterov momentum: leave --nesterov out");
	if (kind == GN_OPTIM_LAMB && !(o->momentum < 1 && o->beta2 < 1))
		return gn_err_set(err, GN_ERR_USAGE, "LAMB needs --momentum and --beta2 below 1, not %g and %g",
				  o->momentum, o->beta2);
	*out = (struct gn_optim){
		.kind = (enum gn_optim_kind)kind,
		.momentum = o->momentum,
		.beta2 = o->beta2,
		.eps = o->eps >= 0 ? o->eps : usual_eps[kind],
		.trust = o->trust,
		.nesterov = o->nesterov,
	};
	return GN_OK;
}

enum gn_status gn_optimizer_check(const struct gn_optimizer_options *options, enum gn_optim_kind *kind, struct gn_err *err)
{
	struct gn_optim rule;
	enum gn_status status = make_rule(options, &rule, err);

	if (!status)
		*kind = rule.kind;
	return status;
}

static enum gn_status create_slots(struct gn_optimizer *o, struct gn_err *err)
{
	struct gn_device *d = gn_stream_device(gn_compute_stream(o->compute));
	size_t count = o->arrays.parts ? o->arrays.parts->elements : gn_model_param_elements(o->model);
	enum gn_status status = GN_OK;

	if (o->arrays.no_slots)
		count = 0;
	for (int k = 0; k < gn_optim_slots(o->rule.kind) && !status; k++) {
		status = gn_array_create(d, count, &o->slots[k], err);
		if (status)
			gn_err_prefix(err, "%s of the parameters", gn_optim_slot_name(k));
	}
	return status;
}

static int is_frozen(const struct gn_text_list *patterns, const char *name)
{
	for (size_t i = 0; patterns && i < patterns->count; i++)
		if (!fnmatch(patterns->items[i], name, 0))
			return 1;
	return 0;
}

/* Each pattern freezes something, and something is left to train. */
static enum gn_status check_frozen(const struct gn_text_list *patterns, const struct gn_model *m, struct gn_err *err)
{
	int count = gn_model_param_count(m), frozen = 0;

	for (int i = 0; i < count; i++)
		frozen += is_frozen(patterns, gn_model_param(m, i)->name);
	if (frozen == count)
		return gn_err_set(err, GN_ERR_USAGE, "--freeze leaves no parameter of %s to train", gn_model_name(m));
	for (size_t k = 0; patterns && k < patterns->count; k++) {
		const struct gn_text_list one = {&patterns->items[k], 1};
		int matched = 0;

		for (int i = 0; i < count && !matched; i++)
			matched = is_frozen(&one, gn_model_param(m, i)->name);
		if (!matched)
			return gn_err_set(err, GN_ERR_USAGE, "--freeze '%s' matches no parameter of %s, such as %s", patterns->items[k], gn_model_name(m),
					  gn_model_param(m, 0)->name);
	}
	return GN_OK;
}

/* Elements begin .. end - 1 of parameter number i, whose state begins at `at` in the slots. */
static struct gn_optim_tensor tensor_of(const struct gn_optimizer *o, const struct gn_optimizer_options *options, int i, size_t begin,
					size_t end, size_t at)
{
	int weight = gn_model_param(o->model, i)->kind == GN_PARAM_WEIGHT;
	struct gn_optim_tensor t = {
		.params = o->arrays.params + begin, .grads = o->arrays.grads + begin, .count = end - begin,
		.weight_decay = weight || options->decay_all ? options->weight_decay : 0, .adapt = weight,
		.lr_scale = gn_lr_scale_of(options->lr_scale, gn_model_param(o->model, i)->name),
	};

	for (int k = 0; k < gn_optim_slots(o->rule.kind); k++)
		t.slots[k] = o->slots[k].device + at;
	return t;
}

/* Cuts parameters at the borders of parts. Returns how many pieces there are. */
static size_t cut(const struct gn_optimizer *o, const struct gn_optimizer_options *options, const struct gn_parts *parts,
		  struct gn_optim_tensor *tensors, struct gn_update_piece *pieces)
{
	const struct gn_ema *ema = o->arrays.ema;
	size_t count = 0;

	for (size_t k = 0; k < parts->count; k++)
		for (int i = 0; i < gn_model_param_count(o->model); i++) {
			const struct gn_param *p = gn_model_param(o->model, i);
			const struct gn_part *part = &parts->list[k];
			size_t begin = p->offset > part->begin ? p->offset : part->begin, end = p->offset + p->count;

			if (end > part->begin + part->count)
				end = part->begin + part->count;
			if (begin >= end || is_frozen(options->freeze, p->name))
				continue;
			tensors[count] = tensor_of(o, options, i, begin, end, part->at + begin - part->begin);
			pieces[count++] = (struct gn_update_piece){.tensor = (size_t)i, .is_copy = part->is_copy || p->slice.is_copy,
				.average = ema ? ema->params.device + part->at + begin - part->begin : NULL};
		}
	return count;
}

static enum gn_status create_update(struct gn_optimizer *o, const struct gn_optimizer_options *options, struct gn_err *err)
{
	const struct gn_optimizer_arrays *a = &o->arrays;
	struct gn_part all = {.count = gn_model_param_elements(o->model)};
	const struct gn_parts whole = {&all, 1, all.count}, *parts = a->parts ? a->parts : &whole;
	size_t params = (size_t)gn_model_param_count(o->model), most = params + parts->count;
	struct gn_optim_tensor *tensors = calloc(most, sizeof *tensors);
	struct gn_update_piece *pieces = calloc(most, sizeof *pieces);
	struct gn_update_options uo = {.rule = &o->rule, .tensors = tensors, .grads = a->grads, .elements = a->elsewhere ? 0 : all.count, .clip = options->clip,
				       .finite = a->finite, .group = a->group, .pieces = a->parts ? pieces : NULL, .tensor_count = params,
				       .pieces_group = a->parts_group};
	enum gn_status status;

	if (!tensors || !pieces) {
		free(tensors);
		free(pieces);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an optimizer");
	}
	uo.count = a->elsewhere ? 0 : cut(o, options, parts, tensors, pieces);
	if (a->ema) {
		uo.averages[0] = (struct gn_average){a->ema->params.device, a->params, a->parts ? 0 : a->ema->params.count};
		uo.averages[1] = (struct gn_average){a->ema->buffers.device, a->buffers, a->buffers ? a->ema->buffers.count : 0};
	}
	status = gn_update_create(o->compute, &uo, &o->update, err);
	free(tensors);
	free(pieces);
	return status;
}

enum gn_status gn_optimizer_create(const struct gn_model *model, const struct gn_optimizer_options *options,
				   const struct gn_optimizer_arrays *arrays, struct gn_compute *compute, struct gn_optimizer **out,
				   struct gn_err *err)
{
	struct gn_optim rule;
	struct gn_optimizer *o;
	enum gn_status status = make_rule(options, &rule, err);

	if (!status && gn_compute_ops(compute) && (rule.kind == GN_OPTIM_ADAMW || rule.kind == GN_OPTIM_RMSPROP))
		status = gn_err_set(err, GN_ERR_UNSUPPORTED, "%s is not there for GPUs yet: use --device host", options->name);
	if (!status)
		status = check_frozen(options->freeze, model, err);
	if (status)
		return status;
	o = calloc(1, sizeof *o);
	if (o)
		o->replay = gn_replay_create();
	if (!o || !o->replay) {
		free(o);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an optimizer");
	}
	o->model = model;
	o->compute = compute;
	o->rule = rule;
	o->arrays = *arrays;
	status = create_slots(o, err);
	if (!status)
		status = create_update(o, options, err);
	if (status)
		gn_optimizer_destroy(o);
	else
		*out = o;
	return status;
}

void gn_optimizer_destroy(struct gn_optimizer *o)
{
	if (!o)
		return;
	gn_update_destroy(o->update); /* waits for what is queued */
	gn_replay_destroy(o->replay);
	for (int k = 0; k < GN_OPTIM_SLOTS_MAX; k++)
		gn_array_release(&o->slots[k]);
	free(o);
}

enum gn_optim_kind gn_optimizer_kind(const struct gn_optimizer *o)
{
	return o->rule.kind;
}

const struct gn_array *gn_optimizer_slot(const struct gn_optimizer *o, int slot)
{
	return &o->slots[slot];
}

static enum gn_status queue_update(void *context, struct gn_err *err)
{
	struct gn_optimizer *o = context;
	const struct gn_optimizer_arrays *a = &o->arrays;
	enum gn_status status = GN_OK;

	if (a->buffers && a->ranks > 1)
		status = gn_compute_scale(o->compute, a->buffers, 1.0 / a->ranks, gn_model_buffer_elements(o->model), err);
	return status ? status : gn_update_queue(o->update, err);
}

enum gn_status gn_optimizer_queue(struct gn_optimizer *o, const struct gn_optim_update *u, struct gn_err *err)
{
	double decay = o->arrays.ema ? ema_decay(o->arrays.ema->decay, u->step) : 0;
	enum gn_status status = gn_update_set(o->update, u, decay, err);

	if (!status)
		status = gn_replay_run(o->replay, gn_compute_stream(o->compute), 0, queue_update, o, err);
	return status ? status : gn_update_fetch(o->update, err);
}

void gn_optimizer_result(const struct gn_optimizer *o, struct gn_update_result *out)
{
	gn_update_result(o->update, out);
}

enum gn_status gn_optimizer_step(struct gn_optimizer *o, const struct gn_optim_update *u, struct gn_update_result *out,
				 struct gn_err *err)
{
	enum gn_status status = gn_optimizer_queue(o, u, err);

	if (!status)
		status = gn_stream_wait(gn_compute_stream(o->compute), err);
	if (!status)
		gn_optimizer_result(o, out);
	return status;
}
