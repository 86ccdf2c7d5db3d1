/* Steps that are queued, with the update on the device, against steps call by call whose optimizer is the host's oracle. */
#include "tests/gpu/plan_net.h"
#include "tests/kernels/ref_optim.h"

#include "src/train/model/init.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 4 };

/* What came of a run. */
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

/* torch.optim.SGD on one tensor after another, on the host. */
static void update_by_hand(struct net *n, const struct gn_optim_update *u, const float *sums, float *momentum, double *norm)
{
	*norm = u->grad_scale * sqrt(gn_ref_sum_squares(sums, gn_model_param_elements(n->model)));
	for (int i = 0; i < gn_model_param_count(n->model); i++) {
		const struct gn_param *p = gn_model_param(n->model, i);
		const struct gn_optim rule = {.kind = GN_OPTIM_SGD, .momentum = 0.9};
		struct gn_optim_tensor t = {.params = n->params + p->offset, .grads = sums + p->offset, .slots = {momentum + p->offset},
					    .count = p->count, .weight_decay = p->kind == GN_PARAM_WEIGHT ? 1e-3 : 0,
					    .lr_scale = 1};

		gn_optim_step(&rule, u, &t);
	}
}

static enum gn_status step_by_hand(struct net *n, uint64_t step, int batches, float *sums, float *momentum, struct course *c)
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
		update_by_hand(n, &u, sums, momentum, &c->norm);
	return status;
}

static enum gn_status run_by_hand(struct net *n, int batches, struct course *c)
{
	float *sums = net_floats(gn_model_param_elements(n->model)), *momentum = net_floats(gn_model_param_elements(n->model));
	enum gn_status status = GN_OK;

	for (uint64_t k = 0; k < STEPS && !status; k++)
		status = step_by_hand(n, k, batches, sums, momentum, c);
	free(sums);
	free(momentum);
	return status;
}

static enum gn_status stage(struct net *n, int batches)
{
	struct gn_targets t = net_targets(n);
	enum gn_status status = gn_plan_stage(n->plan, net_input(n), &t, &n->err);

	next_labels(n, batches);
	return status;
}

/* Of how many parameters the gradient was reported. */
static void ready(void *context, int param, struct gn_event *event)
{
	(void)param;
	*(int *)context += event != NULL;
}

/* Batch k of a step, which was staged; the next one is staged behind it. */
static enum gn_status queue_batch(struct net *n, uint64_t number, int k, int batches, int *reported)
{
	struct gn_stream *s = n->device.stream;
	const struct gn_array *grads = &n->arrays[1];
	float *sums = n->accumulated.address;
	const struct gn_plan_observer observer = {.ready = k + 1 == batches ? ready : NULL, .context = reported};
	enum gn_status status = gn_plan_run(n->plan, number, &observer, batches > 1 && k + 1 == batches ? sums : NULL, &n->err);

	if (!status && k + 1 < batches)
		status = k ? gn_compute_add(n->device.compute, grads->device, sums, grads->count, &n->err) :
			     gn_stream_copy(s, sums, grads->device, grads->count * sizeof(float), &n->err);
	return status ? status : stage(n, batches);
}

static enum gn_status step_on_device(struct net *n, uint64_t step, int batches, float *loss, struct course *c)
{
	struct gn_optim_update u = update_of(step, batches);
	struct gn_update_result r;
	float mean = 0;
	int reported = 0;
	enum gn_status status = gn_stream_copy(n->device.stream, loss, &mean, sizeof mean, &n->err);

	for (int k = 0; k < batches && !status; k++)
		status = queue_batch(n, step * (uint64_t)batches + (uint64_t)k, k, batches, &reported);
	u.grad_scale /= gn_plan_loss_scale(n->plan);
	if (!status)
		status = gn_optimizer_step(n->optimizer, &u, &r, &n->err);
	if (!status)
		status = gn_plan_check_labels(n->plan, &n->err);
	if (!status)
		status = gn_stream_copy(n->device.stream, &mean, loss, sizeof mean, &n->err);
	if (!status)
		status = gn_stream_wait(n->device.stream, &n->err);
	if (status)
		return status;
	gn_plan_adjust_loss_scale(n->plan, !r.skipped);
	c->losses[step] = (double)mean;
	c->norm = r.norm;
	c->skipped += r.skipped || reported != gn_model_param_count(n->model);
	return GN_OK;
}

/* Each step is cut behind every third parameter. */
static int cuts(void *context, int param)
{
	(void)context;
	return param % 3 == 0;
}

/* loss: where the plan adds it up. */
static enum gn_status run_on_device(struct net *n, int batches, float *loss, struct course *c)
{
	enum gn_status status = net_send(n);

	if (!status && batches == 1)
		status = gn_plan_cut(n->plan, cuts, NULL, &n->err);
	if (!status)
		status = stage(n, batches);
	for (uint64_t k = 0; k < STEPS && !status; k++)
		status = step_on_device(n, k, batches, loss, c);
	return status ? status : net_fetch(n);
}

/* Memory of the device for the mean loss of a plan that n is made with; NULL: there is none. */
static float *loss_memory(struct gn_plan_options *o, int batches, struct gn_buffer *memory, struct gn_plan_device *device)
{
	struct gn_err err;

	if (gn_plan_device_open(o, device, &err) || gn_buffer_alloc(device->device, sizeof(float), memory, &err))
		return NULL;
	o->training = 1;
	o->batches = batches;
	o->mean_loss = memory->address;
	return memory->address;
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
	struct gn_plan_device beside = {NULL, NULL, NULL};
	struct gn_buffer memory = {NULL, NULL, 0, NULL};
	float *loss = loss_memory(&o, batches, &memory, &beside);
	double off, params = 0, buffers = 0;
	struct net a, b;
	enum gn_status status;

	status = net_make(&a, model, batch, side, o);
	if (!status)
		status = run_on_device(&a, batches, loss, &device);
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
		  "%s, %s, %d steps of %d batch%s queued and by hand: losses %.4f to %.4f, off by %.1e, norms %.6g and %.6g, "
		  "parameters off by %.1e; %s", model, p->name, STEPS, batches, batches > 1 ? "es" : "", device.losses[0],
		  device.losses[STEPS - 1], off, device.norm, hand.norm, params, a.plan ? gn_plan_mode(a.plan) : "");
	net_destroy(&a);
	net_destroy(&b);
	gn_buffer_free(&memory);
	gn_plan_device_close(&beside);
}

/* A run without a batch, and more batches than a step has. */
static void check_count(void)
{
	struct gn_plan_options o = net_on_gpu(&net_precisions[0]);
	const struct gn_plan_observer observer = {.ready = NULL};
	enum gn_status early = GN_OK, late = GN_OK, status;
	struct net n;

	o.training = 1;
	o.batches = 2;
	status = net_make(&n, "lenet", 2, 28, o);
	if (!status)
		early = gn_plan_run(n.plan, 0, &observer, NULL, &n.err);
	for (uint64_t k = 0; k < 2 && !status; k++) {
		status = stage(&n, 2);
		if (!status)
			status = gn_plan_run(n.plan, k, &observer, NULL, &n.err);
	}
	if (!status && !(status = stage(&n, 2)))
		late = gn_plan_run(n.plan, 2, &observer, NULL, &n.err);
	net_point(!status && early == GN_ERR_USAGE && late == GN_ERR_USAGE,
		  "no step without a batch that was staged, nor of more batches than it has");
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

/* Images as crops, call by call and queued, against the same as floats. */
static void check_crops(const char *model, int batch, int side, const struct net_precision *p)
{
	struct gn_plan_options floats_in = net_on_gpu(p), crops_in;
	struct course device = {.norm = 0}, hand = {.norm = 0};
	struct gn_plan_device beside = {NULL, NULL, NULL};
	struct gn_buffer memory = {NULL, NULL, 0, NULL};
	float *mean = loss_memory(&floats_in, 1, &memory, &beside);
	double loss = 0, off = 0;
	const float *logits;
	struct net a, b;
	enum gn_status status;
	int refused = 0;

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
		gn_weight_layouts_in(a.layouts, a.params);
		if (!status)
			status = run_on_device(&a, 1, mean, &device);
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
	gn_buffer_free(&memory);
	gn_plan_device_close(&beside);
}

/* An update of gradients that are not finite leaves parameters and state as they were. */
void check_skip(void)
{
	struct gn_plan_options o = net_on_gpu(&net_precisions[0]);
	const struct gn_plan_observer observer = {.ready = NULL};
	struct gn_optim_update u = {.lr = 0.02, .grad_scale = 1, .step = 1};
	struct gn_update_result r = {.skipped = 0};
	struct net n;
	float *before = NULL;
	int zero = 1;
	enum gn_status status;

	o.training = 1;
	status = net_make(&n, "resnet20", 2, 32, o);
	if (!status) {
		before = net_floats(n.arrays[0].count);
		memcpy(before, n.params, n.arrays[0].count * sizeof *before);
		n.images[17] = NAN;
	}
	if (status || (status = net_send(&n)) || (status = stage(&n, 1)) || (status = gn_plan_run(n.plan, 0, &observer, NULL, &n.err)) ||
	    (status = gn_optimizer_step(n.optimizer, &u, &r, &n.err)) ||
	    (status = gn_array_fetch(gn_optimizer_slot(n.optimizer, 0), n.device.stream, &n.err)) || (status = net_fetch(&n)))
		printf("# %s\n", n.err.text);
	for (size_t i = 0; !status && i < n.arrays[0].count; i++)
		zero &= gn_optimizer_slot(n.optimizer, 0)->host[i] == 0;
	net_point(!status && r.skipped && zero && !memcmp(before, n.params, n.arrays[0].count * sizeof *before),
		  "an update of gradients that are not finite changes nothing");
	free(before);
	net_destroy(&n);
}

void check_runs(const struct net_precision *p)
{
	check_run("lenet", 4, 1, 28, p);
	check_run("resnet20", 3, 1, 12, p);
	check_run("resnet20", 3, 3, 12, p);
	check_run("small_vit", 3, 1, 12, p);
	check_run("small_mobile", 3, 1, 14, p);
	check_crops("resnet20", 3, 12, p);
	if (p == net_precisions)
		check_count();
}
