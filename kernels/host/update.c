#include "kernels/host/update.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct host_update {
	struct gn_update base;
	struct gn_update_options options;
	struct gn_optim rule;
	struct gn_optim_tensor *tensors;
	struct gn_optim_update numbers;
	double decay;
	struct gn_update_result result;
};

static struct host_update *of(struct gn_update *u)
{
	return (struct host_update *)u;
}

enum gn_status gn_host_update_create(struct gn_compute *c, const struct gn_update_options *options, struct gn_update **out,
				     struct gn_err *err)
{
	struct host_update *h = calloc(1, sizeof *h);

	if (h)
		h->tensors = calloc(options->count + 1, sizeof *h->tensors);
	if (!h || !h->tensors) {
		free(h);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an optimizer");
	}
	h->base.class = c->class;
	h->options = *options;
	h->rule = *options->rule;
	h->options.rule = &h->rule;
	memcpy(h->tensors, options->tensors, options->count * sizeof *h->tensors);
	h->options.tensors = h->tensors;
	*out = &h->base;
	return GN_OK;
}

void gn_host_update_destroy(struct gn_update *u)
{
	free(of(u)->tensors);
	free(u);
}

enum gn_status gn_host_update_set(struct gn_update *u, const struct gn_optim_update *numbers, double decay, struct gn_err *err)
{
	(void)err;
	of(u)->numbers = *numbers;
	of(u)->decay = decay;
	return GN_OK;
}

/* torch.nn.utils.clip_grad_norm_'s factor. */
static double clip_factor(double clip, double norm)
{
	return clip > 0 && norm > clip ? clip / (norm + 1e-6) : 1;
}

enum gn_status gn_host_update_queue(struct gn_update *u, struct gn_err *err)
{
	struct host_update *h = of(u);
	const struct gn_update_options *o = &h->options;
	struct gn_optim_update numbers = h->numbers;
	double norm = fabs(numbers.grad_scale) * sqrt(gn_sum_squares(o->grads, o->elements));

	(void)err;
	h->result.norm = norm;
	h->result.skipped = !isfinite(norm) || (o->finite && !isfinite(*o->finite));
	if (h->result.skipped)
		return GN_OK;
	numbers.grad_scale *= clip_factor(o->clip, norm);
	for (size_t i = 0; i < o->count; i++)
		gn_optim_step(&h->rule, &numbers, &h->tensors[i]);
	for (int i = 0; i < 2; i++)
		if (o->averages[i].count)
			gn_average_step(o->averages[i].average, o->averages[i].values, o->averages[i].count, h->decay);
	return GN_OK;
}

enum gn_status gn_host_update_fetch(struct gn_update *u, struct gn_err *err)
{
	(void)u;
	(void)err;
	return GN_OK;
}

void gn_host_update_result(const struct gn_update *u, struct gn_update_result *out)
{
	*out = ((const struct host_update *)u)->result;
}
