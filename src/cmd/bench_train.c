/* gannet bench train: the steps of gannet train without a loader, or a plan's inference, timed. */
#include "src/cmd/bench_train.h"

#include "src/base/arena.h"
#include "src/base/clock.h"
#include "src/base/json.h"
#include "src/train/agree.h"
#include "src/train/arrange.h"
#include "src/train/device.h"
#include "src/train/exchange.h"
#include "src/train/init.h"
#include "src/train/input.h"
#include "src/train/optimizer.h"
#include "src/train/weights.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* As gannet train has it when it measures nothing. */
#define BUCKET_BYTES ((size_t)16 << 20)
/* Small enough that losses stay comparable to another program's for some steps. */
#define RATE 0.01
#define LOSSES 4

enum part { FORWARD, BACKWARD, EXPOSED, OPTIMIZER, STEP, PARTS };
static const char *const part_names[PARTS] = {"forward", "backward", "communication_exposed", "optimizer", "step"};

struct train_bench {
	const struct gn_bench_options *o;
	const char *precision; /* as it is computed here */
	struct gn_log *log;
	struct gn_world *world;
	struct gn_comm *comm;
	struct gn_model *model;
	struct gn_arrange *arrange;
	struct gn_plan *plan;
	struct gn_exchange *exchange;
	struct gn_optimizer *optimizer;
	float *params, *flat, *buffers, *images; /* buffers: in flat, behind the gradients, as in training */
	int32_t *labels;
	int resident;	      /* on a GPU, one rank: steps stay there */
	double *times[PARTS]; /* of the timed steps, seconds; sorted in the end */
	double *in_order;     /* times[STEP] unsorted */
	double losses[LOSSES];
	double first_begins_s, first_ends_s; /* since the process began */
	uint64_t peak_bytes;
};

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

static enum gn_status stage(struct train_bench *b, struct gn_err *err)
{
	struct gn_targets t = {.labels = b->labels};

	return gn_plan_stage(b->plan, b->images, &t, err);
}

/* As gannet train on a GPU: the state stays there, images go up while a step runs. */
static enum gn_status reside(struct train_bench *b, struct gn_err *err)
{
	struct gn_optimizer_terms terms;
	struct gn_plan_update update;
	enum gn_status status;

	gn_optimizer_terms(b->optimizer, &terms);
	update = (struct gn_plan_update){.rule = terms.rule, .weight_decay = terms.weight_decay, .decay_all = terms.decay_all,
					 .slots = {gn_optimizer_slot(b->optimizer, 0)}};
	status = gn_plan_reside(b->plan, &update, err);
	if (!status)
		status = gn_plan_push(b->plan, err);
	b->resident = !status;
	return status ? status : stage(b, err);
}

/* All but what ranks do together. */
static enum gn_status prepare(struct train_bench *b, struct gn_err *err)
{
	struct gn_plan_options po = {.batch = (int)b->o->batch, .training = !b->o->inference, .frozen = b->o->inference};
	enum gn_status status = gn_device_choose(b->o->device, b->o->precision, gn_world_local_rank(b->world), &po, err);

	b->precision = gn_device_precision(&po);
	if (!status)
		status = gn_arrange_create(b->model, &b->arrange, err);
	po.weights = status ? NULL : gn_arrange_layouts(b->arrange);
	if (!status)
		status = make_arrays(b, err);
	if (!status)
		status = make_optimizer(b, err);
	if (!status)
		status = gn_plan_create(b->model, &po, b->params, b->flat, b->buffers, &b->plan, err);
	if (!status)
		status = gn_arrange_take(b->arrange, b->plan, err);
	if (status)
		return status;
	gn_arrange_in(b->arrange, b->params);
	if (b->o->inference)
		gn_plan_freeze(b->plan);
	return po.backend == GN_BACKEND_CUDA && !b->o->inference && gn_comm_size(b->comm) == 1 ? reside(b, err) : GN_OK;
}

static enum gn_status open_all(struct train_bench *b, struct gn_err *err)
{
	struct gn_comm_options co = {.transport = b->o->transport, .tuning = b->o->tuning, .rails = (int)b->o->rails,
				     .progress = b->o->progress};
	struct gn_exchange_form form = {BUCKET_BYTES, 1};
	enum gn_status status = gn_world_create(NULL, b->log, &b->world, err);

	if (!status)
		status = gn_comm_create(b->world, &co, b->log, &b->comm, err);
	if (status)
		return status;
	gn_world_announce(b->world, "measuring", 600000);
	gn_input_threads(b->o->threads, gn_world_local_size(b->world));
	status = gn_model_create(b->o->model, (int)b->o->classes, 0, (int)b->o->side, &b->model, err);
	if (!status)
		status = gn_agree_status(b->comm, prepare(b, err), err);
	if (status || b->o->inference)
		return status;
	return gn_exchange_create(b->comm, b->model, b->flat, gn_model_buffer_elements(b->model) + 1, &form, b->o->algo,
				  &b->exchange, err);
}

static void close_all(struct train_bench *b)
{
	gn_exchange_destroy(b->exchange);
	gn_plan_destroy(b->plan);
	gn_optimizer_destroy(b->optimizer);
	gn_arrange_destroy(b->arrange);
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
	struct gn_optim_update u = {.lr = RATE, .grad_scale = (double)share, .step = step + 1};
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

	gn_exchange_begin(b->exchange);
	status = gn_plan_backward(b->plan, gn_exchange_ready, b->exchange, err);
	taken = (double)gn_exchange_taken_ns(b->exchange) * 1e-9;
	now = gn_clock_s();
	parts[BACKWARD] = now - *mark - taken;
	if (!status)
		status = gn_exchange_wait(b->exchange, err);
	*mark = gn_clock_s();
	parts[EXPOSED] = *mark - now + taken;
	return status;
}

/* Step number k of those that stay on a GPU: one piece, of which the host sees the whole time alone. */
static enum gn_status resident_step(struct train_bench *b, uint64_t k, double *parts, struct gn_err *err)
{
	struct gn_optim_update u = {.lr = RATE, .grad_scale = 1, .step = k + 1};
	struct gn_plan_result r = {0};
	double began = gn_clock_s();
	enum gn_status status = gn_plan_launch(b->plan, k, &u, err);

	if (!status)
		status = stage(b, err);
	if (!status)
		status = gn_plan_result(b->plan, &r, err);
	parts[STEP] = gn_clock_s() - began;
	if (k < LOSSES)
		b->losses[k] = r.loss;
	if (!status && (r.skipped || !isfinite(r.loss)) && strcmp(b->o->precision, "fp16"))
		status = gn_err_set(err, GN_ERR_FAILED, "the gradients of step %llu are not finite", (unsigned long long)k + 1);
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
	if (k < LOSSES)
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
		status = b->resident ? resident_step(b, k, parts, err) : step(b, k, parts, err);
		if (k == 0)
			b->first_ends_s = process_age_s();
		for (int i = 0; i < PARTS && k >= warmup; i++)
			b->times[i][k - warmup] = parts[i];
	}
	b->peak_bytes = peak_bytes();
	return status;
}

/* --- what is told: the slowest rank's times, each step's by itself --- */

static enum gn_status gather(struct train_bench *b, struct gn_err *err)
{
	double all[3] = {b->first_begins_s, b->first_ends_s, (double)b->peak_bytes};
	enum gn_status status = gn_comm_allreduce(b->comm, all, 3, GN_F64, gn_reduce_max(GN_F64), err);

	for (int i = 0; i < PARTS && !status; i++)
		status = gn_comm_allreduce(b->comm, b->times[i], (size_t)b->o->iters, GN_F64, gn_reduce_max(GN_F64), err);
	b->first_begins_s = all[0];
	b->first_ends_s = all[1];
	b->peak_bytes = (uint64_t)all[2];
	return status;
}

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Of sorted times. */
static double median_of(const double *times, int64_t n)
{
	return n % 2 ? times[n / 2] : (times[n / 2 - 1] + times[n / 2]) / 2;
}

static void print_json(const struct train_bench *b, double images_per_s)
{
	int64_t n = b->o->iters, steps = n + b->o->warmup;
	struct gn_json j;

	gn_json_init(&j);
	gn_json_object(&j, NULL);
	gn_json_string(&j, "op", b->o->inference ? "inference" : "train");
	gn_json_string(&j, "model", b->o->model);
	gn_json_int(&j, "batch", b->o->batch);
	gn_json_int(&j, "side", b->o->side);
	gn_json_string(&j, "dtype", b->precision);
	gn_json_string(&j, "device", gn_plan_manner(b->plan)[0] ? "cuda" : "host");
	gn_json_string(&j, "manner", gn_plan_manner(b->plan));
	gn_json_int(&j, "ranks", gn_comm_size(b->comm));
	gn_json_int(&j, "threads", omp_get_max_threads());
	gn_json_int(&j, "steps", n);
	gn_json_fixed(&j, "images_per_s", images_per_s, 3);
	for (int i = 0; i < PARTS; i++) {
		gn_json_object(&j, part_names[i]);
		gn_json_fixed(&j, "p10_ms", b->times[i][n / 10] * 1e3, 3);
		gn_json_fixed(&j, "median_ms", median_of(b->times[i], n) * 1e3, 3);
		gn_json_fixed(&j, "p90_ms", b->times[i][n * 9 / 10] * 1e3, 3);
		gn_json_end(&j);
	}
	gn_json_array(&j, "steps_ms");
	for (int64_t i = 0; i < n; i++)
		gn_json_fixed(&j, NULL, b->in_order[i] * 1e3, 3);
	gn_json_end(&j);
	gn_json_array(&j, "losses");
	for (int64_t i = 0; i < LOSSES && i < steps; i++)
		gn_json_double(&j, NULL, b->losses[i]);
	gn_json_end(&j);
	gn_json_uint(&j, "arena_bytes", gn_plan_bytes(b->plan));
	gn_json_uint(&j, "peak_bytes", b->peak_bytes);
	gn_json_fixed(&j, "first_step_begins_s", b->first_begins_s, 2);
	gn_json_fixed(&j, "first_step_ends_s", b->first_ends_s, 2);
	gn_json_end(&j);
	puts(gn_json_text(&j));
	gn_json_release(&j);
}

static void print(struct train_bench *b)
{
	int64_t n = b->o->iters;
	double images_per_s;

	memcpy(b->in_order, b->times[STEP], (size_t)n * sizeof *b->in_order);
	for (int i = 0; i < PARTS; i++)
		qsort(b->times[i], (size_t)n, sizeof(double), by_value);
	images_per_s = (double)b->o->batch * gn_comm_size(b->comm) / median_of(b->times[STEP], n);
	if (b->o->json) {
		print_json(b, images_per_s);
		return;
	}
	printf("# %s %s, %s, batch %lld of side %lld, %d rank%s, %d threads: %.1f images/s\n", b->o->model,
	       b->o->inference ? "inference" : "training", b->precision, (long long)b->o->batch, (long long)b->o->side,
	       gn_comm_size(b->comm), gn_comm_size(b->comm) > 1 ? "s" : "", omp_get_max_threads(), images_per_s);
	printf("%-22s %10s %10s %10s\n", "ms", "p10", "median", "p90");
	for (int i = 0; i < PARTS; i++)
		if (i == STEP || (!b->resident && (!b->o->inference || i == FORWARD)))
			printf("%-22s %10.2f %10.2f %10.2f\n", part_names[i], b->times[i][n / 10] * 1e3,
			       median_of(b->times[i], n) * 1e3, b->times[i][n * 9 / 10] * 1e3);
	printf("loss of the first step %.6f; memory of a rank at its most %.1f MB, of it the arena %.1f MB; the first step began "
	       "%.2f s after the process\n", b->losses[0], (double)b->peak_bytes / 1e6, (double)gn_plan_bytes(b->plan) / 1e6,
	       b->first_begins_s);
	if (gn_plan_manner(b->plan)[0])
		printf("%s\n", gn_plan_manner(b->plan));
}

int gn_bench_train(const struct gn_bench_options *o)
{
	struct train_bench b = {.o = o, .log = gn_cmd_log()};
	struct gn_err err;
	enum gn_status status = open_all(&b, &err);

	if (!status)
		status = measure(&b, &err);
	if (!status)
		status = gather(&b, &err);
	if (!status && gn_comm_rank(b.comm) == 0)
		print(&b);
	if (status)
		gn_cmd_fail("bench", &err);
	close_all(&b);
	return status ? gn_cmd_exit_code(status) : GN_EXIT_DONE;
}
