/* A step of one stage of a pipeline: micro-batches forward and backward in the order of its schedule. */
#include "src/train/loop/step_internal.h"

/* Between the operators of a stage of a pipeline: messages go on. */
static enum gn_status poll_before(void *context, int param, struct gn_err *err)
{
	(void)param;
	(void)err;
	gn_pipe_stage_poll(((struct gn_running_step *)context)->r->options.pipe);
	return GN_OK;
}

static void poll_after(void *context, int param, struct gn_event *event)
{
	(void)param;
	(void)event;
	gn_pipe_stage_poll(((struct gn_running_step *)context)->r->options.pipe);
}

/* Images of the loader, or what the stage before has made of them. */
static enum gn_status stage_input(struct gn_running_step *run, struct gn_plan *plan, struct gn_targets *targets, struct gn_err *err)
{
	struct gn_replica *r = run->r;
	struct gn_pipe_stage *pipe = r->options.pipe;
	const void *input;
	int first = gn_pipe_stage_is_first(pipe);
	enum gn_status status = first ? r->next(r->next_context, &input, targets, err) : gn_pipe_stage_input(pipe, &input, targets, err);

	*(first ? &run->sums->data : &run->sums->exposed) += gn_step_since(run, first ? GN_SPAN_DATA : GN_SPAN_WAIT);
	return status ? status : gn_plan_stage(plan, input, targets, err);
}

enum gn_status gn_step_forward_micro(struct gn_running_step *run, int k, uint64_t number, struct gn_err *err)
{
	const struct gn_plan_observer observer = {.loss = gn_step_loss_done, .needs = poll_before, .context = run};
	struct gn_pipe_stage *pipe = run->r->options.pipe;
	struct gn_plan *plan = gn_replica_plan_of(run->r, k);
	struct gn_targets targets;
	enum gn_status status = stage_input(run, plan, &targets, err);

	run->micro = (uint32_t)k + 1;
	if (!status)
		status = gn_plan_run_forward(plan, number, &observer, err);
	if (!status && !gn_pipe_stage_is_last(pipe))
		status = gn_pipe_stage_output(pipe, gn_plan_output(plan), &targets, err);
	if (!status && run->r->predictor) {
		run->sums->exposed += gn_step_since(run, GN_SPAN_WAIT);
		gn_pipe_predictor_predict(run->r->predictor, k, gn_plan_output(plan), &targets);
		run->sums->forward += gn_step_since(run, GN_SPAN_FORWARD);
	}
	if (!status && !gn_pipe_stage_is_first(pipe))
		status = gn_pipe_stage_input_done(pipe, err);
	run->sums->exposed += gn_step_since(run, GN_SPAN_WAIT);
	return status;
}

static enum gn_status backward_micro(struct gn_running_step *run, int k, struct gn_err *err)
{
	struct gn_replica *r = run->r;
	struct gn_pipe_stage *pipe = r->options.pipe;
	struct gn_plan *plan = gn_replica_plan_of(r, k);
	int is_final = k + 1 == r->options.batches, is_last = gn_pipe_stage_is_last(pipe);
	const struct gn_plan_observer observer = {.ready = is_final ? gn_step_gradient_done : poll_after, .context = run};
	const void *gradient = NULL;
	enum gn_status status = is_last ? GN_OK : gn_pipe_stage_gradient(pipe, &gradient, NULL, err);

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
	const uint64_t number = run->step->number * (uint64_t)gn_replica_most_batches(run->r);
	enum gn_status status = gn_pipe_stage_begin(pipe, schedule->batches, err);

	for (int i = 0; i < 2 * schedule->batches && !status; i++) {
		const struct gn_pipe_action a = gn_pipe_schedule_action(schedule, i);

		status = a.is_backward ? backward_micro(run, a.batch, err)
				       : gn_step_forward_micro(run, a.batch, number + (uint64_t)a.batch, err);
	}
	return status ? status : gn_pipe_stage_end(pipe, err);
}
