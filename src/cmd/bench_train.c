/* gannet bench train: the steps of gannet train without a loader, or inference, timed. On GPUs the steps are those of
 * src/train/loop/device_step.c, without a session. */
#include "src/cmd/bench_train_internal.h"

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/train/plan/device.h"
#include "src/train/model/init.h"
#include "src/train/loop/input.h"
#include "src/train/model/weights.h"
#include "transport/coll/agree.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* --- of the process --- */

/* Since the kernel started this process, to its tick of 10 ms; below 0 where /proc does not say. */
static double process_age_s(void)
{
	char text[1024];
	unsigned long long began = 0;
	struct timespec now;
	FILE *f = fopen("/proc/self/stat", "r");
	size_t len = f ? fread(text, 1, sizeof text - 1, f) : 0;
	const char *p;

	if (f)
		fclose(f);
	text[len] = 0;
	/* The name may hold anything but is the last thing in brackets; the time is field 22. */
	p = strrchr(text, ')');
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	if (!p || sscanf(p, "%llu", &began) != 1)
		return -1;
	clock_gettime(CLOCK_BOOTTIME, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9 - (double)began / (double)sysconf(_SC_CLK_TCK);
}

/* getrusage would count the parent's, before exec, too. */
static uint64_t peak_bytes(void)
{
	char line[256];
	unsigned long long kb = 0;
	FILE *f = fopen("/proc/self/status", "r");

	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "VmHWM: %llu kB", &kb) == 1)
			break;
	if (f)
		fclose(f);
	return (uint64_t)kb << 10;
}

/* --- making --- */

static enum gn_status make_arrays(struct train_bench *b, struct gn_err *err)
{
	size_t params = gn_model_param_elements(b->model), buffers = gn_model_buffer_elements(b->model);
	size_t pixels = (size_t)gn_model_channels(b->model) * (size_t)b->o->side * (size_t)b->o->side;
	void *memory;
	enum gn_status status = gn_comm_alloc(b->comm, (params + buffers + 1) * sizeof(float), &memory, err);

	if (status)
		return status;
	b->flat = memory;
	b->buffers = b->flat + params;
	b->params = gn_alloc_aligned(params * sizeof(float));
	b->images = gn_alloc_aligned((size_t)b->o->batch * pixels * sizeof(float));
	b->labels = calloc((size_t)b->o->batch, sizeof *b->labels);
	for (int i = 0; i < PARTS; i++)
		b->times[i] = calloc((size_t)b->o->iters, sizeof(double));
	b->in_order = calloc((size_t)b->o->iters, sizeof *b->in_order);
	if (!b->params || !b->images || !b->labels || !b->times[PARTS - 1] || !b->in_order)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %s and a batch of %lld", b->o->model, (long long)b->o->batch);
	gn_init_formula_batch((int)b->o->batch, gn_model_channels(b->model), (int)b->o->side, (int)b->o->classes, b->images,
			      b->labels);
	if (strcmp(b->o->init, "formula") && strncmp(b->o->init, "seed:", 5))
		return gn_weights_load(b->o->init, b->model, b->params, b->buffers, err);
	return gn_init_params(b->model, b->o->init, b->params, b->buffers, err);
}

static enum gn_status make_optimizer(struct train_bench *b, struct gn_err *err)
{
	struct gn_optimizer_options oo = {.name = "sgd", .momentum = 0.9, .weight_decay = 1e-4, .eps = -1, .decay_all = 1};

	return b->o->inference ? GN_OK : gn_optimizer_create(b->model, &oo, &b->optimizer, err);
}

/* All but what ranks do together. */
static enum gn_status prepare(struct train_bench *b, struct gn_err *err)
{
	struct gn_plan_options po = {.batch = (int)b->o->batch, .training = !b->o->inference, .frozen = b->o->inference};
	enum gn_status status = gn_device_choose(b->o->device, b->o->precision, gn_world_local_rank(b->world), &po, err);

	b->precision = gn_device_precision(&po);
	if (!status)
		status = gn_weight_layouts_create(b->model, &b->weight_layouts, err);
	po.weights = status ? NULL : gn_weight_layouts_layouts(b->weight_layouts);
	if (!status)
		status = make_arrays(b, err);
	if (!status)
		status = make_optimizer(b, err);
	if (!status)
		status = gn_plan_create(b->model, &po, b->params, b->flat, b->buffers, &b->plan, err);
	if (!status)
		status = gn_weight_layouts_take(b->weight_layouts, b->plan, err);
	if (status)
		return status;
	gn_weight_layouts_in(b->weight_layouts, b->params);
	if (b->o->inference)
		gn_plan_freeze(b->plan);
	return GN_OK;
}

static enum gn_status stage_batch(struct train_bench *b, struct gn_err *err)
{
	struct gn_targets t = {.labels = b->labels};

	return gn_plan_stage(b->plan, b->images, &t, err);
}

static enum gn_status make_resident(struct train_bench *b, struct gn_err *err)
{
	struct gn_optimizer_terms terms;
	struct gn_plan_update update;
	enum gn_status status;

	gn_optimizer_terms(b->optimizer, &terms);
	update = (struct gn_plan_update){.rule = terms.rule, .weight_decay = terms.weight_decay, .decay_all = terms.decay_all,
					 .slots = {gn_optimizer_slot(b->optimizer, 0)}};
	gn_device_reducer_join(&b->device_reducer, &update);
	status = gn_plan_reside(b->plan, &update, err);
	if (!status)
		status = gn_plan_push(b->plan, err);
	b->resident = !status;
	return status ? status : stage_batch(b, err);
}

/* Collective. The state becomes resident on the GPU, and gradients of several ranks are summed there. */
static enum gn_status start_device_steps(struct train_bench *b, struct gn_err *err)
{
	struct gn_reducer_config config = {GN_BENCH_BUCKET_BYTES, 1};
	enum gn_status status = gn_agree_status(b->comm, make_resident(b, err), err);

	return status ? status : gn_device_reducer_open(&b->device_reducer, b->o->comm, b->plan, b->model, &config, b->log, err);
}

/* Steps are resident on the GPUs when every rank has one. */
static enum gn_status create_reducer(struct train_bench *b, struct gn_err *err)
{
	struct gn_reducer_config config = {GN_BENCH_BUCKET_BYTES, 1};
	int32_t on_gpu = gn_plan_gpu(b->plan) >= 0;
	enum gn_status status = gn_comm_allreduce(b->comm, &on_gpu, 1, GN_I32, gn_reduce_of(GN_I32, GN_MIN), err);

	if (status)
		return status;
	return on_gpu ? start_device_steps(b, err) :
		       gn_reducer_create(b->comm, b->model, b->flat, gn_model_buffer_elements(b->model) + 1, &config, b->o->algo,
					  &b->reducer, err);
}

static enum gn_status open_all(struct train_bench *b, struct gn_err *err)
{
	struct gn_comm_options co = {.transport = b->o->transport, .tuning = b->o->tuning, .rails = (int)b->o->rails,
				     .strict = b->o->transport_strict, .progress = b->o->progress};
	enum gn_status status = gn_world_create(&b->o->world, b->log, &b->world, err);

	if (!status)
		status = gn_comm_create(b->world, &co, b->log, &b->comm, err);
	if (status)
		return status;
	b->device_reducer.comm = b->comm;
	gn_world_set_phase(b->world, "measuring", 600000);
	gn_input_threads(b->o->threads, gn_world_local_size(b->world));
	status = gn_model_create(b->o->model, (int)b->o->classes, 0, (int)b->o->side, &b->model, err);
	if (!status)
		status = gn_agree_status(b->comm, prepare(b, err), err);
	return status || b->o->inference ? status : create_reducer(b, err);
}

static void close_all(struct train_bench *b)
{
	gn_reducer_destroy(b->reducer);
	gn_device_reducer_release(&b->device_reducer);
	gn_plan_destroy(b->plan);
	gn_optimizer_destroy(b->optimizer);
	gn_weight_layouts_destroy(b->weight_layouts);
	gn_model_destroy(b->model);
	for (int i = 0; i < PARTS; i++)
		free(b->times[i]);
	free(b->in_order);
	free(b->params);
	free(b->images);
	free(b->labels);
	if (b->comm)
		gn_comm_free(b->comm, b->flat);
	gn_comm_destroy(b->comm);
	gn_world_destroy(b->world);
	gn_log_destroy(b->log);
}

/* --- steps --- */

static void update(struct train_bench *b, uint64_t step)
{
	float share = 1.0f / (float)gn_comm_size(b->comm);
	struct gn_optim_update u = {.lr = GN_BENCH_RATE, .grad_scale = (double)share, .step = step + 1};
	size_t count = gn_model_buffer_elements(b->model);
	double norm;

	/* One whose gradients are not finite changes nothing, and the loss says so. */
	gn_optimizer_step(b->optimizer, &u, b->params, b->flat, &norm);
	for (size_t i = 0; i < count && share < 1; i++)
		b->buffers[i] *= share;
}

static enum gn_status train(struct train_bench *b, double *mark, double *parts, struct gn_err *err)
{
	double now, taken;
	enum gn_status status;

	gn_reducer_begin(b->reducer);
	status = gn_plan_backward(b->plan, gn_reducer_ready, b->reducer, err);
	taken = (double)gn_reducer_taken_ns(b->reducer) * 1e-9;
	now = gn_clock_s();
	parts[BACKWARD] = now - *mark - taken;
	if (!status)
		status = gn_reducer_wait(b->reducer, err);
	*mark = gn_clock_s();
	parts[EXPOSED] = *mark - now + taken;
	return status;
}

/* Step number k. */
static enum gn_status step(struct train_bench *b, uint64_t k, double *parts, struct gn_err *err)
{
	double began = gn_clock_s(), mark, loss = 0;
	const float *logits;
	enum gn_status status = gn_plan_forward(b->plan, b->images, k, &logits, err);

	if (!status)
		status = gn_plan_loss(b->plan, b->labels, &loss, err);
	mark = gn_clock_s();
	parts[FORWARD] = mark - began;
	if (!status && !b->o->inference)
		status = train(b, &mark, parts, err);
	if (!status && !b->o->inference)
		update(b, k);
	parts[OPTIMIZER] = b->o->inference ? 0 : gn_clock_s() - mark;
	parts[STEP] = gn_clock_s() - began;
	if (k < GN_BENCH_LOSSES)
		b->losses[k] = loss;
	if (!status && !isfinite(loss))
		status = gn_err_set(err, GN_ERR_FAILED, "the loss of step %llu is not finite", (unsigned long long)k + 1);
	return status;
}

/* Step number k on the GPU. The host sees its whole time and how long it waited for the reduction, and no other parts. */
static enum gn_status device_step(struct train_bench *b, uint64_t k, double *parts, struct gn_err *err)
{
	struct gn_optim_update u = {.lr = GN_BENCH_RATE, .grad_scale = 1.0 / gn_comm_size(b->comm), .step = k + 1};
	struct gn_plan_result r = {0};
	double began = gn_clock_s();
	uint64_t exposed_ns = 0;
	enum gn_status status;

	gn_device_reducer_begin(&b->device_reducer);
	status = gn_plan_launch(b->plan, k, &u, err);
	if (!status)
		status = stage_batch(b, err);
	if (!status)
		status = gn_device_reducer_finish(&b->device_reducer, &exposed_ns, err);
	if (!status)
		status = gn_plan_result(b->plan, &r, err);
	parts[EXPOSED] = (double)exposed_ns * 1e-9;
	parts[STEP] = gn_clock_s() - began;
	if (k < GN_BENCH_LOSSES)
		b->losses[k] = r.loss;
	if (!status && (r.skipped || !isfinite(r.loss)) && strcmp(b->o->precision, "fp16"))
		status = gn_err_set(err, GN_ERR_FAILED, "the gradients of step %llu are not finite", (unsigned long long)k + 1);
	return status;
}

static enum gn_status measure(struct train_bench *b, struct gn_err *err)
{
	uint64_t warmup = (uint64_t)b->o->warmup, count = warmup + (uint64_t)b->o->iters;
	enum gn_status status = GN_OK;

	for (uint64_t k = 0; k < count && !status; k++) {
		double parts[PARTS] = {0};

		if (k == 0)
			b->first_begins_s = process_age_s();
		status = b->resident ? device_step(b, k, parts, err) : step(b, k, parts, err);
		if (k == 0)
			b->first_ends_s = process_age_s();
		for (int i = 0; i < PARTS && k >= warmup; i++)
			b->times[i][k - warmup] = parts[i];
	}
	b->peak_bytes = peak_bytes();
	return status;
}

int gn_bench_train(const struct gn_bench_options *o)
{
	struct train_bench b = {.o = o, .log = gn_cmd_log()};
	struct gn_err err;
	enum gn_status status = open_all(&b, &err);

	if (!status) {
		status = measure(&b, &err);
		/* the others would wait for this rank, whose error it may be alone */
		if (status && !gn_world_check(b.world, NULL))
			gn_world_abort(b.world, err.text);
	}
	if (!status)
		status = gn_bench_train_report(&b, &err);
	if (status)
		gn_cmd_fail("bench", &err);
	close_all(&b);
	return status ? gn_cmd_exit_code(status) : GN_EXIT_DONE;
}
