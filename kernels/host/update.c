#include "kernels/backend.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct host_update {
	struct gn_update base;
	struct gn_update_options options;
	struct gn_optim rule;
	struct gn_optim_tensor *tensors;
	struct gn_update_piece *pieces; /* when tensors are pieces, as the next */
	double *sums; /* [tensor_count][2] */
	struct gn_optim_update numbers;
	double decay;
	struct gn_update_result result;
};

static struct host_update *of(struct gn_update *u)
{
	return (struct host_update *)u;
}

static void destroy(struct gn_update *u)
{
	free(of(u)->tensors);
	free(of(u)->pieces);
	free(of(u)->sums);
	free(u);
}

static enum gn_status create(struct gn_compute *c, const struct gn_update_options *options, struct gn_update **out, struct gn_err *err)
{
	struct host_update *h = calloc(1, sizeof *h);

	(void)c;
	if (h) {
		h->tensors = calloc(options->count + 1, sizeof *h->tensors);
		h->pieces = calloc(options->count + 1, sizeof *h->pieces);
		h->sums = calloc(options->tensor_count + 1, 2 * sizeof *h->sums);
	}
	if (!h || !h->tensors || !h->pieces || !h->sums) {
		if (h)
			destroy(&h->base);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an optimizer");
	}
	h->options = *options;
	h->rule = *options->rule;
	h->options.rule = &h->rule;
	memcpy(h->tensors, options->tensors, options->count * sizeof *h->tensors);
	h->options.tensors = h->tensors;
	if (options->pieces)
		memcpy(h->pieces, options->pieces, options->count * sizeof *h->pieces);
	h->options.pieces = options->pieces ? h->pieces : NULL;
	*out = &h->base;
	return GN_OK;
}

static enum gn_status set(struct gn_update *u, const struct gn_optim_update *numbers, double decay, struct gn_err *err)
{
	(void)err;
	of(u)->numbers = *numbers;
	of(u)->decay = decay;
	return GN_OK;
}

static enum gn_status sum_gradient(const struct gn_update_options *o, double *sum, struct gn_err *err)
{
	*sum = o->pieces ? 0 : gn_sum_squares(o->grads, o->elements);
	for (size_t i = 0; i < o->count && o->pieces; i++)
		if (!o->pieces[i].is_copy)
			*sum += gn_sum_squares(o->tensors[i].grads, o->tensors[i].count);
	return o->group ? o->group->sum(o->group, sum, 1, err) : GN_OK;
}

/* Pieces of tensors: their sums are over ranks. */
static enum gn_status update_pieces(const struct host_update *h, const struct gn_optim_update *numbers, struct gn_err *err)
{
	const struct gn_update_options *o = &h->options;
	struct gn_update_group *group = o->pieces_group ? o->pieces_group : o->group;
	enum gn_status status = GN_OK;

	memset(h->sums, 0, o->tensor_count * 2 * sizeof *h->sums);
	for (size_t i = 0; i < o->count && h->rule.kind != GN_OPTIM_SGD; i++) {
		const struct gn_update_piece *piece = &o->pieces[i];
		double sums[2];

		gn_optim_sums(&h->rule, numbers, &o->tensors[i], sums);
		h->sums[2 * piece->tensor] += piece->is_copy ? 0 : sums[0];
		h->sums[2 * piece->tensor + 1] += piece->is_copy ? 0 : sums[1];
	}
	if (h->rule.kind != GN_OPTIM_SGD)
		status = group->sum(group, h->sums, 2 * o->tensor_count, err);
	for (size_t i = 0; i < o->count && !status; i++) {
		const struct gn_update_piece *piece = &o->pieces[i];

		gn_optim_apply(&h->rule, numbers, &o->tensors[i], &h->sums[2 * piece->tensor]);
		if (piece->average)
			gn_average_step(piece->average, o->tensors[i].params, o->tensors[i].count, h->decay);
	}
	return status;
}

static enum gn_status queue(struct gn_update *u, struct gn_err *err)
{
	struct host_update *h = of(u);
	const struct gn_update_options *o = &h->options;
	struct gn_optim_update numbers = h->numbers;
	double sum, norm;
	enum gn_status status = sum_gradient(o, &sum, err);

	if (status)
		return status;
	norm = fabs(numbers.grad_scale) * sqrt(sum);
	h->result.norm = norm;
	h->result.skipped = !isfinite(norm) || (o->finite && !isfinite(*o->finite));
	if (h->result.skipped)
		return GN_OK;
	if (o->clip > 0 && norm > o->clip) /* by torch.nn.utils.clip_grad_norm_'s factor */
		numbers.grad_scale *= o->clip / (norm + 1e-6);
	if (o->pieces)
		status = update_pieces(h, &numbers, err);
	for (size_t i = 0; i < o->count && !o->pieces; i++)
		gn_optim_step(&h->rule, &numbers, &h->tensors[i]);
	for (int i = 0; i < 2 && !status; i++)
		if (o->averages[i].count)
			gn_average_step(o->averages[i].average, o->averages[i].values, o->averages[i].count, h->decay);
	return status;
}

static void result(const struct gn_update *u, struct gn_update_result *out)
{
	*out = ((const struct host_update *)u)->result;
}

const struct gn_update_class gn_host_update = {create, destroy, set, queue, NULL, result};
