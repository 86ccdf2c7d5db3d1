/* gannet bench train on GPUs: what src/train/resident.c does, without a session. */
#include "src/cmd/bench_train_internal.h"

#include "src/base/clock.h"
#include "src/train/agree.h"
#include "src/train/gpu_memory.h"

#include <math.h>
#include <sched.h>
#include <string.h>

static enum gn_status stage(struct train_bench *b, struct gn_err *err)
{
	struct gn_targets t = {.labels = b->labels};

	return gn_plan_stage(b->plan, b->images, &t, err);
}

static void leave(void *context, int param, void *event)
{
	struct train_bench *b = context;

	gn_exchange_after(b->exchange, event);
	gn_exchange_ready(b->exchange, param);
}

static int cuts(void *context, int param)
{
	return gn_exchange_ends_bucket(((struct train_bench *)context)->exchange, param);
}

/* Gradients, and buffers behind them, summed where they are. */
static enum gn_status make_sums(struct train_bench *b, struct gn_err *err)
{
	struct gn_exchange_form form = {GN_BENCH_BUCKET_BYTES, 1};
	enum gn_status status = gn_gpu_carrier_create(b->comm, b->o->comm, gn_plan_gpu(b->plan), b->log, &b->carrier, err);

	if (!status)
		status = gn_exchange_create_on(b->carrier, b->model, gn_plan_sums(b->plan), gn_model_buffer_elements(b->model), &form,
					       &b->exchange, err);
	return status;
}

static enum gn_status reside(struct train_bench *b, struct gn_err *err)
{
	struct gn_optimizer_terms terms;
	struct gn_plan_update update;
	enum gn_status status;

	gn_optimizer_terms(b->optimizer, &terms);
	update = (struct gn_plan_update){.rule = terms.rule, .weight_decay = terms.weight_decay, .decay_all = terms.decay_all,
					 .slots = {gn_optimizer_slot(b->optimizer, 0)}, .ranks = gn_comm_size(b->comm),
					 .ready = leave, .cuts = cuts, .context = b};
	status = gn_plan_reside(b->plan, &update, err);
	if (!status)
		status = gn_plan_push(b->plan, err);
	b->resident = !status;
	return status ? status : stage(b, err);
}

enum gn_status gn_bench_train_reside(struct train_bench *b, struct gn_err *err)
{
	enum gn_status status = gn_agree_status(b->comm, reside(b, err), err);

	return status || gn_comm_size(b->comm) == 1 ? status : make_sums(b, err);
}

/* The other ranks' gradients to this one's, and then the update. */
static enum gn_status sum_up(struct train_bench *b, double *exposed_s, struct gn_err *err)
{
	enum gn_status status = GN_OK;
	double through;
	int done = 0;

	while (!status && !done) {
		gn_exchange_poll(b->exchange);
		status = gn_plan_went_back(b->plan, &done, err);
		if (!done)
			sched_yield();
	}
	through = gn_clock_s();
	if (!status)
		status = gn_exchange_wait(b->exchange, err);
	*exposed_s = gn_clock_s() - through;
	return status ? status : gn_plan_apply(b->plan, err);
}

enum gn_status gn_bench_train_resident_step(struct train_bench *b, uint64_t k, double *parts, struct gn_err *err)
{
	struct gn_optim_update u = {.lr = GN_BENCH_RATE, .grad_scale = 1.0 / gn_comm_size(b->comm), .step = k + 1};
	struct gn_plan_result r = {0};
	double began = gn_clock_s();
	enum gn_status status;

	if (b->exchange)
		gn_exchange_begin(b->exchange);
	status = gn_plan_launch(b->plan, k, &u, err);
	if (!status)
		status = stage(b, err);
	if (!status && b->exchange)
		status = sum_up(b, &parts[EXPOSED], err);
	if (!status)
		status = gn_plan_result(b->plan, &r, err);
	parts[STEP] = gn_clock_s() - began;
	if (k < GN_BENCH_LOSSES)
		b->losses[k] = r.loss;
	if (!status && (r.skipped || !isfinite(r.loss)) && strcmp(b->o->precision, "fp16"))
		status = gn_err_set(err, GN_ERR_FAILED, "the gradients of step %llu are not finite", (unsigned long long)k + 1);
	return status;
}
