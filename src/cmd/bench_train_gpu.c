/* gannet bench train on GPUs: what src/train/loop/device_step.c does, without a session. */
#include "src/cmd/bench_train_internal.h"

#include "src/base/clock.h"
#include "transport/coll/agree.h"

#include <math.h>
#include <string.h>

static enum gn_status stage(struct train_bench *b, struct gn_err *err)
{
	struct gn_targets t = {.labels = b->labels};

	return gn_plan_stage(b->plan, b->images, &t, err);
}

static enum gn_status reside(struct train_bench *b, struct gn_err *err)
{
	struct gn_optimizer_terms terms;
	struct gn_plan_update update;
	enum gn_status status;

	gn_optimizer_terms(b->optimizer, &terms);
	update = (struct gn_plan_update){.rule = terms.rule, .weight_decay = terms.weight_decay, .decay_all = terms.decay_all,
					 .slots = {gn_optimizer_slot(b->optimizer, 0)}};
	gn_device_reducer_join(&b->gpu_sums, &update);
	status = gn_plan_reside(b->plan, &update, err);
	if (!status)
		status = gn_plan_push(b->plan, err);
	b->resident = !status;
	return status ? status : stage(b, err);
}

enum gn_status gn_bench_train_reside(struct train_bench *b, struct gn_err *err)
{
	struct gn_reducer_config form = {GN_BENCH_BUCKET_BYTES, 1};
	enum gn_status status = gn_agree_status(b->comm, reside(b, err), err);

	return status ? status : gn_device_reducer_open(&b->gpu_sums, b->o->comm, b->plan, b->model, &form, b->log, err);
}

enum gn_status gn_bench_train_resident_step(struct train_bench *b, uint64_t k, double *parts, struct gn_err *err)
{
	struct gn_optim_update u = {.lr = GN_BENCH_RATE, .grad_scale = 1.0 / gn_comm_size(b->comm), .step = k + 1};
	struct gn_plan_result r = {0};
	double began = gn_clock_s();
	uint64_t exposed_ns = 0;
	enum gn_status status;

	gn_device_reducer_begin(&b->gpu_sums);
	status = gn_plan_launch(b->plan, k, &u, err);
	if (!status)
		status = stage(b, err);
	if (!status)
		status = gn_device_reducer_finish(&b->gpu_sums, &exposed_ns, err);
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
