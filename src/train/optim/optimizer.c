#include "src/train/optim/optimizer.h"

#include "src/base/alloc.h"

#include <math.h>
#include <stdlib.h>

struct gn_optimizer {
	const struct gn_model *model;
	struct gn_optim rule;
	double weight_decay, clip;
	int decay_all;
	size_t slot_bytes;
	float *slots[GN_OPTIM_SLOTS_MAX];
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

enum gn_status gn_optimizer_create(const struct gn_model *model, const struct gn_optimizer_options *options,
				   struct gn_optimizer **out, struct gn_err *err)
{
	size_t elements = gn_model_param_elements(model);
	struct gn_optim rule;
	struct gn_optimizer *o;
	enum gn_status status = make_rule(options, &rule, err);

	if (status)
		return status;
	o = calloc(1, sizeof *o);
	if (!o)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an optimizer");
	o->model = model;
	o->rule = rule;
	o->weight_decay = options->weight_decay;
	o->clip = options->clip;
	o->decay_all = options->decay_all;
	o->slot_bytes = elements * sizeof(float);
	for (int k = 0; k < gn_optim_slots(rule.kind); k++) {
		o->slots[k] = gn_pages_map(o->slot_bytes);
		if (!o->slots[k]) {
			gn_optimizer_destroy(o);
			return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the %s of %zu parameters",
					  gn_optim_slot_name(k), elements);
		}
	}
	*out = o;
	return GN_OK;
}

void gn_optimizer_destroy(struct gn_optimizer *o)
{
	if (!o)
		return;
	for (int k = 0; k < GN_OPTIM_SLOTS_MAX; k++)
		gn_pages_unmap(o->slots[k], o->slot_bytes);
	free(o);
}

enum gn_optim_kind gn_optimizer_kind(const struct gn_optimizer *o)
{
	return o->rule.kind;
}

void gn_optimizer_terms(const struct gn_optimizer *o, struct gn_optimizer_terms *out)
{
	*out = (struct gn_optimizer_terms){&o->rule, o->weight_decay, o->clip, o->decay_all};
}

float *gn_optimizer_slot(struct gn_optimizer *o, int slot)
{
	return o->slots[slot];
}

/* torch.nn.utils.clip_grad_norm_'s factor. */
static double clip_factor(double clip, double norm)
{
	return clip > 0 && norm > clip ? clip / (norm + 1e-6) : 1;
}

int gn_optimizer_step(struct gn_optimizer *o, const struct gn_optim_update *update, float *params, const float *grads,
		      double *norm)
{
	struct gn_optim_update u = *update;

	/* Padding between tensors is zero. */
	*norm = fabs(u.grad_scale) * sqrt(gn_sum_squares(grads, gn_model_param_elements(o->model)));
	if (!isfinite(*norm))
		return 0;
	u.grad_scale *= clip_factor(o->clip, *norm);
	for (int i = 0; i < gn_model_param_count(o->model); i++) {
		const struct gn_param *p = gn_model_param(o->model, i);
		int weight = p->kind == GN_PARAM_WEIGHT;
		struct gn_optim_tensor t = {
			.params = params + p->offset, .grads = grads + p->offset, .count = p->count,
			.weight_decay = weight || o->decay_all ? o->weight_decay : 0, .adapt = weight,
		};

		for (int k = 0; k < gn_optim_slots(o->rule.kind); k++)
			t.slots[k] = o->slots[k] + p->offset;
		gn_optim_step(&o->rule, &u, &t);
	}
	return 1;
}
