/* A step of a stage of an asynchronous pipeline: forwards, backwards and updates in the order of its schedule, which does not pause between
 * steps. From one pause to the next is a run, whose backwards are divided into steps. */
#include "src/train/loop/step_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

_Static_assert((int)GN_PIGGYBACK_COUNT == (int)GN_PIPE_NEWS, "what piggybacks goes back with gradients");

static int is_first(const struct gn_replica *r)
{
	return gn_pipe_stage_is_first(r->options.pipe);
}

static int is_last(const struct gn_replica *r)
{
	return gn_pipe_stage_is_last(r->options.pipe);
}

/* --- forward --- */

/* The backward of this micro-batch will read the same parameters, whatever is updated until then. */
static enum gn_status keep_version(const struct gn_replica *r, int k, struct gn_err *err)
{
	size_t count = r->params.count;

	if (!r->versions)
		return GN_OK;
	return gn_stream_copy(r->device.stream, r->versions + (size_t)(k % r->plan_count) * count, r->params.device, count * sizeof(float), err);
}

static enum gn_status forward(struct gn_running_step *run, int k, struct gn_err *err)
{
	struct gn_replica *r = run->r;
	struct gn_async_run *a = &r->async;
	enum gn_status status = keep_version(r, k, err);

	r->piggyback[GN_PIGGYBACK_LOSS] = r->piggyback[GN_PIGGYBACK_CORRECT] = 0;
	if (!status)
		status = gn_step_forward_micro(run, k, a->first * (uint64_t)r->options.async_batches + (uint64_t)k, err);
	a->forwards++;
	if (status || !is_last(r))
		return status;
	a->news[GN_PIGGYBACK_LOSS] += r->piggyback[GN_PIGGYBACK_LOSS];
	a->news[GN_PIGGYBACK_CORRECT] += r->piggyback[GN_PIGGYBACK_CORRECT];
	a->news[GN_PIGGYBACK_BATCHES] += 1;
	return gn_plan_check_labels(gn_replica_plan_of(r, k), err);
}

/* --- backward --- */

static void hear(struct gn_async_run *a, const float *news)
{
	for (int i = 0; i < GN_PIGGYBACK_COUNT; i++)
		a->news[i] += news[i];
}

/* decoupled: the gradient of micro-batch k has come, or is waited for. */
static enum gn_status learn(struct gn_running_step *run, int k, struct gn_err *err)
{
	struct gn_replica *r = run->r;
	const void *gradient;
	const float *news;
	double missed, wanted;
	enum gn_status status = gn_pipe_stage_gradient(r->options.pipe, &gradient, &news, err);

	run->sums->exposed += gn_step_since(run, GN_SPAN_WAIT);
	if (status)
		return status;
	hear(&r->async, news);
	gn_pipe_predictor_learn(r->predictor, k, gradient, &missed, &wanted);
	r->async.news[GN_PIGGYBACK_MISSED] += (float)missed;
	r->async.news[GN_PIGGYBACK_WANTED] += (float)wanted;
	gn_step_account_backward(run);
	return gn_pipe_stage_gradient_done(r->options.pipe, err);
}

/* What this rank asks of all is told with the last micro-batch of its step. */
static void tell(struct gn_running_step *run, int k)
{
	float *news = run->r->async.news;

	if ((k + 1) % run->r->options.async_batches)
		return;
	news[GN_PIGGYBACK_STOP] += run->step->stop ? 1 : 0;
	news[GN_PIGGYBACK_SAVE] += run->step->save ? 1 : 0;
}

static enum gn_status update(struct gn_running_step *run, int k, struct gn_err *err)
{
	struct gn_replica *r = run->r;
	int per_step = r->options.async_batches;
	const struct gn_optim_update u = {.lr = run->step->lr, .step = (run->step->updates - 1) * (uint64_t)per_step + (uint64_t)(k % per_step) + 1,
					  .grad_scale = 1.0 / gn_comm_size(r->options.comm)};
	struct gn_update_result result;
	enum gn_status status = gn_optimizer_queue(r->optimizer, &u, err);

	if (!status)
		status = gn_stream_wait(r->device.stream, err);
	run->sums->optimizer += gn_step_since(run, GN_SPAN_OPTIMIZER);
	if (status)
		return status;
	gn_optimizer_result(r->optimizer, &result);
	r->async.news[GN_PIGGYBACK_NORM2] += (float)(result.norm * result.norm);
	if (result.skipped)
		return gn_err_set(err, GN_ERR_FAILED, "gradients or loss are not finite at step %" PRIu64 " (learning rate %g); with --pipe-schedule "
				  "%s other stages go on with theirs, so that the step cannot be left out: lower --lr, lengthen --warmup-epochs, "
				  "or use 1f1b", run->step->number + 1, run->step->lr, gn_pipe_kind_name(gn_pipe_stage_schedule(r->options.pipe)->kind));
	return GN_OK;
}

/* The gradient of the output: of the next stage, or predicted; of the last stage none. */
static enum gn_status take_gradient(struct gn_running_step *run, const void **gradient, struct gn_err *err)
{
	struct gn_replica *r = run->r;
	const float *news;
	enum gn_status status;

	*gradient = r->predictor ? gn_pipe_predictor_gradient(r->predictor) : NULL;
	if (is_last(r) || r->predictor)
		return GN_OK;
	status = gn_pipe_stage_gradient(r->options.pipe, gradient, &news, err);
	run->sums->exposed += gn_step_since(run, GN_SPAN_WAIT);
	if (!status)
		hear(&r->async, news);
	return status;
}

/* What piggybacks on the sums over pipelines: on the first stage for the result, elsewhere for its finite loss alone. */
static void account_news(struct gn_replica *r)
{
	struct gn_async_run *a = &r->async;

	for (int i = 0; i < GN_PIGGYBACK_COUNT && is_first(r); i++) {
		a->known[i] += r->piggyback[i];
		a->asked[i] += r->piggyback[i];
	}
	memset(a->news, 0, sizeof a->news);
}

static enum gn_status backward(struct gn_running_step *run, int k, struct gn_err *err)
{
	const struct gn_plan_observer observer = {.ready = gn_step_gradient_done, .context = run};
	struct gn_replica *r = run->r;
	struct gn_pipe_stage *pipe = r->options.pipe;
	struct gn_plan *plan = gn_replica_plan_of(r, k);
	const void *gradient;
	enum gn_status status = take_gradient(run, &gradient, err);

	run->micro = (uint32_t)k + 1;
	tell(run, k);
	memcpy(r->piggyback, r->async.news, sizeof r->async.news);
	gn_reducer_begin(r->reducer);
	if (!status)
		status = gn_plan_run_backward(plan, gradient, &observer, NULL, err);
	if (!status && !is_last(r) && !r->predictor)
		status = gn_pipe_stage_gradient_done(pipe, err);
	gn_step_account_backward(run);
	if (!status && !is_first(r))
		status = gn_pipe_stage_give_gradient(pipe, gn_plan_input_gradient(plan), r->async.news, err);
	if (!status)
		status = gn_reducer_wait(r->reducer, err);
	gn_step_account_sums(run);
	account_news(r);
	if (!status)
		status = update(run, k, err);
	r->async.backwards++;
	return status || !r->predictor || k < GN_PIPE_LAG ? status : learn(run, k - GN_PIPE_LAG, err);
}

/* --- runs --- */

static enum gn_status begin_run(struct gn_running_step *run, struct gn_err *err)
{
	struct gn_replica *r = run->r;
	uint64_t batches = (run->step->pause - run->step->number + 1) * (uint64_t)r->options.async_batches, runs = r->async.runs;

	r->async = (struct gn_async_run){.is_open = 1, .first = run->step->number, .runs = runs, .batches = r->async.batches};
	return gn_pipe_stage_begin(r->options.pipe, (int)batches, err);
}

/* All stages are empty: what has not reached the first one is summed, and what was asked for is told to all. */
static enum gn_status end_run(struct gn_running_step *run, struct gn_step_result *out, struct gn_err *err)
{
	struct gn_replica *r = run->r;
	struct gn_async_run *a = &r->async;
	enum gn_status status = GN_OK;

	for (int k = a->backwards > GN_PIPE_LAG ? a->backwards - GN_PIPE_LAG : 0; r->predictor && k < a->backwards && !status; k++)
		status = learn(run, k, err);
	if (!status)
		status = gn_pipe_stage_end(r->options.pipe, err);
	a->news[GN_PIGGYBACK_STOP] += a->asked[GN_PIGGYBACK_STOP];
	a->news[GN_PIGGYBACK_SAVE] += a->asked[GN_PIGGYBACK_SAVE];
	a->news[GN_PIGGYBACK_WRITING] += run->step->writing ? 1 : 0;
	if (!status)
		status = gn_pipe_stage_sum(r->options.pipe, a->news, GN_PIGGYBACK_COUNT, err);
	if (!status)
		status = gn_comm_allreduce(r->options.comm, a->news, GN_PIGGYBACK_COUNT, GN_F32, gn_reduce_of(GN_F32, GN_SUM), err);
	run->sums->exposed += gn_step_since(run, GN_SPAN_WAIT);
	out->stop = a->news[GN_PIGGYBACK_STOP] > 0;
	out->save = a->news[GN_PIGGYBACK_SAVE] > 0;
	out->writing = a->news[GN_PIGGYBACK_WRITING] > 0;
	for (int i = 0; i < GN_PIGGYBACK_COUNT && is_first(r); i++)
		a->known[i] += a->news[i];
	a->is_open = 0;
	a->runs++;
	a->batches += (uint64_t)a->backwards;
	return status;
}

/* First stage: a stop or save that was asked for comes after the next whole step that others can still be told of. All first stages have
 * the same sums, and decide alike. */
static void shorten(struct gn_replica *r)
{
	const struct gn_async_run *a = &r->async;
	int per_step = r->options.async_batches, batches = (a->forwards + GN_PIPE_AHEAD + per_step - 1) / per_step * per_step;

	if ((a->asked[GN_PIGGYBACK_STOP] > 0 || a->asked[GN_PIGGYBACK_SAVE] > 0) && batches < gn_pipe_stage_schedule(r->options.pipe)->batches)
		gn_pipe_stage_shorten(r->options.pipe, batches);
}

static void set_result(struct gn_replica *r, struct gn_step_result *out)
{
	const float *known = r->async.known;
	double batches = known[GN_PIGGYBACK_BATCHES];

	out->is_unknown = batches <= 0;
	if (batches > 0) {
		out->loss = known[GN_PIGGYBACK_LOSS] / batches;
		out->correct = known[GN_PIGGYBACK_CORRECT] / batches;
		out->norm = sqrt(known[GN_PIGGYBACK_NORM2] / (double)(gn_comm_size(r->options.comm) * r->options.async_batches));
	}
	out->missed = known[GN_PIGGYBACK_MISSED];
	out->wanted = known[GN_PIGGYBACK_WANTED];
	memset(r->async.known, 0, sizeof r->async.known);
}

enum gn_status gn_step_run_async(struct gn_running_step *run, struct gn_step_result *out, struct gn_err *err)
{
	struct gn_replica *r = run->r;
	struct gn_async_run *a = &r->async;
	const struct gn_pipe_schedule *schedule = gn_pipe_stage_schedule(r->options.pipe);
	const uint64_t began = run->mark;
	const double exposed = run->sums->exposed, optimizer = run->sums->optimizer;
	enum gn_status status = a->is_open ? GN_OK : begin_run(run, err);
	int until = (int)(run->step->number - a->first + 1) * r->options.async_batches;

	out->writing = 1; /* is known at pauses */
	while (!status && a->backwards < until) {
		const struct gn_pipe_action action = gn_pipe_schedule_action(schedule, a->actions++);

		status = action.is_backward ? backward(run, action.batch, err) : forward(run, action.batch, err);
	}
	if (!status && a->backwards == schedule->batches)
		status = end_run(run, out, err);
	else if (!status && is_first(r))
		shorten(r);
	set_result(r, out);
	out->took_s = (double)(run->mark - began) * 1e-9;
	out->update_s = run->sums->optimizer - optimizer;
	out->computed_s = out->took_s - out->update_s - (run->sums->exposed - exposed);
	return status;
}

/* A step of one stage of a pipeline: micro-batches forward and backward in the order of its schedule. */

/* Between the operators of a stage of a pipeline: messages go on. */
static enum gn_status poll_before(void *context, int param, struct gn_err *err)
{
	struct gn_replica *r = ((struct gn_running_step *)context)->r;

	gn_pipe_stage_poll(r->options.pipe);
	return r->shard ? gn_step_param_needed(context, param, err) : GN_OK;
}

static void poll_after(void *context, int param, struct gn_event *event)
{
	(void)param;
	(void)event;
	gn_pipe_stage_poll(((struct gn_running_step *)context)->r->options.pipe);
}

/* Images of the loader, or what the stage before has made of them. */
static enum gn_status take_input(struct gn_running_step *run, const void **input, struct gn_targets *targets, struct gn_err *err)
{
	struct gn_replica *r = run->r;
	struct gn_pipe_stage *pipe = r->options.pipe;
	int first = gn_pipe_stage_is_first(pipe);
	enum gn_status status = first ? r->next(r->next_context, input, targets, err) : gn_pipe_stage_input(pipe, input, targets, err);

	*(first ? &run->sums->data : &run->sums->exposed) += gn_step_since(run, first ? GN_SPAN_DATA : GN_SPAN_WAIT);
	return status;
}

static enum gn_status run_forward(struct gn_running_step *run, int k, uint64_t number, const void *input, const struct gn_targets *targets,
				  struct gn_err *err)
{
	const struct gn_plan_observer observer = {.loss = gn_step_loss_done, .needs = poll_before, .context = run};
	struct gn_plan *plan = gn_replica_plan_of(run->r, k);
	enum gn_status status = gn_plan_stage(plan, input, targets, err);

	run->micro = (uint32_t)k + 1;
	return status ? status : gn_plan_run_forward(plan, number, &observer, err);
}

/* For nobody waits for its output: it runs once, before its backward. */
static int defers_forward(const struct gn_replica *r)
{
	return r->kept.count && gn_pipe_stage_is_last(r->options.pipe);
}

enum gn_status gn_step_forward_micro(struct gn_running_step *run, int k, uint64_t number, struct gn_err *err)
{
	struct gn_replica *r = run->r;
	struct gn_pipe_stage *pipe = r->options.pipe;
	struct gn_plan *plan = gn_replica_plan_of(r, k);
	struct gn_targets targets;
	const void *input;
	enum gn_status status = take_input(run, &input, &targets, err);

	if (!status && r->kept.count)
		gn_kept_inputs_put(&r->kept, k, input, &targets);
	if (!status && !defers_forward(r))
		status = run_forward(run, k, number, input, &targets, err);
	if (!status && !gn_pipe_stage_is_last(pipe))
		status = gn_pipe_stage_output(pipe, gn_plan_output(plan), &targets, err);
	if (!status && r->predictor) {
		run->sums->exposed += gn_step_since(run, GN_SPAN_WAIT);
		gn_pipe_predictor_predict(r->predictor, k, gn_plan_output(plan), &targets);
		run->sums->forward += gn_step_since(run, GN_SPAN_FORWARD);
	}
	if (!status && !gn_pipe_stage_is_first(pipe))
		status = gn_pipe_stage_input_done(pipe, err);
	run->sums->exposed += gn_step_since(run, GN_SPAN_WAIT);
	return status;
}

/* Of the input that was kept, for the activations alone: batch norm's running statistics have had it already. */
static enum gn_status forward_again(struct gn_running_step *run, int k, uint64_t number, struct gn_err *err)
{
	struct gn_replica *r = run->r;
	size_t bytes = defers_forward(r) ? 0 : r->buffers.count * sizeof(float);
	struct gn_targets targets;
	const void *input = gn_kept_inputs_get(&r->kept, k, &targets);
	enum gn_status status = gn_stream_copy(r->device.stream, r->kept.buffers, r->buffers.device, bytes, err);

	if (!status)
		status = run_forward(run, k, number, input, &targets, err);
	return status ? status : gn_stream_copy(r->device.stream, r->buffers.device, r->kept.buffers, bytes, err);
}

static enum gn_status backward_micro(struct gn_running_step *run, int k, uint64_t number, struct gn_err *err)
{
	struct gn_replica *r = run->r;
	struct gn_pipe_stage *pipe = r->options.pipe;
	struct gn_plan *plan = gn_replica_plan_of(r, k);
	int is_final = k + 1 == r->options.batches, is_last = gn_pipe_stage_is_last(pipe);
	const struct gn_plan_observer observer = {.ready = is_final ? gn_step_gradient_done : poll_after, .context = run};
	const void *gradient = NULL;
	/* while the gradient is on its way */
	enum gn_status status = r->kept.count ? forward_again(run, k, number, err) : GN_OK;

	if (!status && !is_last)
		status = gn_pipe_stage_gradient(pipe, &gradient, NULL, err);
	run->sums->exposed += gn_step_since(run, GN_SPAN_WAIT);
	run->micro = (uint32_t)k + 1;
	if (is_final)
		gn_reducer_begin(r->reducer);
	if (!status)
		status = gn_plan_run_backward(plan, gradient, &observer, is_final ? r->accumulated : NULL, err);
	if (!status && !is_last)
		status = gn_pipe_stage_gradient_done(pipe, err);
	gn_step_account_backward(run);
	if (!status && !gn_pipe_stage_is_first(pipe))
		status = gn_pipe_stage_give_gradient(pipe, gn_plan_input_gradient(plan), NULL, err);
	run->sums->exposed += gn_step_since(run, GN_SPAN_WAIT);
	if (!status && !is_final)
		status = gn_step_accumulate(r, k == 0, err);
	gn_step_account_backward(run);
	return status;
}

enum gn_status gn_step_run_schedule(struct gn_running_step *run, struct gn_err *err)
{
	struct gn_pipe_stage *pipe = run->r->options.pipe;
	const struct gn_pipe_schedule *schedule = gn_pipe_stage_schedule(pipe);
	const uint64_t first = run->step->number * (uint64_t)gn_replica_most_batches(run->r);
	enum gn_status status = gn_pipe_stage_begin(pipe, schedule->batches, err);

	for (int i = 0; i < 2 * schedule->batches && !status; i++) {
		const struct gn_pipe_action a = gn_pipe_schedule_action(schedule, i);

		status = (a.is_backward ? backward_micro : gn_step_forward_micro)(run, a.batch, first + (uint64_t)a.batch, err);
	}
	return status ? status : gn_pipe_stage_end(pipe, err);
}
