/* Inference on weights that do not change: batch norm is a factor and a shift of each channel, which is folded into the weights of the
 * convolution before it. These are copies in the layout that operators want, made anew by gn_plan_freeze. */
#include "src/base/alloc.h"
#include "src/train/plan/plan_internal.h"

#include <math.h>

enum gn_status gn_bn_folding_place(struct gn_plan *p, struct gn_err *err)
{
	size_t total = 0, largest = 0;

	for (int i = 0; i < p->op_count; i++) {
		struct gn_plan_op *o = &p->ops[i];
		const struct gn_param *w = o->conv < 0 ? NULL : gn_model_param(p->model, o->param[0]);

		if (!w)
			continue;
		o->own_weight = total;
		o->own_bias = total + gn_round_up(w->count, 16);
		total = o->own_bias + gn_round_up((size_t)w->shape[0], 16);
		largest = w->count > largest ? w->count : largest;
	}
	p->own_elements = total;
	if (!total || p->options.no_memory)
		return GN_OK;
	p->own = gn_alloc_aligned(total * sizeof *p->own);
	p->own_room = gn_alloc_aligned(largest * sizeof *p->own_room);
	if (!p->own || !p->own_room)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for weights with batch norm folded in");
	return GN_OK;
}

/* The first parameter of a node in one of the flat arrays; the second follows in the table. */
static const struct gn_param *first_of(const struct gn_model *m, int node, int buffer)
{
	int count = buffer ? gn_model_buffer_count(m) : gn_model_param_count(m);

	for (int i = 0; i < count; i++) {
		const struct gn_param *p = buffer ? gn_model_buffer(m, i) : gn_model_param(m, i);

		if (p->node == node)
			return p;
	}
	return NULL;
}

/* y = factor * (convolution) + shift, by channel. */
struct line {
	const float *gamma, *beta, *mean, *var, *bias; /* NULL: none */
	double eps;
};

static struct line line_of(const struct gn_plan *p, const struct gn_plan_op *o)
{
	struct line l = {0};

	if (o->param[1] >= 0)
		l.bias = p->params + gn_model_param(p->model, o->param[1])->offset;
	if (o->norm >= 0) {
		const struct gn_param *gamma = first_of(p->model, o->norm, 0), *mean = first_of(p->model, o->norm, 1);

		l.eps = gn_model_node(p->model, o->norm)->eps;
		l.gamma = p->params + gamma[0].offset;
		l.beta = p->params + gamma[1].offset;
		l.mean = p->buffers + mean[0].offset;
		l.var = p->buffers + mean[1].offset;
	}
	return l;
}

static void fold(const struct gn_plan *p, const struct gn_plan_op *o)
{
	const struct gn_param *w = gn_model_param(p->model, o->param[0]);
	const struct gn_weight_shape shape = {(size_t)w->shape[0], (size_t)w->shape[1], (size_t)w->shape[2] * (size_t)w->shape[3]};
	struct line l = line_of(p, o);
	float *room = p->own_room, *bias = p->own + o->own_bias;
	size_t each = shape.in * shape.window;

	gn_weight_reorder(&shape, p->weights[o->param[0]], 1, p->params + w->offset, room);
	for (size_t c = 0; c < shape.out; c++) {
		double factor = l.gamma ? l.gamma[c] / sqrt(l.var[c] + l.eps) : 1, shift = l.bias ? l.bias[c] : 0;

		if (l.gamma)
			shift = (shift - l.mean[c]) * factor + l.beta[c];
		bias[c] = (float)shift;
		for (size_t i = 0; l.gamma && i < each; i++)
			room[c * each + i] = (float)(factor * room[c * each + i]);
	}
	gn_weight_reorder(&shape, o->info.weight, 0, room, p->own + o->own_weight);
}

static enum gn_status send(struct gn_plan *p, float *to, const float *from, size_t count, struct gn_err *err)
{
	return to == from ? GN_OK : gn_stream_copy(p->device.stream, to, from, count * sizeof(float), err);
}

enum gn_status gn_plan_freeze(struct gn_plan *p, struct gn_err *err)
{
	enum gn_status s = GN_OK;

	if (!p->options.frozen || p->options.no_memory)
		return GN_OK;
	for (int i = 0; i < p->op_count; i++)
		if (p->ops[i].conv >= 0)
			fold(p, &p->ops[i]);
	s = send(p, p->bound.params, p->params, gn_model_param_elements(p->model), err);
	if (!s)
		s = send(p, p->bound.buffers, p->buffers, gn_model_buffer_elements(p->model), err);
	if (!s)
		s = send(p, p->bound.own, p->own, p->own_elements, err);
	for (int i = 0; i < p->op_count && !s; i++)
		if (p->ops[i].conv >= 0)
			s = gn_op_freeze(p->ops[i].op, err);
	if (!s)
		s = gn_stream_wait(p->device.stream, err);
	p->frozen = !s;
	return s;
}
