#include "kernels/optim.h"
#include "src/base/alloc.h"
#include "src/device/array.h"
#include "src/train/plan/device.h"
#include "src/train/plan/weight_layouts.h"
#include "src/train/plan/golden_internal.h"
#include "src/train/model/init.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { repeats = 3, repeats_max = 12, excused = 2 };
enum { PARAMS, GRADS, BUFFERS };

struct run {
	const struct gn_golden *g;
	const struct gn_plan_options *on; /* what computes */
	struct gn_plan_device device;
	struct gn_array arrays[3];
	float *params, *grads, *buffers; /* the host's copies of the arrays */
	float *momentum, *images;
	struct gn_plan *plan;
	struct gn_weight_layouts *layouts; /* of all arrays between initial values and comparisons */
	struct gn_tolerance tolerance;
};

/* By kind of quantity, for fp32, bf16, and fp16 and tf32, whose numbers have three bits more: golden.h explains them. */
static const struct bounds {
	double gradient, statistics, parameter, logits, loss, later_loss, evaluation;
} bounds[] = {{1e-3, 1e-4, 1e-4, 1e-4, 1e-5, 1e-3, 1e-3},
	      {2e-1, 1e-2, 1e-1, 5e-2, 3e-2, 2e-1, 1e-1},
	      {5e-2, 2.5e-3, 2.5e-2, 1.25e-2, 7.5e-3, 5e-2, 2.5e-2}};

static const struct bounds *bounds_of(const struct run *r)
{
	return &bounds[r->on->bf16 ? 1 : r->on->fp16 || r->on->tf32 ? 2 : 0];
}

static double norm(size_t count, const float *x)
{
	double sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += (double)x[i] * x[i];
	return sqrt(sum);
}

static double total(size_t count, const float *x)
{
	double sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += x[i];
	return sum;
}

static double field(const json_t *summary, const char *key)
{
	return json_number_value(json_object_get(summary, key));
}

static void compare_first(struct run *r, const char *quantity, const struct gn_param *p, const json_t *summary, double scale,
			  const float *x, double bound)
{
	const json_t *first = json_object_get(summary, "first");
	size_t count = json_array_size(first);

	gn_tolerance_entry(&r->tolerance, quantity, p->name, GN_SHARE_QUANTITY, bound, scale, count);
	for (size_t i = 0; i < count; i++)
		gn_tolerance_number(&r->tolerance, x[i], json_number_value(json_array_get(first, i)));
}

static double largest_gradient(const struct run *r)
{
	double largest = 0;

	for (int i = 0; i < gn_model_param_count(r->g->model); i++) {
		double l2 = field(json_object_get(r->g->grads, gn_model_param(r->g->model, i)->name), "l2");

		largest = l2 > largest ? l2 : largest;
	}
	return largest;
}

/* A gradient that is 0 but for the rounding of double precision, such as that of a batch norm's shift before another batch norm, is
 * measured by the largest one. */
static void compare_gradients(struct run *r)
{
	double bound = bounds_of(r)->gradient, largest = largest_gradient(r);

	for (int i = 0; i < gn_model_param_count(r->g->model); i++) {
		const struct gn_param *p = gn_model_param(r->g->model, i);
		const json_t *summary = json_object_get(r->g->grads, p->name);
		const float *x = r->grads + p->offset;
		double l2 = field(summary, "l2"), scale = l2 < 1e-9 * largest ? largest : l2;

		gn_tolerance_single(&r->tolerance, "gradient norm", p->name, GN_SHARE_QUANTITY, bound, scale,
				 norm(p->count, x), l2);
		compare_first(r, "gradient values", p, summary, scale, x, bound);
		if (json_is_number(json_object_get(summary, "sum")))
			gn_tolerance_single(&r->tolerance, "gradient sum", p->name, GN_SHARE_QUANTITY, bound,
					 scale * sqrt((double)p->count), total(p->count, x), field(summary, "sum"));
	}
}

/* Norm and first values of a tensor after training, against its entry in summaries. names: what the two are called. */
static void compare_trained(struct run *r, const char *const names[2], const struct gn_param *p, const json_t *summaries, const float *x,
			    double bound)
{
	const json_t *summary = json_object_get(summaries, p->name);
	double l2 = field(summary, "l2");

	gn_tolerance_single(&r->tolerance, names[0], p->name, GN_SHARE_QUANTITY, bound, l2, norm(p->count, x), l2);
	compare_first(r, names[1], p, summary, l2, x, bound);
}

static void compare_buffers(struct run *r)
{
	static const char *const names[] = {"statistics norm", "statistics values"};

	for (int i = 0; r->g->buffers && i < gn_model_buffer_count(r->g->model); i++) {
		const struct gn_param *p = gn_model_buffer(r->g->model, i);

		compare_trained(r, names, p, r->g->buffers, r->buffers + p->offset, bounds_of(r)->statistics);
	}
}

static void compare_params(struct run *r)
{
	static const char *const names[] = {"parameter norm", "parameter values"};

	for (int i = 0; r->g->params && i < gn_model_param_count(r->g->model); i++) {
		const struct gn_param *p = gn_model_param(r->g->model, i);

		compare_trained(r, names, p, r->g->params, r->params + p->offset, bounds_of(r)->parameter);
	}
}

static void compare_logits(struct run *r, const float *logits)
{
	const struct gn_golden *g = r->g;
	size_t columns = g->classes < 8 ? g->classes : 8;
	double bound = bounds_of(r)->logits;

	gn_tolerance_entry(&r->tolerance, "logits", "", GN_SHARE_NOTHING, bound, g->logits_l2, g->batch * columns);
	for (int n = 0; n < g->batch; n++)
		for (size_t k = 0; k < columns; k++)
			gn_tolerance_number(&r->tolerance, logits[(size_t)n * g->classes + k],
					 json_number_value(json_array_get(json_array_get(g->logits, n), k)));
	gn_tolerance_single(&r->tolerance, "logits norm", "", GN_SHARE_NOTHING, bound, g->logits_l2,
			 norm((size_t)g->batch * g->classes, logits), g->logits_l2);
}

static enum gn_status fetch(struct run *r, struct gn_err *err)
{
	enum gn_status s = gn_array_fetch(&r->arrays[GRADS], r->device.stream, err);

	if (!s)
		s = gn_array_fetch(&r->arrays[BUFFERS], r->device.stream, err);
	return s ? s : gn_stream_wait(r->device.stream, err);
}

static enum gn_status one_step(struct run *r, int step, struct gn_err *err)
{
	const struct gn_golden *g = r->g;
	const struct gn_optim sgd = {.kind = GN_OPTIM_SGD, .momentum = g->momentum};
	const struct gn_optim_update update = {.lr = g->lr, .grad_scale = 1, .step = (uint64_t)step + 1};
	const struct gn_optim_tensor all = {.params = r->params, .grads = r->grads, .slots = {r->momentum},
					    .count = gn_model_param_elements(g->model), .weight_decay = g->weight_decay, .lr_scale = 1};
	const float *logits;
	double loss;
	enum gn_status s = gn_array_send(&r->arrays[PARAMS], r->device.stream, err);

	if (!s)
		s = gn_array_send(&r->arrays[BUFFERS], r->device.stream, err);
	if (!s)
		s = gn_plan_forward(r->plan, r->images, (uint64_t)step, &logits, err);
	if (!s && step == 0)
		compare_logits(r, logits);
	if (!s)
		s = gn_plan_loss(r->plan, g->labels, &loss, err);
	if (!s) {
		gn_tolerance_single(&r->tolerance, "loss", g->step_names[step], step ? GN_SHARE_PRECEDING : GN_SHARE_NOTHING,
				 step ? bounds_of(r)->later_loss : bounds_of(r)->loss, g->losses[step], loss, g->losses[step]);
		s = gn_plan_backward(r->plan, NULL, NULL, err);
	}
	if (!s)
		s = fetch(r, err);
	if (s)
		return s;
	if (step == 0) {
		gn_weight_layouts_out(r->layouts, r->grads);
		compare_gradients(r);
		gn_weight_layouts_in(r->layouts, r->grads);
		compare_buffers(r);
	}
	gn_optim_step(&sgd, &update, &all);
	return GN_OK;
}

static enum gn_status make_plan(struct run *r, int training, struct gn_err *err)
{
	struct gn_plan_options o = *r->on;
	struct gn_plan *plan;
	enum gn_status s;

	gn_plan_destroy(r->plan); /* before the next one takes its memory */
	r->plan = NULL;
	o.batch = r->g->batch;
	o.training = training;
	o.frozen = !training;
	o.weights = gn_weight_layouts_layouts(r->layouts);
	o.device = &r->device;
	s = training ? gn_plan_create(r->g->model, &o, r->arrays[PARAMS].device, r->arrays[GRADS].device, r->arrays[BUFFERS].device, &plan, err) :
		       gn_plan_create(r->g->model, &o, r->params, NULL, r->buffers, &plan, err);
	if (s)
		return s;
	r->plan = plan;
	return gn_weight_layouts_take(r->layouts, plan, err);
}

static enum gn_status evaluate(struct run *r, struct gn_err *err)
{
	const float *logits;
	double want = r->g->eval_logits_l2;
	enum gn_status s;

	if (want < 0)
		return GN_OK;
	s = make_plan(r, 0, err);
	if (s)
		return s;
	s = gn_plan_freeze(r->plan, err);
	if (!s)
		s = gn_plan_forward(r->plan, r->images, 0, &logits, err);
	if (!s)
		gn_tolerance_single(&r->tolerance, "evaluation logits norm", "", GN_SHARE_PRECEDING, bounds_of(r)->evaluation, want,
				 norm((size_t)r->g->batch * r->g->classes, logits), want);
	return s;
}

/* A file that asks for more than fits is the file's fault here. */
static enum gn_status too_large(enum gn_status s, struct gn_err *err)
{
	if (s != GN_ERR_USAGE && s != GN_ERR_NO_MEMORY)
		return s;
	if (err)
		err->status = GN_ERR_DATA;
	return GN_ERR_DATA;
}

static enum gn_status allocate(struct run *r, struct gn_err *err)
{
	const struct gn_model *m = r->g->model;
	size_t count = gn_model_param_elements(m) * sizeof(float), side = r->g->side;
	enum gn_status s = gn_plan_device_open(r->on, &r->device, err);

	if (!s)
		s = gn_array_create(r->device.device, gn_model_param_elements(m), &r->arrays[PARAMS], err);
	if (!s)
		s = gn_array_create(r->device.device, gn_model_param_elements(m), &r->arrays[GRADS], err);
	if (!s)
		s = gn_array_create(r->device.device, gn_model_buffer_elements(m), &r->arrays[BUFFERS], err);
	if (s)
		return s;
	r->params = r->arrays[PARAMS].host;
	r->grads = r->arrays[GRADS].host;
	r->buffers = r->arrays[BUFFERS].host;
	r->momentum = gn_alloc_aligned(count);
	r->images = gn_alloc_aligned((size_t)r->g->batch * gn_model_channels(m) * side * side * sizeof(float));
	if (!r->momentum || !r->images)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %s", r->g->title);
	return gn_weight_layouts_create(m, &r->layouts, err);
}

static enum gn_status fill_images(struct run *r, struct gn_err *err)
{
	const struct gn_golden *g = r->g;
	int32_t *labels = calloc(g->batch, sizeof *labels);

	if (!labels)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d labels", g->batch);
	gn_init_formula_batch(g->batch, gn_model_channels(g->model), g->side, g->classes, r->images, labels);
	free(labels); /* the file's own count */
	return GN_OK;
}

static void shake_params(struct run *r, int repeat)
{
	const struct gn_plan_options *on = r->on;
	double size = on->backend == GN_BACKEND_REF ? 0x1p-24 : on->bf16 ? 0x1p-7 : on->fp16 || on->tf32 ? 0x1p-10 : 0x1p-19;
	size_t count = gn_model_param_elements(r->g->model);

	for (size_t i = 0; i < count; i++)
		r->params[i] *= (float)(1 + size * gn_init_formula("rounding", repeat * count + i));
}

static enum gn_status compute(struct run *r, int repeat, struct gn_err *err)
{
	const struct gn_golden *g = r->g;
	enum gn_status s;

	gn_tolerance_begin(&r->tolerance, repeat);
	if (repeat) {
		s = make_plan(r, 1, err);
		if (s)
			return s;
	}
	s = gn_init_params(g->model, "formula", r->params, r->buffers, err);
	if (s)
		return s;
	if (repeat)
		shake_params(r, repeat);
	gn_weight_layouts_in(r->layouts, r->params);
	memset(r->momentum, 0, gn_model_param_elements(g->model) * sizeof *r->momentum);
	for (int step = 0; !s && step < g->steps; step++)
		s = one_step(r, step, err);
	if (!s) {
		gn_weight_layouts_out(r->layouts, r->params);
		compare_params(r);
		gn_weight_layouts_in(r->layouts, r->params);
		s = evaluate(r, err);
	}
	if (!s && r->tolerance.no_memory)
		s = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for comparing %s", g->title);
	return s;
}

/* Three draws say little of a network whose errors grow from step to step: only what is left over is worth more of them. */
static enum gn_status measure_rounding(struct run *r, struct gn_err *err)
{
	enum gn_status s = GN_OK;
	size_t left = 1;

	for (int i = 1; !s && i <= repeats_max && left; i++) {
		s = compute(r, i, err);
		if (!s)
			gn_tolerance_keep_rounding(&r->tolerance);
		if (i >= repeats)
			left = gn_tolerance_excuse(&r->tolerance, excused);
	}
	return s;
}

static enum gn_status run_all(struct run *r, struct gn_err *err)
{
	enum gn_status s = allocate(r, err);

	if (!s)
		s = make_plan(r, 1, err); /* refuses what does not fit before anything large is written */
	if (s)
		return too_large(s, err);
	s = fill_images(r, err);
	if (!s)
		s = compute(r, 0, err);
	if (!s && gn_tolerance_judge(&r->tolerance))
		s = measure_rounding(r, err);
	return s;
}

enum gn_status gn_golden_run(const struct gn_golden *g, const struct gn_plan_options *on,
			     void (*row)(void *context, const struct gn_golden_row *row), void *context,
			     struct gn_err *err)
{
	struct run r = {.g = g, .on = on};
	enum gn_status s = run_all(&r, err);

	for (size_t i = 0; !s && i < r.tolerance.entry_count; i++)
		row(context, &r.tolerance.entries[i].row);
	gn_plan_destroy(r.plan);
	gn_weight_layouts_destroy(r.layouts);
	for (int i = 0; i < 3; i++)
		gn_array_release(&r.arrays[i]);
	gn_plan_device_close(&r.device);
	free(r.momentum);
	free(r.images);
	gn_tolerance_release(&r.tolerance);
	return s ? gn_err_prefix(err, "%s", g->title), s : GN_OK;
}
