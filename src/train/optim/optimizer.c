#include "src/train/optim/optimizer.h"

#include <stdlib.h>

struct gn_optimizer {
	const struct gn_model *model;
	struct gn_compute *compute;
	struct gn_optim rule;
	struct gn_optimizer_arrays arrays;
	struct gn_array slots[GN_OPTIM_SLOTS_MAX];
	struct gn_update *update;
	struct gn_replay *replay;
};

static enum gn_status make_rule(const struct gn_optimizer_options *o, struct gn_optim *out, struct gn_err *err)
{
	int kind = gn_optim_find(o->name);

	if (kind < 0)
		return gn_err_set(err, GN_ERR_USAGE, "optimizer '%s' is none of sgd, lars, lamb", o->name);
	if (kind == GN_OPTIM_LAMB && o->nesterov)
		return gn_err_set(err, GN_ERR_USAGE, "LAMB has no Nesterov momentum: leave --nesterov out");
	if (kind == GN_OPTIM_LAMB && !(o->momentum < 1 && o->beta2 < 1))
		return gn_err_set(err, GN_ERR_USAGE, "LAMB needs --momentum and --beta2 below 1, not %g and %g",
				  o->momentum, o->beta2);
	*out = (struct gn_optim){
		.kind = (enum gn_optim_kind)kind,
		.momentum = o->momentum,
		.beta2 = o->beta2,
		.eps = o->eps >= 0 ? o->eps : kind == GN_OPTIM_LAMB ? 1e-6 : 0,
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
	enum gn_status status = GN_OK;

	for (int k = 0; k < gn_optim_slots(o->rule.kind) && !status; k++) {
		status = gn_array_create(d, gn_model_param_elements(o->model), &o->slots[k], err);
		if (status)
			gn_err_prefix(err, "%s of the parameters", gn_optim_slot_name(k));
	}
	return status;
}

static enum gn_status create_update(struct gn_optimizer *o, const struct gn_optimizer_options *options, struct gn_err *err)
{
	const struct gn_optimizer_arrays *a = &o->arrays;
	size_t count = (size_t)gn_model_param_count(o->model);
	struct gn_optim_tensor *tensors = calloc(count + 1, sizeof *tensors);
	struct gn_update_options uo = {.rule = &o->rule, .tensors = tensors, .count = count, .grads = a->grads,
				       .elements = gn_model_param_elements(o->model), .clip = options->clip, .finite = a->finite};
	enum gn_status status;

	if (!tensors)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an optimizer");
	for (size_t i = 0; i < count; i++) {
		const struct gn_param *p = gn_model_param(o->model, (int)i);
		int weight = p->kind == GN_PARAM_WEIGHT;

		tensors[i] = (struct gn_optim_tensor){
			.params = a->params + p->offset, .grads = a->grads + p->offset, .count = p->count,
			.weight_decay = weight || options->decay_all ? options->weight_decay : 0, .adapt = weight,
		};
		for (int k = 0; k < gn_optim_slots(o->rule.kind); k++)
			tensors[i].slots[k] = o->slots[k].device + p->offset;
	}
	if (a->ema) {
		uo.averages[0] = (struct gn_average){a->ema->params.device, a->params, a->ema->params.count};
		uo.averages[1] = (struct gn_average){a->ema->buffers.device, a->buffers, a->buffers ? a->ema->buffers.count : 0};
	}
	status = gn_update_create(o->compute, &uo, &o->update, err);
	free(tensors);
	return status;
}

enum gn_status gn_optimizer_create(const struct gn_model *model, const struct gn_optimizer_options *options,
				   const struct gn_optimizer_arrays *arrays, struct gn_compute *compute, struct gn_optimizer **out,
				   struct gn_err *err)
{
	struct gn_optim rule;
	struct gn_optimizer *o;
	enum gn_status status = make_rule(options, &rule, err);

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
	double decay = o->arrays.ema ? gn_ema_decay(o->arrays.ema->decay, u->step) : 0;
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
