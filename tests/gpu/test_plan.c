/* Plans on a GPU: reference networks as gannet selftest has them, plans against those of the oracle, and runs that stay on the
 * device against runs whose optimizer is the host's. Prints TAP. usage: test_plan [REFERENCE.json...] */
#include "kernels/cuda/device.h"
#include "src/base/file.h"
#include "src/train/arrange.h"
#include "src/train/golden.h"
#include "src/train/init.h"
#include "src/train/optimizer.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int points, failed;

static void point(int ok, const char *format, ...)
{
	va_list args;

	points++;
	failed += !ok;
	printf("%sok %d - ", ok ? "" : "not ", points);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
}

static const struct precision {
	const char *name;
	int bf16, fp16, tf32;
	double tolerance; /* of norms, for what a few layers compute */
	double gradients; /* of the worst tensor's norm: units of relus that flip change whole gradients */
} precisions[] = {{"fp32", 0, 0, 0, 1e-5, 1e-4}, {"tf32", 0, 0, 1, 5e-3, 0.4}, {"bf16", 1, 0, 0, 3e-2, 0.8}, {"fp16", 0, 1, 0, 5e-3, 0.4}};

static struct gn_plan_options on_gpu(const struct precision *p)
{
	return (struct gn_plan_options){.backend = GN_BACKEND_CUDA, .bf16 = p->bf16, .fp16 = p->fp16, .tf32 = p->tf32};
}

/* --- reference networks --- */

struct tally {
	int rows, rounding, failed;
	struct gn_golden_row worst;
};

static void take_row(void *context, const struct gn_golden_row *row)
{
	struct tally *t = context;

	t->rows++;
	t->rounding += row->verdict == GN_GOLDEN_ROUNDING;
	t->failed += row->verdict == GN_GOLDEN_FAIL;
	if (row->deviation / row->bound > t->worst.deviation / (t->worst.bound > 0 ? t->worst.bound : 1))
		t->worst = *row;
}

static void check_reference(const char *path, const struct precision *p)
{
	const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	struct gn_plan_options on = on_gpu(p);
	struct tally t = {0};
	struct gn_golden *g;
	struct gn_err err;
	char *text;
	size_t len;
	enum gn_status status = gn_file_load(path, 64 << 20, &text, &len, &err);

	if (!status)
		status = gn_golden_parse(text, len, path, &g, &err);
	if (!status) {
		status = gn_golden_run(g, &on, take_row, &t, &err);
		gn_golden_destroy(g);
		free(text);
	}
	/* what rounds more than fp32 is measured here, and fails only where it is off by more than rounding explains */
	point(!status && !t.failed && t.rows > 0, "%s, %s: %d quantities, %d explained by rounding, %d not; most: %s %s %.1e of %.0e",
	      name, p->name, t.rows, t.rounding, t.failed, t.worst.quantity ? t.worst.quantity : "", t.worst.name ? t.worst.name : "",
	      t.worst.deviation, t.worst.bound);
	if (status)
		printf("# %s\n", err.text);
}

/* --- plans against the oracle's --- */

struct net {
	struct gn_model *model;
	struct gn_plan *plan;
	struct gn_arrange *arrange;
	struct gn_optimizer *optimizer;
	float *params, *grads, *buffers, *images, *shares;
	uint8_t *pixels; /* NULL: images are given as floats */
	int32_t *labels, *mates;
	int batch;
	struct gn_err err;
};

static float *floats(size_t count)
{
	float *x = calloc(count + 1, sizeof *x);

	if (!x)
		abort();
	return x;
}

static void destroy(struct net *n)
{
	gn_plan_destroy(n->plan);
	gn_arrange_destroy(n->arrange);
	gn_optimizer_destroy(n->optimizer);
	gn_model_destroy(n->model);
	free(n->params);
	free(n->grads);
	free(n->buffers);
	free(n->images);
	free(n->pixels);
	free(n->shares);
	free(n->labels);
	free(n->mates);
}

static enum gn_status make_plan(struct net *n, struct gn_plan_options o)
{
	enum gn_status status;

	o.weights = gn_arrange_layouts(n->arrange);
	o.batch = n->batch;
	status = gn_plan_create(n->model, &o, n->params, n->grads, n->buffers, &n->plan, &n->err);
	if (!status)
		status = gn_arrange_take(n->arrange, n->plan, &n->err);
	if (!status)
		gn_arrange_in(n->arrange, n->params);
	return status;
}

static enum gn_status make(struct net *n, const char *model, int batch, int side, struct gn_plan_options o)
{
	struct gn_optimizer_options oo = {.name = "sgd", .momentum = 0.9, .weight_decay = 1e-3, .eps = -1};
	enum gn_status status;

	memset(n, 0, sizeof *n);
	n->batch = batch;
	status = gn_model_create(model, 10, 0, side, &n->model, &n->err);
	if (status)
		return status;
	n->params = floats(gn_model_param_elements(n->model));
	n->grads = floats(gn_model_param_elements(n->model));
	n->buffers = floats(gn_model_buffer_elements(n->model));
	n->images = floats((size_t)batch * (size_t)gn_model_channels(n->model) * (size_t)side * (size_t)side);
	n->labels = calloc((size_t)batch, sizeof *n->labels);
	n->mates = calloc((size_t)batch, sizeof *n->mates);
	n->shares = floats((size_t)batch);
	gn_init_formula_batch(batch, gn_model_channels(n->model), side, 10, n->images, n->labels);
	for (int i = 0; i < batch; i++) {
		n->mates[i] = (n->labels[i] + 3) % 10;
		n->shares[i] = 0.25f + 0.5f * (float)i / (float)batch;
	}
	if ((status = gn_init_params(n->model, "formula", n->params, n->buffers, &n->err)) ||
	    (status = gn_arrange_create(n->model, &n->arrange, &n->err)) ||
	    (status = gn_optimizer_create(n->model, &oo, &n->optimizer, &n->err)))
		return status;
	return make_plan(n, o);
}

static const void *input_of(const struct net *n)
{
	return n->pixels ? (const void *)n->pixels : n->images;
}

static struct gn_targets targets_of(const struct net *n)
{
	return (struct gn_targets){n->labels, n->mates, n->shares};
}

static enum gn_status pass(struct net *n, double *loss, const float **logits)
{
	struct gn_targets t = targets_of(n);
	enum gn_status status = gn_plan_forward(n->plan, input_of(n), 3, logits, &n->err);

	if (!status)
		status = gn_plan_loss_mixed(n->plan, &t, loss, &n->err);
	return status ? status : gn_plan_backward(n->plan, NULL, NULL, &n->err);
}

static double distance(const float *a, const float *b, size_t count)
{
	double off = 0, size = 0;

	for (size_t i = 0; i < count; i++) {
		off += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
		size += (double)b[i] * b[i];
	}
	return sqrt(off) / (sqrt(size) + 1e-30);
}

static double worst_gradient(const struct net *a, const struct net *b)
{
	double worst = 0;

	for (int i = 0; i < gn_model_param_count(a->model); i++) {
		const struct gn_param *p = gn_model_param(a->model, i);
		double d = distance(a->grads + p->offset, b->grads + p->offset, p->count);

		worst = d > worst ? d : worst;
	}
	return worst;
}

static void check_plan(const char *model, int batch, int side, const struct precision *p)
{
	struct gn_plan_options gpu = on_gpu(p), ref = {.backend = GN_BACKEND_REF, .training = 1, .label_smoothing = 0.1};
	struct net a, b;
	const float *x, *y;
	double loss_a = 0, loss_b = 0, logits = 0, grads = 0, buffers = 0;
	enum gn_status status;

	gpu.training = 1;
	gpu.label_smoothing = 0.1;
	status = make(&a, model, batch, side, gpu);
	if (!status)
		status = pass(&a, &loss_a, &x);
	if (make(&b, model, batch, side, ref) || pass(&b, &loss_b, &y))
		printf("# the oracle: %s\n", b.err.text);
	if (!status) {
		logits = distance(x, y, (size_t)batch * 10);
		gn_arrange_out(a.arrange, a.grads);
		gn_arrange_out(b.arrange, b.grads);
		grads = worst_gradient(&a, &b);
		buffers = distance(a.buffers, b.buffers, gn_model_buffer_elements(a.model));
	}
	point(!status && logits < p->tolerance && buffers < p->tolerance && grads < p->gradients &&
		      fabs(loss_a - loss_b) < p->tolerance * fabs(loss_b),
	      "%s, %s against the oracle: loss %.6f and %.6f, logits off by %.1e, gradients by %.1e, statistics by %.1e", model,
	      p->name, loss_a, loss_b, logits, grads, buffers);
	if (status)
		printf("# %s\n", a.err.text);
	destroy(&a);
	destroy(&b);
}

/* Inference with batch norm folded, and not. */
static void check_inference(const char *model, int batch, int side, const struct precision *p)
{
	struct gn_plan_options folded = on_gpu(p), gpu = on_gpu(p), ref = {.backend = GN_BACKEND_REF};
	struct net nets[3];
	const float *logits[3] = {NULL, NULL, NULL};
	struct gn_plan_options all[3] = {folded, gpu, ref};
	int ok = 1;

	all[0].frozen = 1;
	for (int i = 0; i < 3; i++) {
		int made = !make(&nets[i], model, batch, side, all[i]);

		if (made)
			gn_plan_freeze(nets[i].plan);
		if (!made || gn_plan_forward(nets[i].plan, nets[i].images, 0, &logits[i], &nets[i].err)) {
			printf("# %s\n", nets[i].err.text);
			ok = 0;
		}
	}
	point(ok && distance(logits[0], logits[2], (size_t)batch * 10) < 2 * p->tolerance &&
		      distance(logits[1], logits[2], (size_t)batch * 10) < 2 * p->tolerance,
	      "%s, %s, inference: logits off by %.1e with batch norm folded, %.1e without", model, p->name,
	      ok ? distance(logits[0], logits[2], (size_t)batch * 10) : 0, ok ? distance(logits[1], logits[2], (size_t)batch * 10) : 0);
	for (int i = 0; i < 3; i++)
		destroy(&nets[i]);
}

/* --- runs --- */

enum { STEPS = 4 };

static enum gn_status run_by_hand(struct net *n, double *losses, double *norm)
{
	enum gn_status status = GN_OK;

	for (uint64_t k = 0; k < STEPS && !status; k++) {
		struct gn_optim_update u = {.lr = 0.002, .grad_scale = 1, .step = k + 1};
		const float *logits;

		status = pass(n, &losses[k], &logits);
		if (!status)
			gn_optimizer_step(n->optimizer, &u, n->params, n->grads, norm);
	}
	return status;
}

static enum gn_status run_on_device(struct net *n, double *losses, double *norm, int *skipped)
{
	struct gn_optim rule = {.kind = GN_OPTIM_SGD, .momentum = 0.9};
	struct gn_plan_update update = {.rule = &rule, .slots = {gn_optimizer_slot(n->optimizer, 0)}, .weight_decay = 1e-3};
	struct gn_targets t = targets_of(n);
	enum gn_status status = gn_plan_reside(n->plan, &update, &n->err);

	if (!status)
		status = gn_plan_push(n->plan, &n->err);
	if (!status)
		status = gn_plan_stage(n->plan, input_of(n), &t, &n->err);
	for (uint64_t k = 0; k < STEPS && !status; k++) {
		struct gn_optim_update u = {.lr = 0.002, .grad_scale = 1, .step = k + 1};
		struct gn_plan_result r;

		status = gn_plan_launch(n->plan, k, &u, &n->err);
		if (!status)
			status = gn_plan_stage(n->plan, input_of(n), &t, &n->err);
		if (!status)
			status = gn_plan_result(n->plan, &r, &n->err);
		if (status)
			break;
		losses[k] = r.loss;
		*norm = r.norm;
		*skipped += r.skipped;
	}
	return status ? status : gn_plan_pull(n->plan, &n->err);
}

/* The same numbers up to the order of sums. */
static void check_run(const char *model, int batch, int side, const struct precision *p)
{
	struct gn_plan_options o = on_gpu(p);
	double losses[2][STEPS] = {{0}}, norms[2] = {0, 0}, off = 0;
	int skipped = 0;
	struct net a, b;
	enum gn_status status;

	o.training = 1;
	status = make(&a, model, batch, side, o);
	if (!status)
		status = run_on_device(&a, losses[0], &norms[0], &skipped);
	if (status)
		printf("# %s\n", a.err.text);
	if (make(&b, model, batch, side, o) || run_by_hand(&b, losses[1], &norms[1])) {
		printf("# %s\n", b.err.text);
		status = GN_ERR_FAILED;
	}
	for (int k = 0; k < STEPS; k++)
		off = fmax(off, fabs(losses[0][k] - losses[1][k]) / fabs(losses[1][k]));
	point(!status && skipped == 0 && off < p->tolerance && losses[0][STEPS - 1] < losses[0][0] &&
		      fabs(norms[0] - norms[1]) < 10 * p->tolerance * norms[1] &&
		      distance(a.params, b.params, gn_model_param_elements(a.model)) < p->tolerance &&
		      distance(a.buffers, b.buffers, gn_model_buffer_elements(a.model)) < p->tolerance,
	      "%s, %s, %d steps on the device and by hand: losses %.4f to %.4f, off by %.1e, norms %.6g and %.6g, parameters off by %.1e; %s",
	      model, p->name, STEPS, losses[0][0],
	      losses[0][STEPS - 1], off, norms[0], norms[1], status ? 0 : distance(a.params, b.params, gn_model_param_elements(a.model)),
	      a.plan ? gn_plan_manner(a.plan) : "");
	destroy(&a);
	destroy(&b);
}

static const struct gn_plan_pixels scale = {{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};

/* Bytes, and the values that they stand for. */
static void give_pixels(struct net *bytes, struct net *values)
{
	int side = gn_model_side(bytes->model);
	size_t map = (size_t)side * (size_t)side, count = (size_t)bytes->batch * map * 3;

	bytes->pixels = malloc(count);
	if (!bytes->pixels)
		abort();
	for (size_t i = 0; i < count; i++) {
		size_t image = i / (3 * map), at = i / 3 % map, c = i % 3;

		bytes->pixels[i] = (uint8_t)(i * 131 + i / 7 * 17);
		values->images[(image * 3 + c) * map + at] =
			((float)bytes->pixels[i] / 255 - scale.mean[c]) / scale.deviation[c];
	}
}

/* Images as bytes, by hand and on the device, against the same as floats. */
static void check_pixels(const char *model, int batch, int side, const struct precision *p)
{
	struct gn_plan_options floats_in = on_gpu(p), bytes_in;
	double losses[2][STEPS] = {{0}}, norms[2] = {0, 0}, loss = 0, off = 0;
	const float *logits;
	struct net a, b;
	int skipped = 0;
	enum gn_status status;

	floats_in.training = 1;
	bytes_in = floats_in;
	bytes_in.pixels = &scale;
	status = make(&a, model, batch, side, bytes_in);
	if (make(&b, model, batch, side, floats_in) || status) {
		printf("# %s\n", status ? a.err.text : b.err.text);
		status = GN_ERR_FAILED;
	} else {
		give_pixels(&a, &b);
		status = pass(&a, &loss, &logits);
		if (!status && gn_init_params(a.model, "formula", a.params, a.buffers, &a.err))
			status = GN_ERR_FAILED;
		gn_arrange_in(a.arrange, a.params);
		if (!status)
			status = run_on_device(&a, losses[0], &norms[0], &skipped);
		if (status)
			printf("# %s\n", a.err.text);
	}
	if (!status && run_by_hand(&b, losses[1], &norms[1])) {
		printf("# %s\n", b.err.text);
		status = GN_ERR_FAILED;
	}
	for (int k = 0; k < STEPS && !status; k++)
		off = fmax(off, fabs(losses[0][k] - losses[1][k]) / fabs(losses[1][k]));
	point(!status && !skipped && off < p->tolerance && fabs(loss - losses[1][0]) < p->tolerance * losses[1][0],
	      "%s, %s, images as bytes and as floats: losses %.4f to %.4f, off by %.1e", model, p->name, losses[0][0],
	      losses[0][STEPS - 1], off);
	destroy(&a);
	destroy(&b);
}

/* A step whose gradients are not finite leaves all as it was. */
static void check_skip(void)
{
	struct gn_plan_options o = on_gpu(&precisions[0]);
	struct gn_optim rule = {.kind = GN_OPTIM_SGD, .momentum = 0.9};
	struct gn_optim_update u = {.lr = 0.02, .grad_scale = 1, .step = 1};
	struct gn_plan_update update = {.rule = &rule};
	struct gn_plan_result r = {0};
	struct gn_targets t;
	struct net n;
	float *before = NULL, *buffers = NULL;
	enum gn_status status;

	o.training = 1;
	status = make(&n, "resnet20", 2, 32, o);
	t = targets_of(&n);
	update.slots[0] = status ? NULL : gn_optimizer_slot(n.optimizer, 0);
	if (!status) {
		before = floats(gn_model_param_elements(n.model));
		buffers = floats(gn_model_buffer_elements(n.model));
		memcpy(before, n.params, gn_model_param_elements(n.model) * sizeof *before);
		memcpy(buffers, n.buffers, gn_model_buffer_elements(n.model) * sizeof *buffers);
		n.images[17] = NAN;
	}
	if (status || (status = gn_plan_reside(n.plan, &update, &n.err)) || (status = gn_plan_push(n.plan, &n.err)) ||
	    (status = gn_plan_stage(n.plan, n.images, &t, &n.err)) || (status = gn_plan_launch(n.plan, 0, &u, &n.err)) ||
	    (status = gn_plan_result(n.plan, &r, &n.err)) || (status = gn_plan_pull(n.plan, &n.err)))
		printf("# %s\n", n.err.text);
	point(!status && r.skipped && !memcmp(before, n.params, gn_model_param_elements(n.model) * sizeof *before) &&
		      !memcmp(buffers, n.buffers, gn_model_buffer_elements(n.model) * sizeof *buffers),
	      "a step whose gradients are not finite changes nothing");
	free(before);
	free(buffers);
	destroy(&n);
}

int main(int argc, char **argv)
{
	struct gn_err err;
	int devices;
	enum gn_status status = gn_cuda_device_count(&devices, &err);

	if (status == GN_ERR_NOT_FOUND || status == GN_ERR_UNSUPPORTED) {
		printf("ok 1 - plans on a GPU # SKIP %s\n1..1\n", err.text);
		return 0;
	}
	for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) {
		check_plan("lenet", 5, 28, &precisions[i]);
		check_plan("resnet20", 3, 15, &precisions[i]);
		check_inference("resnet20", 2, 19, &precisions[i]);
		check_run("lenet", 4, 28, &precisions[i]);
		check_run("resnet20", 3, 12, &precisions[i]);
		check_pixels("resnet20", 3, 12, &precisions[i]);
	}
	check_skip();
	for (int i = 1; i < argc; i++)
		for (size_t k = 0; k < sizeof precisions / sizeof *precisions; k++)
			check_reference(argv[i], &precisions[k]);
	printf("1..%d\n", points);
	return failed != 0;
}
