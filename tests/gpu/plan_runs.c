/* Runs that stay on the device, against runs whose optimizer is the host's. */
#include "tests/gpu/plan_net.h"

#include "src/train/model/init.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 4 };

/* What a run of so many batches a step was told. */
struct course {
	double losses[STEPS], norm;
	int skipped;
};

/* Every batch of a step has other labels: they go round. */
static void next_labels(struct net *n, int batches)
{
	int32_t first = n->labels[0];

	if (batches < 2)
		return;
	memmove(n->labels, n->labels + 1, (size_t)(n->batch - 1) * sizeof *n->labels);
	n->labels[n->batch - 1] = first;
}

static struct gn_optim_update update_of(uint64_t step, int batches)
{
	return (struct gn_optim_update){.lr = 0.002, .grad_scale = 1.0 / batches, .step = step + 1};
}

static enum gn_status step_by_hand(struct net *n, uint64_t step, int batches, float *sums, struct course *c)
{
	size_t count = gn_model_param_elements(n->model);
	struct gn_optim_update u = update_of(step, batches);
	enum gn_status status = GN_OK;

	memset(sums, 0, count * sizeof *sums);
	for (int k = 0; k < batches && !status; k++) {
		const float *logits;
		double loss = 0;

		status = net_pass(n, &loss, &logits);
		c->losses[step] += loss / batches;
		for (size_t i = 0; i < count; i++)
			sums[i] += n->grads[i];
		next_labels(n, batches);
	}
	if (!status)
		gn_optimizer_step(n->optimizer, &u, n->params, sums, &c->norm);
	return status;
}

static enum gn_status run_by_hand(struct net *n, int batches, struct course *c)
{
	float *sums = net_floats(gn_model_param_elements(n->model));
	enum gn_status status = GN_OK;

	for (uint64_t k = 0; k < STEPS && !status; k++)
		status = step_by_hand(n, k, batches, sums, c);
	free(sums);
	return status;
}

static enum gn_status stage(struct net *n, int batches)
{
	struct gn_targets t = net_targets(n);
	enum gn_status status = gn_plan_stage(n->plan, net_input(n), &t, &n->err);

	next_labels(n, batches);
	return status;
}

static enum gn_status step_on_device(struct net *n, uint64_t step, int batches, struct course *c)
{
	struct gn_optim_update u = update_of(step, batches);
	struct gn_plan_result r;
	enum gn_status status = GN_OK;

	for (int k = 0; k + 1 < batches && !status; k++) {
		status = gn_plan_gather(n->plan, step * (uint64_t)batches + (uint64_t)k, &n->err);
		if (!status)
			status = stage(n, batches);
	}
	if (!status)
		status = gn_plan_launch(n->plan, (step + 1) * (uint64_t)batches - 1, &u, &n->err);
	if (!status)
		status = stage(n, batches);
	if (!status)
		status = gn_plan_result(n->plan, &r, &n->err);
	if (status)
		return status;
	c->losses[step] = r.loss;
	c->norm = r.norm;
	c->skipped += r.skipped;
	return GN_OK;
}

static enum gn_status run_on_device(struct net *n, int batches, struct course *c)
{
	struct gn_optim rule = {.kind = GN_OPTIM_SGD, .momentum = 0.9};
	struct gn_plan_update update = {.rule = &rule, .slots = {gn_optimizer_slot(n->optimizer, 0)}, .weight_decay = 1e-3,
					.batches = batches};
	enum gn_status status = gn_plan_reside(n->plan, &update, &n->err);

	if (!status)
		status = gn_plan_push(n->plan, &n->err);
	if (!status)
		status = stage(n, batches);
	for (uint64_t k = 0; k < STEPS && !status; k++)
		status = step_on_device(n, k, batches, c);
	return status ? status : gn_plan_pull(n->plan, &n->err);
}

static double furthest(const struct course *a, const struct course *b)
{
	double off = 0;

	for (int k = 0; k < STEPS; k++)
		off = fmax(off, fabs(a->losses[k] - b->losses[k]) / fabs(b->losses[k]));
	return off;
}

/* The same numbers up to the order of sums. */
static void check_run(const char *model, int batch, int batches, int side, const struct net_precision *p)
{
	struct gn_plan_options o = net_on_gpu(p);
	struct course device = {.norm = 0}, hand = {.norm = 0};
	double off, params = 0, buffers = 0;
	struct net a, b;
	enum gn_status status;

	o.training = 1;
	status = net_make(&a, model, batch, side, o);
	if (!status)
		status = run_on_device(&a, batches, &device);
	if (status)
		printf("# %s\n", a.err.text);
	if (net_make(&b, model, batch, side, o) || run_by_hand(&b, batches, &hand)) {
		printf("# %s\n", b.err.text);
		status = GN_ERR_FAILED;
	}
	off = furthest(&device, &hand);
	if (!status) {
		params = net_distance(a.params, b.params, gn_model_param_elements(a.model));
		buffers = net_distance(a.buffers, b.buffers, gn_model_buffer_elements(a.model));
	}
	net_point(!status && !device.skipped && off < p->tolerance && (batches > 1 || device.losses[STEPS - 1] < device.losses[0]) &&
			  fabs(device.norm - hand.norm) < 10 * p->tolerance * hand.norm && params < p->tolerance && buffers < p->tolerance,
		  "%s, %s, %d steps of %d batch%s on the device and by hand: losses %.4f to %.4f, off by %.1e, norms %.6g and %.6g, "
		  "parameters off by %.1e; %s", model, p->name, STEPS, batches, batches > 1 ? "es" : "", device.losses[0],
		  device.losses[STEPS - 1], off, device.norm, hand.norm, params, a.plan ? gn_plan_mode(a.plan) : "");
	net_destroy(&a);
	net_destroy(&b);
}

/* A step takes as many batches as it was said to have. */
static void check_count(void)
{
	struct gn_plan_options o = net_on_gpu(&net_precisions[0]);
	struct gn_optim rule = {.kind = GN_OPTIM_SGD, .momentum = 0.9};
	struct gn_plan_update update = {.rule = &rule, .batches = 2};
	struct gn_optim_update u = update_of(0, 2);
	enum gn_status early = GN_OK, late = GN_OK, status;
	struct net n;

	o.training = 1;
	status = net_make(&n, "lenet", 2, 28, o);
	update.slots[0] = status ? NULL : gn_optimizer_slot(n.optimizer, 0);
	if (!status && !(status = gn_plan_reside(n.plan, &update, &n.err)) && !(status = gn_plan_push(n.plan, &n.err)) &&
	    !(status = stage(&n, 2))) {
		early = gn_plan_launch(n.plan, 0, &u, &n.err);
		status = gn_plan_gather(n.plan, 0, &n.err);
		if (!status)
			status = stage(&n, 2);
		late = gn_plan_gather(n.plan, 1, &n.err);
	}
	net_point(!status && early == GN_ERR_USAGE && late == GN_ERR_USAGE,
		  "of a step of two batches the second cannot be gathered, nor the first launched");
	net_destroy(&n);
}

static const struct gn_plan_pixels scale = {{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};

/* Patches, each larger than the one before and mirrored when that was not, and the values that they stand for. */
static void give_crops(struct net *crops, struct net *values)
{
	uint32_t side = (uint32_t)gn_model_side(crops->model);
	float *image = values->images;
	uint8_t *pixels;

	crops->crops = calloc((size_t)crops->batch, sizeof *crops->crops);
	crops->pixels = pixels = malloc((size_t)crops->batch * gn_crop_room_bytes(side, side));
	if (!crops->crops || !pixels)
		abort();
	for (uint32_t n = 0; n < (uint32_t)crops->batch; n++) {
		struct gn_crop *p = &crops->crops[n];

		*p = (struct gn_crop){pixels, side + 3 * n, side + n, 2 * n, n, side, side, 0, 0, side, side, n % 2};
		for (size_t i = 0; i < gn_crop_bytes(p); i++)
			*pixels++ = (uint8_t)(i * 131 + i / 7 * 17 + n);
		for (uint32_t i = 0; i < 3 * side * side; i++) {
			uint32_t c = i / (side * side), y = i / side % side, x = i % side;
			uint32_t from = 2 * n + (p->flip ? side - 1 - x : x);
			uint8_t pixel = p->pixels[((size_t)(n + y) * p->width + from) * 3 + c];

			*image++ = ((float)pixel / 255 - scale.mean[c]) / scale.deviation[c];
		}
	}
}

/* A crop without room, and one without pixels. */
static int refuses_crops(struct net *n)
{
	struct gn_crop kept = n->crops[1];
	enum gn_status large, none;

	n->crops[1].width = n->crops[1].height = 4096;
	large = gn_plan_stage(n->plan, n->crops, NULL, &n->err);
	n->crops[1].width = 0;
	none = gn_plan_stage(n->plan, n->crops, NULL, &n->err);
	n->crops[1] = kept;
	return large == GN_ERR_USAGE && none == GN_ERR_USAGE;
}

/* Images as crops, by hand and on the device, against the same as floats. */
static void check_crops(const char *model, int batch, int side, const struct net_precision *p)
{
	struct gn_plan_options floats_in = net_on_gpu(p), crops_in;
	struct course device = {.norm = 0}, hand = {.norm = 0};
	double loss = 0, off = 0;
	const float *logits;
	struct net a, b;
	enum gn_status status;
	int refused = 0;

	floats_in.training = 1;
	crops_in = floats_in;
	crops_in.pixels = &scale;
	status = net_make(&a, model, batch, side, crops_in);
	if (net_make(&b, model, batch, side, floats_in) || status) {
		printf("# %s\n", status ? a.err.text : b.err.text);
		status = GN_ERR_FAILED;
	} else {
		give_crops(&a, &b);
		refused = refuses_crops(&a);
		status = net_pass(&a, &loss, &logits);
		if (!status && gn_init_params(a.model, "formula", a.params, a.buffers, &a.err))
			status = GN_ERR_FAILED;
		gn_weight_layouts_in(a.arrange, a.params);
		if (!status)
			status = run_on_device(&a, 1, &device);
		if (status)
			printf("# %s\n", a.err.text);
	}
	if (!status && run_by_hand(&b, 1, &hand)) {
		printf("# %s\n", b.err.text);
		status = GN_ERR_FAILED;
	}
	off = furthest(&device, &hand);
	net_point(!status && refused && !device.skipped && off < p->tolerance &&
			  fabs(loss - hand.losses[0]) < p->tolerance * hand.losses[0],
	      "%s, %s, images as crops and as floats: losses %.4f to %.4f, off by %.1e", model, p->name, device.losses[0],
	      device.losses[STEPS - 1], off);
	net_destroy(&a);
	net_destroy(&b);
}

/* A step whose gradients are not finite leaves all as it was. */
void check_skip(void)
{
	struct gn_plan_options o = net_on_gpu(&net_precisions[0]);
	struct gn_optim rule = {.kind = GN_OPTIM_SGD, .momentum = 0.9};
	struct gn_optim_update u = {.lr = 0.02, .grad_scale = 1, .step = 1};
	struct gn_plan_update update = {.rule = &rule};
	struct gn_plan_result r = {0};
	struct gn_targets t;
	struct net n;
	float *before = NULL, *buffers = NULL;
	enum gn_status status;

	o.training = 1;
	status = net_make(&n, "resnet20", 2, 32, o);
	t = net_targets(&n);
	update.slots[0] = status ? NULL : gn_optimizer_slot(n.optimizer, 0);
	if (!status) {
		before = net_floats(gn_model_param_elements(n.model));
		buffers = net_floats(gn_model_buffer_elements(n.model));
		memcpy(before, n.params, gn_model_param_elements(n.model) * sizeof *before);
		memcpy(buffers, n.buffers, gn_model_buffer_elements(n.model) * sizeof *buffers);
		n.images[17] = NAN;
	}
	if (status || (status = gn_plan_reside(n.plan, &update, &n.err)) || (status = gn_plan_push(n.plan, &n.err)) ||
	    (status = gn_plan_stage(n.plan, n.images, &t, &n.err)) || (status = gn_plan_launch(n.plan, 0, &u, &n.err)) ||
	    (status = gn_plan_result(n.plan, &r, &n.err)) || (status = gn_plan_pull(n.plan, &n.err)))
		printf("# %s\n", n.err.text);
	net_point(!status && r.skipped && !memcmp(before, n.params, gn_model_param_elements(n.model) * sizeof *before) &&
		      !memcmp(buffers, n.buffers, gn_model_buffer_elements(n.model) * sizeof *buffers),
	      "a step whose gradients are not finite changes nothing");
	free(before);
	free(buffers);
	net_destroy(&n);
}

void check_runs(const struct net_precision *p)
{
	check_run("lenet", 4, 1, 28, p);
	check_run("resnet20", 3, 1, 12, p);
	check_run("resnet20", 3, 3, 12, p);
	check_crops("resnet20", 3, 12, p);
	if (p == net_precisions)
		check_count();
}
