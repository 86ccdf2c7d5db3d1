#include "src/train/loop/device_step.h"

#include "src/base/clock.h"
#include "transport/coll/agree.h"

#include <string.h>

/* A device that is through sooner than this after the next batch came has waited for it. */
enum { AT_ONCE_NS = 100000 };

/* Alike on all ranks. */
static enum gn_status refuse_nccl(struct gn_err *err)
{
	return gn_err_set(err, GN_ERR_USAGE, "--comm nccl: gradients are summed in the host's memory here, because not every rank computes "
			  "on a GPU: use --comm ucx or auto");
}

/* *yes: nothing keeps this rank from staying on its GPU, nor any other. */
static enum gn_status can_stay(struct gn_session *s, int32_t *yes, struct gn_err *err)
{
	*yes = gn_plan_gpu(s->plan) >= 0;
	if (gn_comm_size(s->comm) == 1)
		return GN_OK;
	return gn_comm_allreduce(s->comm, yes, 1, GN_I32, gn_reduce_of(GN_I32, GN_MIN), err);
}

static enum gn_status reside(struct gn_session *s, struct gn_err *err)
{
	struct gn_optimizer_terms terms;
	struct gn_plan_update update;

	gn_optimizer_terms(s->optimizer, &terms);
	update = (struct gn_plan_update){.rule = terms.rule, .weight_decay = terms.weight_decay, .decay_all = terms.decay_all,
					 .clip = terms.clip, .batches = (int)s->options->accumulate};
	gn_device_reducer_join(&s->device_reducer, &update);
	for (int k = 0; k < gn_optim_slots(terms.rule->kind); k++)
		update.slots[k] = gn_optimizer_slot(s->optimizer, k);
	if (s->ema) {
		update.average_params = gn_ema_params(s->ema);
		update.average_buffers = gn_ema_buffers(s->ema);
		update.average_decay = gn_ema_decays_by(s->ema);
	}
	return gn_plan_reside(s->plan, &update, err);
}

enum gn_status gn_device_step_begin(struct gn_session *s, struct gn_err *err)
{
	struct gn_reducer_config form;
	int32_t yes;
	enum gn_status status = can_stay(s, &yes, err);

	if (!status && !yes && s->options->comm && !strcmp(s->options->comm, "nccl"))
		status = refuse_nccl(err);
	if (status || !yes)
		return status;
	status = gn_agree_status(s->comm, reside(s, err), err);
	gn_bucket_autotune_default((size_t)s->options->bucket, s->options->overlap, s->model, &form);
	/* a bucket that leaves as soon as its event has happened would, from rank to rank, come before or after a batch norm's sums */
	form.overlap &= !s->sync_bn;
	if (s->sync_bn && s->options->overlap == GN_OVERLAP_YES && gn_comm_rank(s->comm) == 0)
		gn_log_warn(s->log, "--overlap: on GPUs, and with --sync-bn, gradients leave when backward is through");
	if (!status)
		status = gn_device_reducer_open(&s->device_reducer, s->options->comm ? s->options->comm : "auto", s->plan, s->model,
						&form, s->log, err);
	if (!status)
		status = gn_agree_status(s->comm, gn_plan_push(s->plan, err), err);
	s->resident = !status;
	return status;
}

enum gn_status gn_device_step_fetch(struct gn_session *s, struct gn_err *err)
{
	return s->resident ? gn_plan_pull(s->plan, err) : GN_OK;
}

enum gn_status gn_device_step_end(struct gn_session *s, struct gn_err *err)
{
	enum gn_status status = gn_device_step_fetch(s, err);

	s->resident = 0;
	s->staged = 0;
	gn_device_reducer_close(&s->device_reducer);
	return status;
}

static enum gn_status stage(struct gn_session *s, struct gn_err *err)
{
	struct gn_targets targets;
	struct gn_batch batch;
	enum gn_status status = gn_loader_next(s->loader, &batch, err);

	if (status)
		return status;
	targets = (struct gn_targets){batch.labels, batch.pair_labels, batch.lambdas};
	status = gn_plan_stage(s->plan, gn_batch_input(&batch), &targets, err);
	s->staged = !status;
	return status;
}

static double seconds(uint64_t from, uint64_t to)
{
	return (double)(to - from) * 1e-9;
}

/* Queues batch number k of the step, the one that was staged last. */
static enum gn_status launch(struct gn_session *s, int64_t k, const struct gn_optim_update *u, struct gn_err *err)
{
	uint64_t number = s->state.step * (uint64_t)s->options->accumulate + (uint64_t)k;

	s->staged = 0;
	if (k + 1 < s->options->accumulate)
		return gn_plan_gather(s->plan, number, err);
	gn_device_reducer_begin(&s->device_reducer);
	return gn_plan_launch(s->plan, number, u, err);
}

/* Queues all batches, each while the next one is read, and gets the next step's first. *reading_ns: how long the host was at that. */
static enum gn_status launch_all(struct gn_session *s, const struct gn_optim_update *u, uint64_t *reading_ns, struct gn_err *err)
{
	int more = gn_session_has_batch(s, s->state.sample + s->global_batch);
	enum gn_status status = GN_OK;

	*reading_ns = 0;
	for (int64_t k = 0; k < s->options->accumulate && !status; k++) {
		int is_last = k + 1 == s->options->accumulate;
		uint64_t began;

		status = launch(s, k, u, err);
		if (!status && is_last)
			gn_device_reducer_leave(&s->device_reducer);
		began = gn_clock_ns();
		if (!status && (!is_last || more))
			status = stage(s, err);
		*reading_ns += gn_clock_ns() - began;
	}
	return status;
}

/* Launches the step, and gets the next one's batch meanwhile. */
static enum gn_status run(struct gn_session *s, const struct gn_optim_update *u, struct gn_plan_result *result,
			  struct gn_interval *sums, uint64_t *mark, struct gn_err *err)
{
	uint64_t launched, loaded, through, now, reading = 0, exposed = 0;
	enum gn_status status = GN_OK;

	if (!s->staged)
		status = stage(s, err);
	launched = gn_clock_ns();
	sums->data += seconds(*mark, launched);
	gn_trace_add(s->trace, GN_SPAN_DATA, GN_TRACE_MAIN, 0, *mark, launched);
	if (!status)
		status = launch_all(s, u, &reading, err);
	gn_session_alone(s, status);
	loaded = gn_clock_ns();
	if (!status)
		status = gn_session_alone(s, gn_device_reducer_finish(&s->device_reducer, &exposed, err));
	sums->exposed += seconds(0, exposed);
	if (!status)
		status = gn_session_alone(s, gn_plan_result(s->plan, result, err));
	now = gn_clock_ns();
	through = gn_comm_size(s->comm) > 1 ? s->device_reducer.through_ns : now;
	/* how long before that it stood still is not known: this is the most that it can have been */
	if (status || through - loaded >= AT_ONCE_NS)
		reading = 0;
	sums->data += seconds(0, reading);
	sums->forward += seconds(launched + exposed + reading, now);
	gn_trace_add(s->trace, GN_SPAN_FORWARD, GN_TRACE_MAIN, 0, launched, now);
	*mark = now;
	return status;
}

/* Loss, wish to stop and wish to save become sums over ranks. */
static enum gn_status tell_others(struct gn_session *s, double loss, int stop, struct gn_err *err)
{
	s->piggyback[GN_PIGGYBACK_LOSS] = (float)loss;
	s->piggyback[GN_PIGGYBACK_STOP] = stop ? 1 : 0;
	s->piggyback[GN_PIGGYBACK_SAVE] = gn_session_wants_save(s) ? 1 : 0;
	if (gn_comm_size(s->comm) == 1)
		return GN_OK;
	return gn_comm_allreduce(s->comm, s->piggyback, GN_PIGGYBACK_SAVE + 1, GN_F32, gn_reduce_of(GN_F32, GN_SUM), err);
}

enum gn_status gn_device_step_run(struct gn_session *s, const struct gn_optim_update *u, int stop, struct gn_interval *sums,
				  uint64_t *mark, double *norm, int *skipped, struct gn_err *err)
{
	struct gn_plan_result result;
	enum gn_status status = run(s, u, &result, sums, mark, err);

	if (!status)
		status = tell_others(s, result.loss, stop, err);
	if (status)
		return status;
	*norm = result.norm;
	*skipped = result.skipped;
	return GN_OK;
}
