/* gannet bench train: the steps of gannet train without a loader, or a plan's inference, timed. */
#include "src/cmd/bench_train_internal.h"

#include "src/base/arena.h"
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
		status = gn_weight_layouts_create(b->model, &b->arrange, err);
	po.weights = status ? NULL : gn_weight_layouts_layouts(b->arrange);
	if (!status)
		status = make_arrays(b, err);
	if (!status)
		status = make_optimizer(b, err);
	if (!status)
		status = gn_plan_create(b->model, &po, b->params, b->flat, b->buffers, &b->plan, err);
	if (!status)
		status = gn_weight_layouts_take(b->arrange, b->plan, err);
	if (status)
		return status;
	gn_weight_layouts_in(b->arrange, b->params);
	if (b->o->inference)
		gn_plan_freeze(b->plan);
	return GN_OK;
}

/* Where steps run and who sums gradients, on the GPUs when all ranks have one. */
static enum gn_status share_out(struct train_bench *b, struct gn_err *err)
{
	struct gn_reducer_config form = {GN_BENCH_BUCKET_BYTES, 1};
	int32_t stays = gn_plan_gpu(b->plan) >= 0;
	enum gn_status status = gn_comm_allreduce(b->comm, &stays, 1, GN_I32, gn_reduce_of(GN_I32, GN_MIN), err);

	if (status)
		return status;
	return stays ? gn_bench_train_reside(b, err) :
		       gn_reducer_create(b->comm, b->model, b->flat, gn_model_buffer_elements(b->model) + 1, &form, b->o->algo,
					  &b->exchange, err);
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
	b->gpu_sums.comm = b->comm;
	gn_world_set_phase(b->world, "measuring", 600000);
	gn_input_threads(b->o->threads, gn_world_local_size(b->world));
	status = gn_model_create(b->o->model, (int)b->o->classes, 0, (int)b->o->side, &b->model, err);
	if (!status)
		status = gn_agree_status(b->comm, prepare(b, err), err);
	return status || b->o->inference ? status : share_out(b, err);
}

static void close_all(struct train_bench *b)
{
	gn_reducer_destroy(b->exchange);
	gn_device_reducer_release(&b->gpu_sums);
	gn_plan_destroy(b->plan);
	gn_optimizer_destroy(b->optimizer);
	gn_weight_layouts_destroy(b->arrange);
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

	gn_reducer_begin(b->exchange);
	status = gn_plan_backward(b->plan, gn_reducer_ready, b->exchange, err);
	taken = (double)gn_reducer_taken_ns(b->exchange) * 1e-9;
	now = gn_clock_s();
	parts[BACKWARD] = now - *mark - taken;
	if (!status)
		status = gn_reducer_wait(b->exchange, err);
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

static enum gn_status measure(struct train_bench *b, struct gn_err *err)
{
	uint64_t warmup = (uint64_t)b->o->warmup, count = warmup + (uint64_t)b->o->iters;
	enum gn_status status = GN_OK;

	for (uint64_t k = 0; k < count && !status; k++) {
		double parts[PARTS] = {0};

		if (k == 0)
			b->first_begins_s = process_age_s();
		status = b->resident ? gn_bench_train_resident_step(b, k, parts, err) : step(b, k, parts, err);
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
			gn_world_give_up(b.world, err.text);
	}
	if (!status)
		status = gn_bench_train_report(&b, &err);
	if (status)
		gn_cmd_fail("bench", &err);
	close_all(&b);
	return status ? gn_cmd_exit_code(status) : GN_EXIT_DONE;
}
