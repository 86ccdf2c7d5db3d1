/* What the pieces of a network cost: run one after the other, each with a plan of its own, or estimated by its operators. */
#include "src/train/parallel/cuts.h"

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/train/plan/plan_cost.h"
#include "src/train/plan/weight_layouts.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS_MAX = 5 };
#define SWEPT_BYTES ((size_t)4 << 20) /* more than a processor's own caches */
#define PIECE_S 1.0

/* A piece with its plan, and where it has memory what that works on. */
struct piece {
	struct gn_plan_group others; /* the ranks with the other slices: they are not there */
	struct gn_model *model;
	struct gn_weight_layouts *layouts;
	struct gn_plan *plan;
	float *params, *grads, *buffers;
	void *in, *gradient;
	int32_t *labels;
	char *swept; /* by each thread */
};

static void release(struct piece *p)
{
	gn_plan_destroy(p->plan);
	gn_weight_layouts_destroy(p->layouts);
	gn_model_destroy(p->model);
	free(p->params);
	free(p->grads);
	free(p->buffers);
	free(p->in);
	free(p->gradient);
	free(p->labels);
	free(p->swept);
}

/* Values of any tensor: small, of both signs, and none so small that a processor computes with it slowly. */
static void *values(size_t bytes, int element_bytes)
{
	static const float cycle[] = {0.5F, -0.25F, 0.125F, -0.5F, 0.25F, -0.125F, 0.75F};
	char *memory = gn_alloc_aligned(bytes + 1);
	size_t skip = element_bytes == sizeof(uint16_t) ? sizeof(uint16_t) : 0; /* bfloat16 is the upper half */

	for (size_t i = 0; memory && i < bytes / (size_t)element_bytes; i++)
		memcpy(memory + i * (size_t)element_bytes, (const char *)&cycle[i % 7] + skip, (size_t)element_bytes);
	return memory;
}

static enum gn_status give_memory(struct piece *p, const struct gn_plan_options *o, struct gn_err *err)
{
	size_t params = gn_model_param_elements(p->model) * sizeof(float), buffers = gn_model_buffer_elements(p->model) * sizeof(float);
	size_t pixels = (size_t)gn_model_channels(p->model) * (size_t)gn_model_side(p->model) * (size_t)gn_model_side(p->model);

	p->params = values(params, sizeof(float));
	p->grads = values(params, sizeof(float));
	p->buffers = values(buffers, sizeof(float));
	p->in = o->input ? values(gn_layout_bytes(o->input), o->input->element_bytes)
			 : values((size_t)o->batch * pixels * sizeof(float), sizeof(float));
	p->labels = calloc((size_t)o->batch, sizeof *p->labels);
	return p->params && p->grads && p->buffers && p->in && p->labels
		       ? GN_OK
		       : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to measure a part of %s", gn_model_name(p->model));
}

static enum gn_status exchange_nothing(struct gn_plan_group *g, struct gn_stream *s, const struct gn_op_exchange *x, void *values, struct gn_err *err)
{
	(void)g;
	(void)s;
	(void)x;
	(void)values;
	(void)err;
	return GN_OK;
}

/* A slice of the piece; of what nobody divides all of it. */
static void take_slice(struct piece *p, int slices, struct gn_plan_options *o)
{
	struct gn_model *slice;

	o->tensor = NULL;
	if (slices == 1 || gn_model_slice(p->model, 0, slices, &slice, NULL))
		return;
	gn_model_destroy(p->model);
	p->model = slice;
	p->others = (struct gn_plan_group){slices, exchange_nothing};
	o->tensor = &p->others;
}

static enum gn_status create(struct piece *p, const struct gn_model *m, int first, int end, int slices, struct gn_plan_options *o, struct gn_err *err)
{
	enum gn_status status = gn_model_part(m, first, end, &p->model, err);
	const struct gn_layout *l;

	if (!status)
		take_slice(p, slices, o);
	if (!status)
		status = gn_weight_layouts_create(p->model, &p->layouts, err);
	if (!status && !o->no_memory)
		status = give_memory(p, o, err);
	if (status)
		return status;
	o->weights = gn_weight_layouts_layouts(p->layouts);
	status = gn_plan_create(p->model, o, p->params, p->grads, p->buffers, &p->plan, err);
	if (status || o->no_memory || gn_model_is_end(p->model))
		return status;
	l = gn_plan_output_layout(p->plan);
	p->gradient = values(gn_layout_bytes(l), l->element_bytes);
	return p->gradient ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to measure a part of %s", gn_model_name(m));
}

/* --- measured --- */

/* In a step the other pieces run before this one does again: nothing of it is left in the processors' own caches. */
static void sweep(struct piece *p)
{
	if (!p->swept)
		p->swept = gn_alloc_aligned(SWEPT_BYTES * (size_t)omp_get_max_threads());
#pragma omp parallel if (p->swept != NULL)
	for (size_t i = 0; p->swept && i < SWEPT_BYTES; i += 64)
		p->swept[SWEPT_BYTES * (size_t)omp_get_thread_num() + i]++;
}

static enum gn_status run_once(struct piece *p, int number, struct gn_cut_piece *cost, struct gn_err *err)
{
	const struct gn_targets targets = {.labels = p->labels};
	const struct gn_plan_observer observer = {.context = NULL};
	double began, between;
	enum gn_status status = gn_plan_stage(p->plan, p->in, &targets, err);

	sweep(p);
	began = gn_clock_s();
	if (!status)
		status = gn_plan_run_forward(p->plan, (uint64_t)number, &observer, err);
	if (number)
		cost->forward_s = fmin(cost->forward_s, gn_clock_s() - began);
	sweep(p);
	between = gn_clock_s();
	if (!status)
		status = gn_plan_run_backward(p->plan, p->gradient, &observer, NULL, err);
	if (number)
		cost->backward_s = fmin(cost->backward_s, gn_clock_s() - between);
	return status;
}

/* A run that is not counted, then some that are. */
static enum gn_status run(struct piece *p, struct gn_cut_piece *cost, struct gn_err *err)
{
	struct gn_layout all = {1, 1, 1, (int)gn_model_param_elements(p->model), 1, sizeof(float)};
	double began = gn_clock_s(), at;
	enum gn_status status = GN_OK;

	cost->forward_s = cost->backward_s = cost->add_s = INFINITY;
	for (int i = 0; i <= RUNS_MAX && !status && (i < 2 || gn_clock_s() - began < PIECE_S); i++) {
		status = run_once(p, i, cost, err);
		at = gn_clock_s();
		gn_tensor_accumulate(&all, p->params, p->grads);
		cost->add_s = fmin(cost->add_s, gn_clock_s() - at);
	}
	return status;
}

/* --- estimated --- */

struct rates {
	double bytes_per_s, flops_per_s; /* 0: measure */
};

static void estimate(const struct piece *p, const struct rates *r, struct gn_cut_piece *cost)
{
	cost->add_s = 3.0 * sizeof(float) * (double)gn_model_param_elements(p->model) / r->bytes_per_s;
	for (int i = 0; i < gn_plan_op_count(p->plan); i++) {
		struct gn_plan_cost c;

		gn_plan_op_cost(p->plan, i, &c);
		cost->forward_s += fmax(c.bytes[0] / r->bytes_per_s, c.products[0] / r->flops_per_s);
		cost->backward_s += fmax(c.bytes[1] / r->bytes_per_s, c.products[1] / r->flops_per_s);
	}
}

/* --- all pieces --- */

/* *layout: of the piece's input, becomes that of its output. */
static enum gn_status cost_piece(const struct gn_model *m, int end, int slices, struct gn_plan_options *o, const struct rates *r, struct gn_layout *layout,
				 struct gn_cut_piece *cost, struct gn_err *err)
{
	struct piece p = {.model = NULL};
	enum gn_status status;

	o->input = cost->node > 1 ? layout : NULL;
	status = create(&p, m, cost->node, end, slices, o, err);
	if (!status && r->bytes_per_s > 0)
		estimate(&p, r, cost);
	else if (!status)
		status = run(&p, cost, err);
	if (!status && !gn_model_is_end(p.model)) {
		*layout = *gn_plan_output_layout(p.plan);
		cost->out_bytes = (double)gn_layout_bytes(layout);
	}
	release(&p);
	return status;
}

static enum gn_status cost_all(const struct gn_model *m, const struct gn_plan_options *options, int slices, const struct rates *r, struct gn_cut_costs *out,
			       struct gn_err *err)
{
	struct gn_plan_options o = *options;
	struct gn_cut_costs c = {calloc((size_t)gn_model_node_count(m), sizeof *c.pieces), 0};
	struct gn_layout layout;
	enum gn_status status = GN_OK;

	if (!c.pieces)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the costs of %s", gn_model_name(m));
	o.no_memory = r->bytes_per_s > 0;
	o.profiler = NULL;
	o.group = NULL;
	o.mean_loss = o.correct = o.mean_weight = NULL;
	for (int i = 1; i < gn_model_node_count(m); i++)
		if (i == 1 || gn_model_can_cut(m, i))
			c.pieces[c.count++].node = i;
	for (int i = 0; i < c.count && !status; i++)
		status = cost_piece(m, i + 1 < c.count ? c.pieces[i + 1].node : gn_model_node_count(m), slices, &o, r, &layout, &c.pieces[i], err);
	if (status)
		gn_cut_costs_release(&c);
	else
		*out = c;
	return status;
}

enum gn_status gn_cut_costs_measure(const struct gn_model *m, const struct gn_plan_options *options, int slices, struct gn_cut_costs *out,
				    struct gn_err *err)
{
	const struct rates measured = {0, 0};

	if (options->backend != GN_BACKEND_HOST)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "the layers of a network are measured with --device host only: name with --cut where stages begin");
	return cost_all(m, options, slices, &measured, out, err);
}

enum gn_status gn_cut_costs_estimate(const struct gn_model *m, const struct gn_plan_options *options, int slices, double bytes_per_s,
				     double flops_per_s, struct gn_cut_costs *out, struct gn_err *err)
{
	const struct rates rates = {bytes_per_s, flops_per_s};

	return cost_all(m, options, slices, &rates, out, err);
}

void gn_cut_costs_release(struct gn_cut_costs *c)
{
	free(c->pieces);
	*c = (struct gn_cut_costs){NULL, 0};
}
