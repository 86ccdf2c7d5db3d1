#include "src/train/loop/step_internal.h"

#include "src/base/clock.h"

/* Shorter calls that make progress are many, and of no interest in a trace. */
enum { WORTH_TRACING_NS = 5000 };
/* A device that has finished sooner than this after the next batch came has waited for it. */
enum { AT_ONCE_NS = 100000 };

/* --- accounts --- */

static double seconds(uint64_t from, uint64_t to)
{
	return (double)(to - from) * 1e-9;
}

/* Since the mark, which moves on. */
double gn_step_since(struct gn_running_step *run, enum gn_span kind)
{
	uint64_t now = gn_clock_ns(), before = run->mark;

	gn_trace_add(run->r->trace, kind, GN_TRACE_MAIN, kind == GN_SPAN_FORWARD || kind == GN_SPAN_BACKWARD ? run->micro : 0, before, now);
	run->mark = now;
	return seconds(before, now);
}

/* Seconds that plans have spent in exchanges of a tensor group since the last call. */
static double exchanged_s(struct gn_running_step *run)
{
	const struct gn_tensor_group *t = run->r->options.tensor;
	const double before = run->exchanged_s;

	run->exchanged_s = t ? gn_tensor_group_waited_s(t) : 0;
	return run->exchanged_s - before;
}

/* On a device beside the host, forward stands for all that it computes. */
void gn_step_account_backward(struct gn_running_step *run)
{
	const double exchanged = exchanged_s(run);

	if (!run->is_queued)
		run->sums->backward += gn_step_since(run, GN_SPAN_BACKWARD) - exchanged;
	run->sums->exposed += exchanged;
}

void gn_step_account_sums(struct gn_running_step *run)
{
	const struct gn_reducer *x = run->r->reducer;
	uint64_t now;
	double taken;

	if (run->is_queued) {
		now = gn_clock_ns();
		run->sums->exposed += gn_comm_size(run->r->options.comm) > 1 ? seconds(gn_reducer_computed_ns(x), now) : 0;
		return;
	}
	run->sums->exposed += gn_step_since(run, GN_SPAN_WAIT);
	/* What was done for sums from within backward is not backward. */
	taken = (double)gn_reducer_taken_ns(x) * 1e-9;
	run->sums->backward -= taken;
	run->sums->exposed += taken;
	run->sums->within += taken;
}

/* exposed_s: of this step. */
static void account_result(struct gn_running_step *run, double exposed_s)
{
	uint64_t launched = run->mark, now = gn_clock_ns();
	uint64_t computed = gn_comm_size(run->r->options.comm) > 1 ? gn_reducer_computed_ns(run->r->reducer) : now;
	uint64_t reading = run->reading_ns;

	if (!run->is_queued) {
		run->sums->optimizer += gn_step_since(run, GN_SPAN_OPTIMIZER);
		return;
	}
	/* how long before that the device waited is not known: this is the most that it can have been */
	if (computed - run->read_ns >= AT_ONCE_NS)
		reading = 0;
	run->sums->data += (double)reading * 1e-9;
	run->sums->forward += seconds(launched, now) - exposed_s - (double)reading * 1e-9;
	gn_trace_add(run->r->trace, GN_SPAN_FORWARD, GN_TRACE_MAIN, 0, launched, now);
	run->mark = now;
}

/* --- what a plan reports --- */

void gn_step_loss_done(void *context)
{
	struct gn_running_step *run = context;

	double gather_s = (double)run->gather_ns * 1e-9 + exchanged_s(run);

	if (run->is_queued)
		return;
	run->sums->forward += gn_step_since(run, GN_SPAN_FORWARD) - gather_s;
	run->sums->exposed += gather_s;
	run->gather_ns = 0;
}

enum gn_status gn_step_param_needed(void *context, int param, struct gn_err *err)
{
	struct gn_running_step *run = context;
	uint64_t began = gn_clock_ns(), now;
	enum gn_status status = gn_reducer_need(run->r->reducer, param, err);

	now = gn_clock_ns();
	run->gather_ns += now - began;
	if (now - began > WORTH_TRACING_NS)
		gn_trace_add(run->r->trace, GN_SPAN_EXCHANGE, GN_TRACE_MAIN, 0, began, now);
	return status;
}

void gn_step_gradient_done(void *context, int param, struct gn_event *event)
{
	struct gn_running_step *run = context;
	struct gn_reducer *x = run->r->reducer;
	uint64_t took = gn_reducer_taken_ns(x);

	gn_reducer_ready(x, param, event);
	took = gn_reducer_taken_ns(x) - took;
	if (took > WORTH_TRACING_NS) {
		uint64_t now = gn_clock_ns();

		gn_trace_add(run->r->trace, GN_SPAN_EXCHANGE, GN_TRACE_MAIN, 0, now - took, now);
	}
	if (run->r->options.pipe)
		gn_pipe_stage_poll(run->r->options.pipe);
}

/* --- the step --- */

static enum gn_status stage(struct gn_replica *r, struct gn_err *err)
{
	const void *images;
	struct gn_targets targets;
	enum gn_status status = r->next(r->next_context, &images, &targets, err);

	if (!status)
		status = gn_plan_stage(r->plan, images, &targets, err);
	r->staged = !status;
	return status;
}

static enum gn_status begin(const struct gn_running_step *run, struct gn_err *err)
{
	const struct gn_replica *r = run->r;
	const float values[] = {[GN_PIGGYBACK_LOSS] = 0, [GN_PIGGYBACK_CORRECT] = 0, [GN_PIGGYBACK_STOP] = run->step->stop ? 1 : 0,
				[GN_PIGGYBACK_SAVE] = run->step->save ? 1 : 0, [GN_PIGGYBACK_WEIGHT] = 0,
				[GN_PIGGYBACK_WRITING] = run->step->writing ? 1 : 0,
				[GN_PIGGYBACK_REGROUP] = (float)run->step->regroup,
				[GN_PIGGYBACK_LEAVE] = run->step->leaves ? 1 : 0};
	enum gn_status status = gn_compute_put(r->device.compute, r->piggyback, values, sizeof values, err);

	return status ? status : gn_stream_copy(r->device.stream, r->kept_buffers, r->buffers.device, r->buffers.count * sizeof(float), err);
}

/* Gradients of a batch that is not the step's last. */
enum gn_status gn_step_accumulate(const struct gn_replica *r, int first, struct gn_err *err)
{
	size_t count = r->params.count;

	return first ? gn_stream_copy(r->device.stream, r->accumulated, r->flat, count * sizeof(float), err)
		     : gn_compute_add(r->device.compute, r->flat, r->accumulated, count, err);
}

/* The same where each rank keeps the sums of its parts alone: waits for them. */
static enum gn_status accumulate_parts(struct gn_running_step *run, int first, struct gn_err *err)
{
	const struct gn_replica *r = run->r;
	const struct gn_parts *parts = gn_shard_own_parts(r->shard);
	enum gn_status status = gn_reducer_wait(r->reducer, err);

	gn_step_account_sums(run);
	if (first)
		gn_parts_pack(parts, r->flat, r->accumulated);
	for (size_t i = 0; i < parts->count && !first && !status; i++)
		status = gn_compute_add(r->device.compute, r->flat + parts->list[i].begin, r->accumulated + parts->list[i].at,
					parts->list[i].count, err);
	return status;
}

/* After the sums of the last batch. */
static enum gn_status add_parts(const struct gn_replica *r, struct gn_err *err)
{
	const struct gn_parts *parts = r->divides ? gn_shard_own_parts(r->shard) : NULL;
	enum gn_status status = GN_OK;

	for (size_t i = 0; parts && i < parts->count && !status; i++)
		status = gn_compute_add(r->device.compute, r->accumulated + parts->list[i].at, r->flat + parts->list[i].begin,
					parts->list[i].count, err);
	return status;
}

/* Batch number k of the step. */
static enum gn_status run_batch(struct gn_running_step *run, int k, struct gn_err *err)
{
	struct gn_replica *r = run->r;
	int is_last = k + 1 == r->options.batches;
	int sums = is_last || r->divides;
	const struct gn_plan_observer observer = {gn_step_loss_done, sums ? gn_step_gradient_done : NULL, r->shard ? gn_step_param_needed : NULL, run};
	enum gn_status status = r->staged ? GN_OK : stage(r, err);

	if (k == 0 || !run->is_queued)
		run->sums->data += gn_step_since(run, GN_SPAN_DATA);
	r->staged = 0;
	r->is_partial = !is_last;
	if (sums)
		gn_reducer_begin(r->reducer);
	if (!status)
		status = gn_plan_run(r->plan, run->step->number * (uint64_t)gn_replica_most_batches(r) + (uint64_t)k, &observer,
				     is_last && !r->divides ? r->accumulated : NULL, err);
	if (!status && !sums)
		status = gn_step_accumulate(r, k == 0, err);
	gn_step_account_backward(run);
	return status || is_last || !r->divides ? status : accumulate_parts(run, k == 0, err);
}

/* While the device computes: the batch after number k. */
static enum gn_status stage_next(struct gn_running_step *run, int k, struct gn_err *err)
{
	int is_last = k + 1 == run->r->options.batches;
	uint64_t began = gn_clock_ns();
	enum gn_status status = GN_OK;

	if (!run->is_queued)
		return GN_OK;
	if (is_last)
		gn_reducer_poll(run->r->reducer);
	if (!is_last || run->step->has_next)
		status = stage(run->r, err);
	run->read_ns = gn_clock_ns();
	run->reading_ns += run->read_ns - began;
	return status;
}

static enum gn_status run_batches(struct gn_running_step *run, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	if (run->r->options.pipe)
		return gn_step_run_schedule(run, err);
	for (int k = 0; k < run->r->options.batches && !status; k++) {
		status = run_batch(run, k, err);
		if (!status)
			status = stage_next(run, k, err);
	}
	return status;
}

/* The last stage has the loss, or each slice has it, and each rank has flags. */
static enum gn_status share_flags(const struct gn_replica *r, struct gn_err *err)
{
	static const int same[] = {GN_PIGGYBACK_LOSS, GN_PIGGYBACK_CORRECT, GN_PIGGYBACK_WEIGHT};
	enum gn_status status = GN_OK;

	if (r->options.tensor) {
		status = gn_tensor_group_sum(r->options.tensor, r->piggyback, GN_PIGGYBACK_COUNT, err);
		for (size_t i = 0; i < sizeof same / sizeof *same && !status; i++)
			r->piggyback[same[i]] /= (float)gn_tensor_group_size(r->options.tensor);
	}
	return r->options.pipe && !status ? gn_pipe_stage_sum(r->options.pipe, r->piggyback, GN_PIGGYBACK_COUNT, err) : status;
}

/* --- all of it --- */

/* What sums over ranks are divided by: the ranks, or with class weights the sum of their mean weights. */
static double divisor(const struct gn_replica *r)
{
	const double ranks = gn_comm_size(r->options.comm), weights = r->options.class_weights ? r->piggyback[GN_PIGGYBACK_WEIGHT] : ranks;

	/* no label of the batch has a weight: neither loss nor gradients */
	return weights > 0 ? weights : ranks;
}

/* What a loss in the middle of the update would need: the sums to the rank that has the copy, and the state before it. */
static enum gn_status keep(struct gn_running_step *run, struct gn_err *err)
{
	struct gn_replica *r = run->r;
	const uint64_t began = gn_clock_ns();
	enum gn_status status = r->redundancy ? gn_redundancy_exchange(r->redundancy, err) : GN_OK;

	if (!status && r->ring)
		status = gn_replica_copy_state(r, gn_stage_ring_mine(r->ring), r->kept_buffers, run->step->state, err);
	if (!status && r->ring)
		status = gn_stage_ring_exchange(r->ring, &r->undo, err);
	if (r->redundancy || r->ring)
		run->sums->exposed += gn_step_since(run, GN_SPAN_WAIT);
	if (!status && r->options.undoes && !r->ring)
		status = gn_replica_copy_state(r, &r->undo, r->kept_buffers, run->step->state, err);
	run->sums->copies += seconds(began, gn_clock_ns());
	return status;
}

/* Blocks until the step is done. */
static enum gn_status finish(const struct gn_running_step *run, struct gn_step_result *out, struct gn_err *err)
{
	struct gn_replica *r = run->r;
	struct gn_stream *s = r->device.stream;
	struct gn_update_result update;
	enum gn_status status = gn_stream_copy(s, r->results, r->piggyback, GN_PIGGYBACK_COUNT * sizeof(float), err);

	if (!status)
		status = gn_stream_wait(s, err);
	if (!status)
		status = gn_plan_check_labels(r->plan, err);
	if (status)
		return status;
	gn_optimizer_result(r->optimizer, &update);
	gn_plan_adjust_loss_scale(r->plan, !update.skipped);
	if (update.skipped)
		status = gn_stream_copy(s, r->buffers.device, r->kept_buffers, r->buffers.count * sizeof(float), err);
	out->loss = (double)r->results[GN_PIGGYBACK_LOSS] / divisor(r);
	out->correct = (double)r->results[GN_PIGGYBACK_CORRECT] / gn_comm_size(r->options.comm);
	out->norm = update.norm;
	out->skipped = update.skipped;
	out->stop = r->results[GN_PIGGYBACK_STOP] > 0;
	out->save = r->results[GN_PIGGYBACK_SAVE] > 0;
	out->regroup = (int)r->results[GN_PIGGYBACK_REGROUP];
	out->leaves = (int)r->results[GN_PIGGYBACK_LEAVE];
	out->writing = r->results[GN_PIGGYBACK_WRITING] > 0;
	return status;
}

enum gn_status gn_step_run(struct gn_replica *r, const struct gn_train_step *step, struct gn_interval *sums, struct gn_step_result *out,
			   struct gn_err *err)
{
	struct gn_running_step run = {.r = r, .step = step, .sums = sums, .is_queued = gn_device_is_queued(r->device.device), .mark = gn_clock_ns(),
				      .exchanged_s = r->options.tensor ? gn_tensor_group_waited_s(r->options.tensor) : 0};
	const uint64_t began = run.mark;
	const double exposed = sums->exposed;
	struct gn_optim_update u = {.lr = step->lr, .step = step->updates};
	int stop = step->stop;
	double norm = -1; /* servers': not known */
	uint64_t summed;
	enum gn_status status;

	*out = (struct gn_step_result){.is_unknown = 0};
	if (r->options.async_batches)
		return gn_step_run_async(&run, out, err);
	status = begin(&run, err);
	if (!status)
		status = run_batches(&run, err);
	if (!status)
		status = gn_reducer_wait(r->reducer, err);
	if (!status)
		status = share_flags(r, err);
	gn_step_account_sums(&run);
	summed = gn_clock_ns();
	u.grad_scale = 1 / (divisor(r) * gn_replica_mean_batches(r) * gn_plan_loss_scale(r->plan));
	if (!status)
		status = add_parts(r, err);
	if (!status)
		status = keep(&run, err);
	if (r->redundancy || r->ring)
		summed = run.mark;
	if (!status)
		status = gn_replica_update(r, &u, &stop, &norm, err);
	if (r->options.servers) {
		run.sums->exposed += gn_step_since(&run, GN_SPAN_WAIT);
		summed = run.mark;
	}
	if (!status)
		status = gn_reducer_gather(r->reducer, err);
	if (!status)
		status = finish(&run, out, err);
	out->stop |= r->options.servers && stop;
	if (norm >= 0)
		out->norm = norm;
	account_result(&run, sums->exposed - exposed);
	out->computed_s = seconds(began, summed) - (sums->exposed - exposed);
	out->update_s = seconds(summed, run.mark);
	out->took_s = seconds(began, run.mark);
	return status;
}
