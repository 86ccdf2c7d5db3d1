/* gannet bench train: steps of gannet train (src/train/loop/step.h) on a batch that is always the same, or inference, timed. */
#include "src/cmd/bench_train_internal.h"

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/process.h"
#include "src/train/plan/contention.h"
#include "src/train/plan/device.h"
#include "src/train/model/init.h"
#include "src/train/loop/input.h"
#include "src/train/model/weights.h"
#include "transport/coll/agree.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- of the process --- */

/* getrusage would count the parent's, before exec, too. */
static uint64_t peak_bytes(void)
{
	char text[8192];
	const char *peak = gn_file_read_start("/proc/self/status", text, sizeof text) < 0 ? NULL : strstr(text, "\nVmHWM:");

	return peak ? (uint64_t)strtoull(strchr(peak, ':') + 1, NULL, 10) << 10 : 0;
}

/* --- creating --- */

static enum gn_status create_batch(struct train_bench *b, struct gn_err *err)
{
	size_t pixels = (size_t)gn_model_channels(b->model) * (size_t)b->o->side * (size_t)b->o->side;

	b->images = gn_alloc_aligned((size_t)b->o->batch * pixels * sizeof(float));
	b->labels = calloc((size_t)b->o->batch, sizeof *b->labels);
	for (int i = 0; i < PARTS; i++)
		b->times[i] = calloc((size_t)b->o->iters, sizeof(double));
	b->in_order = calloc((size_t)b->o->iters, sizeof *b->in_order);
	if (!b->images || !b->labels || !b->times[PARTS - 1] || !b->in_order)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a batch of %lld", (long long)b->o->batch);
	gn_init_formula_batch((int)b->o->batch, gn_model_channels(b->model), (int)b->o->side, (int)b->o->classes, b->images,
			      b->labels);
	return GN_OK;
}

static enum gn_status init_weights(struct train_bench *b, float *params, float *buffers, struct gn_err *err)
{
	if (strcmp(b->o->init, "formula") && strncmp(b->o->init, "seed:", 5))
		return gn_weights_import(b->o->init, b->model, 0, params, buffers, NULL, NULL, err);
	return gn_init_params(b->model, b->o->init, params, buffers, err);
}

static enum gn_status create_inference(struct train_bench *b, struct gn_plan_options *po, struct gn_err *err)
{
	enum gn_status status = gn_weight_layouts_create(b->model, &b->weight_layouts, err);

	b->params = gn_alloc_aligned(gn_model_param_elements(b->model) * sizeof(float));
	b->buffers = gn_alloc_aligned((gn_model_buffer_elements(b->model) + 1) * sizeof(float));
	if (!status && (!b->params || !b->buffers))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %s", b->o->model);
	if (!status)
		status = init_weights(b, b->params, b->buffers, err);
	if (status)
		return status;
	po->frozen = 1;
	po->weights = gn_weight_layouts_layouts(b->weight_layouts);
	status = gn_plan_create(b->model, po, b->params, NULL, b->buffers, &b->plan, err);
	if (!status)
		status = gn_weight_layouts_take(b->weight_layouts, b->plan, err);
	if (status)
		return status;
	gn_weight_layouts_in(b->weight_layouts, b->params);
	return gn_plan_freeze(b->plan, err);
}

/* A loader that always has the same batch. */
static enum gn_status next_batch(void *context, const void **images, struct gn_targets *targets, struct gn_err *err)
{
	const struct train_bench *b = context;

	(void)err;
	*images = b->images;
	*targets = (struct gn_targets){.labels = b->labels};
	return GN_OK;
}

static enum gn_status init_replica(struct train_bench *b, const struct gn_plan_options *po, struct gn_err *err)
{
	const struct gn_replica_options ro = {
		.comm = b->comm, .model = b->model, .log = b->log, .device = *po, .batches = 1, .algo = b->o->algo, .gpu_comm = b->o->comm,
		.optimizer = {.name = "sgd", .momentum = 0.9, .weight_decay = 1e-4, .eps = -1, .decay_all = 1},
	};

	b->replica.next = next_batch;
	b->replica.next_context = b;
	return gn_replica_init(&b->replica, &ro, err);
}

static enum gn_status create_plan(struct train_bench *b, struct gn_plan_options *po, struct gn_err *err)
{
	struct gn_replica *r = &b->replica;
	enum gn_status status;

	po->training = 1;
	status = gn_replica_set_plan(r, b->model, po, err);
	if (!status)
		status = init_weights(b, r->params.host, r->buffers.host, err);
	if (status)
		return status;
	b->plan = r->plan;
	b->is_queued = gn_device_is_queued(r->device.device);
	gn_weight_layouts_in(r->layouts, r->params.host);
	return gn_replica_send(r, err);
}

/* Collective. As a run of gannet train has it. */
static enum gn_status create_training(struct train_bench *b, struct gn_plan_options *po, struct gn_err *err)
{
	const struct gn_reducer_config config = {GN_BENCH_BUCKET_BYTES, 1};
	enum gn_status status = gn_agree_status(b->comm, init_replica(b, po, err), err);

	if (!status)
		status = gn_agree_status(b->comm, gn_replica_share(&b->replica, err), err);
	if (!status)
		status = gn_agree_status(b->comm, create_plan(b, po, err), err);
	return status ? status : gn_replica_connect(&b->replica, &config, err);
}

static enum gn_status open_all(struct train_bench *b, struct gn_err *err)
{
	struct gn_comm_options co = {.transport = b->o->transport, .tuning = b->o->tuning, .rails = (int)b->o->rails,
				     .strict = b->o->transport_strict, .progress = b->o->progress};
	struct gn_plan_options po = {.batch = (int)b->o->batch};
	enum gn_status status = gn_world_create(&b->o->world, b->log, &b->world, err);

	if (!status)
		status = gn_comm_create(b->world, &co, b->log, &b->comm, err);
	if (status)
		return status;
	gn_world_set_phase(b->world, "measuring", 600000);
	gn_input_threads(b->o->threads, b->world, b->log);
	status = gn_replica_choose_device(b->comm, b->o->device, b->o->precision, NULL, &po, err);
	po.convolution = gn_convolution_of(b->o->convolution);
	b->precision = gn_device_precision(&po);
	if (status)
		return status;
	if (!status)
		status = gn_model_create(b->o->model, (int)b->o->classes, 0, (int)b->o->side, &b->model, err);
	if (!status)
		status = create_batch(b, err);
	status = gn_agree_status(b->comm, status, err);
	if (status)
		return status;
	return b->o->inference ? gn_agree_status(b->comm, create_inference(b, &po, err), err) : create_training(b, &po, err);
}

static void close_all(struct train_bench *b)
{
	gn_contention_watch(1, NULL);
	gn_bench_profile_destroy(b->profile);
	if (b->o->inference)
		gn_plan_destroy(b->plan);
	gn_replica_release(&b->replica);
	gn_weight_layouts_destroy(b->weight_layouts);
	gn_model_destroy(b->model);
	for (int i = 0; i < PARTS; i++)
		free(b->times[i]);
	free(b->in_order);
	free(b->params);
	free(b->buffers);
	free(b->images);
	free(b->labels);
	gn_comm_destroy(b->comm);
	gn_world_destroy(b->world);
	gn_log_destroy(b->log);
}

/* --- steps --- */

/* Inference number k: a batch and its loss. */
static enum gn_status infer(struct train_bench *b, uint64_t k, double *parts, double *loss, struct gn_err *err)
{
	double began = gn_clock_s();
	const float *logits;
	enum gn_status status = gn_plan_forward(b->plan, b->images, k, &logits, err);

	if (!status)
		status = gn_plan_loss(b->plan, b->labels, loss, err);
	parts[FORWARD] = parts[STEP] = gn_clock_s() - began;
	return status;
}

/* Step number k of training. */
static enum gn_status train(struct train_bench *b, uint64_t k, double *parts, double *loss, struct gn_err *err)
{
	const struct gn_train_step step = {.number = k, .updates = k + 1, .lr = GN_BENCH_RATE, .has_next = 1};
	struct gn_interval sums = {0};
	struct gn_step_result result = {0};
	double began = gn_clock_s();
	enum gn_status status = gn_step_run(&b->replica, &step, &sums, &result, err);

	parts[STEP] = gn_clock_s() - began;
	parts[EXPOSED] = sums.exposed;
	if (!b->is_queued) {
		parts[FORWARD] = sums.forward;
		parts[BACKWARD] = sums.backward;
		parts[OPTIMIZER] = sums.optimizer;
	}
	*loss = result.loss;
	if (!status && result.skipped && isfinite(result.loss) && strcmp(b->o->precision, "fp16"))
		status = gn_err_set(err, GN_ERR_FAILED, "the gradients of step %llu are not finite", (unsigned long long)k + 1);
	return status;
}

enum gn_status gn_bench_train_step(struct train_bench *b, uint64_t k, double *parts, struct gn_err *err)
{
	double loss = 0;
	enum gn_status status = b->o->inference ? infer(b, k, parts, &loss, err) : train(b, k, parts, &loss, err);

	if (k < GN_BENCH_LOSSES)
		b->losses[k] = loss;
	if (!status && !isfinite(loss))
		status = gn_err_set(err, GN_ERR_FAILED, "the loss of step %llu is not finite", (unsigned long long)k + 1);
	return status;
}

static enum gn_status measure(struct train_bench *b, struct gn_err *err)
{
	uint64_t warmup = (uint64_t)b->o->warmup, count = warmup + (uint64_t)b->o->iters;
	enum gn_status status = GN_OK;

	for (uint64_t k = 0; k < count && !status; k++) {
		double parts[PARTS] = {0};

		if (k == 0)
			b->first_begins_s = gn_process_age_s();
		status = gn_bench_train_step(b, k, parts, err);
		if (k == 0)
			b->first_ends_s = gn_process_age_s();
		for (int i = 0; i < PARTS && k >= warmup; i++)
			b->times[i][k - warmup] = parts[i];
	}
	b->peak_bytes = peak_bytes();
	return status || !b->o->profile ? status : gn_bench_profile(b, err);
}

int gn_bench_train(const struct gn_bench_options *o)
{
	struct train_bench b = {.o = o, .log = gn_cmd_log()};
	struct gn_err err;
	enum gn_status status = open_all(&b, &err);
	int code;

	if (!status) {
		status = measure(&b, &err);
		/* the others would wait for this rank, whose error it may be alone */
		if (status && !gn_world_check(b.world, NULL))
			gn_world_abort(b.world, status, err.text);
	}
	if (!status)
		status = gn_bench_train_report(&b, &err);
	code = status ? gn_cmd_fail("bench", &err) : GN_EXIT_DONE;
	close_all(&b);
	return code;
}
