#include "kernels/optim.h"
#include "src/base/arena.h"
#include "src/train/golden_internal.h"
#include "src/train/init.h"

#include <math.h>
#include <stdlib.h>

struct run {
	const struct gn_golden *g;
	enum gn_backend backend;
	void (*row)(void *context, const struct gn_golden_row *row);
	void *context;
	int failed;
	float *params, *grads, *momentum, *buffers, *images;
	struct gn_plan *plan;
};

static void report(struct run *r, const char *quantity, const char *name, double deviation, double bound)
{
	struct gn_golden_row row = {quantity, name, deviation, bound, deviation <= bound};

	r->failed += !row.ok;
	r->row(r->context, &row);
}

/* |mine - theirs| / scale; a scale of zero leaves no room for anything but zero */
static double relative(double mine, double theirs, double scale)
{
	double d = fabs(mine - theirs);

	return d == 0 ? 0 : d / fabs(scale);
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

static void compare_first(struct run *r, const char *quantity, const struct gn_param *p, const json_t *summary,
			  const float *x, double bound)
{
	const json_t *first = json_object_get(summary, "first");
	double worst = 0, scale = field(summary, "l2");

	for (size_t i = 0; i < json_array_size(first); i++) {
		double d = relative(x[i], json_number_value(json_array_get(first, i)), scale);

		worst = d > worst || isnan(d) ? d : worst;
	}
	report(r, quantity, p->name, worst, bound);
}

static void compare_gradients(struct run *r)
{
	for (int i = 0; i < gn_model_param_count(r->g->model); i++) {
		const struct gn_param *p = gn_model_param(r->g->model, i);
		const json_t *summary = json_object_get(r->g->grads, p->name);
		const float *x = r->grads + p->offset;
		double l2 = field(summary, "l2");

		report(r, "gradient norm", p->name, relative(norm(p->count, x), l2, l2), 1e-3);
		compare_first(r, "gradient values", p, summary, x, 1e-3);
		if (json_is_number(json_object_get(summary, "sum")))
			report(r, "gradient sum", p->name,
			       relative(total(p->count, x), field(summary, "sum"), l2 * sqrt((double)p->count)), 1e-3);
	}
}

static void compare_buffers(struct run *r)
{
	for (int i = 0; r->g->buffers && i < gn_model_buffer_count(r->g->model); i++) {
		const struct gn_param *p = gn_model_buffer(r->g->model, i);
		const json_t *summary = json_object_get(r->g->buffers, p->name);
		double l2 = field(summary, "l2");

		report(r, "statistics norm", p->name, relative(norm(p->count, r->buffers + p->offset), l2, l2), 1e-4);
		compare_first(r, "statistics values", p, summary, r->buffers + p->offset, 1e-4);
	}
}

static void compare_params(struct run *r)
{
	for (int i = 0; r->g->params && i < gn_model_param_count(r->g->model); i++) {
		const struct gn_param *p = gn_model_param(r->g->model, i);
		const json_t *summary = json_object_get(r->g->params, p->name);
		double l2 = field(summary, "l2");

		report(r, "parameter norm", p->name, relative(norm(p->count, r->params + p->offset), l2, l2), 1e-4);
		compare_first(r, "parameter values", p, summary, r->params + p->offset, 1e-4);
	}
}

static void compare_logits(struct run *r, const float *logits)
{
	const struct gn_golden *g = r->g;
	double sum = 0;

	for (int n = 0; n < g->batch; n++) {
		const json_t *row = json_array_get(g->logits, n);

		for (size_t k = 0; k < json_array_size(row); k++) {
			double d = logits[(size_t)n * g->classes + k] - json_number_value(json_array_get(row, k));

			sum += d * d;
		}
	}
	report(r, "logits", "", relative(sqrt(sum), 0, g->logits_l2), 1e-4);
	report(r, "logits norm", "",
	       relative(norm((size_t)g->batch * g->classes, logits), g->logits_l2, g->logits_l2), 1e-4);
}

static enum gn_status one_step(struct run *r, int step, struct gn_err *err)
{
	const struct gn_golden *g = r->g;
	struct gn_sgd sgd = {.lr = g->lr, .momentum = g->momentum, .weight_decay = g->weight_decay, .grad_scale = 1};
	const float *logits;
	double loss;
	enum gn_status s = gn_plan_forward(r->plan, r->images, (uint64_t)step, &logits, err);

	if (!s && step == 0)
		compare_logits(r, logits);
	if (!s)
		s = gn_plan_loss(r->plan, g->labels, &loss, err);
	if (!s) {
		report(r, "loss", g->step_names[step], relative(loss, g->losses[step], g->losses[step]), step ? 1e-3 : 1e-5);
		s = gn_plan_backward(r->plan, NULL, NULL, err);
	}
	if (s)
		return s;
	if (step == 0) {
		compare_gradients(r);
		compare_buffers(r);
	}
	gn_sgd_step(&sgd, r->params, r->grads, r->momentum, gn_model_param_elements(g->model));
	return GN_OK;
}

static enum gn_status make_plan(struct run *r, int training, struct gn_err *err)
{
	struct gn_plan_options o = {.backend = r->backend, .batch = r->g->batch, .training = training};
	struct gn_plan *plan;
	enum gn_status s;

	gn_plan_destroy(r->plan); /* before the next one takes its memory */
	r->plan = NULL;
	s = gn_plan_create(r->g->model, &o, r->params, r->grads, r->buffers, &plan, err);
	if (!s)
		r->plan = plan;
	return s;
}

static enum gn_status evaluate(struct run *r, struct gn_err *err)
{
	const float *logits;
	double want = r->g->eval_logits_l2;
	enum gn_status s;

	if (want < 0)
		return GN_OK;
	s = make_plan(r, 0, err);
	if (!s)
		s = gn_plan_forward(r->plan, r->images, 0, &logits, err);
	if (!s)
		report(r, "evaluation logits norm", "",
		       relative(norm((size_t)r->g->batch * r->g->classes, logits), want, want), 1e-3);
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

	r->params = gn_alloc_aligned(count);
	r->grads = gn_alloc_aligned(count);
	r->momentum = gn_alloc_aligned(count);
	r->buffers = gn_alloc_aligned(gn_model_buffer_elements(m) * sizeof(float) + 1);
	r->images = gn_alloc_aligned((size_t)r->g->batch * gn_model_channels(m) * side * side * sizeof(float));
	if (!r->params || !r->grads || !r->momentum || !r->buffers || !r->images)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %s", r->g->title);
	return GN_OK;
}

static enum gn_status run_all(struct run *r, struct gn_err *err)
{
	const struct gn_golden *g = r->g;
	int32_t *labels = NULL;
	enum gn_status s = allocate(r, err);

	if (!s)
		s = make_plan(r, 1, err); /* refuses what does not fit before anything large is written */
	if (s)
		return too_large(s, err);
	s = gn_init_params(g->model, "formula", r->params, r->buffers, err);
	if (s)
		return s;
	labels = calloc(g->batch, sizeof *labels);
	if (!labels)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d labels", g->batch);
	gn_init_formula_batch(g->batch, gn_model_channels(g->model), g->side, g->classes, r->images, labels);
	free(labels); /* the file's own count */
	for (int step = 0; !s && step < g->steps; step++)
		s = one_step(r, step, err);
	if (!s) {
		compare_params(r);
		s = evaluate(r, err);
	}
	return s;
}

enum gn_status gn_golden_run(const struct gn_golden *g, enum gn_backend backend,
			     void (*row)(void *context, const struct gn_golden_row *row), void *context, int *failed,
			     struct gn_err *err)
{
	struct run r = {.g = g, .backend = backend, .row = row, .context = context};
	enum gn_status s = run_all(&r, err);

	gn_plan_destroy(r.plan);
	free(r.params);
	free(r.grads);
	free(r.momentum);
	free(r.buffers);
	free(r.images);
	if (s)
		gn_err_prefix(err, "%s", g->title);
	else
		*failed = r.failed;
	return s;
}
