/* A step of one stage of a pipeline: micro-batches forward and backward in the order of its schedule. */
#include "src/train/loop/step_internal.h"

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
